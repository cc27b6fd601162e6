"""A real cluster's reports through real Kafka, the real job and real Delta: all of them counted,
exactly, and decided on.

One topic, three clusters: `stored` (the reports that the real leader decided on) and `polled`
(those asked of each broker every five seconds) as they were captured, and `disturbed`, the stored
ones again in a wrong order and some of them twice.

Kafka stamps the records' append times, so the captured distances in time are lost. What depends on
them is made independent of them: shedding in every batch, no grace, and a retention of one second
in `stored`, whose second half is sent a second and more after the first. Everything else is checked
against a second calculation (scalar.py) from the records and the times that Kafka gave them, batch
by batch as the log says they were read: whatever the times were, the tables must hold these very
numbers.
"""

import gzip
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lb_stream.contracts.decisions import Explain, read_decision
from lb_stream.core.model.memory import Memory
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.captured import LOAD_REPORTS, METADATA, lines, stored_reports
from tests.e2e.kafka_reads import committed, end_offsets
from tests.e2e.pipeline import Pipeline
from tests.e2e.scalar import FOUR, Cluster, Record, percent, usages
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

RETENTION_MS = {"stored": 1_000, "polled": 300_000, "disturbed": 300_000}
THRESHOLD, HISTORY = 0.05, 0.5
SETTINGS = {
    "stream.averages_interval_ms": 0,  # the table of averages is compared after every batch
    "stream.max_offsets_per_trigger": 80,
    "admission.records_per_second": 0,  # what was sent in minutes comes at once
    "shedding_interval_ms": 0,
    "shedding_grace_period_ms": 0,
    "threshold_percent": THRESHOLD * 100,
    "history_ratio": HISTORY,
    "min_throughput_mb": 0.01,
    "cluster.stored.dry_run": "false",
    "cluster.stored.bundle_retention_ms": RETENTION_MS["stored"],
}
COLUMNS = (
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
)
STORED_FIRST = 215
"""Lines of the metadata file in its first half: the reports in it name bundles that those behind it
don't."""


@dataclass
class Run:
    """What went in and what came out."""

    pipeline: Pipeline
    records: list[Record]
    published: list[Any]  # Kafka records of the decisions topic
    ends: dict[str, dict[Any, int]]  # topic → its end offsets
    snapshots: dict[
        tuple[str, int], tuple[Cluster, bool]
    ]  # cluster, number of round → as it must be then, with a new sample or not
    final: dict[str, Cluster]

    def rows(self, table: str, *order: str) -> list[dict[str, Any]]:
        found = self.pipeline.table(table)
        return (
            found.sort_by([(name, "ascending") for name in order]).to_pylist()
            if order
            else found.to_pylist()
        )


