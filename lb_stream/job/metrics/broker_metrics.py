"""Metrics of single brokers, from the figures that rounds write beside the log.

They have a path of their own, because there are many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lb_stream.job.metrics.round_figures import FLOWS, USAGES, MemorySource, RoundFigures


class _Smoothed(msgspec.Struct):
    """TransferShedder's memory: broker → smoothed load (ratio), smoothed throughput, bundles."""

    brokers: dict[str, tuple[float, float, int]] = {}


class _Strategies(msgspec.Struct):
    transfer: _Smoothed = msgspec.field(name="TransferShedder", default_factory=_Smoothed)


class _ShedderMemory(msgspec.Struct):
    strategies: _Strategies = msgspec.field(default_factory=_Strategies)


_read_memory = msgspec.json.Decoder(_ShedderMemory).decode


class BrokerMetrics(Collector):
    """The registry of all brokers' gauges; `memories` gives canonical JSON by cluster."""

    def __init__(self, figures: RoundFigures, memories: MemorySource) -> None:
        self.registry = CollectorRegistry()
        self._figures, self._memories = figures, memories
        self.registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics' names without reading anything."""
        yield from self._families().values()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all brokers; dead ones have only `lb_stream_broker_alive`."""
        families = self._families()
        active: dict[str, set[str]] = {}
        for cluster, brokers in dict(self._figures.loads).items():
            for broker in brokers.to_pylist():
                self._add(families, cluster, broker)
                if broker["active"]:
                    active.setdefault(cluster, set()).add(broker["broker"])
        for cluster, text in dict(self._memories()).items():
            transfer = _read_memory(text).strategies.transfer
            smoothed = {name: load for name, (load, _, _) in transfer.brokers.items()}
            self._add_smoothed(families, cluster, smoothed, active.get(cluster, set()))
        yield from families.values()

    @staticmethod
    def _families() -> dict[str, Metric]:
        labels = ["cluster", "broker"]
        made = [
            *(
                GaugeMetricFamily(
                    f"pulsar_lb_{name}_usage",
                    "usage of the resource, per cent of its limit",
                    labels=[*labels, "metric"],
                )
                for name in USAGES
            ),
            GaugeMetricFamily(
                "pulsar_lb_resource_usage",
                "weighted usage of the scarcest resource, ratio; max_ema: smoothed",
                labels=[*labels, "feature"],
            ),
            GaugeMetricFamily(
                "pulsar_lb_resource_usage_stats",
                "average and deviation of a cluster's smoothed usages, ratio",
                labels=["cluster", "feature", "stat"],
            ),
            GaugeMetricFamily(
                "lb_stream_broker_alive", "1: alive; 0: dead or departed", labels=labels
            ),
            GaugeMetricFamily(
                "lb_stream_broker_active",
                "1: counts in max and mean usage; 0: draining, drained or silent",
                labels=labels,
            ),
            GaugeMetricFamily(
                "lb_stream_broker_bundles", "bundles that the broker owns", labels=labels
            ),
            GaugeMetricFamily(
                "lb_stream_broker_throughput_bytes_per_second",
                "throughput in the last load report",
                labels=[*labels, "direction"],
            ),
            GaugeMetricFamily(
                "lb_stream_broker_messages_per_second",
                "message rate in the last load report",
                labels=[*labels, "direction"],
            ),
        ]
        return {family.name: family for family in made}

    @staticmethod
    def _add(families: Mapping[str, Any], cluster: str, broker: Mapping[str, Any]) -> None:
        labels = [cluster, broker["broker"]]
        families["lb_stream_broker_alive"].add_metric(labels, broker["alive"])
        if not broker["alive"]:
            return
        families["lb_stream_broker_active"].add_metric(labels, broker["active"])
        for name, column in USAGES.items():
            families[f"pulsar_lb_{name}_usage"].add_metric(
                [*labels, "loadBalancing"], 100 * broker[column]
            )
        families["pulsar_lb_resource_usage"].add_metric([*labels, "max"], broker["usage_ratio"])
        families["lb_stream_broker_bundles"].add_metric(labels, broker["bundles"])
        for (quantity, direction), column in FLOWS.items():
            families[f"lb_stream_broker_{quantity}_per_second"].add_metric(
                [*labels, direction], broker[column]
            )

    @staticmethod
    def _add_smoothed(
        families: Mapping[str, Any],
        cluster: str,
        loads: Mapping[str, float],
        active: Collection[str],
    ) -> None:
        for name, load in loads.items():
            families["pulsar_lb_resource_usage"].add_metric([cluster, name, "max_ema"], load)
        counted = [load for name, load in loads.items() if name in active]
        average = float(np.mean(counted)) if counted else 0.0
        deviation = float(np.std(counted)) if counted else 0.0
        if average > 0 and deviation > 0:
            families["pulsar_lb_resource_usage_stats"].add_metric(
                [cluster, "max_ema", "avg"], average
            )
            families["pulsar_lb_resource_usage_stats"].add_metric(
                [cluster, "max_ema", "std"], deviation
            )
