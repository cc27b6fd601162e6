"""Every kind of record that can't be taken, among good ones: each is a row of rejected_reports, and
the stream goes on."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from kafka import KafkaProducer

from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

SETTINGS = {
    "stream.max_offsets_per_trigger": 30,
    "shedding_interval_ms": 0,
    "admission.records_per_second": 0,  # each record is looked at, however fast they come
}
BROKERS = ("b1:8080", "b2:8080")
BIG = 12_000
"""Bundles of the big reports: more than three megabytes."""
BIG_ONES = (0, 20)
"""They come before the bad records with these numbers."""


def report(broker: str, number: int, **fields: Any) -> dict[str, Any]:
    """A broker's report no. `number`: one bundle, whose rate tells the number."""
    stats = {bundle_of(broker): {"msgRateIn": 10.0 * number, "msgThroughputIn": 100.0, "topics": 1}}
    known = {
        "cpu": {"usage": 5.0, "limit": 100.0},
        "lastUpdate": 1_000_000 + number,
        "lastStats": stats,
        "loadReportType": "LocalBrokerData",
    }
    return known | fields


def bundle_of(broker: str) -> str:
    return f"acme/{broker.partition(':')[0]}/0x00000000_0xffffffff"


def spoilt(text: str, put: str) -> bytes:
    """A good report's JSON with one thing replaced."""
    good = json.dumps(report("b1:8080", 1))
    assert text in good
    return good.replace(text, put).encode()


@dataclass(frozen=True)
class Bad:
    """One record that can't be taken, and the row that it must become (`expected`: a part of
    it)."""

    name: str
    value: bytes | None
    field: str
    shown: str
    expected: str
    key: bytes | None = b"eu/b1:8080"
    kind: bytes | None = None
    topic: str = "reports"
    cluster: str = "eu"
    broker: str = "b1:8080"


