"""An agent's part of a trace: its span, its acknowledgement's header, and headers of any kind."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.agent import Agent, AgentConfig
from lb_stream.agent.traces import AgentTraces
from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.reports import Ack
from lb_stream.contracts.trace_ids import (
    TRACEPARENT,
    TraceParent,
    move_trace_id,
    parse_traceparent,
    published_span,
)
from lb_stream.io.telemetry.port import NO_TELEMETRY, NoTelemetry, Span
from lb_stream.sim import SimBroker, build_cluster

A, B = "broker-1:8080", "broker-2:8080"
PARENT = published_span("eu-1:41:0", "eu-1:42:0")


class Recording(NoTelemetry):
    """Keeps the spans that it gets, and whether their traces are sampled."""

    has_traces = True

    def __init__(self) -> None:
        self.spans: list[tuple[Span, bool | None]] = []

    def is_sampled(self, trace_id: str) -> bool:
        return True

    def send(self, spans: Iterable[Span], sampled: bool | None = None) -> None:
        self.spans += [(span, sampled) for span in spans]


class SentRecords:
    """Stands for the agent's connection."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, bytes]]] = []

    def send(self, broker: str, value: Any, kind: str, headers: Any = ()) -> Any:
        self.sent.append((kind, dict(headers)))
        return Quiet()


class Quiet:
    """A future that never tells."""

    def add_callback(self, call: Any) -> None:
        pass

    def add_errback(self, call: Any) -> None:
        pass


def make_agent(telemetry: Any) -> tuple[Agent, SentRecords, Decision]:
    """An agent of A, and an unload of one of A's bundles."""
    cluster = build_cluster(bundles=6)
    config = AgentConfig("unused:9092", "eu-1", telemetry=telemetry)
    agent, sent = Agent(config, [SimBroker(cluster, A)]), SentRecords()
    agent.reporter._connection = sent
    now_ms = time.time_ns() // 1_000_000
    decision = example_decision(
        source=A,
        destination=B,
        bundle=min(cluster.owned(A)),
        issued_ms=now_ms,
        expires_ms=now_ms + 60_000,
    )
    return agent, sent, decision


def take(agent: Agent, decision: Decision, header: bytes | None) -> None:
    headers = [("epoch", b"3")] if header is None else [("epoch", b"3"), (TRACEPARENT, header)]
    agent._take(decision.to_json().encode(), 0, headers)


def test_a_release_is_a_child_of_the_decisions_publication_and_its_ack_names_it() -> None:
    telemetry = Recording()
    agent, sent, decision = make_agent(telemetry)
    take(agent, decision, PARENT.encode())
    ((span, sampled),) = telemetry.spans
    assert (span.name, span.trace_id, span.parent_id) == (
        "released",
        PARENT.trace_id,
        PARENT.span_id,
    )
    assert span.attributes["lb.broker"] == A and span.error is None and sampled
    assert sent.sent == [
        ("ack", {TRACEPARENT: TraceParent(span.trace_id, span.span_id).encode()}),
    ]


def test_a_refusal_is_a_span_with_an_error_and_a_decision_done_before_is_none() -> None:
    telemetry = Recording()
    agent, sent, decision = make_agent(telemetry)
    other = decision.model_copy(update={"bundle": "acme/elsewhere/0x00000000_0xffffffff"})
    for _ in range(2):
        take(agent, other, PARENT.encode())
    ((span, _),) = telemetry.spans
    assert span.name == "refused" and span.error and "not served here" in span.error
    assert len(sent.sent) == 1


@pytest.mark.parametrize("header", [None, b"garbage", b"0" * 10_000, b"\xff" * 55, b""])
def test_without_a_usable_header_the_decision_is_carried_out_in_a_trace_of_its_own(
    header: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Recording()
    agent, _, decision = make_agent(telemetry)
    take(agent, decision, header)
    ((span, _),) = telemetry.spans
    assert span.name == "released" and not span.parent_id
    assert span.trace_id == move_trace_id(decision.decision_id)
    assert agent._traces.malformed == (header is not None)
    assert ("traceparent can't be read" in caplog.text) == (header is not None)


def test_unreadable_headers_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    agent, _, decision = make_agent(Recording())
    for number in range(5):
        changed = decision.model_copy(update={"decision_id": f"eu-1:{number}:0"})
        take(agent, changed, b"garbage")
    assert agent._traces.malformed == 5
    assert caplog.text.count("traceparent can't be read") == 1


def test_a_trace_that_its_sender_does_not_record_is_not_recorded_here() -> None:
    telemetry = Recording()
    agent, sent, decision = make_agent(telemetry)
    take(agent, decision, published_span("eu-1:41:0", "eu-1:42:0", sampled=False).encode())
    ((_, sampled),) = telemetry.spans
    assert sampled is False
    parent = parse_traceparent(sent.sent[0][1][TRACEPARENT])
    assert parent is not None and not parent.sampled


def test_without_telemetry_an_ack_has_no_header_and_nothing_is_kept() -> None:
    agent, sent, decision = make_agent(NO_TELEMETRY)
    take(agent, decision, PARENT.encode())
    assert sent.sent == [("ack", {})] and not agent._traces._noted


@given(st.binary(max_size=100), st.text(max_size=20))
def test_a_decision_read_twice_has_the_same_span(header: bytes, broker: str) -> None:
    found = []
    ack = Ack(decision_id="eu-1:42:0", outcome="released")
    for _ in range(2):
        telemetry: Any = Recording()
        traces = AgentTraces(telemetry)
        decision = example_decision()
        traces.note(decision, [(TRACEPARENT, header)])
        found.append((traces.record(broker, decision, ack), telemetry.spans[0][0].span_id))
    assert found[0] == found[1]
