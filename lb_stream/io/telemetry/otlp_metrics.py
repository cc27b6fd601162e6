"""Sends registries of Prometheus' client by OTLP: the same metrics, from where they are defined.

A family becomes a metric: a counter a monotonic sum, a histogram a histogram with the same buckets,
everything else a gauge. Sums are cumulative, from the start of the sender.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from lb_stream import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.samples import Sample

    from lb_stream.io.telemetry.port import Signal

INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
DEFAULT_INTERVAL_MS = 60_000.0
UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}
"""Last word of a metric's name → the unit in OTLP."""


class MetricsSender:
    """A thread that reads the registries and sends them, again and again."""

    def __init__(
        self,
        registries: Iterable[CollectorRegistry],
        url: str | None,
        resource: Resource,
        on_lost: Callable[[Signal, str, int, str], None],
    ) -> None:
        self._registries, self._resource, self._on_lost = tuple(registries), resource, on_lost
        self._exporter = OTLPMetricExporter(endpoint=url)
        self._started_ns = time.time_ns()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        interval_s = read_interval_ms() / 1000
        while not self._stopping.wait(interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        """Send all metrics once; a failure is counted, and the next time may succeed."""
        points, cause = 0, ""
        result = MetricExportResult.FAILURE
        try:
            metrics = [
                metric
                for registry in self._registries
                for metric in convert(registry.collect(), self._started_ns, time.time_ns())
            ]
            points = sum(len(metric.data.data_points) for metric in metrics)
            result = self._exporter.export(_wrap(metrics, self._resource))
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
        if result is not MetricExportResult.SUCCESS:
            self._on_lost("metrics", "failed", points, cause)

    def close(self) -> None:
        """Send the metrics once more, and end. This may take long."""
        self._stopping.set()
        self._thread.join()
        self._exporter.shutdown()


def read_interval_ms() -> float:
    """Return how often metrics are sent: OTEL_METRIC_EXPORT_INTERVAL, as the SDK reads it."""
    try:
        interval_ms = float(os.environ.get(INTERVAL, DEFAULT_INTERVAL_MS))
    except ValueError:
        return DEFAULT_INTERVAL_MS
    return interval_ms if 0 < interval_ms < math.inf else DEFAULT_INTERVAL_MS


def _wrap(metrics: Sequence[Metric], resource: Resource) -> MetricsData:
    scope = ScopeMetrics(InstrumentationScope("lb_stream", __version__), list(metrics), "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def convert(families: Iterable[Family], started_ns: int, now_ns: int) -> Iterator[Metric]:
    """Yield the metrics of OTLP for families of Prometheus; families without samples have none."""
    for family in families:
        data = _convert_data(family, started_ns, now_ns)
        if data.data_points:
            unit = UNITS.get(family.name.rpartition("_")[2], "")
            yield Metric(family.name, family.documentation, unit, data)


def _convert_data(family: Family, started_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        points = list(_histogram_points(family.samples, started_ns, now_ns))
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    numbers = [
        NumberDataPoint(dict(sample.labels), started_ns, now_ns, float(sample.value))
        for sample in family.samples
        if math.isfinite(sample.value) and not sample.name.endswith("_created")
    ]
    if family.type == "counter":
        return Sum(numbers, AggregationTemporality.CUMULATIVE, True)
    return Gauge(numbers)


def _histogram_points(
    samples: Iterable[Sample], started_ns: int, now_ns: int
) -> Iterator[HistogramDataPoint]:
    """Yield a point for each series. Prometheus' buckets contain all lower ones, OTLP's do not."""
    series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in samples:
        labels = dict(sample.labels)
        limit = labels.pop("le", None)
        found = series.setdefault(tuple(labels.items()), {"buckets": [], "sum": 0.0})
        if limit is not None:
            found["buckets"].append((float(limit), int(sample.value)))
        elif sample.name.endswith("_sum"):
            found["sum"] = float(sample.value)
    unknown: Any = None  # what OTLP leaves out
    for key, found in series.items():
        buckets = sorted(found["buckets"])
        counts = [count for _, count in buckets]
        yield HistogramDataPoint(
            attributes=dict(key),
            start_time_unix_nano=started_ns,
            time_unix_nano=now_ns,
            count=counts[-1] if counts else 0,
            sum=found["sum"],
            bucket_counts=[
                count - before for before, count in zip([0, *counts], counts, strict=False)
            ],
            explicit_bounds=[limit for limit, _ in buckets if limit < math.inf],
            min=unknown,
            max=unknown,
        )
