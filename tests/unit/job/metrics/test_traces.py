"""Traces of batches and moves, made of rounds: what they say, and that their ids never differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.settings import OtelSettings, StreamSettings, TopicSettings
from lb_stream.contracts.trace_ids import TRACEPARENT, move_trace_id, parse_traceparent
from lb_stream.core.model.memory import Memory, MoveInProgress
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.observing.outcomes import Outcome
from lb_stream.io.kafka.outbox import _records
from lb_stream.io.telemetry.opening import open_telemetry
from lb_stream.io.telemetry.port import NoTelemetry, Span
from lb_stream.job.metrics.batch_spans import (
    MAX_REFUSALS,
    MAX_ROUNDS,
    BatchTimes,
    batch_spans,
    batch_trace_id,
    read_batch,
)
from lb_stream.job.metrics.monitor import Monitor
from lb_stream.job.metrics.move_spans import MAX_DECISIONS, move_spans
from lb_stream.stream.ports import Logged
from tests.support.otlp_receiver import otlp_receiver, until

APP, BUNDLE = "lb-stream/0123", "t/n/0x00000000_0x80000000"
TIMES = BatchTimes(
    7,
    1_000_000,
    {"decide": 0.2, "log": 0.03, "publish": 0.02, "project": 0.05, "averages": 0.01, "next": 0.01},
)
NOTHING = {"cluster": "eu", "seq": 5, "now_ms": 999_000, "memory": "{}", "error": None}
ENTRIES = ("decisions", "outcomes", "refusals", "shadows", "results", "ownership")
PROGRESS = {
    "batchId": 7,
    "timestamp": "1970-01-01T00:16:39.970Z",
    "numInputRows": 12,
    "durationMs": {
        "addBatch": 330,
        "latestOffset": 4,
        "getBatch": 1,
        "queryPlanning": 6,
        "walCommit": 8,
        "commitOffsets": 9,
        "triggerExecution": 370,
    },
    "stateOperators": [
        {
            "numRowsTotal": 4,
            "memoryUsedBytes": 27_000,
            "allUpdatesTimeMs": 40,
            "commitTimeMs": 30,
            "numShufflePartitions": 2,
        }
    ],
    "sources": [
        {
            "endOffset": '{"lb-load-reports":{"0":90}}',
            "latestOffset": '{"lb-load-reports":{"0":99}}',
        }
    ],
}


def logged(*rows: Mapping[str, Any]) -> Logged:
    """A batch of the log, whose rows' entries are given as objects."""
    full = []
    for row in rows:
        entries = {
            name: canonical_json(
                [entry if isinstance(entry, dict) else entry.to_dict() for entry in row[name]]
            )
            for name in ENTRIES
            if name in row
        }
        full.append(NOTHING | dict.fromkeys((*ENTRIES, "files"), "[]") | dict(row) | entries)
    return Logged(3, pa.Table.from_pylist(full))


def decided(decision_id: str, kind: str, **changes: Any) -> dict[str, Any]:
    fields = {"decision_id": decision_id, "kind": kind, "bundle": BUNDLE, "cluster": "eu"}
    return example_decision(**(fields | changes)).model_dump(mode="json")


MOVE = MoveInProgress("eu:4:0", "unload", "b1", "b2", 900_000, 940_000, 990_000)
BEFORE, AFTER = Memory(seq=4).to_json(), Memory(seq=6).to_json()
UNDER_WAY = Memory(seq=5, moves={BUNDLE: MOVE}).to_json()
ROUNDS = (
    logged({"seq": 4, "memory": BEFORE, "decisions": [decided("eu:4:0", "unload")]}),
    logged({"seq": 5, "memory": UNDER_WAY, "decisions": [decided("eu:5:0", "assign")]}),
    logged(
        {
            "seq": 6,
            "memory": AFTER,
            "outcomes": [
                Outcome("eu:5:0", BUNDLE, "confirmed", "", 980_000, 30_000, 940_000),
                Outcome("eu:4:0", BUNDLE, "confirmed", "", 980_000, 80_000, 940_000),
            ],
        }
    ),
)
"""A move: the round that decides it, the one that assigns its bundle, the one that sees its end."""


