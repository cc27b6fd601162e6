"""ThresholdShedder: unload from each broker whose smoothed usage exceeds the cluster's average by a threshold.

Source: spec/shedding.md §3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.refusals import Refusal, refusal
from lb_stream.core.shedding.base import MB, Unload, Unloads, heaviest_first, shedder, too_few_bundles, until_enough
from lb_stream.core.view import Bools, ClusterView, Floats

MARGIN = 0.05
LOWER_BOUNDARY_FACTOR = 0.5


class ThresholdShedderConfig(KeyModel):
    """Settings of ThresholdShedder."""

    threshold_percent: float = key(
        10, "how far above the cluster's average a broker's usage may be", unit="%",
        pulsar="loadBalancerBrokerThresholdShedderPercentage", ge=0, le=100,
    )  # fmt: skip
    history_ratio: float = key(
        0.9, "weight of the past in a broker's smoothed usage", pulsar="loadBalancerHistoryResourcePercentage", ge=0, le=1,
    )  # fmt: skip
    min_throughput_mb: float = key(
        10.0, "do nothing about a broker from which less than this would have to move", unit="MiB/s",
        pulsar="loadBalancerBundleUnloadMinThroughputThreshold", ge=0,
    )  # fmt: skip
    lower_boundary: bool = key(
        False, "when nobody is too high but somebody too low, unload from the highest", pulsar="lowerBoundarySheddingEnabled", dynamic=False
    )
    threshold_target: Literal["below_average_plus_threshold", "below_average"] = key(
        "below_average_plus_threshold", "how far a broker is brought down: to 5 points below the threshold, or below the average itself"
    )

    @property
    def threshold(self) -> float:
        """The threshold as a ratio."""
        return self.threshold_percent / 100.0


@dataclass(frozen=True, slots=True)
class ThresholdMemory:
    """Smoothed usage of each broker, a ratio."""

    usage: Mapping[str, float]

    @staticmethod
    def read(data: Mapping[str, Any]) -> ThresholdMemory:
        """From the JSON object of the last round."""
        return ThresholdMemory({str(name): float(value) for name, value in data.get("usage", {}).items()})

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        return {"usage": dict(self.usage)}


@shedder("ThresholdShedder", config=ThresholdShedderConfig, memory=ThresholdMemory.read)
def shed_above_average(
    view: ClusterView, config: ThresholdShedderConfig, memory: ThresholdMemory, eligible: Bools
) -> tuple[Unloads, ThresholdMemory]:
    """Unload from each broker whose smoothed usage reaches the cluster's average plus the threshold.

    Usage is a ratio, throughput bytes/s. Brokers that aren't alive neither count nor shed, and are forgotten.
    """
    alive = np.flatnonzero(view.brokers.alive)
    usage = _smoothed(view, config, memory)
    average = _mean(usage[alive])
    if average == 0.0:
        return Unloads(), _remember(view, usage)
    proposals: list[Unload] = []
    refusals: list[Refusal] = []
    for broker in alive[~(usage[alive] < average + config.threshold)].tolist():
        limit = average + config.threshold
        share = usage[broker] - average - config.threshold + MARGIN
        if config.threshold_target == "below_average":
            share = usage[broker] - average + MARGIN
        found, refused = _shed(view, config, broker, share, (float(usage[broker]), limit, average, "above_average"), eligible)
        proposals += found
        refusals += refused
    if not proposals and config.lower_boundary:
        memory = _remember(view, usage)
        usage = _smoothed(view, config, memory)  # a second sample in this round: observable in the reference, so kept
        proposals, refused = _lower_boundary(view, config, usage, eligible)
        refusals += refused
    return Unloads(tuple(proposals), tuple(refusals)), _remember(view, usage)


def _smoothed(view: ClusterView, config: ThresholdShedderConfig, memory: ThresholdMemory) -> Floats:
    now = view.brokers.usage
    before = np.array([memory.usage.get(name, np.nan) for name in view.brokers.names])
    return np.where(np.isnan(before), now, before * config.history_ratio + (1 - config.history_ratio) * now)


def _mean(usage: Floats) -> float:
    """Plain mean, summed in the order of the rows."""
    return float(np.cumsum(usage)[-1] / len(usage)) if len(usage) else 0.0


def _remember(view: ClusterView, usage: Floats) -> ThresholdMemory:
    return ThresholdMemory({name: float(usage[row]) for row, name in enumerate(view.brokers.names) if view.brokers.alive[row]})


def _shed(
    view: ClusterView, config: ThresholdShedderConfig, broker: int, share: float, why: tuple[float, float, float, str], eligible: Bools
) -> tuple[list[Unload], list[Refusal]]:
    """Choose bundles that carry `share` of the broker's throughput."""
    throughput = float(view.brokers.latest.throughput[broker])
    need = throughput * share
    name = view.brokers.names[broker]
    if need < config.min_throughput_mb * MB:
        return [], [refusal("min_throughput", name, saw=[need], limit=config.min_throughput_mb * MB, unit="bytes/s")]
    bundles = int(np.count_nonzero(view.bundles.owner == broker))
    if bundles <= 1:
        return [], [too_few_bundles(view, broker, bundles)]
    load = view.bundles.short.throughput
    chosen = until_enough(heaviest_first(view, broker, eligible, load), load, need)
    if not len(chosen):
        return [], [refusal("no_eligible_bundle", name, saw=[0], limit=1, unit="bundles")]
    saw, limit, average, rule = why
    part = float(np.sum(load[chosen])) / throughput if throughput > 0 else 0.0
    after = saw * max(0.0, 1.0 - part)
    return [Unload(int(row), broker, "Overloaded", rule, saw, limit, average, after) for row in chosen.tolist()], []


def _lower_boundary(
    view: ClusterView, config: ThresholdShedderConfig, usage: Floats, eligible: Bools
) -> tuple[list[Unload], list[Refusal]]:
    """When somebody is below the average minus the threshold, take half a threshold's worth from the highest."""
    alive = np.flatnonzero(view.brokers.alive)
    average = _mean(usage[alive])
    floor = average - config.threshold
    high = alive[(usage[alive] > floor) & (view.bundle_counts()[alive] > 1)]
    if not (usage[alive] < floor).any() or not len(high):
        return [], []
    broker = int(high[np.argmax(usage[high])])
    share = config.threshold * LOWER_BOUNDARY_FACTOR
    return _shed(view, config, broker, share, (float(usage[broker]), floor, average, "lower_boundary"), eligible)
