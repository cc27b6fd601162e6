"""Whether a broker's report differs enough from the last one that was sent.

The modular manager compares the weighted max usage, the extensible one the max usage without
weights. The agent asks every `report_min_interval_ms`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.reports import ModularLoadReport, ReportConfig, SimpleLoadReport
from lb_stream.core.model.resources import max_weighted_usage


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """What is compared of a report: max usage (a ratio), messages/s, bytes/s, number of bundles."""

    usage: float
    msgs_per_s: float
    bytes_per_s: float
    bundles: int

    @staticmethod
    def from_report(report: ModularLoadReport, weights: Mapping[str, float]) -> ReportFigures:
        """Return the figures of a report; `weights` are those of usage, by resource."""
        pairs = {name: getattr(report, name) for name in RESOURCES}
        columns = {
            name: (np.array([pair.usage]), np.array([pair.limit])) for name, pair in pairs.items()
        }
        return ReportFigures(
            usage=float(max_weighted_usage(columns, weights)[0]),
            msgs_per_s=report.msg_rate_in + report.msg_rate_out,
            bytes_per_s=report.msg_throughput_in + report.msg_throughput_out,
            bundles=report.num_bundles,
        )


@dataclass(frozen=True, slots=True)
class SimpleFigures:
    """What the simple manager compares: number of bundles, and resource → (usage, limit)."""

    bundles: int
    resources: Mapping[str, tuple[float, float]]

    @staticmethod
    def from_report(report: SimpleLoadReport, bundles: int) -> SimpleFigures:
        """Return the figures of a report with that many bundles."""
        pairs = {name: getattr(report.system_resource_usage, name) for name in RESOURCES}
        return SimpleFigures(
            bundles, {name: (pair.usage, pair.limit) for name, pair in pairs.items()}
        )


def simple_report_needed(
    written: SimpleFigures, now: SimpleFigures, elapsed_ms: int, config: ReportConfig
) -> bool:
    """Return whether the simple manager's broker sends a report.

    It does when the number of bundles differs, or when a usage has changed by more whole percent of
    its limit than the threshold, or when the last report is too old.
    """
    if elapsed_ms > config.report_max_interval_ms:
        return True
    changes = [
        100.0 * abs(usage - written.resources[name][0]) / limit
        for name, (usage, limit) in now.resources.items()
        if limit > 0
    ]
    return (
        written.bundles != now.bundles
        or int(min(100.0, max(changes, default=0.0))) > config.report_threshold_percent
    )


def report_needed(
    written: ReportFigures, now: ReportFigures, elapsed_ms: int, config: ReportConfig
) -> bool:
    """Return whether to send a report, `elapsed_ms` after the last one."""
    if elapsed_ms > config.report_max_interval_ms:
        return True
    changes = (
        100.0 * abs(written.usage - now.usage),
        _percent_change(written.msgs_per_s, now.msgs_per_s),
        _percent_change(written.bytes_per_s, now.bytes_per_s),
        _percent_change(written.bundles, now.bundles),
    )
    return max(changes) > config.report_threshold_percent


def _percent_change(old: float, new: float) -> float:
    if old == 0:
        return 0.0 if new == 0 else math.inf
    return 100.0 * abs((old - new) / old)