class Recording(NoTelemetry):
    """Keeps the spans that it gets."""

    has_traces = True

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def is_sampled(self, trace_id: str) -> bool:
        return True

    def send(self, spans: Iterable[Span], sampled: bool | None = None) -> None:
        self.spans += spans


def by_name(spans: Iterable[Span]) -> dict[str, Span]:
    return {span.name: span for span in spans}


def test_a_batch_has_a_span_for_each_phase_one_after_the_other() -> None:
    found = list(batch_spans(APP, TIMES, read_batch(logged({})), PROGRESS))
    assert [span.name for span in found] == [
        "batch",
        *("offsets", "planning", "wal", "decide", "log", "publish", "project", "averages", "next"),
        *("commit", "fold"),
    ]
    spans = by_name(found)
    root = spans["batch"]
    assert root.trace_id == batch_trace_id(APP, 7) and not root.parent_id
    assert (root.start_ms, root.end_ms) == (999_970, 1_000_340)
    assert root.attributes["lb.batch_id"] == 7 and root.attributes["lb.records"] == 12
    assert root.attributes["lb.offsets"] == '{"lb-load-reports":{"0":90}}'
    assert root.attributes["lb.lag_records"] == 9
    log, publish, fold = spans["log"], spans["publish"], spans["fold"]
    assert (log.start_ms, log.end_ms) == pytest.approx((1_000_200, 1_000_230))
    assert (publish.start_ms, publish.end_ms) == pytest.approx((1_000_230, 1_000_250))
    assert fold.end_ms - fold.start_ms == pytest.approx(35), "the mean of two tasks"
    assert fold.parent_id == spans["decide"].span_id
    assert {span.parent_id for span in found} == {"", root.span_id, spans["decide"].span_id}
    assert len({span.span_id for span in found}) == len(found)


def test_a_batch_whose_progress_never_came_has_the_jobs_own_phases() -> None:
    found = list(batch_spans(APP, TIMES, read_batch(logged({})), None))
    assert [span.name for span in found] == ["batch", *TIMES.phases]
    assert (found[0].start_ms, found[0].end_ms) == pytest.approx((1_000_000, 1_000_320))


def test_refusals_are_events_of_their_clusters_round_with_rule_and_figures() -> None:
    made = refusal(Refuses.RECENTLY_UNLOADED, "b1", ["x", "y"], saw=[41_000.0], limit=1_800_000.0)
    batch = logged({"refusals": [made]}, {"cluster": "us"}, {"cluster": "asia", "error": "no"})
    found = list(batch_spans(APP, TIMES, read_batch(batch), PROGRESS))
    assert found[0].attributes["lb.clusters"] == 3 and found[0].attributes["lb.refusals"] == 2
    rounds = {span.attributes["lb.cluster"]: span for span in found if span.name == "round"}
    assert rounds.keys() == {"eu", "asia"}, "a round with nothing to say has no span"
    (event,) = rounds["eu"].events
    assert event.attributes["lb.rule"] == "recently_unloaded"
    assert event.attributes["lb.count"] == 2 and event.attributes["lb.limit"] == 1_800_000.0
    assert rounds["asia"].error == "no" and rounds["eu"].error is None


def test_rounds_refusals_and_decisions_are_bounded_and_the_trace_says_what_was_left_out() -> None:
    refusals = [refusal(Refuses.HIT_COUNT, f"b{number}") for number in range(MAX_REFUSALS + 5)]
    decisions = [decided(f"eu:5:{number}", "unload") for number in range(MAX_DECISIONS + 5)]
    rows = [{"cluster": f"c{number:03d}", "refusals": refusals} for number in range(MAX_ROUNDS + 3)]
    batch = logged(*rows, {"decisions": decisions})
    found = list(batch_spans(APP, TIMES, read_batch(batch), PROGRESS))
    assert found[0].attributes["lb.rounds_left_out"] == 4
    rounds = [span for span in found if span.name == "round"]
    assert len(rounds) == MAX_ROUNDS
    assert all(len(span.events) == MAX_REFUSALS for span in rounds)
    assert all(span.attributes["lb.refusals_left_out"] == 5 for span in rounds)
    assert len(list(move_spans(APP, TIMES, batch, {}))) == 2 * MAX_DECISIONS


