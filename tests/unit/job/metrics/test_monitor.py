"""The monitoring of a stream, without one: batches are told to it, Spark's words are made up,
metrics are scraped over HTTP."""

import json
import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.settings import StreamSettings
from lb_stream.contracts.tables import BATCHES, BROKER_LOADS, REJECTED_REPORTS
from lb_stream.core.model.memory import (
    Memory,
    Mergeable,
    MoveInProgress,
    Pending,
    Proposal,
    Suspension,
)
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rollout import BrokerProgress, RolloutOrder, RolloutProgress
from lb_stream.core.model.rules import Refuses
from lb_stream.core.observing.outcomes import Outcome
from lb_stream.job.metrics import monitor as monitor_module
from lb_stream.job.metrics.api import build_document
from lb_stream.job.metrics.job_metrics import SKIPS
from lb_stream.job.metrics.monitor import Monitor
from lb_stream.job.metrics.spark_progress import lag_records
from lb_stream.query.health import SUSPENDING
from lb_stream.stream.ports import Logged
from tests.support.openapi import check_answer
from tests.support.scrape import scrape as scrape_url
from tests.support.wordings import check_wording

PROJECT = Path(__file__).parents[4]


class Query:
    """What Spark would tell."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.recentProgress[-1] if self.recentProgress else None

    def batch(self, batch_id: int, records: int = 10, **changes: Any) -> None:
        self.recentProgress.append(progress_of(batch_id, records) | changes)


def progress_of(batch_id: int, records: int) -> dict[str, Any]:
    durations = {
        "addBatch": 180,
        "commitOffsets": 9,
        "getBatch": 1,
        "latestOffset": 4,
        "queryPlanning": 6,
        "walCommit": 8,
        "triggerExecution": 210,
    }
    state = {
        "numRowsTotal": 4,
        "memoryUsedBytes": 27_000,
        "allUpdatesTimeMs": 40,
        "commitTimeMs": 30,
    }
    source = {
        "endOffset": '{"lb-load-reports":{"0":90,"1":40},"lb-commands":{"0":7}}',
        "latestOffset": '{"lb-load-reports":{"0":100,"1":45},"lb-commands":{"0":7}}',
    }
    return {
        "batchId": batch_id,
        "numInputRows": records,
        "inputRowsPerSecond": 50.0,
        "processedRowsPerSecond": 47.6,
        "durationMs": durations | {"triggerExecution": 210},
        "stateOperators": [state],
        "sources": [source],
    }


def rounds(*rows: Mapping[str, Any]) -> Logged:
    """A logged batch with number 3."""
    nothing = {"cluster": "eu", "now_ms": 5_000, "memory": "{}", "error": None, "files": "{}"}
    nothing |= dict.fromkeys(("decisions", "outcomes", "refusals", "shadows", "results"), "[]")
    schema = pa.schema(
        [(name, pa.int64() if name == "now_ms" else pa.string()) for name in nothing]
    )
    return Logged(3, pa.Table.from_pylist([nothing | row for row in rows], schema))


def written(**columns: list[Any]) -> dict[str, str]:
    return {
        name: canonical_json(
            [entry if isinstance(entry, dict) else entry.to_dict() for entry in entries]
        )
        for name, entries in columns.items()
    }


def decided(number: int, kind: str, **changes: Any) -> dict[str, Any]:
    return example_decision(decision_id=f"eu:1:{number}", kind=kind, **changes).model_dump(
        mode="json"
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., tuple[Monitor, Query]]]:
    """Starts monitors: `started(metrics_address=...)`; all are stopped at the end."""
    monitors = []

    def start(memories: Mapping[str, str] | None = None, **settings: Any) -> tuple[Monitor, Query]:
        given = {
            "tables": str(tmp_path / "tables"),
            "metrics_address": "127.0.0.1:0",
            "pipeline_id": "p",
        } | settings
        monitor, query = (
            Monitor(StreamSettings(**given), 7, lambda: "p/0123", lambda: memories or {}),
            Query(),
        )
        monitors.append(monitor)
        monitor.start(query)
        return monitor, query

    yield start
    for monitor in monitors:
        monitor.stop()


def run(monitor: Monitor, query: Query, batch_id: int, logged: Logged | None = None) -> None:
    """A batch as the stream does it."""
    monitor.begin(batch_id)
    for phase in ("decide", "log", "publish", "project"):
        time.sleep(0.001)
        monitor.done(phase)
    monitor.finish(logged or rounds({}))
    query.batch(batch_id)


def scrape(monitor: Monitor, path: str = "") -> dict[tuple[str, ...], float]:
    """Sample name and its label values, in the order of the labels' names → value."""
    assert monitor.url is not None
    return scrape_url(monitor.url + path)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    table = DeltaTable(str(folder / "tables" / BATCHES.name)).to_pyarrow_table()
    return table.sort_by("batch_id").to_pylist()


