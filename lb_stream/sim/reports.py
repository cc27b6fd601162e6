"""Builds the load reports of simulated brokers, in the JSON forms of Pulsar's load managers.

Every field follows from the measured loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from lb_stream.agent import load_data
from lb_stream.agent.load_data import BrokerLoad
from lb_stream.contracts.balancer import BalancerConfig
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
from lb_stream.sim.scenario.scenario import ScenarioBrokers

ReportForm = Literal["modular", "simple", "extensible"]

VERSION = "4.0.7"
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


def make_report(
    cluster: SimCluster, broker: str, now_ms: int, form: ReportForm = "modular"
) -> dict[str, Any]:
    """Build a broker's load report as a JSON object.

    Gains and losses are those since its last report. `make_load_data` builds the extensible
    manager's load data from the modular form.
    """
    # Real reports leave the TLS addresses out instead of sending null.
    report: dict[str, Any] = _report(cluster, broker, now_ms, form).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return report


def make_load_data(
    cluster: SimCluster, broker: str, now_ms: int, before: BrokerLoad
) -> tuple[list[dict[str, Any]], BrokerLoad]:
    """Build the extensible manager's two records, and the broker's smoothed load afterwards."""
    local = _report(cluster, broker, now_ms, "extensible")
    if local.last_bundle_gains or local.last_bundle_losses:
        before = before.cleared()  # its bundles have changed: the past doesn't describe them
    load = load_data.smooth_load(local, before, LOAD_WEIGHTS, HISTORY_RATIO, now_ms)
    records = (
        load_data.build_load_data(local, load, now_ms),
        load_data.build_top_bundles(local.last_stats, TOP_BUNDLES),
    )
    return [
        record.model_dump(mode="json", by_alias=True, exclude_none=True) for record in records
    ], load


def _report(cluster: SimCluster, broker: str, now_ms: int, form: ReportForm) -> Any:
    measured, place = cluster.measure(now_ms), cluster.broker_row(broker)
    gained, lost, at_ms = cluster.note_report(broker, now_ms)
    stats = _stats(cluster, broker, measured)
    total: dict[str, Any] = dict(
        zip(_FOUR, measured.sums[:, place].round(DIGITS).tolist(), strict=True)
    )
    common: dict[str, Any] = {
        "web_service_url": f"http://{broker}",
        "pulsar_service_url": f"pulsar://{broker.rpartition(':')[0]}:6650",
        "broker_version_string": VERSION,
        "load_manager_class_name": MANAGERS[form],
        "start_timestamp": cluster.start_ms,
        "num_topics": sum(stats.topics for stats in stats.values()),
        "num_bundles": len(stats),
        "num_consumers": sum(stats.consumer_count for stats in stats.values()),
        "num_producers": sum(stats.producer_count for stats in stats.values()),
    }
    resources = _resources(cluster.model.scenario.brokers, measured, place)
    make = _simple if form == "simple" else _modular
    return make(common, total, resources, stats, (gained, lost), at_ms, broker)


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
    brokers: ScenarioBrokers, measured: BrokerMeasurements, place: int
) -> dict[str, ResourceUsage]:
    limits = {
        "cpu": 100.0 * CORES,
        "memory": brokers.memory_bytes[place] / MIB,
        "direct_memory": brokers.direct_memory_bytes[place] / MIB,
        "bandwidth_in": brokers.bandwidth_in_bytes_per_s[place] * 8 / BITS_PER_KBIT,
        "bandwidth_out": brokers.bandwidth_out_bytes_per_s[place] * 8 / BITS_PER_KBIT,
    }
    return {
        name: ResourceUsage(
            usage=round(float(measured.used[name][place] * limit), DIGITS), limit=float(limit)
        )
        for name, limit in limits.items()
    }


def _ratios(resources: Mapping[str, ResourceUsage]) -> list[float]:
    """Return the usage ratios of the judged resources: all but heap memory."""
    return [usage.usage / usage.limit for name, usage in resources.items() if name != "memory"]


def _modular(
    common: dict[str, Any],
    total: dict[str, Any],
    resources: dict[str, ResourceUsage],
    stats: dict[str, BundleStats],
    changes: tuple[list[str], list[str]],
    at_ms: int,
    _broker: str,
) -> ModularLoadReport:
    return ModularLoadReport(
        **common,
        cpu=resources["cpu"],
        memory=resources["memory"],
        direct_memory=resources["direct_memory"],
        bandwidth_in=resources["bandwidth_in"],
        bandwidth_out=resources["bandwidth_out"],
        **total,
        last_update=at_ms,
        last_stats=stats,
        bundles=list(stats),
        last_bundle_gains=changes[0],
        last_bundle_losses=changes[1],
        max_resource_usage=max(_ratios(resources)),
    )


def _simple(
    common: dict[str, Any],
    total: dict[str, Any],
    resources: dict[str, ResourceUsage],
    stats: dict[str, BundleStats],
    changes: tuple[list[str], list[str]],
    at_ms: int,
    broker: str,
) -> SimpleLoadReport:
    ratios, bundles = _ratios(resources), len(stats)
    return SimpleLoadReport(
        **common,
        msg_rate_in=total["msg_rate_in"],
        msg_rate_out=total["msg_rate_out"],
        name=broker,
        timestamp=at_ms,
        under_loaded=all(ratio < UNDERLOADED_RATIO for ratio in ratios),
        over_loaded=any(ratio > OVERLOADED_RATIO for ratio in ratios),
        system_resource_usage=SystemResourceUsage(**resources),
        bundle_stats=stats,
        bundle_gains=changes[0],
        bundle_losses=changes[1],
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
