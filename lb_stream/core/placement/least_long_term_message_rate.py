"""LeastLongTermMessageRate: the broker with the lowest long-term message rate.

See docs/placement.md "LeastLongTermMessageRate".
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.placement.base import Best, PlacementContext, placement


class LeastLongTermMessageRateConfig(KeyModel):
    """Settings of LeastLongTermMessageRate."""

    overloaded_threshold_percent: float = key(
        85,
        "A broker above this usage is taken only when all are.",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )
    placement_weighting: Literal["none", "documented"] = key(
        "none",
        "The score: the message rate, or the rate divided by (threshold - usage), which prefers "
        "brokers with room.",
    )


@placement("LeastLongTermMessageRate", config=LeastLongTermMessageRateConfig)
def least_long_term_message_rate(
    context: PlacementContext[LeastLongTermMessageRateConfig, None],
) -> tuple[Best, None]:
    """Choose the candidates with the lowest long-term message rate. O(brokers).

    Rates are messages/s, arriving bundles included. A broker above the overloaded threshold scores
    infinite; when all do, all are equally good. Under `documented` the rate is divided by
    (threshold - usage), both ratios, and is infinite at the threshold.
    Source: docs/placement.md "LeastLongTermMessageRate".
    """
    targets, candidates, config = context.targets, context.candidates, context.config
    usage, rate = targets.usage[candidates], targets.long_rate[candidates]
    threshold = config.overloaded_threshold_percent / 100.0
    scores = np.where(usage > threshold, np.inf, rate)
    if config.placement_weighting == "documented":
        room = threshold - usage
        scores = np.where(room > 0, rate / np.where(room > 0, room, 1.0), np.inf)
    best = candidates[scores == scores.min()] if len(candidates) else candidates
    return Best(best, scores, "msg/s"), None
