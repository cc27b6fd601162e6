"""Spans and metrics at a collector that takes them, refuses them, hangs or is not there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lb_stream.contracts.settings import OtelSettings
from lb_stream.contracts.trace_ids import derive_span_id, derive_trace_id
from lb_stream.io.telemetry.opening import open_telemetry
from lb_stream.io.telemetry.otlp import CLOSE_S
from lb_stream.io.telemetry.port import Span, SpanEvent, Telemetry
from lb_stream.kit.embedded_kafka import free_port
from tests.support.otlp_receiver import otlp_receiver, read_attributes, until

Open = Callable[..., Telemetry]
TRACE = derive_trace_id("a trace")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens senders with given settings, and closes them."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    senders = []

    def open_(**settings: Any) -> Telemetry:
        senders.append(open_telemetry(OtelSettings(enabled=True, **settings), "test"))
        return senders[-1]

    yield open_
    for sender in senders:
        sender.close()


def span(number: int = 0, **changes: Any) -> Span:
    fields = {"name": "work", "start_ms": 1_000.5, "end_ms": 2_000.0} | changes
    return Span(trace_id=TRACE, span_id=derive_span_id(TRACE, str(number)), **fields)


def losses(telemetry: Telemetry) -> list[tuple[str, str, int]]:
    """Return a list that gets what is lost."""
    found: list[tuple[str, str, int]] = []
    telemetry.count_lost(lambda *lost: found.append(lost))
    return found


def own_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log shows: the SDK's own lines go to no handler but pytest's."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("lb_stream")]


def total(lost: list[tuple[str, str, int]], signal: str, reason: str) -> int:
    return sum(count for name, why, count in lost if (name, why) == (signal, reason))


def test_a_span_arrives_with_its_own_ids_times_and_all_that_it_says(opened: Open) -> None:
    parent = derive_span_id(TRACE, "parent")
    with otlp_receiver() as receiver:
        telemetry = opened(endpoint=receiver.url)
        event = SpanEvent("refusal", 1_500.0, {"lb.rule": "cool_down", "lb.saw": 2})
        telemetry.send(
            [
                span(
                    parent_id=parent,
                    kind="producer",
                    attributes={"lb.batch_id": 7},
                    events=(event,),
                    error="it failed",
                    links=((TRACE, parent),),
                )
            ]
        )
        until(lambda: receiver.spans)
    (found,) = receiver.spans
    assert (found.trace_id, found.span_id) == (TRACE, derive_span_id(TRACE, "0"))
    assert (found.parent_id, found.name, found.kind) == (parent, "work", 4)
    assert (found.start_ns, found.end_ns) == (1_000_500_000, 2_000_000_000)
    assert found.attributes == {"lb.batch_id": 7}
    assert found.events == [("refusal", {"lb.rule": "cool_down", "lb.saw": 2})]
    assert found.error == "it failed" and found.links == [(TRACE, parent)]
    assert found.resource["service.name"] == "test"


def test_the_environments_variables_count_as_users_of_opentelemetry_expect(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with otlp_receiver() as receiver:
        for name, value in {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s3cret",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_SERVICE_NAME": "balancer",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=staging",
        }.items():
            monkeypatch.setenv(name, value)
        opened(metrics=False).send([span()])
        until(lambda: receiver.spans)
    (path, headers), *_ = receiver.requests
    assert path == "/v1/traces"
    assert {name.lower(): value for name, value in headers.items()}["api-key"] == "s3cret"
    resource = receiver.spans[0].resource
    assert resource["service.name"] == "balancer"
    assert resource["deployment.environment"] == "staging"


@pytest.mark.parametrize("sampler", ["always_off", "traceidratio", "parentbased_always_off"])
def test_a_trace_that_the_sampler_leaves_out_is_not_sent_and_takes_no_room(
    opened: Open, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
    with otlp_receiver() as receiver:
        telemetry = opened(endpoint=receiver.url, metrics=False)
        lost = losses(telemetry)
        assert not telemetry.is_sampled(TRACE)
        telemetry.send(span(number) for number in range(10))
        telemetry.send((span(number) for number in range(10)), sampled=True)
        telemetry.close()
    assert not receiver.spans and not lost


def test_the_sender_of_a_decision_has_the_say_whether_its_trace_is_sampled(opened: Open) -> None:
    with otlp_receiver() as receiver:
        telemetry = opened(endpoint=receiver.url, metrics=False)
        telemetry.send([span(0)], sampled=False)
        telemetry.send([span(1)], sampled=True)
        telemetry.close()
    assert [found.span_id for found in receiver.spans] == [derive_span_id(TRACE, "1")]


def test_what_a_hanging_collector_leaves_no_room_for_is_dropped_counted_and_logged_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    with otlp_receiver(hangs=True) as receiver:
        telemetry = opened(endpoint=receiver.url, metrics=False)
        lost = losses(telemetry)
        for number in range(50):
            telemetry.send([span(number)])
        telemetry.close()
        # `close` came back while the collector still owed its first answer.
        assert not receiver.held.is_set() and not receiver.spans
        assert total(lost, "traces", "full") == 40
    assert len(own_lines(caplog)) == 1
    assert CLOSE_S == 2.0


@pytest.mark.parametrize("trouble", ["refused", "500", "400"])
def test_a_collector_that_takes_nothing_costs_one_line_and_a_count(
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    caplog.set_level(logging.INFO)
    with otlp_receiver(status=500 if trouble == "refused" else int(trouble)) as receiver:
        url = f"http://127.0.0.1:{free_port()}" if trouble == "refused" else receiver.url
        telemetry = opened(endpoint=url, metrics=False)
        lost = losses(telemetry)
        for number in range(3):
            telemetry.send([span(number)])
            until(lambda expected=number + 1: total(lost, "traces", "failed") == expected)
        telemetry.close()
    (line,) = own_lines(caplog)
    assert "not delivered" in line
    assert ("no connection" if trouble == "refused" else trouble) in line


def test_after_a_time_without_a_collector_spans_arrive_again(opened: Open) -> None:
    with otlp_receiver(status=500) as receiver:
        telemetry = opened(endpoint=receiver.url, metrics=False)
        lost = losses(telemetry)
        telemetry.send([span(0)])
        until(lambda: lost)
        receiver.status = 200
        telemetry.send([span(1)])
        until(lambda: receiver.spans)
    assert [found.span_id for found in receiver.spans] == [derive_span_id(TRACE, "1")]


def test_a_wrong_variable_of_the_sdk_is_still_warned_of(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    said: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: said.append(record.getMessage()))
    logging.getLogger().addHandler(handler)
    try:
        opened(endpoint="http://127.0.0.1:1", metrics=False).close()
    finally:
        logging.getLogger().removeHandler(handler)
    assert said == ["Couldn't recognize sampler sometimes."]


def registry_of() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("done_total", "things done", ["kind"], registry=registry).labels("x").inc(3)
    Gauge("lag_bytes", "bytes to do", registry=registry).set(4.5)
    times = Histogram("work_seconds", "time", ["phase"], registry=registry, buckets=(0.1, 1))
    for seconds in (0.05, 0.5, 0.6, 7):
        times.labels("log").observe(seconds)
    Counter("never_total", "has no series", ["kind"], registry=registry)
    return registry


def points(metric: Any) -> list[tuple[dict[str, Any], Any]]:
    data = getattr(metric, metric.WhichOneof("data"))
    return [(read_attributes(point.attributes), point) for point in data.data_points]


def test_a_registry_of_prometheus_arrives_as_it_is_served(opened: Open) -> None:
    with otlp_receiver() as receiver:
        opened(endpoint=receiver.url, traces=False).send_metrics([registry_of()])
        until(lambda: receiver.metrics)
        found = dict(receiver.metrics)
    assert found.keys() == {"done", "lag_bytes", "work_seconds"}
    assert found["done"].sum.is_monotonic and found["done"].sum.aggregation_temporality == 2
    ((labels, point),) = points(found["done"])
    assert labels == {"kind": "x"} and point.as_double == 3
    ((_, point),) = points(found["lag_bytes"])
    assert point.as_double == 4.5 and found["lag_bytes"].unit == "By"
    ((labels, point),) = points(found["work_seconds"])
    assert labels == {"phase": "log"} and found["work_seconds"].unit == "s"
    assert list(point.bucket_counts) == [1, 2, 1] and list(point.explicit_bounds) == [0.1, 1.0]
    assert point.count == 4 and point.sum == pytest.approx(8.15) and not point.HasField("min")


class Alive(Collector):
    """A gauge whose values are what Python has for yes and no, as those of brokers are."""

    def collect(self) -> Iterator[Any]:
        family = GaugeMetricFamily("alive", "1: alive", labels=["broker"])
        for broker, value in {"b1": True, "b2": np.bool_(False), "b3": np.int64(1)}.items():
            family.add_metric([broker], value)
        yield family


def test_a_value_of_any_numeric_type_arrives_as_a_number(opened: Open) -> None:
    registry = CollectorRegistry()
    registry.register(Alive())
    with otlp_receiver() as receiver:
        opened(endpoint=receiver.url, traces=False).send_metrics([registry])
        until(lambda: receiver.metrics)
        found = {labels["broker"]: p.as_double for labels, p in points(receiver.metrics["alive"])}
    assert found == {"b1": 1.0, "b2": 0.0, "b3": 1.0}


def test_metrics_are_sent_a_last_time_at_the_end(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    with otlp_receiver() as receiver:
        telemetry = opened(endpoint=f"{receiver.url}/", traces=False)
        telemetry.send_metrics([registry_of()])
        telemetry.close()
        assert [path for path, _ in receiver.requests] == ["/v1/metrics"]


class Broken:
    """A registry that can't be read at first."""

    def __init__(self) -> None:
        self.asked = 0

    def collect(self) -> Any:
        self.asked += 1
        if self.asked < 3:
            raise RuntimeError("not yet")
        return registry_of().collect()


def test_a_registry_that_cannot_be_read_is_named_and_read_again(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with otlp_receiver() as receiver:
        telemetry = opened(endpoint=receiver.url, traces=False)
        broken: Any = Broken()
        telemetry.send_metrics([broken])
        until(lambda: receiver.metrics)
    assert broken.asked >= 3
    assert ["RuntimeError: not yet" in line for line in own_lines(caplog)] == [True]


def test_both_signals_can_be_turned_off(opened: Open) -> None:
    with otlp_receiver() as receiver:
        quiet: list[Telemetry] = [
            opened(endpoint=receiver.url, traces=False, metrics=False),
            opened(endpoint=receiver.url, traces=True, metrics=False),
        ]
        for telemetry in quiet:
            telemetry.send_metrics([registry_of()])
            telemetry.close()
        assert not receiver.requests
    assert [telemetry.has_traces for telemetry in quiet] == [False, True]
