"""LeastResourceUsageWithWeight: a broker whose usage is well below the candidates' average.

Pulsar has two strategies of this name. That of the modular manager smooths usages itself, with a
sample at every placement. That of the extensible manager reads the loads that TransferShedder
follows. The extensible manager has no other, whatever `placement_strategy` says.

See docs/placement.md "LeastResourceUsageWithWeight".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.registry import read_memory
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.placement.base import Best, PlacementContext, extensible_placement, placement

NAME = "LeastResourceUsageWithWeight"


class ExtensibleLeastResourceConfig(KeyModel):
    """Settings of the extensible manager's LeastResourceUsageWithWeight."""

    usage_difference_percent: float = key(
        10,
        "A broker this far below the average is preferred.",
        unit="%",
        pulsar="loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        ge=0,
        le=100,
    )

    @property
    def difference(self) -> float:
        """Return usage_difference_percent as a ratio."""
        return self.usage_difference_percent / 100.0


class LeastResourceConfig(ExtensibleLeastResourceConfig):
    """Settings of the modular manager's LeastResourceUsageWithWeight."""

    history_ratio: float = key(
        0.9,
        "Weight of the past in a broker's smoothed usage.",
        pulsar="loadBalancerHistoryResourcePercentage",
        ge=0,
        le=1,
    )
    count_system_bundles: bool = key(
        False,
        "Heartbeat and SLA-monitor bundles count when a broker is checked for having only one "
        "bundle, or none, as in the reference. They never move.",
    )


@dataclass(slots=True)
class LeastResourceMemory:
    """Smoothed usage of each broker, a ratio. Within a round it is a column of the view's brokers.

    `before`: the usages that the last round left; the column replaces them once it exists.
    """

    before: dict[str, float] = field(default_factory=dict)
    _names: tuple[str, ...] | None = None  # of the view that the column belongs to
    _column: Floats = field(default_factory=lambda: np.empty(0))

    @staticmethod
    def read(data: Mapping[str, object]) -> LeastResourceMemory:
        """Read the JSON object of the last round."""
        return LeastResourceMemory(read_memory(data, _LoggedUsage).usage)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes."""
        return {"usage": self.usage}

    @property
    def usage(self) -> dict[str, float]:
        """Map each broker to its smoothed usage."""
        if self._names is None:
            return self.before
        return {
            name: value
            for name, value in zip(self._names, self._column.tolist(), strict=True)
            if not np.isnan(value)
        }

    def column_of(self, view: ClusterView) -> Floats:
        """Return the column of this view's brokers, which may be changed; NaN: not known.

        Brokers that are not alive, or not in the view, are forgotten.
        """
        if view.brokers.names is not self._names:
            usage = self.usage
            self._names = view.brokers.names
            self._column = np.array([usage.get(name, np.nan) for name in self._names])
            self._column[~view.brokers.alive] = np.nan
        return self._column


@dataclass(slots=True)
class _LoggedUsage:
    """The memory as rounds log it."""

    usage: dict[str, float] = field(default_factory=dict)


@placement(NAME, config=LeastResourceConfig, memory=LeastResourceMemory.read)
def least_resource_usage(
    context: PlacementContext[LeastResourceConfig, LeastResourceMemory],
) -> tuple[Best, LeastResourceMemory]:
    """Choose candidates below the average by the difference; all, if none is. O(brokers).

    Every call takes a sample of every candidate's usage. The past doesn't count for a broker that
    has reported no bundle or no message. The overloaded threshold doesn't count.
    Source: docs/placement.md "LeastResourceUsageWithWeight".
    """
    # The candidates' smoothed usages after this sample.
    targets, candidates, config = context.targets, context.candidates, context.config
    brokers, column = targets.view.brokers, context.memory.column_of(targets.view)
    now, before = targets.usage[candidates], column[candidates]
    idle = (brokers.latest.rate_in[candidates] == 0) & (brokers.latest.rate_out[candidates] == 0)
    bundles = brokers.bundles if config.count_system_bundles else targets.reported_own_bundles()
    begins = np.isnan(before) | idle | (bundles[candidates] == 0)
    usage = np.where(begins, now, before * config.history_ratio + (1 - config.history_ratio) * now)
    column[candidates] = usage

    # Those well below their average.
    known = np.ones(len(candidates), np.bool_)
    return _well_below_average(candidates, usage, known, config), context.memory


@extensible_placement(NAME, config=ExtensibleLeastResourceConfig)
def least_reported_usage(
    context: PlacementContext[ExtensibleLeastResourceConfig, None],
) -> tuple[Best, None]:
    """Choose candidates below the average by the difference, by the loads that the manager follows.

    If none is, all are equally good. Brokers without load data are not in the average and are never
    preferred. O(brokers). Source: docs/placement.md "LeastResourceUsageWithWeight".
    """
    usage = context.targets.load[context.candidates]
    return _well_below_average(context.candidates, usage, ~np.isnan(usage), context.config), None


def _well_below_average(
    candidates: Rows, usage: Floats, known: Bools, config: ExtensibleLeastResourceConfig
) -> Best:
    """Return the known candidates whose usage is below the average by the difference, or all."""
    best = candidates[:0]
    if known.any():
        # Added in order, as the reference does.
        average = float(np.cumsum(usage[known])[-1] / np.count_nonzero(known))
        best = candidates[known & (usage + config.difference <= average)]
    return Best(best if len(best) else candidates, usage, "ratio")
