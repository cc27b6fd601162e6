"""RangeThresholdShedder: ThresholdShedder, which also gives load to brokers far below the average.

It was proposed to Pulsar, where it became the lower boundary of ThresholdShedder.
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
    """Unload from each broker whose smoothed usage reaches the average plus the threshold.

    If no broker does, but one is below the average minus the threshold, the broker with the highest
    usage is unloaded. Usage is a ratio, throughput bytes/s.
    Source: docs/strategies.md "RangeThresholdShedder".
    """
    return shed_by_average(context, _from_highest)


def _from_highest(
    view: ClusterView, config: AboveAverageConfig, usage: Floats, refusals: list[Refusal]
) -> list[Need]:
    """Return what the highest broker should lose when another is below the range; else nothing.

    That is the threshold, as a share of its throughput.
    """
    alive = np.flatnonzero(view.brokers.alive)
    average = mean_of(usage[alive])
    floor = average - config.threshold
    if not (usage[alive] < floor).any():
        return []
    broker = int(alive[np.argmax(usage[alive])])
    amount = float(view.brokers.latest.throughput[broker]) * config.threshold
    need = Need(broker, amount, Decides.BELOW_RANGE, float(usage[broker]), floor, average)
    return [need] if is_worth_it(view, config, need, refusals) else []
