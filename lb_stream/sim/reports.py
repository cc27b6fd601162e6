"""Builds the load reports of simulated brokers, in the JSON forms of Pulsar's load managers.

Every field follows from the measured loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lb_stream.agent import load_data
from lb_stream.agent.load_data import BrokerLoad
from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.base import PulsarRecord
from lb_stream.contracts.reports import (
    BundleStats,
    ModularLoadReport,
    ResourceUsage,
    SimpleLoadReport,
    SystemResourceUsage,
)
from lb_stream.core.shedding.broker_loads import five_weights
from lb_stream.sim.cluster import SimCluster
from lb_stream.sim.model import BUFFERED_S, BrokerMeasurements
from lb_stream.sim.scenario.scenario import LIMITS, Floats, ScenarioBrokers

ReportForm = Literal["modular", "simple", "extensible"]

MANAGERS: dict[ReportForm, str] = {
    "modular": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "simple": "org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl",
    "extensible": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
}
BITS_PER_KBIT, MIB = 1000.0, 2.0**20
CORES = 8
"""Cores of each broker; cpu is reported in percent of one core."""
DIGITS = 3
"""Decimals of reported figures."""

_FOUR = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
"""Names in reports of the rows of LOADS."""
HISTORY_RATIO, TOP_BUNDLES = 0.9, 10  # the extensible manager's defaults
LOAD_WEIGHTS = five_weights(BalancerConfig().weights, None)
OVERLOADED_RATIO, UNDERLOADED_RATIO = 0.85, 0.50
# The simple manager's quotas of a bundle before its first measurement. The model keeps them.
QUOTA = {
    "rate_in": 40.0,
    "rate_out": 120.0,
    "bandwidth_in": 100_000.0,
    "bandwidth_out": 300_000.0,
    "memory": 80.0,
}
CPU_PER_MESSAGE_RATE = 0.025


ReportJson = dict[str, object]
"""A load report as a JSON object."""


def make_report(
    cluster: SimCluster, broker: str, now_ms: int, form: ReportForm = "modular"
) -> ReportJson:
    """Build a broker's load report as a JSON object.

    Gains and losses are those since its last report. `make_load_data` builds the extensible
    manager's load data from the modular form.
    """
    figures = _measure(cluster, broker, now_ms, form)
    return _to_json(_build_simple(figures) if form == "simple" else _build_modular(figures))


def make_load_data(
    cluster: SimCluster, broker: str, now_ms: int, before: BrokerLoad
) -> tuple[list[ReportJson], BrokerLoad]:
    """Build the extensible manager's two records, and the broker's smoothed load afterwards."""
    local = _build_modular(_measure(cluster, broker, now_ms, "extensible"))
    if local.last_bundle_gains or local.last_bundle_losses:
        before = before.cleared()  # its bundles have changed: the past doesn't describe them
    load = load_data.smooth_load(local, before, LOAD_WEIGHTS, HISTORY_RATIO, now_ms)
    records = (
        load_data.build_load_data(local, load, now_ms),
        load_data.build_top_bundles(local.last_stats, TOP_BUNDLES),
    )
    return [_to_json(record) for record in records], load


def _to_json(record: PulsarRecord) -> ReportJson:
    """Return a record as a JSON object. Real reports too leave out what is null."""
    return record.model_dump(mode="json", by_alias=True, exclude_none=True)


@dataclass(frozen=True, slots=True)
class _ReportFigures:
    """The content of a broker's report, whatever its form."""

    broker: str
    at_ms: int
    common: dict[str, Any]  # fields that both forms have
    rates: dict[str, float]  # the broker's message rates and throughputs
    resources: dict[str, ResourceUsage]
    stats: dict[str, BundleStats]
    gained: list[str]
    lost: list[str]

    @property
    def ratios(self) -> list[float]:
        """Return the usage ratios of the judged resources: all but heap memory."""
        return [
            usage.usage / usage.limit for name, usage in self.resources.items() if name != "memory"
        ]


def _measure(cluster: SimCluster, broker: str, now_ms: int, form: ReportForm) -> _ReportFigures:
    """Measure what a broker reports now. The report counts as sent."""
    measured, row = cluster.measure(now_ms), cluster.broker_row(broker)
    gained, lost, at_ms = cluster.note_report(broker, now_ms)
    stats = _stats(cluster, broker, measured)
    common = {
        "web_service_url": f"http://{broker}",
        "pulsar_service_url": f"pulsar://{broker.rpartition(':')[0]}:6650",
        "load_manager_class_name": MANAGERS[form],
        "start_timestamp": cluster.started_ms[broker],
        "num_topics": sum(bundle.topics for bundle in stats.values()),
        "num_bundles": len(stats),
        "num_consumers": sum(bundle.consumer_count for bundle in stats.values()),
        "num_producers": sum(bundle.producer_count for bundle in stats.values()),
    }
    return _ReportFigures(
        broker=broker,
        at_ms=at_ms,
        common=common,
        rates=dict(zip(_FOUR, measured.sums[:, row].round(DIGITS).tolist(), strict=True)),
        resources=_resources(cluster.model.scenario.brokers, measured, row),
        stats=stats,
        gained=gained,
        lost=lost,
    )