RATE = f"lastStats.{bundle_of('b1:8080')}.msgRateIn"
NOBODY: dict[str, Any] = {"broker": "", "cluster": "default"}
BAD = (
    Bad("no JSON", b"hello", "value", "hello", "JSON"),
    Bad("JSON cut off", spoilt('"LocalBrokerData"}', ""), "value", '{"cpu": ', "JSON"),
    Bad("JSON, but no object", b"[1, 2]", "value", "[1, 2]", "a JSON object"),
    Bad(
        "text that isn't UTF-8",
        b'{"cpu": {}, "brokerVersionString": "\xff"}',
        "value",
        '{"cpu": {}',
        "utf-8",
    ),
    # In a partition of its own and in the first batch: no report has made its cluster known there
    # yet.
    Bad(
        "a broker that can't be known",
        spoilt("5.0", "6.0"),
        "key",
        "",
        "can't be known",
        key=b"eu/",
        broker="eu/",
        cluster="default",
    ),
    Bad(
        "no key at all",
        spoilt("5.0", "6.0"),
        "key",
        "",
        "the broker can't be known",
        key=None,
        **NOBODY,
    ),
    Bad(
        "a wrong type",
        spoilt('{"usage": 5.0, "limit": 100.0}', '"hot"'),
        "cpu",
        "'hot'",
        "an object",
    ),
    Bad("text where a number belongs", spoilt("10.0", '"10"'), RATE, "'10'", "a valid number"),
    Bad("NaN", spoilt("5.0", "NaN"), "cpu.usage", "nan", "a finite number"),
    Bad("Infinity", spoilt("5.0", "Infinity"), "cpu.usage", "inf", "a finite number"),
    Bad("minus Infinity", spoilt("5.0", "-Infinity"), "cpu.usage", "-inf", "a finite number"),
    Bad("a number too great", spoilt("10.0", "1e999"), RATE, "inf", "a finite number"),
    Bad("a negative rate", spoilt("10.0", "-10.0"), RATE, "-10.0", "greater than or equal to 0"),
    Bad(
        "a malformed bundle name",
        spoilt("0x00000000_", "0x0_"),
        "bundle",
        "acme/b1/0x0_0xffffffff",
        "<tenant>/<namespace>/0xLLLLLLLL",
    ),
    Bad(
        "an empty bundle range",
        spoilt("0x00000000_", "0xffffffff_"),
        "bundle",
        "acme/b1/0xffffffff_0xffffffff",
        "L < H",
    ),
    Bad(
        "an unknown report type",
        spoilt("LocalBrokerData", "Horoscope"),
        "loadReportType",
        "Horoscope",
        "LocalBrokerData or LoadReport",
    ),
    Bad(
        "a record of a state channel",
        b'{"state": "Owned", "versionId": 1}',
        "loadReportType",
        "ownership_event",
        "LocalBrokerData or LoadReport",
    ),
    Bad(
        "an old report",
        spoilt("1000001", "1000000"),
        "lastUpdate",
        "1000000",
        "the broker's last report",
    ),
    Bad(
        "a bad cluster",
        spoilt("5.0", "6.0"),
        "key",
        "e u/b1:8080",
        "<cluster>/<broker>",
        key=b"e u/b1:8080",
        **NOBODY,
    ),
    Bad(
        "a key that isn't UTF-8",
        spoilt("5.0", "6.0"),
        "key",
        "b'\\xff/b1'",
        "UTF-8",
        key=b"\xff/b1",
        **NOBODY,
    ),
    Bad(
        "an unknown kind",
        b"{}",
        "kind",
        "rumour",
        "one of report, heartbeat, ack, goodbye",
        kind=b"rumour",
    ),
    Bad(
        "a kind that isn't UTF-8",
        b"{}",
        "kind",
        "\ufffd",
        "one of report, heartbeat, ack, goodbye",
        kind=b"\xff",
    ),
    Bad(
        "a heartbeat of nobody",
        b"{}",
        "key",
        "eu",
        "names its broker",
        key=b"eu/",
        kind=b"heartbeat",
        broker="",
    ),
    Bad("an acknowledgement of nothing", b"{}", "decision_id", "{}", "Field required", kind=b"ack"),
    Bad("an empty acknowledgement", b"", "value", "", "JSON", kind=b"ack"),
    Bad(
        "an empty report of nobody", b"", "key", "eu", "withdraws the broker", key=b"eu/", broker=""
    ),
    Bad("three megabytes of nothing", b"x" * 3_000_000, "value", "x" * 100, "JSON"),
    Bad(
        "an unknown command",
        b'{"id": "1", "kind": "dance"}',
        "kind",
        "dance",
        "one of tick",
        key=b"",
        topic="commands",
        **NOBODY,
    ),
    Bad("an empty command", b"", "value", "", "JSON", key=b"", topic="commands", **NOBODY),
)


@dataclass
class Run:
    """What was sent where, and the job that read it."""

    pipeline: Pipeline
    sent: dict[str, tuple[str, int, int]]  # name of the bad record → topic, partition, offset
    good: int


