"""OverloadShedder: unload from each broker whose usage reaches a fixed threshold.

See docs/strategies.md "OverloadShedder".
"""

from __future__ import annotations

import numpy as np

from lb_stream.contracts.keys import key
from lb_stream.core.model.rules import Decides
from lb_stream.core.shedding.base import (
    BundleRules,
    Need,
    ShedContext,
    Unloads,
    shed_throughput,
    shedder,
)

MARGIN = 0.05


class OverloadShedderConfig(BundleRules):
    """Settings of OverloadShedder."""

    overloaded_threshold_percent: float = key(
        85,
        "a broker at or above it is overloaded",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )


@shedder("OverloadShedder", config=OverloadShedderConfig)
def shed_overloaded(context: ShedContext[OverloadShedderConfig, None]) -> tuple[Unloads, None]:
    """Unload a share of the throughput from each broker at or above the threshold.

    The share is usage - threshold + 5 points. Usage is a ratio, throughput bytes/s. At least one
    bundle with load leaves. Source: docs/strategies.md "OverloadShedder".
    """
    view, threshold = context.view, context.config.overloaded_threshold_percent / 100.0
    usage, throughput = view.brokers.usage, view.brokers.latest.throughput
    hot = np.flatnonzero(view.brokers.alive & ~(usage < threshold)).tolist()
    needs = [
        Need(
            broker,
            float(throughput[broker] * (usage[broker] - threshold + MARGIN)),
            Decides.OVERLOADED,
            float(usage[broker]),
            threshold,
            None,
        )
        for broker in hot
    ]
    proposals, refusals = shed_throughput(
        view, needs, context.eligible, context.disruption, context.config
    )
    return Unloads(tuple(proposals), tuple(refusals)), None
