"""A move's trace is whole across the job and the agents' process, at a collector on this machine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from lb_stream.contracts.reads import is_reads
from lb_stream.contracts.settings import TopicSettings
from lb_stream.contracts.trace_ids import TRACEPARENT, parse_traceparent
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

SETTINGS = {
    "dry_run": "false",
    "shedding_interval_ms": 1_000,
    "shedding_grace_period_ms": 0,
    "split_enabled": "false",
    "stream.tick_interval_ms": 500,
    "stream.metrics_address": "",
    "otel.enabled": "true",
}
PARTS = {"decided", "published", "released", "acquired", "confirmed", "move"}


@contextmanager
def agents(run: Pipeline) -> Iterator["subprocess.Popen[bytes]"]:
    """`lbctl sim`: a process with the agent of three simulated brokers, one of them hot."""
    settings = {
        "kafka.bootstrap_servers": run.bootstrap,
        **{
            f"topics.{name}": getattr(run.topics, name)
            for name in ("reports", "decisions", "ownership")
        },
        **{name: value for name, value in run.settings.items() if name.startswith("otel.")},
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = ["sim", "--cluster", "eu-1", "--brokers", "3", "--bundles", "12", "--quiet"]
    with (run.folder / "sim.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lb_stream.cli.main", *command, *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def whole_moves(receiver: OtlpReceiver) -> list[str]:
    """Return the traces that have all parts of a move."""
    names: dict[str, set[str]] = {}
    for span in list(receiver.spans):
        names.setdefault(span.trace_id, set()).add(span.name)
    return [trace for trace, found in names.items() if found >= PARTS]


def headers_of(run: Pipeline) -> dict[str, bytes]:
    """Return decision id → its header, of all published decisions."""
    with KafkaConsumer(
        run.topics.decisions,
        bootstrap_servers=run.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=3000,
    ) as consumer:
        headers = [dict(record.headers) for record in consumer if not is_reads(record.headers)]
    return {found["decision_id"].decode(): found[TRACEPARENT] for found in headers}


def test_a_move_is_one_trace_across_the_job_and_the_agents_process(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    with otlp_receiver() as receiver:
        run = Pipeline(
            kafka.bootstrap, topic_names, tmp_path, SETTINGS | {"otel.endpoint": receiver.url}
        )
        run.create_topics(reports=2, decisions=2, ownership=2)
        with run.running(), agents(run):
            wait_until(lambda: whole_moves(receiver), "a move from its decision to its end")
            wait_until(lambda: "lb_stream_outcomes" in receiver.metrics, "metrics of the move")
        headers = headers_of(run)
    trace = [span for span in receiver.spans if span.trace_id == whole_moves(receiver)[0]]
    spans: dict[str, list[ReceivedSpan]] = {}
    for span in trace:
        spans.setdefault(span.name, []).append(span)
    # Both processes took part.
    services = {span.name: span.resource["service.name"] for span in trace}
    assert services["decided"] == services["published"] == services["move"] == "lb-stream"
    assert services["released"] == services["acquired"] == "lb-stream-agent"
    # An agent's span is the child of the publication that its decision's record names.
    published = {span.attributes["lb.decision_id"]: span for span in spans["published"]}
    for name in ("released", "acquired"):
        (done,) = spans[name]
        decision_id = done.attributes["lb.decision_id"]
        parent = parse_traceparent(headers[decision_id])
        assert parent is not None and parent.trace_id == done.trace_id
        assert done.parent_id == parent.span_id == published[decision_id].span_id
    # The root is the parent of all others, and lasts until the end.
    (root,) = spans["move"]
    own = [span for name in ("decided", "published", "confirmed") for span in spans[name]]
    assert {span.parent_id for span in own} == {root.span_id}
    assert root.end_ns >= max(span.end_ns for span in spans["published"])
    # The decision's span leads to its batch's trace, which has Spark's figures.
    batch, _ = spans["decided"][0].links[0]
    phases = {span.name: span for span in receiver.spans if span.trace_id == batch}
    assert {"batch", "decide", "fold", "log", "publish", "project", "commit", "round"} <= set(
        phases
    )
    assert phases["batch"].attributes["lb.records"] > 0
    assert topic_names.reports in phases["batch"].attributes["lb.offsets"]
