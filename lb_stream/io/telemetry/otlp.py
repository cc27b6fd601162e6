"""Sends spans and metrics to a collector by OTLP over HTTP, with OpenTelemetry's own SDK.

The SDK queues spans and sends them from a thread of its own. Spans have their ids and times before
they come here, as they tell of work that is over.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from lb_stream import __version__
from lb_stream.contracts.settings import OtelSettings
from lb_stream.io.telemetry.otlp_metrics import MetricsSender
from lb_stream.io.telemetry.port import OnLost, Signal, Span

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)

CLOSE_S = 2.0
"""How long the end of a program waits for what is queued."""
MAX_QUEUED = 2_048
"""Spans that may wait, unless OTEL_BSP_MAX_QUEUE_SIZE gives another number."""
MAX_SENT_TOGETHER = 512
SCOPE = "lb_stream"
_KINDS = {
    "internal": SpanKind.INTERNAL,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}


class OtlpTelemetry:
    """The sender. Several threads may use it."""

    def __init__(self, settings: OtelSettings, service: str, attributes: Mapping[str, str]) -> None:
        self._endpoint = settings.endpoint.removesuffix("/")
        self._losses = Losses()
        given = OTELResourceDetector().detect().attributes
        own = {"service.name": service, "service.version": __version__, **attributes}
        self._resource = Resource.create({**own, **given})
        self._spans: _SpanSender | None = None
        if settings.traces:
            self._spans = _SpanSender(self._url("traces"), self._resource, self._losses)
        self._losses.follow_exporters()
        self._has_metrics = settings.metrics
        self._metrics: MetricsSender | None = None

    def _url(self, signal: Signal) -> str | None:
        """Return where a signal goes; None: the SDK finds it in the environment."""
        return f"{self._endpoint}/v1/{signal}" if self._endpoint else None

    @property
    def has_traces(self) -> bool:
        """Whether spans are sent."""
        return self._spans is not None

    def is_sampled(self, trace_id: str) -> bool:
        """Whether the spans of this trace are sent, by OTEL_TRACES_SAMPLER."""
        return self._spans is not None and self._spans.is_sampled(trace_id)

    def send(self, spans: Iterable[Span], sampled: bool | None = None) -> None:
        """Queue spans; drop and count what finds no room."""
        if self._spans is not None:
            for span in spans:
                self._spans.send(span, sampled)

    def count_lost(self, on_lost: OnLost) -> None:
        """Call this with what is lost from now on."""
        self._losses.on_lost = on_lost

    def send_metrics(self, registries: Iterable[CollectorRegistry]) -> None:
        """Send the registries' metrics from now on."""
        if self._has_metrics and self._metrics is None:
            self._metrics = MetricsSender(
                registries, self._url("metrics"), self._resource, self._losses.note
            )

    def close(self) -> None:
        """Send what is queued, for two seconds at most; what is left is lost with the process."""
        deadline = time.monotonic() + CLOSE_S
        closing = [
            threading.Thread(target=sender.close, name="otel-close", daemon=True)
            for sender in (self._spans, self._metrics)
            if sender is not None
        ]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))


class Losses:
    """Counts what was lost, and logs it: once for each signal and reason."""

    def __init__(self) -> None:
        self.on_lost: OnLost | None = None
        self._logged: set[tuple[Signal, str]] = set()
        self._causes: _Causes | None = None

    def follow_exporters(self) -> None:
        """Silence the SDK's exporters from now on, and keep what they say of failures."""
        self._causes = _Causes()

    def note(self, signal: Signal, reason: str, count: int, cause: str = "") -> None:
        """Note that so many spans, or points of metrics, were lost.

        `cause`: empty: the exporter has logged it, or there was no answer.
        """
        if self.on_lost is not None:
            self.on_lost(signal, reason, count)
        if (signal, reason) in self._logged:
            return
        self._logged.add((signal, reason))
        if reason == "full":
            logger.warning(
                "the queue of %s for OpenTelemetry is full: what finds no room is dropped and "
                "counted. This is logged once",
                signal,
            )
        else:
            logger.warning(
                "%s for OpenTelemetry were not delivered (%s). Such losses are counted, and this "
                "is logged once",
                signal,
                cause
                or (self._causes and self._causes.last)
                or "no connection, or no answer in time",
            )


