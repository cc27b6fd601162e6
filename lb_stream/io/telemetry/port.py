"""What programs tell of their work as spans and metrics, and the interface of who sends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Value = str | int | float | bool
Signal = Literal["traces", "metrics"]
OnLost = Callable[[Signal, str, int], None]
"""Called with what was lost, why (`full`, `failed`) and how many: spans, or points of metrics.

Threads of the sender call it, too.
"""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something at one moment of a span; `at_ms`: since the epoch."""

    name: str
    at_ms: float
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """Something that has ended, with its ids (hexadecimal) and times (ms since the epoch).

    `parent_id`: empty for the root of a trace. `error`: why it failed; None: it did not. `links`:
    trace and span ids of related spans.
    """

    name: str
    trace_id: str
    span_id: str
    start_ms: float
    end_ms: float
    parent_id: str = ""
    kind: Literal["internal", "producer", "consumer"] = "internal"
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    links: tuple[tuple[str, str], ...] = ()


class Telemetry(Protocol):
    """Sends spans and metrics. No method fails, and none but `close` waits."""

    @property
    def has_traces(self) -> bool:
        """Whether spans are sent."""

    def is_sampled(self, trace_id: str) -> bool:
        """Whether the spans of this trace are sent. The same trace always gets the same answer."""

    def send(self, spans: Iterable[Span], sampled: bool | None = None) -> None:
        """Queue spans. What finds no room is dropped and counted.

        `sampled`: what another program has decided about their trace; None: `is_sampled` says it.
        """

    def count_lost(self, on_lost: OnLost) -> None:
        """Call this with what is lost from now on."""

    def send_metrics(self, registries: Iterable[CollectorRegistry]) -> None:
        """Send all metrics of these registries from now on, now and then, until `close`."""

    def close(self) -> None:
        """Send what is queued, for two seconds at most."""


class NoTelemetry:
    """Sends nothing."""

    has_traces = False

    def is_sampled(self, trace_id: str) -> bool:
        """Return False."""
        return False

    def send(self, spans: Iterable[Span], sampled: bool | None = None) -> None:
        """Do nothing."""

    def count_lost(self, on_lost: OnLost) -> None:
        """Do nothing."""

    def send_metrics(self, registries: Iterable[CollectorRegistry]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


NO_TELEMETRY = NoTelemetry()
