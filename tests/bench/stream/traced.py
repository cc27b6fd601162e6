"""Tracing that is on for some batches and off for the next ones, in one and the same job.

Two jobs would differ by more than tracing costs: each JVM compiles in its own order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from lb_stream.contracts.settings import OtelSettings
from lb_stream.io.telemetry.opening import open_telemetry
from lb_stream.io.telemetry.port import OnLost, Span, Telemetry

BLOCK = 10
"""Batches in a row that are all traced, or all not.

Of four blocks the second and the third one are traced. In strict turns, work that the job does
every twentieth batch would always meet one side: without any tracing the ratio was 1.05.
"""
SETTLING = 2
"""First batches of a block that don't count: the monitoring still works for the one before."""


def is_traced(batch_id: int) -> bool:
    """Whether tracing is on for a batch."""
    return batch_id // BLOCK % 4 in (1, 2)


def pair_up(seconds: Mapping[int, float]) -> list[tuple[float, float]]:
    """Return times with and without tracing of each place of four whole blocks, by batch number.

    A time is the geometric mean of two batches: those of the inner blocks, and of the outer ones.
    """
    pairs = []
    for number in seconds:
        place = [number + block * BLOCK for block in range(4)]
        if number // BLOCK % 4 == 0 and all(other in seconds for other in place):
            first, second, third, fourth = (seconds[other] for other in place)
            pairs.append((math.sqrt(second * third), math.sqrt(first * fourth)))
    return pairs


def counts(batch_id: int) -> bool:
    """Whether a batch's time counts for its side."""
    return batch_id % BLOCK >= SETTLING


class Alternating:
    """Telemetry that is on or off by the number of the batch that runs."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self.batch_id = 0

    @property
    def has_traces(self) -> bool:
        return self._telemetry.has_traces and is_traced(self.batch_id)

    def is_sampled(self, trace_id: str) -> bool:
        return self._telemetry.is_sampled(trace_id)

    def send(self, spans: Iterable[Span], sampled: bool | None = None) -> None:
        self._telemetry.send(spans, sampled)

    def count_lost(self, on_lost: OnLost) -> None:
        self._telemetry.count_lost(on_lost)

    def send_metrics(self, registries: Iterable[object]) -> None:
        """Send none: they cost the same on both sides."""

    def close(self) -> None:
        self._telemetry.close()


def open_alternating(
    settings: OtelSettings, service: str, attributes: Mapping[str, str] | None = None
) -> Alternating:
    """Open what the settings ask for, in turns."""
    return Alternating(open_telemetry(settings, service, attributes))