def test_a_scrape_tells_what_batches_have_read_and_how_long_their_phases_took(started: Any) -> None:
    monitor, query = started()
    for batch_id in range(3):
        run(monitor, query, batch_id)
    monitor.begin(3)
    until(lambda: scrape(monitor)[("lb_stream_input_records_total",)] == 30)
    found = scrape(monitor)
    assert found[("lb_stream_batches_total",)] == 3
    assert found[("lb_stream_epoch",)] == 7
    assert abs(found[("lb_stream_last_batch_timestamp_seconds",)] - time.time()) < 30
    for phase in (
        "decide",
        "log",
        "publish",
        "project",
        "next",
        "offsets",
        "planning",
        "wal",
        "commit",
    ):
        assert found[("lb_stream_phase_seconds_count", phase)] == 3, phase
    assert 0.003 <= found[("lb_stream_phase_seconds_sum", "publish")] < 1
    assert found[("lb_stream_phase_seconds_sum", "offsets")] == pytest.approx(0.015)
    assert found[("lb_stream_batch_seconds_sum",)] == pytest.approx(0.63)
    assert found[("lb_stream_lag_records", "lb-load-reports")] == 15
    assert found[("lb_stream_lag_records", "lb-commands")] == 0
    assert found[("lb_stream_state_rows",)] == 4
    assert found[("lb_stream_processed_records_per_second",)] == 47.6
    assert found[("process_resident_memory_bytes",)] > 1e6


def test_batches_that_come_faster_than_the_monitoring_are_all_counted_once(started: Any) -> None:
    monitor, query = started()
    for batch_id in range(5, 12):
        query.batch(batch_id)
    until(lambda: scrape(monitor)[("lb_stream_input_records_total",)] == 70)
    query.batch(
        11, durationMs={"latestOffset": 3, "triggerExecution": 3}, numInputRows=0
    )  # Spark has looked and found nothing
    query.batch(12)
    monitor.begin(13)
    until(lambda: scrape(monitor)[("lb_stream_input_records_total",)] == 80)
    assert scrape(monitor)[("lb_stream_batch_seconds_count",)] == 8


def test_a_forgotten_clusters_series_end(started: Any) -> None:
    monitor, query = started()
    for batch, memory in enumerate(("{}", "")):
        run(monitor, query, batch, rounds({"memory": memory}, {"cluster": "us"}))
    until(lambda: scrape(monitor).get(("lb_stream_rounds_total", "us")) == 2)
    until(lambda: not [series for series in scrape(monitor) if "eu" in series[1:]])


def test_clusters_that_are_forgotten_together_all_end_and_are_counted_without_a_failure(
    started: Any,
) -> None:
    monitor, query = started()
    for batch, memory in enumerate(("{}", "")):
        run(
            monitor,
            query,
            batch,
            rounds({"memory": memory}, {"cluster": "us", "memory": memory}, {"cluster": "asia"}),
        )
    until(lambda: scrape(monitor).get(("lb_stream_rounds_total", "asia")) == 2)
    until(lambda: not [series for series in scrape(monitor) if {"eu", "us"} & set(series[1:])])
    assert not [
        series for series in scrape(monitor) if series[0] == "lb_stream_monitoring_errors_total"
    ]


