"""Commands on their way through the stream, without Spark around it: read for the right clusters,
and answered whatever happens."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.core.model.blocks import EVENT_SCHEMA, to_bytes
from lb_stream.core.model.memory import Memory
from lb_stream.stream.context import BatchContext, DecodeConfig
from lb_stream.stream.shards.directory import ShardMap
from tests.spark.shard_task import round_of
from tests.support.decoding import decoded, record, rejections

KNOWN = DecodeConfig("home", "commands", {"eu-1": ShardMap(shards=2), "us-1": ShardMap()})
PAUSE = {"id": "c1", "kind": "pause-cluster", "by": "User:ann"}


def sent(value: Any, key: bytes | None = b"eu-1", offset: int = 0) -> dict[str, Any]:
    """A record of the commands topic."""
    return record(
        key,
        value if isinstance(value, bytes) else json.dumps(value).encode(),
        offset,
        topic="commands",
    )


def commands(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Record and rejection of each command event."""
    return [json.loads(event["payload"]) for event in block["events"] if event["kind"] == "command"]


def test_a_command_goes_to_the_first_shard_of_its_cluster() -> None:
    blocks = decoded([sent(PAUSE)], KNOWN)
    assert [(place, len(commands(block))) for place, block in blocks.items()] == [
        (("eu-1", 0), 1),
        (("eu-1", 1), 0),
        (("us-1", 0), 0),
    ]
    (content,) = commands(blocks["eu-1", 0])
    assert content == {
        "record": PAUSE | {"schema_version": 1, "sent_ms": 0},
        "rejected": None,
        "key_id": None,
        "right": None,
    }


@pytest.mark.parametrize("key", [b"", None])
def test_without_a_cluster_it_goes_to_every_known_one(key: bytes | None) -> None:
    blocks = decoded([sent(PAUSE, key)], KNOWN)
    assert [place for place, block in blocks.items() if commands(block)] == [
        ("eu-1", 0),
        ("us-1", 0),
    ]
    assert list(decoded([sent(PAUSE, key)])) == [], "where none is known nobody answers"


def test_one_for_a_cluster_that_nobody_knows_makes_none_and_is_answered_by_one_that_is_known() -> (
    None
):
    blocks = decoded([sent(PAUSE, b"made-up")], KNOWN)
    assert {cluster for cluster, _ in blocks} == {"eu-1", "us-1"}
    (content,) = commands(blocks["eu-1", 0])
    assert content["record"]["id"] == "c1"
    assert (content["rejected"]["value"], content["rejected"]["rule"]) == (
        "made-up",
        "unknown_cluster",
    )


def test_a_tick_is_no_command() -> None:
    assert not any(
        block["events"]
        for block in decoded([sent({"id": "t", "kind": "tick"}, b"")], KNOWN).values()
    )


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ({"id": "c1", "kind": "fly"}, "kind", "one of tick, standby, claim"),
        ({"id": "c1", "kind": "pause-cluster", "schema_version": 2}, "schema_version", "1 or less"),
        (
            {"id": "c1", "kind": "pause-cluster", "urgent": True},
            "urgent",
            "Extra inputs are not permitted",
        ),
        (
            {"id": "c1", "kind": "unload", "namespace": "t/n", "destination": "b:1"},
            "value",
            "a destination only together with a bundle",
        ),
        (
            {"id": "c1", "kind": "unload", "namespace": "nonsense"},
            "namespace",
            "<tenant>/<namespace>, such as shop/orders",
        ),
        (
            {"id": "c1", "kind": "set-config", "values": {}},
            "values",
            "Dictionary should have at least 1 item",
        ),
        (
            {"id": "c1" * 100, "kind": "pause-cluster"},
            "id",
            "String should have at most 128 characters",
        ),
        (
            b'{"id": "c1", "kind": "set-config", "values": {"cpu_weight": NaN}}',
            "values.cpu_weight",
            "a finite number",
        ),
        (
            b'{"id": "c1", "kind": "set-config", "values": {"cpu_weight": 1e999}}',
            "values.cpu_weight",
            "a finite number",
        ),
        (
            b'{"id": "c1", "kind": "dry-run", "on": true, "sent_ms": NaN}',
            "sent_ms",
            "a valid integer",
        ),
        (
            {"id": "c1", "kind": "set-config", "values": {"cpu_weight": "x" * 900_000}},
            "values.cpu_weight",
            "at most 10000 characters",
        ),
        (
            {"id": "c1", "kind": "delete-config", "key": "x" * 900_000},
            "key",
            "String should have at most 256 characters",
        ),
        (
            {"id": "c1", "kind": "drain-broker", "broker": "x" * 900_000},
            "broker",
            "String should have at most 1000 characters",
        ),
    ],
)
def test_one_that_cannot_be_read_is_rejected_and_answered(
    value: dict[str, Any] | bytes, field: str, expected: str
) -> None:
    block = decoded([sent(value)], KNOWN)["eu-1", 0]
    ((_, rejected_field, _, rejected_expected),) = rejections(block)
    assert rejected_field == field and rejected_expected.startswith(expected)
    (content,) = commands(block)
    assert (
        content["record"]["id"]
        == json.loads(value if isinstance(value, bytes) else json.dumps(value))["id"]
    )
    assert content["rejected"]["field"] == field and len(json.dumps(content)) < 2_000


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[]", b'{"kind": "fly"}', b'{"id": 7, "kind": "fly"}', b"\xff"]
)
def test_one_without_an_id_is_only_rejected(value: bytes) -> None:
    block = decoded([sent(value)], KNOWN)["eu-1", 0]
    assert len(rejections(block)) == 1 and commands(block) == []


