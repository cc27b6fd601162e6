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
"""A broker is brought this far below the threshold, as a ratio."""


class OverloadShedderConfig(BundleRules):
    """Settings of OverloadShedder."""

    overloaded_threshold_percent: float = key(
        85,
        "A broker at or above this usage is overloaded.",
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
    # Overloaded brokers, and how much throughput should leave each.
    view, threshold = context.view, context.config.overloaded_threshold_percent / 100.0
    usage, throughput = view.brokers.usage, view.brokers.latest.throughput
    hot = np.flatnonzero(view.brokers.alive & ~(usage < threshold)).tolist()
    needs = [
        Need(
            broker,
            bytes_per_s=float(throughput[broker] * (usage[broker] - threshold + MARGIN)),
            rule=Decides.OVERLOADED,
            saw=float(usage[broker]),
            limit=threshold,
            average=None,
        )
        for broker in hot
    ]

    # Their heaviest bundles.
    if not needs:
        return Unloads(), None
    proposals, refusals = shed_throughput(
        view, needs, context.eligible, context.disruption, context.config
    )
    return Unloads(tuple(proposals), tuple(refusals)), None