def test_rounds_of_shadows_are_counted_and_their_usage_stands_beside_the_real_one(
    started: Any,
) -> None:
    monitor, query = started()
    entries = [
        {"policy": "real", "outcome": "done", "max_ratio": 0.8},
        {
            "policy": "avg",
            "outcome": "done",
            "max_ratio": 0.5,
            "decisions": [{"kind": "unload"}, {"kind": "unload"}, {"kind": "assign"}],
        },
        {"policy": "slow", "outcome": "skipped"},
    ]
    run(monitor, query, 0, rounds(written(shadows=entries)))
    until(lambda: ("lb_stream_rounds_total", "eu") in scrape(monitor))
    found = scrape(monitor)
    counted = {
        key[2:]: value
        for key, value in found.items()
        if key[:2] == ("lb_stream_shadow_rounds_total", "eu") and value
    }
    assert counted == {("done", "avg"): 1, ("skipped", "slow"): 1}
    assert found[("lb_stream_shadow_rounds_total", "eu", "failed", "avg")] == 0
    assert found[("lb_stream_shadow_decisions_total", "eu", "unload", "avg")] == 2
    usage = {
        key[2]: value
        for key, value in found.items()
        if key[:2] == ("lb_stream_shadow_max_usage_ratio", "eu")
    }
    assert usage == {"real": 0.8, "avg": 0.5}


def test_decisions_and_refusals_are_counted_by_cluster_and_under_pulsars_names(
    started: Any,
) -> None:
    monitor, query = started()
    decisions = [
        decided(0, "unload", source="b1"),
        decided(1, "unload", source="b1"),
        decided(2, "transfer", source="b2", reason="Underloaded", strategy="TransferShedder"),
        decided(3, "split", source="b1", reason="MsgRate"),
        decided(4, "assign", source=None, reason="Unowned"),
        decided(5, "unload", dry_run=True),
    ]
    refusals = [
        refusal(Refuses.HIT_COUNT, None),
        refusal(Refuses.RECENTLY_UNLOADED, "b1", ["x", "y"]),
    ]
    results = [
        {"outcome": outcome, "rule": rule, "repeated": repeated}
        for outcome, rule, repeated in (
            ("refused", "not_allowed", False),
            ("refused", "not_allowed", False),
            ("refused", "not_drained", False),
            ("refused", "not_drained", True),
            ("done", None, False),
        )
    ]
    run(
        monitor,
        query,
        0,
        rounds(
            written(decisions=decisions, refusals=refusals, results=results),
            {"cluster": "us", "error": "ValueError: no"},
        ),
    )
    until(lambda: ("lb_stream_rounds_total", "us") in scrape(monitor))
    found = scrape(monitor)
    assert (
        found[
            ("lb_stream_decisions_total", "eu", "false", "unload", "Overloaded", "ThresholdShedder")
        ]
        == 2
    )
    assert (
        found[
            ("lb_stream_decisions_total", "eu", "true", "unload", "Overloaded", "ThresholdShedder")
        ]
        == 1
    )
    assert found[("lb_stream_refusals_total", "eu", "recently_unloaded")] == 2
    assert found[("lb_stream_refused_commands_total", "eu", "not_allowed")] == 2
    assert found[("lb_stream_refused_commands_total", "eu", "not_drained")] == 1
    assert found[("lb_stream_round_errors_total", "eu")] == 0
    assert found[("lb_stream_round_errors_total", "us")] == 1
    assert found[("pulsar_lb_unload_bundle_total", "eu", "bundleUnloading")] == 3, (
        "a dry run asks nobody"
    )
    assert found[("pulsar_lb_unload_broker_total", "eu", "bundleUnloading")] == 2
    assert found[("pulsar_lb_bundles_split_total", "eu", "bundlesSplit")] == 1
    unloads = {
        key[3:]: value
        for key, value in found.items()
        if key[:2] == ("pulsar_lb_unload_broker_breakdown_total", "eu")
    }
    assert unloads.pop(("Overloaded", "Success")) == 2
    assert unloads.pop(("Underloaded", "Success")) == 1
    assert unloads.pop(("HitCount", "Skip")) == 1
    assert len(unloads) == 8 and set(unloads.values()) == {0}
    assert (
        found[
            ("pulsar_lb_bundles_split_breakdown_total", "eu", "bundlesSplit", "MsgRate", "Success")
        ]
        == 1
    )
    assert (
        found[
            ("pulsar_lb_bundles_split_breakdown_total", "us", "bundlesSplit", "MsgRate", "Success")
        ]
        == 0
    )


