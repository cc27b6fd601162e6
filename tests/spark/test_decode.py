"""The decoder: Kafka records in, columnar blocks out. No JVM needed."""

import json

import pyarrow as pa
import pytest

from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.records import RecordRejected, parse_report
from lb_stream.stream.shard_blocks import ALL_CLUSTERS, MAX_UNKNOWN_CLUSTER_RECORDS
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.partition_keys import partition
from lb_stream.stream.shards.slicing import name_hashes
from tests.support.decoding import BUNDLE, KNOWN, decoded, record, rejections, report, rows_of


def test_a_report_becomes_a_row_and_a_sample() -> None:
    block = decoded([record(b"eu/b1:8080", report(cpu={"usage": 50.0, "limit": 200.0}), 7)])[
        "eu", 0
    ]
    (row,), (sample,) = block["reports"], block["samples"]
    assert (row["name"], row["offset"], row["append_ms"], row["cpu_usage"], row["cpu_limit"]) == (
        "b1:8080",
        7,
        1_007,
        50.0,
        200.0,
    )
    assert (
        sample["name"],
        sample["report"],
        sample["has_stats"],
        sample["latest_rate_in_msgs_per_s"],
        sample["topics"],
    ) == (
        BUNDLE,
        0,
        True,
        10.0,
        3,
    )


def test_a_key_without_a_cluster_belongs_to_the_default_one() -> None:
    assert set(decoded([record(b"b1:8080", report(), 0)])) == {("home", 0)}


def test_a_report_without_a_key_is_known_by_its_own_address() -> None:
    block = decoded([record(None, report(webServiceUrl="http://b9.example:8080"), 0)])["home", 0]
    assert block["reports"][0]["name"] == "b9.example:8080"


def test_both_forms_give_the_same_columns() -> None:
    resources = {"cpu": {"usage": 8.0, "limit": 16.0}}
    modular = parse_report(
        json.dumps(
            {
                "lastStats": {BUNDLE: {"msgRateIn": 4.0}},
                "msgRateIn": 4.0,
                "numBundles": 1,
                **resources,
            }
        ).encode(),
        "b",
    )
    simple = parse_report(
        json.dumps(
            {"bundleStats": {BUNDLE: {"msgRateIn": 4.0}}, "systemResourceUsage": resources}
        ).encode(),
        "b",
    )
    assert modular.stats[BUNDLE].msg_rate_in == simple.stats[BUNDLE].msg_rate_in == 4.0
    different = {name for name in modular.fields if modular.fields[name] != simple.fields[name]}
    # A simple report that names no memory has not measured it: -1/-1 there, 0/0 in a modular one.
    assert different == {"kind"} | {
        f"{r}_{part}"
        for r in ("memory", "direct_memory", "bandwidth_in", "bandwidth_out")
        for part in ("usage", "limit")
    }


