"""Records that nobody sends by mistake: each becomes a row of rejected_reports, none ends the
stream. No JVM needed."""

import json
from typing import Any

import pyarrow as pa
import pytest

from lb_stream.core.model.blocks import from_bytes
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from lb_stream.stream.records import RecordRejected, parse_agent_record, parse_command

GOOD = b'{"lastStats": {"acme/orders/0x00000000_0x80000000": {"msgRateIn": 1.0}}}'


def events_and_reports(key: bytes | None, value: bytes | None) -> tuple[list[dict[str, str]], int]:
    """What is rejected of one record, and how many reports are taken of it and a good one."""
    columns = {
        "key": pa.array([key, b"home/good"], pa.binary()),
        "value": pa.array([value, GOOD], pa.binary()),
        "kind": pa.array([None, None], pa.string()),
        "topic": pa.array(["reports"] * 2),
        "partition": pa.array([0, 0], pa.int32()),
        "offset": pa.array([7, 8], pa.int64()),
        "append_ms": pa.array([1, 2], pa.int64()),
    }
    blocks = [
        row
        for batch in decode([pa.record_batch(columns)], DecodeConfig("home", "commands", {}))
        for row in batch.to_pylist()
    ]
    events = [
        event
        for block in blocks
        if block["events"]
        for event in from_bytes(block["events"]).to_pylist()
    ]
    rejected = [
        json.loads(event["payload"])
        for event in events
        if event["kind"] == "rejected" and event["offset"] == 7
    ]
    return rejected, sum(len(from_bytes(block["reports"])) for block in blocks if block["reports"])


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        pytest.param(
            b"home/b",
            b'{"cpu": {}, "brokerVersionString": "\xff\xfe"}',
            "value",
            id="text that isn't UTF-8",
        ),
        pytest.param(
            b"home/b",
            b'{"loadReportType": "\\ud800"}',
            "loadReportType",
            id="half a surrogate pair as type",
        ),
        pytest.param(
            b"home/b", b'{"\\ud800": 1}', "loadReportType", id="half a surrogate pair as field"
        ),
        pytest.param(
            b"home/b", b'{"cpu": "\\ud800"}', "value", id="half a surrogate pair as value"
        ),
        pytest.param(
            b"home/",
            b'{"cpu": {}, "webServiceUrl": "http://[::1"}',
            "key",
            id="an address that doesn't end",
        ),
        pytest.param(
            b"home/b",
            b'{"cpu": {}, "protocols": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "value",
            id="nested without end",
        ),
        pytest.param(
            b"home/b",
            b'{"cpu": {}, "numTopics": ' + b"9" * 5_000 + b"}",
            "value",
            id="a number of 5000 digits",
        ),
        pytest.param(b"home/b", b"x" * 3_000_000, "value", id="three megabytes of nothing"),
        pytest.param(
            b"home/b",
            b'{"lastStats": {"a/' + b"o" * 6_000_000 + b'/0x00000000_0x80000000": {}}}',
            "bundle",
            id="endless bundle",
        ),
        pytest.param(b"home/", b"", "key", id="an empty report of nobody"),
        pytest.param(None, None, "key", id="nothing at all"),
    ],
)
def test_a_hostile_record_is_rejected_once_and_harms_no_other(
    key: bytes | None, value: bytes | None, field: str
) -> None:
    (rejected,), reports = events_and_reports(key, value)
    assert rejected["field"] == field
    assert rejected["expected"]
    assert len(rejected["value"]) <= 200
    assert reports == 1


def test_counts_that_together_exceed_what_a_column_holds_are_cut_off() -> None:
    bundles = {f"acme/orders/0x{at:08x}_0x{at + 1:08x}": {"topics": 2**63 - 1} for at in range(2)}
    rejected, reports = events_and_reports(
        b"home/b", json.dumps({"systemResourceUsage": {}, "bundleStats": bundles}).encode()
    )
    assert rejected == []
    assert reports == 2


def test_a_decoder_that_fails_at_a_record_rejects_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(value: bytes, broker: str) -> None:
        if broker == "b":
            raise ZeroDivisionError("a fault of ours")
        return parse_report(value, broker)

    from lb_stream.stream import decode as module

    parse_report = module.parse_report
    monkeypatch.setattr(module, "parse_report", broken)
    (rejected,), reports = events_and_reports(b"home/b", GOOD)
    assert "ZeroDivisionError: a fault of ours" in rejected["expected"]
    assert reports == 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"bundle": "orders"}, "bundle"),
        ({"bundle": "acme/orders/0x80000000_0x00000000"}, "bundle"),
        ({"bundle": f"acme/{'o' * 2_000_000}/0x00000000_0x80000000"}, "bundle"),
        ({"algorithm": "a" * 2_000_000}, "algorithm"),
        ({"boundaries": list(range(1_001))}, "boundaries"),
    ],
)
def test_a_request_that_a_round_would_fail_at_is_rejected_as_a_record(
    given: dict[str, Any], field: str
) -> None:
    ask = {
        "bundle": "acme/orders/0x00000000_0x80000000",
        "reason": "Topics",
        "boundaries": [7],
        "algorithm": "x",
        "saw": 2.0,
        "limit": 1.0,
    }
    parse_agent_record("ask", json.dumps(ask).encode())
    with pytest.raises(RecordRejected) as refused:
        parse_agent_record("ask", json.dumps(ask | given).encode())
    assert refused.value.field == field


def test_a_command_that_names_an_endless_namespace_is_rejected() -> None:
    command = {"id": "1", "kind": "create-namespace", "namespace": "acme/orders"}
    assert parse_command(json.dumps(command).encode()) is not None
    with pytest.raises(RecordRejected, match="namespace"):
        parse_command(json.dumps(command | {"namespace": "acme/" + "o" * 2_000_000}).encode())


def test_a_command_that_cuts_a_bundle_into_endless_parts_is_rejected() -> None:
    command = {
        "id": "1",
        "kind": "split",
        "namespace": "acme/orders",
        "bundle": "LARGEST",
        "algorithm": "specified_positions_divide",
    }
    assert (
        parse_command(json.dumps(command | {"boundaries": list(range(1_000))}).encode()) is not None
    )
    with pytest.raises(RecordRejected, match="boundaries = 1001 of them"):
        parse_command(json.dumps(command | {"boundaries": list(range(1_001))}).encode())