def test_how_a_decision_ended_is_counted_by_its_kind_those_of_an_earlier_run_too(
    started: Any,
) -> None:
    pending = Pending("eu:0:0", "unload", "t/n/0", "b1", "b2", 0, 60_000, 2)
    move = MoveInProgress("eu:0:1", "unload", "b1", "b2", 0, 1_500, 60_000)
    monitor, query = started(
        {"eu": Memory(seq=1, pending=(pending,), moves={"t/n/9": move}).to_json()}
    )
    ended = [
        Outcome("eu:0:0", "t/n/0", "confirmed", "", 4_500, 4_500, released_ms=1_500),
        Outcome("eu:0:1", "t/n/9", "failed", "", 4_500, 4_500, released_ms=1_500),
        Outcome("eu:1:0", "t/n/1", "confirmed", "", 0, 150),
        Outcome("eu:1:1", "t/n/2", "expired", "", 0, 60_000),
        Outcome("eu:1:2", "t/n/3", "superseded", "", 0, 10),
        Outcome("eu:1:3", "t/n/4", "expired", "", 0, 60_000),
    ]
    decisions = [
        decided(0, "assign"),
        decided(1, "assign"),
        decided(2, "assign"),
        decided(3, "unload"),
    ]
    run(monitor, query, 0, rounds(written(decisions=decisions, outcomes=ended)))
    until(lambda: scrape(monitor)[("lb_stream_batches_total",)] == 1)
    found = scrape(monitor)
    assert found[("lb_stream_outcomes_total", "eu", "unload", "confirmed")] == 1
    assert found[("lb_stream_outcomes_total", "eu", "unload", "failed")] == 1
    assert found[("lb_stream_outcomes_total", "eu", "assign", "expired")] == 1
    assert [
        found[("pulsar_lb_assign_broker_breakdown_total", "eu", "assign", word)]
        for word in ("Success", "Failure", "Skip")
    ] == [
        1,
        1,
        1,
    ]
    assert (
        found[
            (
                "pulsar_lb_unload_broker_breakdown_total",
                "eu",
                "bundleUnloading",
                "Unknown",
                "Failure",
            )
        ]
        == 2
    )
    assert found[("pulsar_lb_release_latency_sum", "eu", "bundleUnloading")] == 1_500
    assert found[("pulsar_lb_assign_latency_bucket", "eu", "200.0", "bundleUnloading")] == 1
    assert found[("pulsar_lb_assign_latency_bucket", "eu", "100.0", "bundleUnloading")] == 0


