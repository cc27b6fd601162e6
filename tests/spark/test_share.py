"""Several pipelines read the same topics, each for its own clusters. No JVM needed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import Row

from lb_stream.contracts.settings import StreamSettings
from lb_stream.store import Store
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.shard_files import read_shard
from lb_stream.stream.shards.share import Share
from tests.spark.shard_task import State, emitted, rates
from tests.support.decoding import CONFIG, decoded, record, rejections, report

EAST, WEST = Share(include="eu|us-.*", exclude="us-9.*"), Share(exclude="eu|us-[0-8].*|us-")


def brokers(checkpoint: Path, shard: Row) -> int:
    """How many are known in the blocks that a task has named."""
    return len(read_shard(Store.at(checkpoint), (shard.brokers, shard.names, shard.values)).brokers)


PAUSE = b'{"id": "p", "kind": "pause-cluster"}'


@pytest.mark.parametrize(
    ("cluster", "east", "west"),
    [
        ("eu", True, False),
        ("eu-1", False, True),
        ("us-1", True, False),
        ("us-91", False, True),
        ("ap", False, True),
    ],
)
def test_expressions_match_whole_names(cluster: str, east: bool, west: bool) -> None:
    assert (EAST.includes(cluster), WEST.includes(cluster)) == (east, west)
    assert Share().includes(cluster)


def test_every_record_is_taken_by_one_pipeline_or_rejected_by_one() -> None:
    records = [
        record(b"eu/b1", report(), 0),
        record(b"ap/b1", report(), 1),
        record(b"b9", report(), 2),  # of the default cluster
        record(b"eu/b2", b"broken", 3),
        record(b"ap/b2", b"broken", 4),
        record(b"\xff", b"{}", 5),  # whose it is can't be known
        record(b"made-up/b", b"broken", 6),
        record(b"eu", PAUSE, 7, topic="commands"),
        record(b"ap", PAUSE, 8, topic="commands"),
        record(b"\xff", PAUSE, 9, topic="commands"),
    ]
    blocks = {
        name: decoded(records, replace(CONFIG, known=dict.fromkeys(known, ShardMap()), share=share))
        for name, share, known in (("east", EAST, ["eu"]), ("west", WEST, ["ap", "home"]))
    }
    assert {name: {cluster for cluster, _ in shards} for name, shards in blocks.items()} == {
        "east": {"eu"},
        "west": {"ap", "home"},
    }
    taken = {
        name: sorted(row["offset"] for block in shards.values() for row in block["reports"])
        for name, shards in blocks.items()
    }
    refused = {
        name: sorted(rejection[0] for block in shards.values() for rejection in rejections(block))
        for name, shards in blocks.items()
    }
    assert (taken, refused) == ({"east": [0], "west": [1, 2]}, {"east": [3], "west": [4, 5, 6, 9]})
    answered = {
        name: sorted(
            event["offset"]
            for block in shards.values()
            for event in block["events"]
            if event["kind"] == "command"
        )
        for name, shards in blocks.items()
    }
    assert answered == {"east": [7], "west": [8, 9]}


def test_a_command_to_all_clusters_is_done_by_each_pipeline_in_its_own() -> None:
    config = replace(CONFIG, known={"eu": ShardMap(), "us-1": ShardMap()}, share=EAST)
    blocks = decoded([record(b"", PAUSE, 0, topic="commands")], config)
    assert {cluster for (cluster, _), block in blocks.items() if block["events"]} == {"eu", "us-1"}


def test_strangers_are_told_in_a_cluster_of_the_pipeline() -> None:
    blocks = decoded(
        [record(b"us-2/b", b"broken", 0)], replace(CONFIG, known={"eu": ShardMap()}, share=EAST)
    )
    assert {cluster for cluster, _ in blocks} == {"eu"} and [
        rejection[0] for rejection in rejections(blocks["eu", 0])
    ] == [0]


def test_what_was_known_of_a_cluster_before_another_pipeline_had_it_is_not_believed(
    tmp_path: Path,
) -> None:
    state, known = State(), replace(CONFIG, known={"eu": ShardMap()})
    shards, other = (record(b"eu/" + broker, report(), 1) for broker in (b"b1", b"b2"))
    emitted(tmp_path, 1, [shards], state, batch=4)
    again = emitted(tmp_path, 1, [other], state, batch=5, config=known)
    assert len(rates(tmp_path, again)) == 1 and brokers(tmp_path, again) == 2
    back = emitted(tmp_path, 1, [other], state, batch=6, config=CONFIG)
    assert brokers(tmp_path, back) == 1, (
        "its other broker may have gone in the meantime: that is not known here"
    )
    assert (
        state.value is not None
        and brokers(tmp_path, emitted(tmp_path, 1, [shards], state, batch=7, config=known)) == 2
    )


@pytest.mark.parametrize("key", ["clusters", "excluded_clusters"])
def test_an_expression_that_takes_more_than_linear_time_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="can't be matched in linear time"):
        StreamSettings.model_validate({key: r"(?=a)b"})
    assert (
        json.loads(StreamSettings.model_validate({key: "eu|us-.*"}).model_dump_json())[key]
        == "eu|us-.*"
    )
