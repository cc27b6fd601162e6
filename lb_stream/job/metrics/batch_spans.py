"""The trace of a batch: a span for each phase, and for each cluster's round with what it refused.

The spans are made of what the monitor knows when the batch is over. Their ids follow from the
pipeline, its checkpoint and the batch's number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lb_stream.contracts.trace_ids import derive_span_id, derive_trace_id
from lb_stream.io.telemetry.port import Span, SpanEvent, Value
from lb_stream.job.metrics.spark_progress import (
    Progress,
    lag_records,
    read_number,
    read_state,
    spark_phases,
)
from lb_stream.stream.ports import Logged

MAX_ROUNDS = 100
"""Rounds of a batch that have a span; the batch's span says how many were left out."""
MAX_REFUSALS = 20
"""Refusals of a round that are events of its span."""
MAX_TEXT = 2_000
"""Characters of an attribute: of offsets, of an error."""
BEFORE, OWN = ("offsets", "planning", "wal"), ("decide", "log", "publish")


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What the trace says of a round; `left_out`: refusals that are no event."""

    cluster: str
    seq: int
    decisions: int
    outcomes: int
    refusals: tuple[SpanEvent, ...]
    left_out: int
    error: str | None


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What the trace says of a batch's rounds; `left_out`: rounds that have no span."""

    log_seq: int
    clusters: int
    decisions: int
    refusals: int
    rounds: tuple[RoundFacts, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """When a batch began (ms since the epoch), and how long its phases took (seconds), in order."""

    batch_id: int
    started_ms: int
    phases: Mapping[str, float]

    def end_of(self, phase: str) -> float:
        """Return when a phase ended, ms; if it has not been, when the one before it ended."""
        names = list(self.phases)
        wanted = OWN.index(phase)
        until = [name for name in names if name in OWN and OWN.index(name) <= wanted]
        return self.started_ms + 1000 * sum(self.phases[name] for name in until)


def batch_trace_id(app: str, batch_id: int) -> str:
    """Return the trace of a batch; `app`: pipeline and checkpoint."""
    return derive_trace_id("batch", app, str(batch_id))


def decide_span_id(trace_id: str) -> str:
    """Return the span of a batch in which its decisions were made."""
    return derive_span_id(trace_id, "decide")


def read_batch(logged: Logged) -> BatchFacts:
    """Read what a batch's trace says of its rounds."""
    rows = logged.rounds.select(["cluster", "now_ms", "error"]).to_pylist()
    seqs = logged.rounds["seq"].to_pylist() if "seq" in logged.rounds.column_names else []
    rounds: list[RoundFacts] = []
    decided = refused = left_out = 0
    for at, row in enumerate(rows):
        decisions, refusals = logged.entries("decisions")[at], logged.entries("refusals")[at]
        outcomes = logged.entries("outcomes")[at]
        decided += len(decisions)
        refused += sum(refusal["count"] for refusal in refusals)
        if not (decisions or refusals or outcomes or row["error"]):
            continue
        if len(rounds) >= MAX_ROUNDS:
            left_out += 1
            continue
        rounds.append(
            RoundFacts(
                cluster=row["cluster"],
                seq=seqs[at] if seqs else 0,
                decisions=len(decisions),
                outcomes=len(outcomes),
                refusals=tuple(
                    _read_refusal(refusal, row["now_ms"]) for refusal in refusals[:MAX_REFUSALS]
                ),
                left_out=max(0, len(refusals) - MAX_REFUSALS),
                error=row["error"],
            )
        )
    return BatchFacts(logged.log_seq, len(rows), decided, refused, tuple(rounds), left_out)


def _read_refusal(refusal: Mapping[str, Any], now_ms: int) -> SpanEvent:
    """Return a refusal as an event; only figures and short texts are taken."""
    attributes: dict[str, Value] = {}
    for name, value in refusal.items():
        if isinstance(value, str | int | float | bool):
            attributes[f"lb.{name}"] = value[:MAX_TEXT] if isinstance(value, str) else value
    return SpanEvent("refusal", now_ms, attributes)


def batch_spans(
    app: str, times: BatchTimes, facts: BatchFacts, progress: Progress | None
) -> Iterator[Span]:
    """Yield the spans of a finished batch; without Spark's progress, those of the job's phases."""
    trace_id = batch_trace_id(app, times.batch_id)
    root = derive_span_id(trace_id, "batch")
    phases = list(_phases(times, progress))

    def make(name: str, start_ms: float, end_ms: float, parent: str = root, **more: Any) -> Span:
        span_id = derive_span_id(trace_id, name, *more.pop("key", ()))
        return Span(name, trace_id, span_id, start_ms, end_ms, parent, **more)

    # The batch, and its phases one after another.
    start_ms, end_ms = phases[0][1], phases[-1][2]
    if progress is not None:
        end_ms = max(end_ms, start_ms + progress["durationMs"]["triggerExecution"])
    attributes = _batch_attributes(times, facts) | _progress_attributes(progress)
    yield Span("batch", trace_id, root, start_ms, end_ms, attributes=attributes)
    decided = (start_ms, end_ms)
    for name, begins_ms, ends_ms in phases:
        yield make(name, begins_ms, ends_ms)
        if name == "decide":
            decided = (begins_ms, ends_ms)
    # In the phase decide: the fold of the shards, and the clusters' rounds.
    decide = decide_span_id(trace_id)
    if progress is not None and (fold_ms := _fold_ms(progress)) is not None:
        yield make(
            "fold",
            decided[0],
            min(decided[0] + fold_ms, decided[1]),
            parent=decide,
            attributes={"lb.mean_of_tasks": True, **_state_attributes(progress)},
        )
    for found in facts.rounds:
        yield make(
            "round",
            *decided,
            parent=decide,
            key=(found.cluster,),
            attributes={
                "lb.cluster": found.cluster,
                "lb.seq": found.seq,
                "lb.decisions": found.decisions,
                "lb.outcomes": found.outcomes,
                "lb.refusals_left_out": found.left_out,
            },
            events=found.refusals,
            error=None if found.error is None else found.error[-MAX_TEXT:],
        )


def _phases(times: BatchTimes, progress: Progress | None) -> Iterator[tuple[str, float, float]]:
    """Yield each phase with its begin and end, ms: Spark's first ones, the job's, Spark's last."""
    spark = {} if progress is None else spark_phases(progress)
    # Spark's phases before the batch's own end where the job's begin.
    at_ms = times.started_ms - sum(float(spark.get(name, 0)) for name in BEFORE)
    if progress is not None and "timestamp" in progress:
        at_ms = min(at_ms, _trigger_ms(progress["timestamp"]))
    for name in BEFORE:
        if name in spark:
            yield name, at_ms, at_ms + spark[name]
            at_ms += spark[name]
    at_ms = times.started_ms
    for name, seconds in times.phases.items():
        yield name, at_ms, at_ms + 1000 * seconds
        at_ms += 1000 * seconds
    if "commit" in spark:
        yield "commit", at_ms, at_ms + spark["commit"]


def _trigger_ms(text: str) -> float:
    """Return when Spark began the batch, ms, from its ISO 8601 text."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000


def _batch_attributes(times: BatchTimes, facts: BatchFacts) -> dict[str, Value]:
    return {
        "lb.batch_id": times.batch_id,
        "lb.log_seq": facts.log_seq,
        "lb.clusters": facts.clusters,
        "lb.decisions": facts.decisions,
        "lb.refusals": facts.refusals,
        "lb.rounds_left_out": facts.left_out,
    }


def _progress_attributes(progress: Progress | None) -> dict[str, Value]:
    if progress is None:
        return {}
    ends = [source["endOffset"] for source in progress["sources"]]
    texts = [end if isinstance(end, str) else json.dumps(end) for end in ends]
    return {
        "lb.records": int(read_number(progress, "numInputRows")),
        "lb.lag_records": sum(lag_records(progress).values()),
        "lb.offsets": " ".join(texts)[:MAX_TEXT],
    }


def _state_attributes(progress: Progress) -> dict[str, Value]:
    """Return the state's figures under the names of the table `batches`."""
    return {f"lb.{name}": value for name, value in read_state(progress).items()}


def _fold_ms(progress: Progress) -> float | None:
    """Return how long a task folded shards, on average, ms; None: Spark does not say."""
    operators: Sequence[Mapping[str, Any]] = progress["stateOperators"]
    tasks = sum(int(operator.get("numShufflePartitions", 0)) for operator in operators)
    if not tasks:
        return None
    state = read_state(progress)
    return (state["state_updates_ms"] + state["state_commit_ms"]) / tasks