@pytest.fixture(scope="module")
def run(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The job's one run.

    A good report of each broker before, between and after the bad records: whatever stops at one is
    seen.
    """
    topics = topics_named("bad-input")
    pipeline = Pipeline(kafka.bootstrap, topics, tmp_path_factory.mktemp("bad-input"), SETTINGS)
    pipeline.create_topics(reports=2)
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap, max_request_size=LARGEST_RECORD_BYTES
    )
    sent = {}

    def send(
        topic: str, key: bytes | None, value: bytes | None, kind: bytes | None = None
    ) -> tuple[str, int, int]:
        done = producer.send(
            topic, key=key, value=value, headers=[] if kind is None else [("kind", kind)]
        ).get(timeout=30)
        return done.topic, done.partition, done.offset

    good = 0
    for bad in BAD:
        if good in BIG_ONES:
            send(topics.reports, b"eu/big:8080", json.dumps(big_report(good)).encode())
        good += 1
        for broker in BROKERS:
            send(topics.reports, f"eu/{broker}".encode(), json.dumps(report(broker, good)).encode())
        sent[bad.name] = send(getattr(topics, bad.topic), bad.key, bad.value, bad.kind)
    send(topics.reports, b"eu/leaver:8080", json.dumps(report("leaver:8080", 1)).encode())
    send(topics.reports, b"eu/leaver:8080", None)
    producer.close()
    pipeline.run_once()
    return Run(pipeline, sent, good)


def big_report(number: int) -> dict[str, Any]:
    stats = {
        "msgRateIn": 1.0,
        "msgThroughputIn": 100.0,
        "msgRateOut": 0.5,
        "msgThroughputOut": 50.0,
        "topics": 10,
    }
    stats |= {
        "consumerCount": 1,
        "producerCount": 1,
        "cacheSize": 0,
        "aFieldThatNobodyKnows": "x" * 60,
    }
    return report(
        "big:8080",
        number,
        lastStats={f"acme/big/0x{at * 16:08x}_0x{at * 16 + 16:08x}": stats for at in range(BIG)},
    )


def rejected(run: Run) -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    """Position → rows."""
    rows: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in run.pipeline.table("rejected_reports").to_pylist():
        rows.setdefault((row["topic"], row["partition"], row["offset"]), []).append(row)
    return rows


def test_every_bad_record_is_one_row_and_no_other_record_is(run: Run) -> None:
    found = rejected(run)
    assert {name for name, position in run.sent.items() if position not in found} == set()
    assert set(found) == set(run.sent.values())
    assert all(len(rows) == 1 for rows in found.values())


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_the_row_of_a_bad_record_says_where_it_is_what_it_held_and_what_was_expected(
    run: Run, bad: Bad
) -> None:
    (row,) = rejected(run)[run.sent[bad.name]]
    assert (row["cluster"], row["broker"], row["field"]) == (bad.cluster, bad.broker, bad.field)
    assert row["value"].startswith(bad.shown) if len(bad.shown) > 7 else row["value"] == bad.shown
    assert len(row["value"]) <= 200
    assert bad.expected in row["expected"]


def test_the_row_of_a_bad_record_has_the_time_that_kafka_gave_the_record(run: Run) -> None:
    topics = (run.pipeline.topics.reports, run.pipeline.topics.commands)
    times = {
        (one.topic, one.partition, one.offset): one.timestamp
        for topic in topics
        for one in committed(run.pipeline.bootstrap, topic)
    }
    assert {position: row["append_ms"] for position, (row,) in rejected(run).items()} == {
        position: times[position] for position in run.sent.values()
    }


def test_every_good_report_is_counted_those_behind_bad_ones_too(run: Run) -> None:
    averages = {row["bundle"]: row for row in run.pipeline.table("bundle_averages").to_pylist()}
    for broker in BROKERS:
        row = averages[bundle_of(broker)]
        assert (row["owner"], row["long_samples"]) == (broker, run.good)
        assert row["long_rate_in_msgs_per_s"] == pytest.approx(
            sum(10.0 * number for number in range(1, run.good + 1)) / run.good
        )
    rounds = run.pipeline.table("rounds").to_pylist()
    assert [row["error"] for row in rounds] == [None] * len(rounds)
    assert len({row["log_seq"] for row in rounds}) >= 3


def test_a_report_of_more_than_three_megabytes_is_counted_like_any_other(run: Run) -> None:
    assert len(json.dumps(big_report(0))) > 3_000_000
    counted = [
        row["long_samples"]
        for row in run.pipeline.table("bundle_averages").to_pylist()
        if row["owner"] == "big:8080"
    ]
    assert counted == [len(BIG_ONES)] * BIG


def test_an_empty_report_withdraws_its_broker(run: Run) -> None:
    loads = run.pipeline.table("broker_loads").sort_by("seq").to_pylist()
    alive = {row["broker"]: row["alive"] for row in loads if row["cluster"] == "eu"}
    assert alive == {"b1:8080": True, "b2:8080": True, "big:8080": True, "leaver:8080": False}