def test_a_bundle_that_is_owned_but_not_measured_is_a_sample_without_statistics() -> None:
    other = "acme/orders/0x80000000_0xffffffff"
    block = decoded([record(b"eu/b1", report(bundles=[BUNDLE, other]), 0)])["eu", 0]
    assert [(sample["name"], sample["has_stats"]) for sample in block["samples"]] == [
        (BUNDLE, True),
        (other, False),
    ]


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        (b"not json", "value", "JSON"),
        (b"[]", "value", "JSON object"),
        (b'{"loadReportType": "Nonsense"}', "loadReportType", "LocalBrokerData or LoadReport"),
        (
            b'{"state": "Owned", "versionId": 1, "loadReportType": "LocalBrokerData"}',
            "loadReportType",
            "LocalBrokerData or LoadReport",
        ),
        (b'{"lastStats": {}, "cpu": {"usage": "high"}}', "cpu.usage", "valid number"),
        (b'{"lastStats": {}, "cpu": {"usage": NaN}}', "cpu.usage", "finite"),
        (b'{"lastStats": {}, "cpu": {"usage": Infinity}}', "cpu.usage", "finite"),
        (b'{"lastStats": {}, "msgRateIn": 1e999}', "msgRateIn", "finite"),
        (b'{"lastStats": {}, "msgRateIn": 1e308}', "msgRateIn", "1000000000000000000|1e18|1e+18"),
        (b'{"lastStats": {}, "cpu": {"usage": -1e308}}', "cpu.usage", "greater than or equal to -"),
        (
            b'{"lastStats": {"acme/o/0x00000000_0xffffffff": {"msgRateIn": -1.0}}}',
            "lastStats.acme/o/0x00000000_0xffffffff.msgRateIn",
            ">= 0|or equal to 0",
        ),
        (b'{"lastStats": {}, "numTopics": 1.5}', "numTopics", "integer"),
        (b'{"lastStats": {"acme/orders": {}}}', "bundle", "0xLLLLLLLL_0xHHHHHHHH"),
        (b'{"lastStats": {"acme/orders/0x80000000_0x00000000": {}}}', "bundle", "L < H"),
    ],
)
def test_a_bad_report_is_rejected_with_its_field_and_what_was_expected(
    value: bytes, field: str, expected: str
) -> None:
    block = decoded([record(b"eu/b1", value, 3), record(b"eu/b2", report(), 4)])["eu", 0]
    ((offset, seen_field, _, seen_expected),) = rejections(block)
    assert (offset, seen_field) == (3, field)
    assert any(part in seen_expected for part in expected.split("|"))
    assert [row["name"] for row in block["reports"]] == ["b2"]  # the others are not harmed
    assert [(sample["name"], sample["report"]) for sample in block["samples"]] == [(BUNDLE, 0)]


def test_bad_keys_kinds_and_commands_are_rejected_in_the_default_cluster() -> None:
    bad = [
        record(b"\xff", report(), 0),
        record(b"e u/b1", report(), 1),
        record(None, report(), 2),
        record(b"home/b1", b"{}", 3, kind="rumour"),
        record(b"", b'{"kind": "dance", "id": "1"}', 4, topic="commands"),
        record(b"home/", b"{}", 5, kind="heartbeat"),
    ]
    block = decoded(bad)["home", 0]
    assert [(offset, field) for offset, field, _, _ in sorted(rejections(block))] == [
        (0, "key"),
        (1, "key"),
        (2, "key"),
        (3, "kind"),
        (4, "kind"),
        (5, "key"),
    ]
    assert block["reports"] == []


HEARD = [
    record(b"eu/b1", report(), 5),
    record(b"", b'{"kind": "tick", "id": "t1"}', 9, topic="commands"),
]


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_every_partition_of_the_next_stage_hears_once_how_far_was_read(partitions: int) -> None:
    known = {f"c{number}": ShardMap() for number in range(20)}
    rows = [
        row
        for row in rows_of(HEARD, DecodeConfig("home", "commands", known, partitions))
        if row["clock"]
    ]
    assert sorted(partition(row["cluster"], row["slot"], partitions) for row in rows) == list(
        range(partitions)
    )
    assert {row["cluster"] for row in rows} == {ALL_CLUSTERS} and min(known) > ALL_CLUSTERS
    for row in rows:
        clocks = [
            (seen["topic"], seen["append_ms"], seen["first"], seen["last"])
            for seen in json.loads(row["clock"])
        ]
        assert clocks == [("reports", 1_005, 5, 5), ("commands", 1_009, 9, 9)]


def test_only_the_first_task_calls_the_clusters_of_which_nothing_has_come() -> None:
    known = {"eu": ShardMap(2), "us": ShardMap(1)}
    called = {
        first: set(decoded(HEARD, DecodeConfig("home", "commands", known, first=first)))
        for first in (True, False)
    }
    assert called == {True: {("eu", 0), ("eu", 1), ("us", 0)}, False: {("eu", 0), ("eu", 1)}}
    assert set(decoded([], DecodeConfig("home", "commands", known))) == called[True], (
        "if it has read nothing, another task has"
    )