def test_a_move_is_one_trace_from_its_decision_to_its_confirmation() -> None:
    kinds = {"eu:4:0": "unload", "eu:5:0": "assign"}
    spans = [span for batch in ROUNDS for span in move_spans(APP, TIMES, batch, kinds)]
    assert [span.name for span in spans] == [
        *("decided", "published", "decided", "published", "confirmed", "confirmed", "move")
    ]
    assert {span.trace_id for span in spans} == {move_trace_id("eu:4:0")}
    root = spans[-1]
    assert not root.parent_id and {span.parent_id for span in spans[:-1]} == {root.span_id}
    assert len({span.span_id for span in spans}) == len(spans)
    assert root.start_ms == 900_000 and root.attributes["lb.outcome"] == "confirmed"
    batch, decide = spans[0].links[0]
    ids = {span.span_id: span.name for span in batch_spans(APP, TIMES, read_batch(ROUNDS[0]), None)}
    assert batch == batch_trace_id(APP, 7) and ids[decide] == "decide"


def test_an_outcome_that_is_no_confirmation_is_an_error_of_the_whole_trace() -> None:
    ended = Outcome("eu:4:0", BUNDLE, "refused", "vetoed", 980_000, 80_000)
    spans = by_name(move_spans(APP, TIMES, logged({"outcomes": [ended]}), {"eu:4:0": "split"}))
    assert spans.keys() == {"refused", "split"}
    assert spans["refused"].error == spans["split"].error == "vetoed"


def test_a_dry_run_has_no_trace_and_no_header() -> None:
    batch = logged({"decisions": [decided("eu:4:0", "unload", dry_run=True)]})
    assert not list(move_spans(APP, TIMES, batch, {}))
    assert not list(_records(batch, TopicSettings(), Recording()))


def headers(batch: Logged, telemetry: Any) -> list[dict[str, bytes]]:
    return [dict(record.headers) for record in _records(batch, TopicSettings(), telemetry)]


def test_the_header_of_a_decision_names_the_span_of_its_publication() -> None:
    for batch in ROUNDS[:2]:
        published = by_name(move_spans(APP, TIMES, batch, {}))["published"]
        (found,) = headers(batch, Recording())
        parent = parse_traceparent(found[TRACEPARENT])
        assert parent is not None and parent.sampled
        assert (parent.trace_id, parent.span_id) == (published.trace_id, published.span_id)
        assert list(found) == ["decision_id", "epoch", "schema", TRACEPARENT]


def test_without_traces_a_decision_has_no_new_header_and_the_same_value() -> None:
    (off,), (on,) = (
        list(_records(ROUNDS[1], TopicSettings(), telemetry))
        for telemetry in (NoTelemetry(), Recording())
    )
    assert off.value == on.value and off.key == on.key
    assert off.headers == on.headers[:3]


KINDS = st.sampled_from(["assign", "unload", "transfer", "split"])


@given(
    app=st.text(min_size=1, max_size=20),
    decisions=st.lists(KINDS, max_size=5),
    outcomes=st.lists(st.sampled_from(["confirmed", "expired"]), max_size=4),
    seconds=st.tuples(st.floats(0, 10), st.floats(0, 10)),
    is_known=st.booleans(),
)
def test_a_batch_that_runs_twice_gives_the_same_ids_and_the_same_records(
    app: str,
    decisions: list[str],
    outcomes: list[str],
    seconds: tuple[float, float],
    is_known: bool,
) -> None:
    """The second time it is in the log: nothing is decided, times differ, kinds may be forgotten."""
    row = {
        "memory": UNDER_WAY if len(decisions) % 2 else AFTER,
        "decisions": [decided(f"eu:6:{at}", kind) for at, kind in enumerate(decisions)],
        "outcomes": [
            Outcome(f"eu:{at}:0", BUNDLE, ending, "", 980_000, 1_000)
            for at, ending in enumerate(outcomes)
        ],
    }
    found = []
    for attempt in range(2):
        phases = {"decide": seconds[attempt], "publish": 0.01}
        if attempt == 0:
            phases = {"decide": seconds[0], "log": 0.1, "publish": 0.02}
        times = BatchTimes(7, 1_000_000 + attempt, phases)
        kinds = {f"eu:{at}:0": "unload" for at in range(4)} if is_known or not attempt else {}
        batch = logged(row)
        spans = [
            *batch_spans(app, times, read_batch(batch), PROGRESS),
            *move_spans(app, times, batch, kinds),
        ]
        ids = {(span.trace_id, span.span_id, span.parent_id) for span in spans}
        logs = {span.span_id for span in spans if span.name == "log"}
        published = list(_records(batch, TopicSettings(), Recording()))
        found.append(({entry for entry in ids if entry[1] not in logs}, published))
    assert found[0] == found[1]


