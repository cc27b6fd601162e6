"""RangeThresholdShedder: ThresholdShedder that always helps brokers far below the average too.

It was only ever a proposal to Pulsar: there it became ThresholdShedder's lower boundary.

See docs/strategies.md "RangeThresholdShedder".
"""

from __future__ import annotations

import numpy as np

from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.rules import Decides
from lb_stream.core.model.view import ClusterView, Floats
from lb_stream.core.shedding.base import Need, ShedContext, Unloads, shedder
from lb_stream.core.shedding.threshold import (
    TRAITS,
    AboveAverageConfig,
    ThresholdMemory,
    is_worth_it,
    mean_of,
    shed_by_average,
)


class RangeThresholdShedderConfig(AboveAverageConfig):
    """Settings of RangeThresholdShedder."""


@shedder(
    "RangeThresholdShedder",
    config=RangeThresholdShedderConfig,
    memory=ThresholdMemory.read,
    traits=TRAITS,
)
def shed_out_of_range(
    context: ShedContext[RangeThresholdShedderConfig, ThresholdMemory],
) -> tuple[Unloads, ThresholdMemory]:
    """Unload from each broker whose smoothed usage is above the average plus the threshold.

    If there is none, but a broker below the average minus the threshold, the highest broker is
    unloaded. Usage is a ratio, throughput bytes/s.
    """
    return shed_by_average(context, _from_highest)


def _from_highest(
    view: ClusterView, config: RangeThresholdShedderConfig, usage: Floats, refusals: list[Refusal]
) -> list[Need]:
    """When a broker is below the range: a threshold's share of the highest broker's throughput."""
    alive = np.flatnonzero(view.brokers.alive)
    average = mean_of(usage[alive])
    floor = average - config.threshold
    if not (usage[alive] < floor).any():
        return []
    broker = int(alive[np.argmax(usage[alive])])
    amount = float(view.brokers.latest.throughput[broker]) * config.threshold
    need = Need(broker, amount, Decides.BELOW_RANGE, float(usage[broker]), floor, average)
    return [need] if is_worth_it(view, config, need, refusals) else []
