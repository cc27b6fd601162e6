"""The traces of decisions: decided, published, and how they ended.

A move is one trace: its unload or transfer, then the assignment. Agents add spans of their own, as
children of the publication, which the decision's record names. The root lasts from the first
decision to the outcome; it is sent last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lb_stream.contracts.decisions import MOVES
from lb_stream.contracts.trace_ids import (
    MOVE_ROOT,
    derive_span_id,
    move_trace_id,
    published_span,
)
from lb_stream.io.telemetry.move_ids import find_move_ids
from lb_stream.io.telemetry.port import Span, Value
from lb_stream.job.metrics.batch_spans import BatchTimes, batch_trace_id, decide_span_id
from lb_stream.stream.ports import Logged

MAX_DECISIONS = 300
"""Decisions, and outcomes, of a batch that have spans. A fleet's first batch may have thousands."""
_FIELDS = ("decision_id", "cluster", "kind", "bundle", "source", "destination", "rule", "strategy")


def move_spans(
    app: str, times: BatchTimes, logged: Logged, kinds: Mapping[str, str]
) -> Iterator[Span]:
    """Yield the spans of a published batch's decisions and outcomes; dry runs have none.

    `kinds`: of the decisions that were pending before the batch, by id; it may lack some.
    """
    left = MAX_DECISIONS
    rows = logged.rounds.select(["cluster", "memory"]).to_pylist()
    for at, row in enumerate(rows):
        decisions = [
            decision for decision in logged.entries("decisions")[at] if not decision["dry_run"]
        ]
        decisions, outcomes = decisions[:left], logged.entries("outcomes")[at][:left]
        if not decisions and not outcomes:
            continue
        left -= max(len(decisions), len(outcomes))
        moves = find_move_ids(row["memory"], decisions, outcomes)
        for outcome in outcomes:
            move_id = moves[outcome["decision_id"]]
            kind = kinds.get(outcome["decision_id"], "")
            yield from _end(row["cluster"], move_id, kind, outcome, times)
        for decision in decisions:
            yield from _begin(app, moves[decision["decision_id"]], decision, times)


def _end(
    cluster: str, move_id: str, kind: str, outcome: Mapping[str, Any], times: BatchTimes
) -> Iterator[Span]:
    """Yield the span of an outcome; if it ends the whole trace, its root, too."""
    decision_id, name = outcome["decision_id"], outcome["outcome"]
    trace_id = move_trace_id(move_id)
    root = derive_span_id(trace_id, MOVE_ROOT)
    known_ms = times.end_of("log")
    error = None if name == "confirmed" else outcome["detail"] or name
    attributes: dict[str, Value] = {
        "lb.decision_id": decision_id,
        "lb.cluster": cluster,
        "lb.bundle": outcome["bundle"],
        "lb.outcome": name,
        "lb.detail": outcome["detail"],
    }
    if kind:
        attributes["lb.kind"] = kind
    yield Span(
        name,
        trace_id,
        derive_span_id(trace_id, decision_id, "outcome"),
        outcome["at_ms"],
        known_ms,
        root,
        attributes=attributes,
        error=error,
    )
    if move_id == decision_id:
        yield Span(
            "move" if kind in MOVES else kind or "decision",
            trace_id,
            root,
            outcome["at_ms"] - outcome["took_ms"],
            max(known_ms, outcome["at_ms"]),
            attributes=attributes,
            error=error,
        )


def _begin(
    app: str, move_id: str, decision: Mapping[str, Any], times: BatchTimes
) -> Iterator[Span]:
    """Yield a decision's first two spans: made, once it is in the log; published."""
    published = published_span(move_id, decision["decision_id"])
    trace_id = published.trace_id
    root = derive_span_id(trace_id, MOVE_ROOT)
    attributes: dict[str, Value] = {
        f"lb.{name}": decision[name] for name in _FIELDS if decision.get(name) is not None
    }
    attributes["lb.batch_id"] = times.batch_id
    batch = batch_trace_id(app, times.batch_id)
    logged_ms = times.end_of("log")
    yield Span(
        "decided",
        trace_id,
        derive_span_id(trace_id, decision["decision_id"], "decided"),
        times.started_ms,
        logged_ms,
        root,
        attributes=attributes,
        links=((batch, decide_span_id(batch)),),
    )
    yield Span(
        "published",
        trace_id,
        published.span_id,
        logged_ms,
        times.end_of("publish"),
        root,
        kind="producer",
        attributes=attributes,
    )