def test_what_is_pending_who_is_dead_and_what_is_suspended_can_be_seen(started: Any) -> None:
    pending = tuple(
        Pending(f"eu:0:{at}", kind, f"t/n/{at}", None, "b2", 0, 60_000, 2)
        for at, kind in enumerate(("assign", "assign", "split"))
    )
    memories = {
        "eu": Memory(
            seq=1,
            pending=pending,
            dead=("b9",),
            clashing=2,
            suspension=Suspension("mass_disappearance", 0, 9),
            mergeable={"t/n/0": Mergeable("t/n/1", 5, 9), "t/n/2": Mergeable("t/n/3", 5, 0)},
            proposals=(
                Proposal(
                    "eu:1:p0",
                    "eu:1:p0",
                    "unload",
                    "t/n/0",
                    "b1",
                    "b2",
                    "Overloaded",
                    "overloaded",
                    "S",
                    {},
                    1.0,
                    0,
                    9,
                ),
            ),
            rollout=RolloutProgress(
                "r",
                brokers={"b1": BrokerProgress("done", 5), "b2": BrokerProgress("down", 7_000)},
                still_ms=9,
            ),
        ).to_json(),
        "us": Memory(seq=3, errors=10, retry_ms=900_000).to_json(),
    }
    monitor, query = started(memories)
    run(
        monitor, query, 0, rounds({}, {"cluster": "us"})
    )  # a suspension isn't told with every round
    until(lambda: ("lb_stream_rounds_total", "us") in scrape(monitor))
    found = scrape(monitor)
    assert found[("lb_stream_clusters",)] == 2
    assert [
        found[("lb_stream_pending_decisions", "eu", kind)] for kind in ("assign", "unload", "split")
    ] == [2, 0, 1]
    assert (found[("lb_stream_dead_brokers", "eu")], found[("lb_stream_dead_brokers", "us")]) == (
        1,
        0,
    )
    assert [found[("lb_stream_self_balancing_brokers", name)] for name in ("eu", "us")] == [2, 0]
    assert [found[("lb_stream_merge_advice", name)] for name in ("eu", "us")] == [1, 0], (
        "of those watched only what is advised"
    )
    assert [found[("lb_stream_proposals", name)] for name in ("eu", "us")] == [1, 0]
    rolling = ("done", "down", "empty")
    assert [found[("lb_stream_rollout_brokers", "eu", phase)] for phase in rolling] == [1, 1, 0]
    since = {key[1:]: value for key, value in found.items() if "rollout_broker_since" in key[0]}
    assert since == {("b2", "eu", "down"): 7.0}, "of brokers that are draining, empty or down"
    assert [found[("lb_stream_rollout_stands_still", name)] for name in ("eu", "us")] == [1, 0]
    suspended = {key[1:]: value for key, value in found.items() if key[0] == "lb_stream_suspended"}
    assert {key for key, value in suspended.items() if value} == {
        ("eu", "brokers_vanished"),
        ("us", "errors"),
    } and len(suspended) == 4
    memories["eu"] = Memory(seq=2).to_json()
    assert scrape(monitor)[("lb_stream_suspended", "eu", "brokers_vanished")] == 0


def write_figures(folder: Path) -> dict[str, str]:
    """Files of a round of two clusters, as the executors leave them; the row's column `files`."""
    nothing = {name: 0 for name in BROKER_LOADS.schema.names} | {"alive": True, "active": True}
    loads = [
        nothing
        | {
            "cluster": "us",
            "broker": "u1",
            "alive": True,
            "bundles": 3,
            "usage_ratio": 0.5,
            "cpu_ratio": 0.5,
        },
        nothing | {"cluster": "eu", "broker": "b2", "alive": False, "active": False},
        nothing | {"cluster": "eu", "broker": "b3"},
        nothing | {"cluster": "eu", "broker": "b4", "active": False},
        nothing
        | {"cluster": "eu", "broker": "b1", "alive": True, "bundles": 4}
        | {"latest_rate_in_msgs_per_s": 12.5, "direct_memory_ratio": 0.25},
    ]
    rejected = [
        {name: None for name in REJECTED_REPORTS.schema.names} | {"cluster": name}
        for name in ("eu", "default", "eu")
    ]
    for spec, rows in ((BROKER_LOADS, loads), (REJECTED_REPORTS, rejected)):
        (folder / "tables" / spec.name).mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist(rows, spec.schema), folder / "tables" / spec.name / "one.parquet"
        )
    return {
        "files": canonical_json(
            {spec.name: {"path": "one.parquet"} for spec in (BROKER_LOADS, REJECTED_REPORTS)}
        )
    }


