"""ThresholdShedder: unload from brokers whose smoothed usage exceeds the average by a threshold.

See docs/strategies.md "ThresholdShedder".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np

from lb_stream.contracts.keys import key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.registry import read_memory, write_memory
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.model.view import ClusterView, Floats
from lb_stream.core.shedding.base import (
    MB,
    BundleRules,
    Need,
    ShedContext,
    Traits,
    Unload,
    Unloads,
    shed_throughput,
    shedder,
    too_few_bundles,
)

MARGIN = 0.05
"""A broker is brought this far below the threshold or the average, as a ratio."""
LOWER_BOUNDARY_FACTOR = 0.5
"""For low brokers, the highest broker loses this part of the threshold."""


class AboveAverageConfig(BundleRules):
    """Settings of shedders that compare a broker's smoothed usage with the average."""

    threshold_percent: float = key(
        10,
        "How far above the cluster's average a broker's usage may be.",
        unit="%",
        pulsar="loadBalancerBrokerThresholdShedderPercentage",
        ge=0,
        le=100,
    )
    history_ratio: float = key(
        0.9,
        "Weight of the past in a broker's smoothed usage.",
        pulsar="loadBalancerHistoryResourcePercentage",
        ge=0,
        le=1,
    )
    min_throughput_mb: float = key(
        10.0,
        "A broker is not unloaded when less throughput than this would move.",
        unit="MiB/s",
        pulsar="loadBalancerBundleUnloadMinThroughputThreshold",
        ge=0,
    )
    threshold_target: Literal["below_average_plus_threshold", "below_average"] = key(
        "below_average_plus_threshold",
        "Where a broker is brought to: 5 points below average plus threshold, or 5 points below "
        "the average.",
    )

    @property
    def threshold(self) -> float:
        """Return the threshold as a ratio."""
        return self.threshold_percent / 100.0


class ThresholdShedderConfig(AboveAverageConfig):
    """Settings of ThresholdShedder."""

    lower_boundary: bool = key(
        False,
        "When no broker is above the upper limit and one is below the lower, the fullest broker "
        "is unloaded.",
        pulsar="lowerBoundarySheddingEnabled",
        dynamic=False,
    )


@dataclass(frozen=True, slots=True)
class ThresholdMemory:
    """Smoothed usage of each broker, a ratio."""

    usage: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def read(data: Mapping[str, object]) -> ThresholdMemory:
        """Read the JSON object of the last round."""
        return read_memory(data, ThresholdMemory)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes."""
        return write_memory(self)


AverageConfig = TypeVar("AverageConfig", bound=AboveAverageConfig)
BelowAverage = Callable[[ClusterView, AverageConfig, Floats, list[Refusal]], list[Need]]
"""(view, config, smoothed usage, list of refusals to extend) → loads to move to low brokers."""


def drop_departed_brokers(
    view: ClusterView, _config: AboveAverageConfig, memory: ThresholdMemory
) -> ThresholdMemory:
    """Return the memory of live brokers only: a broker that returns begins anew."""
    alive = {
        name
        for name, alive in zip(view.brokers.names, view.brokers.alive.tolist(), strict=True)
        if alive
    }
    return ThresholdMemory({name: usage for name, usage in memory.usage.items() if name in alive})


TRAITS = Traits(observe=drop_departed_brokers)


@shedder(
    "ThresholdShedder", config=ThresholdShedderConfig, memory=ThresholdMemory.read, traits=TRAITS
)
def shed_above_average(
    context: ShedContext[ThresholdShedderConfig, ThresholdMemory],
) -> tuple[Unloads, ThresholdMemory]:
    """Unload from each live broker whose smoothed usage reaches the average plus the threshold.

    Usage is a ratio, throughput bytes/s. Source: docs/strategies.md "ThresholdShedder".
    """
    return shed_by_average(context, _lower_boundary if context.config.lower_boundary else None)


def shed_by_average(
    context: ShedContext[AverageConfig, ThresholdMemory],
    below_average: BelowAverage[AverageConfig] | None,
) -> tuple[Unloads, ThresholdMemory]:
    """Unload brokers far above the average; if no bundle leaves, run `below_average`."""
    view, config = context.view, context.config

    # Each broker's smoothed usage, and the average over the live ones.
    alive = np.flatnonzero(view.brokers.alive)
    usage = _smoothed(view, config, context.memory)
    average = mean_of(usage[alive])
    if average == 0.0:
        return Unloads(), _remember(view, usage)

    # Brokers above the limit, and the throughput that should leave each.
    limit = average + config.threshold
    needs: list[Need] = []
    refusals: list[Refusal] = []
    for broker in alive[~(usage[alive] < limit)].tolist():
        saw = float(usage[broker])
        to_average = config.threshold_target == "below_average"
        share = saw - average + MARGIN if to_average else saw - average - config.threshold + MARGIN
        need = Need(
            broker,
            float(view.brokers.latest.throughput[broker]) * share,
            Decides.ABOVE_AVERAGE,
            saw,
            limit,
            average,
        )
        if is_worth_it(view, config, need, refusals):
            needs.append(need)

    # Their heaviest bundles; if none leaves, the loads that `below_average` moves.
    proposals, refused = _unload(context, needs)
    if not proposals and below_average is not None:
        # The usage is smoothed a second time in one round, as in the reference.
        usage = _smoothed(view, config, _remember(view, usage))
        needs = below_average(view, config, usage, refusals)
        proposals, more = _unload(context, needs)
        refused += more
    return Unloads(tuple(proposals), (*refusals, *refused)), _remember(view, usage)


def _unload(
    context: ShedContext[AverageConfig, ThresholdMemory], needs: Sequence[Need]
) -> tuple[list[Unload], list[Refusal]]:
    """Choose the bundles that meet the needs; in most passes there are none."""
    if not needs:
        return [], []
    return shed_throughput(
        context.view, needs, context.eligible, context.disruption, context.config
    )


def _smoothed(view: ClusterView, config: AboveAverageConfig, memory: ThresholdMemory) -> Floats:
    """Return each broker's smoothed usage after this sample; the first sample counts in full."""
    now = view.brokers.usage
    before = np.array([memory.usage.get(name, np.nan) for name in view.brokers.names])
    return np.where(
        np.isnan(before), now, before * config.history_ratio + (1 - config.history_ratio) * now
    )


