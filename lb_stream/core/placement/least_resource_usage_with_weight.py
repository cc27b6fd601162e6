"""LeastResourceUsageWithWeight: some broker whose usage lies well below the candidates' average.

Pulsar has two strategies of this name. The modular manager's smooths usages itself, a sample with
every placement. The extensible manager's takes the smoothed usages that this manager follows anyway
(TransferShedder), and is the only strategy there: a cluster whose `load_manager` is extensible gets
it whatever `placement_strategy` says.

See docs/placement.md "LeastResourceUsageWithWeight".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.placement.base import Best, PlacementContext, extensible_placement, placement

NAME = "LeastResourceUsageWithWeight"


class ExtensibleLeastResourceConfig(KeyModel):
    """Settings of the extensible manager's LeastResourceUsageWithWeight."""

    usage_difference_percent: float = key(
        10,
        "how far below the average a broker must be to be preferred",
        unit="%",
        pulsar="loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        ge=0,
        le=100,
    )

    @property
    def difference(self) -> float:
        """The same as a ratio."""
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
    """Smoothed usage of each broker, a ratio.

    While a round runs it lies beside the view's brokers, as a column.
    """

    before: dict[str, float] = field(
        default_factory=dict
    )  # as the last round left it; once the column is there it counts instead
    _names: tuple[str, ...] | None = None
    _column: Floats = field(default_factory=lambda: np.empty(0))

    @staticmethod
    def read(data: Mapping[str, Any]) -> LeastResourceMemory:
        """From the JSON object of the last round."""
        return LeastResourceMemory(
            {str(name): float(value) for name, value in data.get("usage", {}).items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        return {"usage": self.usage}

    @property
    def usage(self) -> dict[str, float]:
        """Broker → its smoothed usage."""
        if self._names is None:
            return self.before
        return {
            name: value
            for name, value in zip(self._names, self._column.tolist(), strict=True)
            if not np.isnan(value)
        }

    def beside(self, view: ClusterView) -> Floats:
        """The column for this view's brokers, NaN where nothing is known.

        Brokers that are not alive, or not there, are forgotten.
        """
        if view.brokers.names is not self._names:
            usage = self.usage
            self._names = view.brokers.names
            self._column = np.array([usage.get(name, np.nan) for name in self._names])
            self._column[~view.brokers.alive] = np.nan
        return self._column


@placement(NAME, config=LeastResourceConfig, memory=LeastResourceMemory.read)
def least_resource_usage(
    context: PlacementContext[LeastResourceConfig, LeastResourceMemory],
) -> tuple[Best, LeastResourceMemory]:
    """Choose candidates below the average by the difference; if none is, all. O(brokers).

    Every call is a sample of every candidate's usage. The past doesn't count for a broker that has
    reported no bundle or no message. The overloaded threshold plays no part.
    """
    targets, candidates, config, memory = (
        context.targets,
        context.candidates,
        context.config,
        context.memory,
    )
    brokers, column = targets.view.brokers, memory.beside(targets.view)
    now, before = targets.usage[candidates], column[candidates]
    silent = (brokers.latest.rate_in[candidates] == 0) & (brokers.latest.rate_out[candidates] == 0)
    bundles = brokers.bundles if config.count_system_bundles else targets.reported_own_bundles()
    starts = np.isnan(before) | silent | (bundles[candidates] == 0)
    usage = np.where(starts, now, before * config.history_ratio + (1 - config.history_ratio) * now)
    column[candidates] = usage
    return _well_below_average(
        candidates, usage, np.ones(len(candidates), np.bool_), config
    ), memory


@extensible_placement(NAME, config=ExtensibleLeastResourceConfig)
def least_reported_usage(
    context: PlacementContext[ExtensibleLeastResourceConfig, None],
) -> tuple[Best, None]:
    """The same by the smoothed usages that the manager follows. O(brokers).

    Brokers without load data count in no average and are never preferred, but come back when no
    other is.
    """
    usage = context.targets.load[context.candidates]
    return _well_below_average(context.candidates, usage, ~np.isnan(usage), context.config), None


def _well_below_average(
    candidates: Rows, usage: Floats, known: Bools, config: ExtensibleLeastResourceConfig
) -> Best:
    best = candidates[:0]
    if known.any():
        average = float(
            np.cumsum(usage[known])[-1] / np.count_nonzero(known)
        )  # summed one by one, as the reference does
        best = candidates[known & (usage + config.difference <= average)]
    return Best(best if len(best) else candidates, usage, "ratio")