@pytest.fixture(scope="module")
def run(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The job's one run over everything."""
    topics = topics_named("captured")
    pipeline = Pipeline(kafka.bootstrap, topics, tmp_path_factory.mktemp("captured"), SETTINGS)
    pipeline.create_topics()
    send_everything(pipeline)
    pipeline.run_once()
    records = [
        Record(one.partition, one.offset, one.timestamp, *one.key.decode().split("/", 1), one.value)
        for one in committed(pipeline.bootstrap, topics.reports)
    ]
    ends = {
        topic: end_offsets(pipeline.bootstrap, topic)
        for topic in (topics.reports, topics.decisions, topics.ownership)
    }
    snapshots, final = replayed(pipeline, records)
    return Run(
        pipeline, records, committed(pipeline.bootstrap, topics.decisions), ends, snapshots, final
    )


def send_everything(pipeline: Pipeline) -> None:
    """Three clusters' reports; the stored ones in two halves with more than their retention time
    between."""
    halves = []
    for number, half in enumerate((lines(METADATA)[:STORED_FIRST], lines(METADATA)[STORED_FIRST:])):
        halves.append(pipeline.folder / f"half-{number}.jsonl.gz")
        halves[-1].write_bytes(gzip.compress(b"\n".join(half)))
    send_file(pipeline, halves[0], "stored")
    sent = time.monotonic()
    send_file(pipeline, LOAD_REPORTS, "polled")
    order = random.Random(20).sample
    reports = [one for window in batched(stored_reports(), 6) for one in order(window, len(window))]
    twice = [
        one for number, report in enumerate(reports) for one in [report] * (1 + (number % 3 == 0))
    ]
    pipeline.send([(f"disturbed/{one.broker}".encode(), one.value, None) for one in twice])
    time.sleep(max(0.0, sent + 1.5 * RETENTION_MS["stored"] / 1_000 - time.monotonic()))
    send_file(pipeline, halves[1], "stored")


def batched(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def send_file(pipeline: Pipeline, file: Path, cluster: str) -> None:
    """As a person does it: lbctl reports send FILE."""
    options = [
        f"kafka.bootstrap_servers={pipeline.bootstrap}",
        f"topics.reports={pipeline.topics.reports}",
    ]
    command = [
        str(Path(sys.executable).parent / "lbctl"),
        "reports",
        "send",
        str(file),
        "--cluster",
        cluster,
    ]
    subprocess.run(
        [*command, *(part for option in options for part in ("--set", option))],
        check=True,
        timeout=60,
    )


def replayed(
    pipeline: Pipeline, records: list[Record]
) -> tuple[dict[tuple[str, int], tuple[Cluster, bool]], dict[str, Cluster]]:
    """The second calculation, over the batches that the log says were read."""
    clusters: dict[str, Cluster] = {}
    snapshots = {}
    logged = (
        pipeline.table("rounds")
        .sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
        .to_pylist()
    )
    for _, rounds in groupby(logged, key=lambda row: row["log_seq"]):
        batch = list(rounds)
        read = offsets_of(batch, pipeline.topics.reports)
        for row in batch:
            name = row["cluster"]
            mine = [
                record
                for record in records
                if record.cluster == name
                and record.partition in read
                and within(record.offset, read[record.partition])
            ]
            cluster = clusters.setdefault(name, Cluster(RETENTION_MS[name]))
            sampled = cluster.batch(mine, row["now_ms"])
            snapshots[name, row["seq"]] = (cluster.copied(), sampled)
    return snapshots, clusters


def offsets_of(rounds: list[dict[str, Any]], topic: str) -> dict[int, tuple[int, int]]:
    """Partition → first and last offset that a batch read, by all of its rounds."""
    read = [json.loads(row["inputs"])["offsets"].get(topic, {}) for row in rounds]
    return {int(number): tuple(bounds) for offsets in read for number, bounds in offsets.items()}


def within(offset: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= offset <= bounds[1]


def test_every_captured_report_is_read_once_and_decoded(run: Run) -> None:
    sent = Counter(record.cluster for record in run.records)
    assert (
        (sent["polled"], sent["stored"])
        == (len(lines(LOAD_REPORTS)), len(stored_reports()))
        == (357, 82)
    )
    rounds = run.rows("rounds", "log_seq", "cluster")
    assert [row["error"] for row in rounds] == [None] * len(rounds)
    assert len({row["log_seq"] for row in rounds}) >= 6  # several batches
    read: dict[int, list[int]] = {}
    for _, batch in groupby(rounds, key=lambda row: row["log_seq"]):
        for partition, (first, last) in offsets_of(
            list(batch), run.pipeline.topics.reports
        ).items():
            read.setdefault(partition, []).extend(range(first, last + 1))
    ends = {
        partition.partition: end
        for partition, end in run.ends[run.pipeline.topics.reports].items()
        if end
    }
    assert read == {partition: list(range(end)) for partition, end in ends.items()}
    rejected = [row for row in run.rows("rejected_reports") if row["cluster"] != "disturbed"]
    assert rejected == []
    assert (run.final["polled"].samples, run.final["stored"].samples) == (
        357,
        82,
    )  # what the averages below are made of


def test_after_every_batch_owners_and_averages_equal_the_second_calculation_to_the_last_bit(
    run: Run,
) -> None:
    uri = str(run.pipeline.folder / "tables" / "bundle_averages")
    compared: set[tuple[str, int]] = set()
    times: dict[str, list[tuple[int, int]]] = {}  # cluster → number and time of its rounds
    for row in run.rows("rounds"):
        times.setdefault(row["cluster"], []).append((row["seq"], row["now_ms"]))
    for version in range(1, DeltaTable(uri).version() + 1):
        rows = (
            DeltaTable(uri, version=version)
            .to_pyarrow_table()
            .sort_by([("cluster", "ascending"), ("bundle", "ascending")])
            .to_pylist()
        )
        for name, group in groupby(rows, key=lambda row: row["cluster"]):
            table = list(group)
            (now_ms,) = {row["now_ms"] for row in table}
            # Two batches may have the same time: then the tables' versions come in the order of the
            # rounds.
            at_once = [
                seq for seq, at_ms in times[name] if at_ms == now_ms and (name, seq) not in compared
            ]
            seq = (
                min(at_once)
                if at_once
                else max(seq for seq, at_ms in times[name] if at_ms <= now_ms)
            )
            if (name, seq) not in compared:
                compared.add((name, seq))
                assert [in_delta(row) for row in table] == expected_bundles(
                    run.snapshots[name, seq][0]
                ), (name, seq)
    assert compared >= {
        key for key, (cluster, sampled) in run.snapshots.items() if sampled and cluster.bundles
    }


def in_delta(row: dict[str, Any]) -> dict[str, Any]:
    four = {
        span: [row[f"{span}_{column}"] for column in COLUMNS]
        for span in ("latest", "short", "long")
    }
    names = ("bundle", "owner", "owner_since_ms", "topics", "short_samples", "long_samples")
    return {name: row[name] for name in names} | four


def expected_bundles(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        {
            "bundle": name,
            "owner": bundle.owner,
            "owner_since_ms": bundle.since_ms,
            "topics": bundle.topics,
            "short_samples": bundle.samples["short"],
            "long_samples": bundle.samples["long"],
            "latest": bundle.latest,
            **bundle.average,
        }
        for name, bundle in sorted(cluster.bundles.items())
    ]


def test_a_bundle_that_nobody_names_is_forgotten_after_its_retention_and_kept_before(
    run: Run,
) -> None:
    assert len(run.final["stored"].forgotten) > 0
    assert run.final["polled"].forgotten == []
    kept = {
        row["bundle"]: row["owner"]
        for row in run.rows("bundle_averages")
        if row["cluster"] == "polled"
    }
    assert None in kept.values()  # parents of splits: named no more, remembered still
    named = {row["bundle"] for row in run.rows("bundle_averages") if row["cluster"] == "stored"}
    assert set(run.final["stored"].forgotten) - run.final["stored"].bundles.keys() - named


def test_old_reports_are_refused_and_repeated_ones_are_no_samples(run: Run) -> None:
    disturbed = run.final["disturbed"]
    assert len(disturbed.refused) > 10 and disturbed.repeated > 10
    rejected = run.rows("rejected_reports", "partition", "offset")
    assert [(row["partition"], row["offset"]) for row in rejected] == sorted(disturbed.refused)
    by_position = {(record.partition, record.offset): record for record in run.records}
    for row in rejected:
        record = by_position[row["partition"], row["offset"]]
        assert (row["topic"], row["append_ms"], row["cluster"], row["broker"]) == (
            run.pipeline.topics.reports,
            record.append_ms,
            "disturbed",
            record.broker,
        )
        assert (row["field"], row["value"]) == (
            "lastUpdate",
            str(json.loads(record.value)["lastUpdate"]),
        )
        assert "the broker's last report" in row["expected"]


def test_every_brokers_loads_are_plain_sums_over_its_bundles_in_the_order_of_their_names(
    run: Run,
) -> None:
    loads = run.rows("broker_loads", "cluster", "seq", "broker")
    by_round = {
        key: list(rows)
        for key, rows in groupby(loads, key=lambda row: (row["cluster"], row["seq"]))
    }
    assert set(by_round) >= {key for key, (_, sampled) in run.snapshots.items() if sampled}
    for key, rows in by_round.items():
        cluster = run.snapshots[key][0]
        assert [row["broker"] for row in rows] == sorted(cluster.brokers)
        now = usages(cluster)
        for row in rows:
            broker = cluster.brokers[row["broker"]]
            assert four_of(row, "latest") == [
                broker.report[name] for name in FOUR
            ]  # the broker's own sums
            assert four_of(row, "short") == cluster.sums(row["broker"], "short")
            assert four_of(row, "long") == cluster.sums(row["broker"], "long")
            assert row["bundles"] == sum(
                bundle.owner == row["broker"] for bundle in cluster.bundles.values()
            )
            assert (row["topics"], row["reported_ms"]) == (
                broker.report["numTopics"],
                broker.reported_ms,
            )
            assert row["usage_ratio"] == now[row["broker"]]
            assert (
                row["cpu_ratio"]
                == percent(broker.report["cpu"]["usage"], broker.report["cpu"]["limit"]) / 100.0
            )


def four_of(row: dict[str, Any], span: str) -> list[float]:
    return [row[f"{span}_{column}"] for column in COLUMNS]


def test_a_consumer_gets_every_decision_of_the_live_cluster_once_as_it_stands_in_the_table(
    run: Run,
) -> None:
    table = {row["decision_id"]: row for row in run.rows("decisions")}
    live = {name: row for name, row in table.items() if not row["dry_run"]}
    assert {row["cluster"] for row in live.values()} == {"stored"}
    assert {"polled", "disturbed"} <= {
        row["cluster"] for row in table.values()
    }  # dry runs decide too, and say so in the table only
    decisions = [read_decision(record.value) for record in run.published]
    assert Counter(decision.decision_id for decision in decisions) == Counter(list(live))
    assert {decision.strategy for decision in decisions} >= {"ThresholdShedder"}
    for record, one in zip(run.published, decisions, strict=True):
        headers = dict(record.headers)
        assert record.key.decode() == f"{one.cluster}/{one.bundle}"
        assert (headers["decision_id"].decode(), headers["epoch"].decode()) == (
            one.decision_id,
            str(one.epoch),
        )
        row = live[one.decision_id]
        for name in (
            "cluster",
            "seq",
            "epoch",
            "kind",
            "bundle",
            "source",
            "destination",
            "expected_owner",
            "reason",
            "rule",
            "issued_ms",
            "expires_ms",
        ):
            assert row[name] == getattr(one, name), name
        assert json.loads(row["explain"]) == one.explain.model_dump(mode="json")


def test_the_figures_of_every_shedding_decision_can_be_derived_from_the_reports(run: Run) -> None:
    shed = [
        row
        for row in run.rows("decisions")
        if row["strategy"] == "ThresholdShedder" and row["kind"] == "unload"
    ]
    assert {row["cluster"] for row in shed} == set(RETENTION_MS)
    derived = {name: smoothed_usages(run, name) for name in RETENTION_MS}
    for row in shed:
        usage = derived[row["cluster"]][row["seq"]]
        average = sum_in_order(usage) / len(usage)
        explain = Explain.model_validate_json(row["explain"])
        assert (explain.saw, explain.average, explain.limit) == (
            usage[row["source"]],
            average,
            average + THRESHOLD,
        )
        assert explain.saw >= explain.limit
        assert (
            run.snapshots[row["cluster"], row["seq"]][0].bundles[row["bundle"]].owner
            == row["source"]
        )
        assert row["destination"] not in (None, row["source"])


def test_every_broker_above_the_threshold_sheds_or_has_a_refusal_that_says_why_not(
    run: Run,
) -> None:
    shed = {(row["cluster"], row["seq"], row["source"]) for row in run.rows("decisions")}
    refused = {(row["cluster"], row["seq"], row["broker"]) for row in run.rows("refusals")}
    hot = [
        (name, seq, broker)
        for name in RETENTION_MS
        for seq, usage in smoothed_usages(run, name).items()
        for broker, value in usage.items()
        if value > sum_in_order(usage) / len(usage) + THRESHOLD + 1e-9
    ]
    assert len(hot) > 5
    assert [one for one in hot if one not in shed and one not in refused] == []


def smoothed_usages(run: Run, cluster: str) -> dict[int, dict[str, float]]:
    """Round → broker → smoothed usage, for each round that looked at it: those with a new sample,
    of two brokers or more."""
    rounds = [row for row in run.rows("rounds", "log_seq") if row["cluster"] == cluster]
    found: dict[int, dict[str, float]] = {}
    before: dict[str, float] = {}
    pending: list[dict[str, Any]] = []
    for row in rounds:
        state, sampled = run.snapshots[cluster, row["seq"]]
        memory = Memory.from_json(row["memory"])
        ended = {outcome["decision_id"] for outcome in json.loads(row["outcomes"])}
        ended |= {
            move.decision_id for move in memory.moves.values()
        }  # half done: let go, and assigned by a decision of its own
        still_open = [move for move in pending if move["decision_id"] not in ended]
        pending = [asdict(decision) for decision in memory.pending]
        if sampled and len(state.brokers) > 1:
            now = usages(state, still_open)
            before = {
                name: before[name] * HISTORY + (1 - HISTORY) * now[name]
                if name in before
                else now[name]
                for name in sorted(now)
            }
            found[row["seq"]] = before
    return found


def sum_in_order(usage: dict[str, float]) -> float:
    total = 0.0
    for name in sorted(usage):
        total += usage[name]
    return total


def test_run_again_without_new_reports_the_job_decides_and_publishes_nothing(run: Run) -> None:
    """The last test of this module: it runs the job a second time, on the same checkpoint."""
    # `leaders` and `batches` tell of the job itself; a start may mark the others as up to date,
    # which adds no row.
    names = sorted(
        path.name
        for path in (run.pipeline.folder / "tables").iterdir()
        if path.name not in ("leaders", "batches")
    )
    rows = {name: run.pipeline.table(name).num_rows for name in names}
    run.pipeline.run_once()
    assert {name: run.pipeline.table(name).num_rows for name in names} == rows
    topics = run.pipeline.topics
    for topic in (topics.reports, topics.ownership):
        assert end_offsets(run.pipeline.bootstrap, topic) == run.ends[topic]
    # The job announces there what it reads, which is no decision.
    assert len(committed(run.pipeline.bootstrap, topics.decisions)) == len(run.published)