def mean_of(usage: Floats) -> float:
    """Return the mean, summed in the order of the rows; 0 without rows."""
    return float(np.cumsum(usage)[-1] / len(usage)) if len(usage) else 0.0


def _remember(view: ClusterView, usage: Floats) -> ThresholdMemory:
    """Return the memory of the live brokers' usages."""
    return ThresholdMemory(
        {
            name: float(usage[row])
            for row, name in enumerate(view.brokers.names)
            if view.brokers.alive[row]
        }
    )


def is_worth_it(
    view: ClusterView, config: AboveAverageConfig, need: Need, refusals: list[Refusal]
) -> bool:
    """Return whether enough throughput would leave; if not, add a refusal."""
    least = config.min_throughput_mb * MB
    if need.bytes_per_s < least:
        refusals.append(
            refusal(
                Refuses.MIN_THROUGHPUT,
                view.brokers.names[need.broker],
                saw=[need.bytes_per_s],
                limit=least,
            )
        )
        return False
    return True


def _lower_boundary(
    view: ClusterView, config: ThresholdShedderConfig, usage: Floats, refusals: list[Refusal]
) -> list[Need]:
    """Return the load that the highest broker should lose if another is far below the average.

    The load is half of the threshold, as a share of the highest broker's throughput.
    """
    # End unless a broker is too low, and others are not.
    alive = np.flatnonzero(view.brokers.alive)
    average = mean_of(usage[alive])
    floor = average - config.threshold
    above = alive[usage[alive] > floor]
    if not (usage[alive] < floor).any() or not len(above):
        return []

    # The highest of the others, with several bundles.
    counts = view.bundle_counts(system=config.count_system_bundles)
    high = above[counts[above] > 1]
    if not len(high):
        highest = int(above[np.argmax(usage[above])])
        too_few = too_few_bundles(view, highest, int(counts[highest]))
        refusals += [] if too_few is None else [too_few]
        return []
    broker = int(high[np.argmax(usage[high])])

    amount = float(view.brokers.latest.throughput[broker]) * config.threshold
    amount *= LOWER_BOUNDARY_FACTOR
    need = Need(broker, amount, Decides.LOWER_BOUNDARY, float(usage[broker]), floor, average)
    return [need] if is_worth_it(view, config, need, refusals) else []
