"""The agent's part of a decision's trace: a span of what it did, and the acknowledgement's header.

The decision's record names its publication as the parent. A record without a usable header begins a
trace of its own; that is no fault.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from lb_stream.agent.connection import Headers
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import Ack
from lb_stream.contracts.trace_ids import (
    TRACEPARENT,
    TraceParent,
    derive_span_id,
    move_trace_id,
    parse_traceparent,
)
from lb_stream.io.telemetry.port import Span, Telemetry, Value

log = logging.getLogger(__name__)

MAX_NOTED = 1_000
"""Decisions that are remembered until they are carried out, as hooks may have to be asked."""


@dataclass(frozen=True, slots=True)
class _Noted:
    parent: TraceParent | None
    since_ms: float


class AgentTraces:
    """The traces of one agent's decisions. `malformed`: headers that could not be read."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._noted: dict[str, _Noted] = {}
        self.malformed = 0

    def note(self, decision: Decision, headers: Headers) -> None:
        """Note a decision for a broker of this agent, before it is carried out."""
        if not self._telemetry.has_traces:
            return
        value = dict(headers).get(TRACEPARENT)
        parent = parse_traceparent(value)
        if value is not None and parent is None:
            self.malformed += 1
            if self.malformed == 1:
                log.warning(
                    "a decision's header traceparent can't be read, and is ignored. This is logged "
                    "once"
                )
        self._noted[decision.decision_id] = _Noted(parent, _now_ms())
        while len(self._noted) > MAX_NOTED:
            del self._noted[next(iter(self._noted))]

    def record(self, broker: str, decision: Decision, ack: Ack | None) -> Headers:
        """Send the span of a decision that is dealt with; return its acknowledgement's headers.

        `ack`: None: the decision was ignored, and has no span.
        """
        if not self._telemetry.has_traces:
            return ()
        noted = self._noted.pop(decision.decision_id, None) or _Noted(None, _now_ms())
        if ack is None:
            return ()
        parent = noted.parent
        trace_id = move_trace_id(decision.decision_id) if parent is None else parent.trace_id
        sampled = self._telemetry.is_sampled(trace_id) if parent is None else parent.sampled
        span_id = derive_span_id(trace_id, decision.decision_id, broker)
        attributes: dict[str, Value] = {
            "lb.decision_id": decision.decision_id,
            "lb.cluster": decision.cluster,
            "lb.kind": decision.kind,
            "lb.bundle": decision.bundle,
            "lb.broker": broker,
        }
        if ack.reason:
            attributes["lb.reason"] = ack.reason
        has_failed = ack.outcome in ("refused", "failed")
        span = Span(
            ack.outcome,
            trace_id,
            span_id,
            noted.since_ms,
            _now_ms(),
            "" if parent is None else parent.span_id,
            kind="consumer",
            attributes=attributes,
            error=ack.reason or ack.outcome if has_failed else None,
        )
        self._telemetry.send([span], sampled)
        return [(TRACEPARENT, TraceParent(trace_id, span_id, sampled).encode())]


def _now_ms() -> float:
    return time.time_ns() / 1_000_000
