"""A small collector: takes OTLP over HTTP, and keeps what comes; it may refuse or hang."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ReceivedSpan:
    """A span as it came, ids in hexadecimal, times in ns."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    error: str | None
    links: list[tuple[str, str]]
    resource: dict[str, Any]


@dataclass
class OtlpReceiver:
    """What has come so far. `status`: of answers. `held`: while it is clear, no answer is given."""

    port: int = 0
    status: int = 200
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def of(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def take(self, path: str, body: bytes) -> None:
        """Parse a request and keep what it has."""
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

        if path.endswith("/v1/traces"):
            for group in traces.ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = read_attributes(group.resource.attributes)
                self.spans += [
                    _read_span(span, resource)
                    for scope in group.scope_spans
                    for span in scope.spans
                ]
        elif path.endswith("/v1/metrics"):
            for group in metrics.ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in group.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}


def read_attributes(attributes: Any) -> dict[str, Any]:
    """Return attributes as a dict of plain values."""
    return {
        item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in attributes
    }


def _read_span(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        read_attributes(span.attributes),
        [(event.name, read_attributes(event.attributes)) for event in span.events],
        span.status.message if span.status.code == 2 else None,
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        resource,
    )


@contextmanager
def otlp_receiver(
    status: int = 200, hangs: bool = False, reads: bool = True
) -> Iterator[OtlpReceiver]:
    """Run a receiver on a free port of this machine.

    `hangs`: it answers once `held` is set. `reads`: it parses what comes.
    """
    receiver = OtlpReceiver(status=status)
    if not hangs:
        receiver.held.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.requests.append((self.path, dict(self.headers)))
            receiver.held.wait()
            if receiver.status == 200 and reads:
                receiver.take(self.path, body)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.held.set()
        server.shutdown()
        server.server_close()
        thread.join()


def until(condition: Callable[[], object], within_s: float = 30.0) -> None:
    """Wait for something to become true; fail once that takes too long."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)
