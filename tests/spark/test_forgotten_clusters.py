"""Clusters that nothing is heard of for long, stage by stage: what forgets them, and what is left.

No JVM needed.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.directory import BREAK_MS, LISTENED_MS, NEW, ListeningTime, ShardMap
from lb_stream.stream.shards.slicing import ClusterBlocks, due_parts, next_shard_map, table_part
from tests.spark.shard_task import State, emitted, round_of
from tests.support.decoding import CONFIG, record, report, rows_of

DAY_MS = 86_400_000
BLOCKS = (("b:0:8", "n:0:8", "v:0:8"),)
LEAVING = replace(CONFIG, known={"eu": ShardMap(1, leaving=True)})
TICK = record(b"", b'{"id": "t", "kind": "tick"}', 9, topic="commands")


@pytest.mark.parametrize(
    ("kind", "value", "stays"),
    [
        (None, report(), True),
        ("heartbeat", b"{}", True),
        (None, b"broken", False),
        ("heartbeat", b"broken", False),
    ],
)
def test_a_leaving_clusters_state_goes_unless_something_is_heard_of_it(
    tmp_path: Path, kind: str, value: bytes, stays: bool
) -> None:
    state = State()
    emitted(tmp_path, 1, [record(b"eu/b1", report(), 1)], state, batch=4)
    before = state.value
    row = emitted(
        tmp_path, 1, [record(b"eu/b1", value, 2, kind=kind)], state, batch=5, config=LEAVING
    )
    assert before is not None
    assert (state.value is not None, row.brokers is not None) == (stays, stays)
    assert row.clock


def decided(folder: Path, memories: dict[str, str], commands: int = 0, **more: Any) -> RoundRow:
    """The row of a cluster whose only shard has just gone; in batch 7 of the log."""
    settings = Settings(
        stream=StreamSettings(tables=str(folder / "tables"), checkpoint=str(folder))
    )
    context = BatchContext(
        settings, "test-0", log_seq=7, epoch=1, caught_up=True, memories=memories, **more
    )
    given = [
        TICK | {"key": b"eu", "value": b'{"id": "c", "kind": "pause-cluster", "by": "ann"}'}
    ] * commands
    clock, blocks = rows_of([TICK, *given], LEAVING)
    row = {name: None for name in ("brokers", "names", "values")} | {
        name: blocks[name] for name in ("cluster", "shard", "events")
    }
    row |= {"clock": clock["clock"]}
    return round_of([row], context, folder)


def test_the_log_says_that_a_cluster_has_been_forgotten_and_nothing_else_of_it(
    tmp_path: Path,
) -> None:
    row = decided(tmp_path, {"eu": json.dumps({"seq": 3})})
    assert (row.memory, row.seq, row.blocks, row.error, row.idle) == (
        "",
        8,
        "[]",
        None,
        False,
    )
    assert {
        getattr(row, name)
        for name in (
            "decisions",
            "outcomes",
            "ownership",
            "refusals",
            "results",
            "merge_advice",
            "proposals",
        )
    } == {"[]"}
    assert decided(tmp_path, {}).idle, "a cluster that never had a round leaves no word"


def test_the_ownership_records_of_a_forgotten_clusters_bundles_end(tmp_path: Path) -> None:
    recorded = {"eu": {"t/n/0x1_0x2": 3, "t/n/0x0_0x1": 1}, "us": {"t/n/0x0_0x1": 1}}
    ends = json.loads(
        str(
            decided(tmp_path, {"eu": json.dumps({"seq": 3})}, ownership_versions=recorded).ownership
        )
    )
    shown = [
        (end["cluster"], end["bundle"], end["state"], end["owner"], end["version"], end["epoch"])
        for end in ends
    ]
    assert shown == [
        ("eu", "t/n/0x0_0x1", "Init", None, 1, 1),
        ("eu", "t/n/0x1_0x2", "Init", None, 3, 1),
    ]


def test_what_a_forgotten_cluster_was_advised_to_merge_is_withdrawn(tmp_path: Path) -> None:
    memory = json.dumps(
        {
            "seq": 3,
            "mergeable": {
                "t/n/0x0_0x1": ["t/n/0x1_0x2", 5, 9],
                "t/n/0x2_0x3": ["t/n/0x3_0x4", 5, 0],
            },
        }
    )
    (one,) = json.loads(str(decided(tmp_path, {"eu": memory}).merge_advice))
    assert (one["namespace"], one["bundle"], one["owner"]) == ("t/n", "t/n/0x0_0x1", "")


def test_a_command_to_a_cluster_that_goes_is_refused(tmp_path: Path) -> None:
    for memories in ({"eu": json.dumps({"seq": 3})}, {}):
        row = decided(tmp_path, memories, commands=1)
        (answer,) = json.loads(str(row.results))
        assert (answer["rule"], row.idle) == ("unknown_cluster", False)


def test_rounds_of_a_cluster_that_comes_back_are_numbered_after_those_that_it_had(
    tmp_path: Path,
) -> None:
    settings = Settings(
        stream=StreamSettings(tables=str(tmp_path / "tables"), checkpoint=str(tmp_path))
    )
    context = BatchContext(
        settings, "test-0", log_seq=20, epoch=1, caught_up=True, memories={}, first_seq=8
    )
    shard = emitted(tmp_path, 1, [record(b"eu/b1", report(), 1)], State())
    row = round_of([shard.asDict()], context, tmp_path)
    assert (row.seq, json.loads(row.memory)["seq"]) == (9, 9)
    nothing = round_of([shard.asDict() | {"brokers": "gone"}], context, tmp_path)
    assert (nothing.seq, json.loads(nothing.memory)["seq"]) == (0, 8), (
        "a round that failed counts nothing"
    )


def test_silence_begins_when_a_clusters_blocks_were_last_written() -> None:
    first = next_shard_map(NEW, ClusterBlocks(1_000, BLOCKS, sampled=True), 100)
    assert first.since_ms == 1_000
    assert next_shard_map(first, ClusterBlocks(2_000, BLOCKS, sampled=False), 100) == first
    assert (
        next_shard_map(
            first, ClusterBlocks(2_000, (("b:1:8", *BLOCKS[0][1:]),), sampled=False), 100
        ).since_ms
        == 2_000
    )
    assert (
        next_shard_map(
            replaced(first, leaving=True), ClusterBlocks(2_000, BLOCKS, sampled=False), 100
        )
        == first
    ), "it isn't said for good"
    assert (
        next_shard_map(first, ClusterBlocks(2_000, BLOCKS, sampled=False, error=True), 100).since_ms
        == 2_000
    ), "who is in trouble isn't silent"
    assert (
        next_shard_map(
            ShardMap(1, BLOCKS), ClusterBlocks(2_000, BLOCKS, sampled=False), 100
        ).since_ms
        == 2_000
    ), "nobody has looked at the time before"


def test_a_cluster_is_forgotten_after_its_time_if_the_job_has_listened_all_the_while() -> None:
    clusters = {"old": ShardMap(1, BLOCKS, since_ms=0), "new": ShardMap(1, BLOCKS, since_ms=DAY_MS)}
    listening = ListeningTime()
    now_ms = 2 * DAY_MS
    listening.record_batch(now_ms, caught_up=False)
    listening.record_batch(now_ms + 1, caught_up=True)
    assert listening.silent_clusters(clusters, now_ms + 1, 2 * DAY_MS) == [], (
        "it has only just begun to listen"
    )
    while now_ms < 2 * DAY_MS + LISTENED_MS + 1:
        now_ms += BREAK_MS
        listening.record_batch(now_ms, caught_up=True)
    assert listening.silent_clusters(clusters, now_ms, 2 * DAY_MS) == ["old"]
    assert listening.silent_clusters(clusters, now_ms, 0) == []
    listening.record_batch(now_ms + BREAK_MS + 1, caught_up=True)
    assert listening.silent_clusters(clusters, now_ms + BREAK_MS + 1, 2 * DAY_MS) == [], (
        "what came in the break may not have been read yet"
    )


def test_a_forgotten_clusters_bundles_leave_the_table_of_averages() -> None:
    part = table_part("eu", 0, 1)
    assert due_parts({"eu": ShardMap(1, BLOCKS)}, {"eu": ClusterBlocks(1, (), sampled=False)}) == {
        part: []
    }
    four = ShardMap(4, BLOCKS * 4)
    assert due_parts({"eu": four}, {"eu": ClusterBlocks(1, (), sampled=False)}) == {
        f"eu.{shard}": [] for shard in range(4)
    }