def test_brokers_loads_have_a_path_of_their_own_and_rejected_records_their_clusters(
    started: Any, tmp_path: Path
) -> None:
    loads = {"b1": 0.6, "b2": 0.9, "b3": 0.2, "b4": 0.0}  # b2 is dead, b4 drained
    known = {name: [load, 1e6, 4] for name, load in loads.items()}
    smoothed = {"TransferShedder": {"hits": 0, "brokers": known}}
    monitor, query = started({"eu": Memory(seq=1, strategies=smoothed).to_json()})
    run(monitor, query, 0, rounds(write_figures(tmp_path), {"cluster": "us"}))
    until(lambda: scrape(monitor).get(("lb_stream_brokers", "eu")) == 4)
    found = scrape(monitor)
    assert (found[("lb_stream_bundles", "eu")], found[("lb_stream_bundles", "us")]) == (4, 3)
    assert (
        found[("lb_stream_rejected_records_total", "eu")],
        found[("lb_stream_rejected_records_total", "default")],
    ) == (2, 1)
    assert ("lb_stream_broker_bundles", "b1", "eu") not in found
    brokers = scrape(monitor, "/brokers")
    assert brokers[("pulsar_lb_cpu_usage", "u1", "us", "loadBalancing")] == 50
    assert brokers[("pulsar_lb_directMemory_usage", "b1", "eu", "loadBalancing")] == 25
    assert brokers[("pulsar_lb_resource_usage", "u1", "us", "max")] == 0.5
    assert brokers[("pulsar_lb_resource_usage", "b1", "eu", "max_ema")] == 0.6
    assert brokers[("pulsar_lb_resource_usage_stats", "eu", "max_ema", "avg")] == pytest.approx(0.4)
    assert brokers[("pulsar_lb_resource_usage_stats", "eu", "max_ema", "std")] == pytest.approx(0.2)
    assert brokers[("lb_stream_broker_messages_per_second", "b1", "eu", "in")] == 12.5
    assert (
        brokers[("lb_stream_broker_alive", "b1", "eu")],
        brokers[("lb_stream_broker_alive", "b2", "eu")],
    ) == (1, 0)
    assert ("lb_stream_broker_bundles", "b2", "eu") not in brokers


def test_health_and_ready_tell_the_verdict_and_ready_waits_for_the_first_batch(
    started: Any,
) -> None:
    monitor, query = started(
        {"eu": Memory(seq=1).to_json(), "us": Memory(seq=3, errors=10, retry_ms=900_000).to_json()}
    )
    host = monitor.url.removesuffix("/metrics")
    assert asked(f"{host}/health")[0] == 200
    assert asked(f"{host}/ready")[0] == 503, "no batch yet"
    run(monitor, query, 0, rounds({}))
    until(lambda: asked(f"{host}/ready")[0] == 200)
    status, found = asked(f"{host}/health")
    check_answer(build_document(), "/health", status, found)
    assert (status, found["state"]) == (200, "degraded")
    assert found["sentence"].startswith("degraded: us is SUSPENDED (its last rounds failed")


def test_health_tells_a_suspension_that_the_last_round_did_not_repeat(started: Any) -> None:
    memory = Memory(seq=5, suspension=Suspension("everything_silent", 0, 9, ("b1", "b2")))
    monitor, query = started({"eu": memory.to_json()})
    run(monitor, query, 0, rounds({}))
    host = monitor.url.removesuffix("/metrics")
    until(lambda: "eu is SUSPENDED (everything_silent)" in str(asked(f"{host}/health")[1]))
    assert asked(f"{host}/health")[0] == 200, "a new start would not help"


@pytest.mark.parametrize(
    ("still_ms", "state"), [(None, "healthy"), (1_700_000_000_000, "degraded")]
)
def test_health_names_a_rollout_and_the_broker_for_which_it_stands_still(
    started: Any, still_ms: int | None, state: str
) -> None:
    order = RolloutOrder("r", "ann", 1_000, ("b1", "b2", "b3"), in_order=True, wanted=2)
    seen = {"b1": BrokerProgress("done"), "b2": BrokerProgress("down", 7_000)}
    progress = RolloutProgress("r", 1_000, seen, still_ms=still_ms)
    memory = Memory(seq=5, operator_state=OperatorState(rollout=order), rollout=progress)
    monitor, query = started({"eu": memory.to_json()})
    run(monitor, query, 0, rounds({}))
    host = monitor.url.removesuffix("/metrics")
    until(lambda: "rollout" in str(asked(f"{host}/health")[1]))
    status, found = asked(f"{host}/health")
    assert (status, found["state"]) == (200, state)
    check_wording(
        "\n".join(f"{each['description']}: {each['advice']}" for each in found["findings"])
    )


def test_health_is_503_when_no_batch_ends_for_so_long_that_only_a_new_start_helps(
    started: Any,
) -> None:
    monitor, _ = started({"eu": Memory(seq=1).to_json()}, batch_timeout_ms=1)
    host = monitor.url.removesuffix("/metrics")
    until(lambda: asked(f"{host}/health")[0] == 503)


