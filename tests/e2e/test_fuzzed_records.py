"""Ten thousand hostile records among good ones: each is taken or a row of rejected_reports, the
stream goes on, nobody else notices.

LB_TEST_FUZZ_MB says how many megabytes they are together, at least; a gigabyte takes some minutes
more.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer

from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.shards.directory import ShardMap
from tests.e2e import scalar
from tests.e2e.hostile import CLUSTERS, LARGEST_TEXT, OF_NOBODY, Wild, good, hostile
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline
from tests.support.decoding import decoded, record
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

RECORDS = 10_000
LONGEST_S = 1_200
MEGABYTES = int(os.environ.get("LB_TEST_FUZZ_MB", "150"))
SETTINGS = {
    "stream.max_offsets_per_trigger": 300,
    "stream.default_cluster": "home",
    "bundle_retention_ms": 10**12,
}
CALM = ("calm-1:8080", "calm-2:8080")
"""Brokers that send good reports all the time, in a cluster of their own and in some of those where
all the others misbehave."""
CALM_CLUSTERS = ("calm", *CLUSTERS[:2])
CALM_EVERY = 100
"""One round of their reports after so many wild records."""


def calm_report(broker: str, number: int) -> bytes:
    """Its rates tell the number."""
    stats = {
        f"calm/{broker.partition(':')[0]}/0x00000000_0xffffffff": {
            name: 10.0 * number + 1 for name in scalar.FOUR
        }
        | {"topics": 2}
    }
    times = {"startTimestamp": 1, "lastUpdate": 1_000 * number}
    fields = {
        "cpu": {"usage": 5.0, "limit": 100.0},
        **times,
        "lastStats": stats,
        "loadReportType": "LocalBrokerData",
    }
    return json.dumps(fields).encode()


def calm_round(chance: Random, number: int) -> list[bytes]:
    """Which of its reports a broker sends: the newest one, now and then the same again, and an old
    one."""
    newest = number + 1
    sent = [newest]
    if chance.random() < 0.3:
        sent.append(newest)  # a replay
    if chance.random() < 0.3:
        sent.append(chance.randint(max(1, newest - 20), newest))  # out of order
    return [calm_report("BROKER", one) for one in sent]


@dataclass
class Run:
    """What was sent, where it went, and the job that read it."""

    pipeline: Pipeline
    wild: dict[tuple[int, int], Wild]  # by partition and offset
    megabytes: float


@pytest.fixture(scope="module")
def run(
    kafka: EmbeddedKafka,
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    count: Callable[[str], None],
) -> Run:
    """The job's one run over all of it."""
    topics = topics_named("fuzzed")
    pipeline = Pipeline(kafka.bootstrap, topics, tmp_path_factory.mktemp("fuzzed"), SETTINGS)
    pipeline.create_topics(reports=3)
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap, max_request_size=LARGEST_RECORD_BYTES, linger_ms=5
    )
    chance, sent, size = Random(seed), [], 0
    large_every = max(1, RECORDS * LARGEST_TEXT // (MEGABYTES * 1_000_000))
    for number in range(RECORDS):
        large = number % large_every == 0
        one = hostile(
            chance,
            number,
            LARGEST_TEXT - 10_000 if large else 20_000,
            "large text" if large else "",
        )
        sent.append(
            (
                one,
                producer.send(
                    topics.reports, key=one.key, value=one.value, headers=list(one.headers)
                ),
            )
        )
        size += len(one.value or b"")
        if number % CALM_EVERY == 0:
            send_calm(producer, topics.reports, chance, number // CALM_EVERY)
    for cluster in (
        CLUSTERS
    ):  # a last good one, so that each cluster has a round with a new report after the others
        last = good(RECORDS + CLUSTERS.index(cluster), cluster)
        producer.send(topics.reports, key=last.key, value=last.value)
    producer.flush()
    wild = {
        (at.partition, at.offset): one for one, future in sent for at in [future.get(timeout=60)]
    }
    producer.close()
    pipeline.run_once(LONGEST_S)
    count(f"fuzzed: {len(wild)} wild records of {size / 1e6:.0f} MB")
    return Run(pipeline, wild, size / 1e6)


def send_calm(producer: KafkaProducer, topic: str, chance: Random, number: int) -> None:
    """One round of the brokers that behave."""
    for cluster in CALM_CLUSTERS:
        for broker in CALM:
            for value in calm_round(chance, number):
                key, mine = (
                    f"{cluster}/{broker}".encode(),
                    value.replace(b"BROKER", broker.partition(":")[0].encode()),
                )
                producer.send(topic, key=key, value=mine)


def fates(run: Run) -> dict[tuple[int, int], tuple[str, str, str]]:
    """What becomes of each wild record by what the decoder makes of it, alone: (report, rejected or
    an agent's kind; cluster; broker)."""
    found, every = (
        {},
        DecodeConfig("home", "commands", {name: ShardMap() for name in ("home", *CLUSTERS)}),
    )
    for place, one in run.wild.items():
        ((fate),) = [
            (kind, cluster, name)
            for (cluster, shard), block in decoded(
                [record(one.key, one.value, 0, one.kind)], every
            ).items()
            if shard == 0
            for kind, name in [("report", row["name"]) for row in block["reports"]]
            + [
                (event["kind"], event["broker"])
                for event in block["events"]
                if event["kind"] != "clock"
            ]
        ]
        found[place] = (
            ("rejected", *fate[1:]) if one.value == OF_NOBODY and fate[0] == "report" else fate
        )
    return found


def test_every_record_that_is_not_taken_is_one_row_of_rejected_reports(
    run: Run, count: Callable[[str], None]
) -> None:
    rows = Counter(
        (row["partition"], row["offset"])
        for row in run.pipeline.table("rejected_reports").to_pylist()
    )
    expected = {place for place, (kind, _, _) in fates(run).items() if kind == "rejected"}
    wild = {place for place in rows if place in run.wild}
    assert wild == expected
    assert max(rows.values()) == 1
    ways = Counter(run.wild[place].done for place in wild)
    assert len(ways) >= 12, ways
    count(f"fuzzed: {len(wild)} rejected, each one row; {len(run.wild) - len(wild)} taken")


def test_every_report_that_is_taken_is_seen_in_a_round(run: Run) -> None:
    loads = DeltaTable(str(run.pipeline.folder / "tables" / "broker_loads")).to_pyarrow_table(
        columns=["cluster", "broker"]
    )
    seen = set(zip(loads["cluster"].to_pylist(), loads["broker"].to_pylist(), strict=True))
    taken = {(cluster, broker) for kind, cluster, broker in fates(run).values() if kind == "report"}
    assert len(taken) > RECORDS / 10
    assert taken - seen == set()


def test_no_round_failed(run: Run) -> None:
    rounds = run.pipeline.table("rounds").to_pydict()
    assert set(rounds["error"]) == {None}
    assert len(set(rounds["log_seq"])) > RECORDS / SETTINGS["stream.max_offsets_per_trigger"] / 2


def test_the_averages_of_the_brokers_that_behave_are_what_their_own_reports_make_them(
    run: Run, count: Callable[[str], None]
) -> None:
    sent = committed(run.pipeline.bootstrap, run.pipeline.topics.reports)
    clusters = {cluster: scalar.Cluster(10**12) for cluster in CALM_CLUSTERS}
    for cluster, expected in clusters.items():
        keys = {f"{cluster}/{broker}".encode(): broker for broker in CALM}
        mine = [
            scalar.Record(
                one.partition, one.offset, one.timestamp, cluster, keys[one.key], one.value
            )
            for one in sent
            if one.key in keys
        ]
        expected.batch(mine, max(one.append_ms for one in mine))
    rows = run.pipeline.table("bundle_averages").to_pylist()
    calm: list[dict[str, Any]] = [row for row in rows if row["bundle"].startswith("calm/")]
    assert len(calm) == len(CALM_CLUSTERS) * len(CALM)
    for row in calm:
        bundle = clusters[row["cluster"]].bundles[row["bundle"]]
        assert (row["owner"], row["short_samples"], row["long_samples"]) == (
            bundle.owner,
            bundle.samples["short"],
            bundle.samples["long"],
        )
        for span in ("short", "long"):
            values = [
                row[f"{span}_{name}"]
                for name in ("throughput_in_bytes_per_s", "throughput_out_bytes_per_s")
            ]
            values += [
                row[f"{span}_{name}"] for name in ("rate_in_msgs_per_s", "rate_out_msgs_per_s")
            ]
            assert values == bundle.average[span]
    refused = {place for expected in clusters.values() for place in expected.refused}
    rejected = {
        (row["partition"], row["offset"])
        for row in run.pipeline.table("rejected_reports").to_pylist()
    }
    assert rejected - set(run.wild) == refused
    replays = sum(expected.repeated for expected in clusters.values())
    assert refused and replays
    count(
        f"fuzzed: averages of {len(calm)} other brokers exact, {replays} replays without effect, "
        f"{len(refused)} old reports rejected"
    )