def test_one_whose_key_is_no_cluster_is_answered_by_a_cluster_that_is_known() -> None:
    blocks = decoded([sent(PAUSE, b"a b"), sent(PAUSE, b"\xff", 1)], KNOWN)
    assert [field for _, field, _, _ in rejections(blocks["eu-1", 0])] == ["key", "key"]
    assert [content["rejected"]["field"] for content in commands(blocks["eu-1", 0])] == [
        "key",
        "key",
    ]


def test_half_a_surrogate_pair_in_a_command_ends_nothing() -> None:
    block = decoded(
        [
            sent(b'{"id": "\\ud800", "kind": "fly"}'),
            sent(b'{"id": "c", "kind": "drain-broker", "broker": "\\ud800"}', offset=1),
        ],
        KNOWN,
    )
    assert len(block["eu-1", 0]["events"]) >= 2


# --- whatever happens ---


def answered(
    tmp_path: Path, memory: Memory, balancer: dict[str, Any], *values: dict[str, Any]
) -> RoundRow:
    """The round of a cluster without brokers that gets these commands."""
    position = {"topic": "commands", "partition": 0, "append_ms": 5_000}
    events = [
        position
        | {
            "kind": "command",
            "broker": "",
            "offset": offset,
            "payload": json.dumps({"record": value, "rejected": None}),
        }
        for offset, value in enumerate(values)
    ]
    clock = json.dumps(
        [{"topic": "commands", "partition": 0, "first": 0, "last": 0, "append_ms": 5_000}]
    )
    block = to_bytes(pa.Table.from_pylist(events, EVENT_SCHEMA))
    row = {
        "cluster": "eu",
        "shard": 0,
        "clock": clock,
        "brokers": "",
        "names": "",
        "values": "",
        "events": block,
    }
    settings = Settings(
        stream=StreamSettings(tables=str(tmp_path / "tables"), checkpoint=str(tmp_path)),
        balancer=balancer,
    )
    context = BatchContext(
        settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories={"eu": memory.to_json()}
    )
    return round_of([row], context, tmp_path)


def test_commands_of_a_round_that_fails_are_refused_with_the_reason_and_the_round_is_logged(
    tmp_path: Path,
) -> None:
    made = answered(tmp_path, Memory(seq=3), {"threshold_percent": "absurd"}, PAUSE)
    (answer,) = json.loads(made.results)
    assert (answer["id"], answer["outcome"], answer["rule"]) == ("c1", "refused", "round_failed")
    assert "threshold_percent" in answer["text"]
    assert made.idle is False and not Memory.from_json(made.memory).operator_state.paused
    assert json.loads(made.inputs)["commands"][0]["record"] == PAUSE