def test_each_shard_gets_all_reports_and_its_own_samples() -> None:
    names = [f"acme/orders/0x{number:08x}_0x{number + 1:08x}" for number in range(40)]
    value = json.dumps({"lastStats": {name: {} for name in names}}).encode()
    blocks = decoded(
        [record(b"eu/b1", value, 0)], DecodeConfig("home", "commands", {"eu": ShardMap(4)})
    )
    shards = name_hashes(pa.chunked_array([names])) & 3
    for shard in range(4):
        assert len(blocks["eu", shard]["reports"]) == 1
        assert [sample["name"] for sample in blocks["eu", shard]["samples"]] == [
            name for name, at in zip(names, shards, strict=True) if at == shard
        ]


def test_an_empty_report_withdraws_the_broker() -> None:
    block = decoded([record(b"eu/b1", None, 0)], KNOWN)["eu", 0]
    assert [(event["kind"], event["broker"]) for event in block["events"]] == [("goodbye", "b1")]


def test_only_a_partitions_last_heartbeat_of_a_broker_is_kept() -> None:
    beats = [record(b"eu/b1", b'{"sent_ms": 1}', offset, kind="heartbeat") for offset in range(3)]
    block = decoded(beats, KNOWN)["eu", 0]
    assert [(event["kind"], event["offset"]) for event in block["events"]] == [("heartbeat", 2)]


def test_an_acknowledgement_must_name_its_decision() -> None:
    block = decoded([record(b"eu/b1", b'{"outcome": "released"}', 0, kind="ack")], KNOWN)["eu", 0]
    assert rejections(block)[0][:2] == (0, "decision_id")


def test_a_report_whose_broker_cannot_be_known_is_refused() -> None:
    with pytest.raises(RecordRejected, match="the broker can't be known"):
        parse_report(report(), "")


# --- strangers ---


def test_ten_thousand_made_up_names_make_no_cluster_and_a_hundred_rows() -> None:
    blocks = decoded(
        [record(f"made-up-{number}/b".encode(), b"x", number) for number in range(10_000)], KNOWN
    )
    assert set(blocks) == {("eu", 0), ("home", 0)}
    rejected = rejections(blocks["home", 0])
    assert len(rejected) == MAX_UNKNOWN_CLUSTER_RECORDS + 1
    assert rejected[-1][1:] == (
        "key",
        "9900 more",
        "records of known clusters, reports of new ones",
    )
    assert blocks["home", 0]["events"][0]["broker"] == "made-up-0/b"
    assert blocks["eu", 0]["events"] == []


@pytest.mark.parametrize("kind", ["heartbeat", "goodbye", "ack", "ask", "rumour"])
def test_a_name_becomes_a_clusters_with_its_first_report_and_with_nothing_else(kind: str) -> None:
    ack = b'{"decision_id": "x:1:0", "outcome": "released"}'
    assert ("us", 0) not in decoded([record(b"us/b", ack, 0, kind)], KNOWN)
    assert ("us", 0) not in decoded(
        [record(b"us/b", b'{"lastStats": {"acme/orders": {}}}', 0)], KNOWN
    ), "a report that is rejected is none"
    together = decoded(
        [
            record(b"us/b", b"x", 0),
            record(b"us/b", report(), 1),
            record(b"us/b", b"{}", 2, "heartbeat"),
        ],
        KNOWN,
    )["us", 0]
    assert (len(together["reports"]), sorted(event["kind"] for event in together["events"])) == (
        1,
        ["heartbeat", "rejected"],
    )


def test_only_clusters_whose_names_are_allowed_are_served() -> None:
    config = DecodeConfig("home", "commands", {"eu": ShardMap()}, allowed="eu|us-[0-9]+")
    pause = b'{"id": "p", "kind": "pause-cluster"}'
    records = [
        record(b"us-1/b", report(), 0),
        record(b"us/b", report(), 1),
        record(b"us", pause, 2, topic="commands"),
    ]
    blocks = decoded(records, config)
    assert set(blocks) == {("eu", 0), ("home", 0), ("us-1", 0)}
    assert rejections(blocks["home", 0]) == [
        (1, "key", "us", "a cluster that matches stream.allowed_clusters = eu|us-[0-9]+")
    ]
    assert [event["kind"] for event in blocks["eu", 0]["events"]] == ["rejected", "command"], (
        "the command is answered"
    )