def asked(url: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_another_path_is_answered_with_those_that_there_are(started: Any) -> None:
    monitor, _ = started()
    with pytest.raises(HTTPError) as caught:
        scrape(monitor, "/nothing")
    assert caught.value.code == 404
    check_wording(caught.value.read().decode())


def test_rows_of_batches_are_written_together_and_at_the_end_all_of_them(
    started: Any, tmp_path: Path
) -> None:
    monitor, query = started(metrics_address="")
    for batch_id in range(25):
        run(monitor, query, batch_id, rounds({"error": "no"}, {}) if batch_id == 3 else None)
    assert not DeltaTable.is_deltatable(str(tmp_path / "tables" / BATCHES.name))
    query.recentProgress.pop()
    monitor.stop()
    rows = rows_of(tmp_path)
    assert [row["batch_id"] for row in rows] == list(range(25))
    assert DeltaTable(str(tmp_path / "tables" / BATCHES.name)).version() == 1, (
        "the table's creation and one append"
    )
    row = rows[3]
    assert (row["app"], row["epoch"], row["rounds"], row["errors"], row["log_seq"]) == (
        "p/0123",
        7,
        2,
        1,
        3,
    )
    assert (
        row["whole_ms"],
        row["offsets_ms"],
        row["planning_ms"],
        row["wal_ms"],
        row["commit_ms"],
    ) == (210, 5, 6, 8, 9)
    assert (row["input_records"], row["lag_records"], row["state_commit_ms"]) == (10, 15, 30)
    assert all(row[f"{phase}_ms"] >= 1 for phase in ("decide", "log", "publish", "project"))
    assert rows[24]["whole_ms"] is None, "Spark had not said"


def test_rows_are_written_now_and_then_while_the_stream_runs(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_module, "WRITE_EVERY_S", 0.0)
    monitor, query = started(metrics_address="0")
    run(monitor, query, 0)
    monitor.begin(1)
    until(
        lambda: (
            DeltaTable.is_deltatable(str(tmp_path / "tables" / BATCHES.name))
            and len(rows_of(tmp_path)) == 1
        )
    )
    assert monitor.url is None
    assert rows_of(tmp_path)[0]["whole_ms"] == 210


def test_an_address_that_is_taken_is_a_warning_that_says_what_to_do(
    started: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monitor, query = started(metrics_address=f"127.0.0.1:{port}")
        assert monitor.url is None
        assert (
            f"127.0.0.1:{port} can't be had" in caplog.text
            and "set stream.metrics_address to a free host:port" in caplog.text
        )
        run(monitor, query, 0)
        monitor.stop()
    assert len(rows_of(tmp_path)) == 1


def test_whatever_fails_in_the_monitoring_is_told_once_and_harms_nobody(
    started: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_module, "WRITE_EVERY_S", 0.0)
    (tmp_path / "tables").write_text("a file where the folder should be")
    monitor, query = started()
    for batch_id in range(4):
        run(monitor, query, batch_id, rounds({"decisions": "no JSON"}))
    until(lambda: scrape(monitor).get(("lb_stream_monitoring_errors_total", "counts")) == 4)
    run(monitor, query, 4, rounds({}))
    until(lambda: scrape(monitor)[("lb_stream_rounds_total", "eu")] >= 1)
    until(lambda: scrape(monitor).get(("lb_stream_monitoring_errors_total", "table"), 0) >= 2)
    monitor.stop()
    warnings = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert [text.partition("(")[2].partition(":")[0] for text in warnings] == ["counts", "table"]
    assert not [thread for thread in threading.enumerate() if thread.name in ("monitor", "metrics")]


def test_lag_counts_new_topics_and_partitions_from_what_is_known_of_them() -> None:
    source = {"endOffset": '{"a":{"0":5}}', "latestOffset": '{"a":{"0":7,"1":4},"b":{"0":3}}'}
    assert lag_records({"sources": [source]}) == {"a": 2, "b": 0}
    assert lag_records({"sources": [{"endOffset": '{"a":{"0":5}}', "latestOffset": "null"}]}) == {}


def test_rules_with_a_meaning_of_their_own_are_rules_that_the_core_has() -> None:
    core = "\n".join(path.read_text() for path in (PROJECT / "lb_stream" / "core").rglob("*.py"))
    assert [rule for rule in {*SKIPS, *SUSPENDING} if f'"{rule}"' not in core] == []
