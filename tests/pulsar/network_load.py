"""Real brokers whose usage is that of their bandwidth: settings, measures, an even start."""

from __future__ import annotations

from collections.abc import Mapping

from tests.pulsar.testbed import Bed

FRESH_S = 135
"""By then a whole minute of bandwidth, and ten seconds of rates, is of what is there now."""
SETTINGS = {
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    "cpu_weight": 0,  # each broker reports the whole machine's
    "shedding_interval_ms": 60_000,
    "shedding_grace_period_ms": 60_000,
    "history_ratio": 0.5,
    "min_throughput_mb": 0.001,
    "split_enabled": "false",
    "least_moves_hot_for_ms": 60_000,
    "least_moves_min_dwell_ms": 60_000,
    "stream.max_offsets_per_trigger": 0,
}
REPORTING = {"cpu_weight": SETTINGS["cpu_weight"], "report_max_interval_ms": 60_000}
"""Agents report usage without cpu, as the job sees it, and once a minute in any case: as often as
Pulsar measures bandwidth."""


def shared_out(loads: Mapping[str, float], brokers: Mapping[str, float]) -> dict[str, str]:
    """Bundle → broker: the heaviest first, each to the broker with the least for its weight."""
    owners, given = dict[str, str](), dict.fromkeys(brokers, 0.0)
    for bundle in sorted(loads, key=lambda bundle: (-loads[bundle], bundle)):
        owners[bundle] = min(given, key=lambda broker: given[broker] / brokers[broker])
        given[owners[bundle]] += loads[bundle]
    return owners


def usages(bed: Bed) -> list[float]:
    """The part of its bandwidth that each broker says clients' messages take."""
    return [
        report["bandwidthIn"]["usage"] / report["bandwidthIn"]["limit"]
        for report in bed.reports().values()
    ]
