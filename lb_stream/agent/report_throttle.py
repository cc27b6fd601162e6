"""Decides which of a broker's reports are sent: those that differ enough from the last one.

Unlike Pulsar, it always sends a report with other bundles than the last one: a decision may wait
for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from lb_stream.agent.adapter import JsonReport, Report
from lb_stream.agent.report_needed import (
    ReportFigures,
    SimpleFigures,
    report_needed,
    simple_report_needed,
)
from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.reports import (
    ModularLoadReport,
    ReportConfig,
    SimpleLoadReport,
    find_report_kind,
)
from lb_stream.core.shedding.broker_loads import UNWEIGHTED

CHANGES = ("lastBundleGains", "lastBundleLosses", "bundleGains", "bundleLosses")
"""Fields of reports with what has changed since the last report that was sent."""


@dataclass(slots=True)
class ReportThrottle:
    """Leaves out the reports of one broker that are not needed.

    Only modular and simple reports are compared. Load data is always sent: the broker has decided
    to write it.
    """

    config: ReportConfig
    weights: Mapping[str, float] = field(default_factory=lambda: BalancerConfig().weights)
    _sent: tuple[ReportFigures | SimpleFigures, int] | None = None
    _bundles: frozenset[str] = frozenset()
    _changes: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def for_manager(config: ReportConfig, balancer: BalancerConfig) -> Callable[[], ReportThrottle]:
        """Return a maker of throttles for the brokers of a cluster with that load manager."""
        weights = UNWEIGHTED if balancer.load_manager == "extensible" else balancer.weights
        return lambda: ReportThrottle(config, weights)

    def take(self, report: Report, now_ms: int, forced: bool) -> Report | None:
        """Return the report to send, or None if it is not needed.

        Changes that earlier reports named and that were not sent are added to it. `now_ms` is of
        any monotonic clock.
        """
        fields = report if isinstance(report, Mapping) else json.loads(report)
        try:
            figures = self._figures(fields)
        except ValidationError:  # the job rejects it, with the reason
            return report
        if figures is None:
            return report
        bundles = frozenset(
            {
                *fields.get("bundles", ()),
                *fields.get("lastStats", ()),
                *fields.get("bundleStats", ()),
            }
        )
        forced = forced or self._sent is None or bundles != self._bundles
        if not forced and self._sent is not None and not self._needed(*self._sent, figures, now_ms):
            self._keep(report)
            return None
        self._sent, self._bundles = (figures, now_ms), bundles
        return self._with_changes(report)

    def _needed(
        self,
        sent: ReportFigures | SimpleFigures,
        sent_ms: int,
        now: ReportFigures | SimpleFigures,
        now_ms: int,
    ) -> bool:
        if isinstance(sent, ReportFigures) and isinstance(now, ReportFigures):
            return report_needed(sent, now, now_ms - sent_ms, self.config)
        if isinstance(sent, SimpleFigures) and isinstance(now, SimpleFigures):
            return simple_report_needed(sent, now, now_ms - sent_ms, self.config)
        return True  # its broker runs another load manager now

    def _figures(self, fields: JsonReport) -> ReportFigures | SimpleFigures | None:
        match find_report_kind(dict(fields)):
            case "modular":
                return ReportFigures.from_report(
                    ModularLoadReport.model_validate(_without_bundles(fields, "lastStats")),
                    self.weights,
                )
            case "simple":
                return SimpleFigures.from_report(
                    SimpleLoadReport.model_validate(_without_bundles(fields, "bundleStats")),
                    len(fields.get("bundleStats", ())),
                )
        return None

    def _keep(self, report: Report) -> None:
        if isinstance(report, Mapping):
            for name in CHANGES:
                if report.get(name):
                    self._changes[name] = sorted({*self._changes.get(name, ()), *report[name]})

    def _with_changes(self, report: Report) -> Report:
        changes, self._changes = self._changes, {}
        if not changes or not isinstance(report, Mapping):
            return report
        return {
            **report,
            **{name: sorted({*given, *report.get(name, ())}) for name, given in changes.items()},
        }


def _without_bundles(fields: JsonReport, stats: str) -> JsonReport:
    """Return a report without its bundles' statistics: megabytes that are not compared."""
    return {name: value for name, value in fields.items() if name != stats}