def run(monitor: Monitor, batch_id: int, batch: Logged) -> None:
    monitor.begin(batch_id)
    for phase in ("decide", "log", "publish", "project"):
        monitor.done(phase)
    monitor.finish(batch)


class Query:
    """Spark's progress."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.recentProgress[-1] if self.recentProgress else None


def make_monitor(tmp_path: Any, telemetry: Any) -> Monitor:
    settings = StreamSettings(tables=str(tmp_path), metrics_address="", pipeline_id="p")
    return Monitor(settings, 7, lambda: APP, dict, telemetry)


def test_the_monitor_sends_each_batchs_trace_once_when_sparks_progress_is_there(
    tmp_path: Any,
) -> None:
    telemetry, query = Recording(), Query()
    monitor = make_monitor(tmp_path, telemetry)
    monitor.start(query)
    try:
        for number, batch in enumerate(ROUNDS):
            run(monitor, number, batch)
            query.recentProgress.append(PROGRESS | {"batchId": number})
    finally:
        monitor.stop()
    batches = [span for span in telemetry.spans if span.name == "batch"]
    assert [span.attributes["lb.batch_id"] for span in batches] == [0, 1, 2]
    assert all(span.attributes["lb.records"] == 12 for span in batches)
    (root,) = [span for span in telemetry.spans if span.name == "move"]
    assert root.attributes["lb.kind"] == "unload"
    trace = [span.name for span in telemetry.spans if span.trace_id == root.trace_id]
    assert trace.count("decided") == trace.count("published") == trace.count("confirmed") == 2


@pytest.mark.parametrize("trouble", ["hangs", "500"])
def test_a_collector_that_hangs_or_refuses_keeps_no_batch_waiting(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    with otlp_receiver(status=500, hangs=trouble == "hangs") as receiver:
        settings = OtelSettings(enabled=True, endpoint=receiver.url)
        monitor = make_monitor(tmp_path, open_telemetry(settings, "job"))
        monitor.start(Query())
        try:
            for number in range(20):
                run(monitor, number, ROUNDS[0])
            until(lambda: monitor.metrics.batches._value.get() == 20)
            until(lambda: b"lb_stream_telemetry_lost_total{" in served(monitor))
        finally:
            monitor.stop()
        assert receiver.requests and not receiver.spans
    assert b"lb_stream_monitoring_errors_total{" not in served(monitor)


def served(monitor: Monitor) -> bytes:
    return generate_latest(monitor.metrics.registry)


def test_the_monitors_metrics_arrive_by_otlp_as_prometheus_gets_them(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    with otlp_receiver() as receiver:
        settings = OtelSettings(enabled=True, endpoint=receiver.url)
        monitor = make_monitor(tmp_path, open_telemetry(settings, "job"))
        monitor.start(Query())
        try:
            run(monitor, 0, ROUNDS[0])
            until(lambda: "lb_stream_decisions" in receiver.metrics)
        finally:
            monitor.stop()
    families = {
        family.name
        for registry in (monitor.metrics.registry, monitor._brokers.registry)
        for family in registry.collect()
        if family.samples
    }
    assert receiver.metrics.keys() == families