def bundle_stats(cluster: SimCluster, broker: str, now_ms: int) -> dict[str, BundleStats]:
    """Return the latest statistics of every bundle that the broker serves."""
    return _stats(cluster, broker, cluster.measure(now_ms))


def _stats(
    cluster: SimCluster, broker: str, measured: BrokerMeasurements
) -> dict[str, BundleStats]:
    """Return bundle → its statistics, sorted by name."""
    model, rows = cluster.model, cluster.rows_of(broker)
    loads = measured.loads[:, rows].round(DIGITS).T.tolist()
    return {
        model.names[row]: BundleStats(
            **dict(zip(_FOUR, load, strict=True)),
            consumer_count=int(model.consumers[row]),
            producer_count=int(model.producers[row]),
            topics=int(model.topics[row]),
            cache_size=int(load[2] * BUFFERED_S),
        )
        for row, load in zip(rows, loads, strict=True)
    }


def _resources(
    brokers: ScenarioBrokers, measured: BrokerMeasurements, row: int
) -> dict[str, ResourceUsage]:
    limits = {"cpu": (100.0 * CORES, 100.0 * CORES)} | {
        name: (float(true[row]), float(stated[row]))
        for name, (true, stated) in true_and_stated_limits(brokers).items()
    }
    return {
        name: ResourceUsage(
            usage=round(float(measured.used[name][row] * true), DIGITS), limit=stated
        )
        for name, (true, stated) in limits.items()
    }


def true_and_stated_limits(brokers: ScenarioBrokers) -> dict[str, tuple[Floats, Floats]]:
    """Return each broker's true limits, and those that its reports state, in reports' units.

    By resource, without cpu. Stated: 0 where the limit isn't known.
    """
    units = {"memory": (1, MIB), "bandwidth": (8, BITS_PER_KBIT)}
    found: dict[str, tuple[Floats, Floats]] = {}
    for limit, column in LIMITS.items():
        times, by = units["memory" if limit.endswith("memory") else "bandwidth"]
        true: Floats = getattr(brokers, column)
        found[limit] = true * times / by, brokers.stated_limit(limit) * times / by
    return found


def _build_modular(figures: _ReportFigures) -> ModularLoadReport:
    return ModularLoadReport(
        **figures.common,
        cpu=figures.resources["cpu"],
        memory=figures.resources["memory"],
        direct_memory=figures.resources["direct_memory"],
        bandwidth_in=figures.resources["bandwidth_in"],
        bandwidth_out=figures.resources["bandwidth_out"],
        msg_rate_in=figures.rates["msg_rate_in"],
        msg_rate_out=figures.rates["msg_rate_out"],
        msg_throughput_in=figures.rates["msg_throughput_in"],
        msg_throughput_out=figures.rates["msg_throughput_out"],
        last_update=figures.at_ms,
        last_stats=figures.stats,
        bundles=list(figures.stats),
        last_bundle_gains=figures.gained,
        last_bundle_losses=figures.lost,
        max_resource_usage=max(figures.ratios),
    )


def _build_simple(figures: _ReportFigures) -> SimpleLoadReport:
    bundles = len(figures.stats)
    return SimpleLoadReport(
        **figures.common,
        msg_rate_in=figures.rates["msg_rate_in"],
        msg_rate_out=figures.rates["msg_rate_out"],
        name=figures.broker,
        timestamp=figures.at_ms,
        under_loaded=all(ratio < UNDERLOADED_RATIO for ratio in figures.ratios),
        over_loaded=any(ratio > OVERLOADED_RATIO for ratio in figures.ratios),
        system_resource_usage=SystemResourceUsage(**figures.resources),
        bundle_stats=figures.stats,
        bundle_gains=figures.gained,
        bundle_losses=figures.lost,
        allocated_cpu=(QUOTA["rate_in"] + QUOTA["rate_out"]) * bundles * CPU_PER_MESSAGE_RATE,
        allocated_memory=QUOTA["memory"] * bundles,
        allocated_bandwidth_in=QUOTA["bandwidth_in"] * bundles,
        allocated_bandwidth_out=QUOTA["bandwidth_out"] * bundles,
        allocated_msg_rate_in=QUOTA["rate_in"] * bundles,
        allocated_msg_rate_out=QUOTA["rate_out"] * bundles,
    )


def report_throughput(report: Mapping[str, Any]) -> float:
    """Return a report's throughput in and out, bytes/s; 0 for a list of top bundles."""
    if "msgThroughputIn" in report:
        return float(report["msgThroughputIn"]) + float(report["msgThroughputOut"])
    return float(
        sum(
            stats["msgThroughputIn"] + stats["msgThroughputOut"]
            for stats in report.get("bundleStats", {}).values()
        )
    )