class _Causes(logging.Handler):
    """Keeps the exporters' last message: they log each failure, and give no reason otherwise."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        for name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal"):
            exporters = logging.getLogger(name)
            for handler in [
                handler for handler in exporters.handlers if isinstance(handler, _Causes)
            ]:
                exporters.removeHandler(handler)
            exporters.addHandler(self)
            exporters.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message, as one line, unless it only says that an attempt was the last one."""
        message = " ".join(record.getMessage().split())
        if "max retries or shutdown" not in message:
            self.last = message[:300]


class _SpanSender:
    """The SDK's provider, with its queue and its exporter."""

    def __init__(self, url: str | None, resource: Resource, losses: Losses) -> None:
        self._resource, self._losses = resource, losses
        self._lock = threading.Lock()
        self._waiting = 0
        # The environment's sampler, which the SDK gives to a provider alone.
        self._sampler = TracerProvider(resource=resource, shutdown_on_exit=False).sampler
        self._scope = InstrumentationScope(SCOPE, __version__)
        # The SDK's queue drops the oldest span and counts nothing: `send` never lets it get full.
        self._room = _read_number("OTEL_BSP_MAX_QUEUE_SIZE", MAX_QUEUED)
        exporter: Any = _CountedExporter(OTLPSpanExporter(endpoint=url), self._note_sent)
        self._processor: Any = BatchSpanProcessor(
            exporter,
            max_queue_size=self._room,
            max_export_batch_size=min(
                self._room, _read_number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", MAX_SENT_TOGETHER)
            ),
        )

    def _note_sent(self, spans: int, ok: bool) -> None:
        with self._lock:
            self._waiting -= spans
        if not ok:
            self._losses.note("traces", "failed", spans)

    def is_sampled(self, trace_id: str, parent: Context | None = None) -> bool:
        """Whether the sampler takes this trace, or this child of a sampled span."""
        decision = self._sampler.should_sample(parent, int(trace_id, 16), "").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def send(self, span: Span, sampled: bool | None) -> None:
        """Queue a span, unless its trace is not sampled or the queue is full."""
        parent = _context(span) if sampled else None
        if sampled is False or not self.is_sampled(span.trace_id, parent):
            return
        with self._lock:
            has_room = self._waiting < self._room
            self._waiting += has_room
        if has_room:
            self._processor.on_end(self._build(span))
        else:
            self._losses.note("traces", "full", 1)

    def _build(self, span: Span) -> ReadableSpan:
        """Return a span as the SDK's exporters read it.

        It is over, so the SDK's tracer, which would watch it from its begin to its end, costs a
        batch more than it gives.
        """
        trace_id = span.trace_id
        return ReadableSpan(
            name=span.name,
            context=_span_context(trace_id, span.span_id),
            parent=_span_context(trace_id, span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[
                Event(event.name, event.attributes, _nanoseconds(event.at_ms))
                for event in span.events
            ],
            links=[Link(_span_context(*link)) for link in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.UNSET)
            if span.error is None
            else Status(StatusCode.ERROR, span.error),
            start_time=_nanoseconds(span.start_ms),
            end_time=_nanoseconds(max(span.start_ms, span.end_ms)),
            instrumentation_scope=self._scope,
        )

    def close(self) -> None:
        """Send what is queued. This may take long."""
        self._processor.shutdown()


def _read_number(name: str, default: int) -> int:
    """Return a variable of the environment, 1 or more; the default if it is no such number."""
    text = os.environ.get(name, "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() else default


def _context(span: Span) -> Context | None:
    """Return the context of a span with a sampled parent; without a parent, none."""
    if not span.parent_id:
        return None
    return set_span_in_context(NonRecordingSpan(_span_context(span.trace_id, span.parent_id)))


def _span_context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1)
    )


def _nanoseconds(ms: float) -> int:
    return round(ms * 1_000_000)


class _CountedExporter:
    """An exporter that tells what has become of each batch of spans: delivered or not."""

    def __init__(self, exporter: Any, on_sent: Callable[[int, bool], None]) -> None:
        self._exporter, self._on_sent = exporter, on_sent

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch of spans."""
        result: SpanExportResult = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._on_sent(len(spans), result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is kept here."""
        return True
