"""SimpleLoadManager: unload one bundle from each overloaded broker, if another has room for it.

See docs/strategies.md "SimpleLoadManager".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from lb_stream.contracts.keys import key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.resources import percent
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.model.view import ClusterView, Floats
from lb_stream.core.shedding.base import (
    BundleRules,
    ShedContext,
    Traits,
    Unload,
    Unloads,
    explain_none_chosen,
    rows_by_broker,
    shedder,
    too_few_bundles,
    without_idle,
)
from lb_stream.core.shedding.top_bundles import (
    CONNECTIONS_STEP,
    RATE_STEP,
    THROUGHPUT_STEP,
    rounded,
)

CONSIDERED = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Resources that make a broker overloaded or comfortable."""
BOTTLENECKS = {
    "cpu": Decides.OVERLOADED_CPU,
    "memory": Decides.OVERLOADED_MEMORY,
    "bandwidth_in": Decides.OVERLOADED_BANDWIDTH_IN,
    "bandwidth_out": Decides.OVERLOADED_BANDWIDTH_OUT,
}
"""Resource → the rule of an unload. A broker's fullest resource decides which bundle is heaviest;
the first wins a tie."""


class SimpleLoadManagerConfig(BundleRules):
    """Settings of the simple manager's shedding."""

    overloaded_threshold_percent: float = key(
        85,
        "A broker above this in any resource is overloaded.",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )
    comfort_percent: float = key(
        65,
        "A broker below this in every resource has room for a bundle that leaves another broker.",
        unit="%",
        pulsar="loadBalancerBrokerComfortLoadLevelPercentage",
        dynamic=False,
        ge=0,
        le=100,
    )


@shedder("SimpleLoadManager", config=SimpleLoadManagerConfig, traits=Traits(manager="simple"))
def shed_heaviest(context: ShedContext[SimpleLoadManagerConfig, None]) -> tuple[Unloads, None]:
    """Unload the heaviest bundle, in the fullest resource, from each overloaded broker.

    Only that bundle is considered. If it was unloaded recently, or no comfortable broker may take
    it, the broker keeps all its bundles. Source: docs/strategies.md "SimpleLoadManager".
    """
    # Overloaded brokers, comfortable brokers, and the fullest resource of each.
    view, config = context.view, context.config
    alive = view.brokers.alive
    usages = {
        name: percent(*columns).astype(np.float64)
        for name, columns in view.brokers.resources.items()
    }
    considered = np.array([usages[name] for name in CONSIDERED])
    comfortable = np.flatnonzero(alive & (considered < config.comfort_percent).all(axis=0)).tolist()
    hot = np.flatnonzero(alive & (considered > config.overloaded_threshold_percent).any(axis=0))
    if not len(hot):
        return Unloads(), None
    fullest = np.argmax([usages[name] for name in BOTTLENECKS], axis=0)

    # Each overloaded broker's heaviest bundle in its fullest resource.
    rows = rows_by_broker(view, hot, context.movable)
    counts = view.bundle_counts(system=config.count_system_bundles)
    loads = cache(partial(_loads, view))
    proposals: list[Unload] = []
    refusals: list[Refusal] = []
    for broker in hot.tolist():
        name = view.brokers.names[broker]
        if (too_few := too_few_bundles(view, broker, int(counts[broker]))) is not None:
            refusals.append(too_few)
            continue
        bottleneck = [*BOTTLENECKS][int(fullest[broker])]
        load, in_steps, unit = loads(bottleneck)
        busy = without_idle(rows[broker], load, config)
        if not len(busy):
            refusals.append(explain_none_chosen(view, broker, rows[broker], load, 0.0, unit))
            continue
        heaviest = int(busy[np.argmax(in_steps(load[busy]))])  # the first of equally heavy ones

        # It leaves if it may move and a comfortable broker may take it.
        if not context.eligible[heaviest]:
            refusals.append(refusal(Refuses.RECENTLY_UNLOADED, name, [view.bundles.name(heaviest)]))
        elif not any(
            other != broker and context.may_take(heaviest, other) for other in comfortable
        ):
            refusals.append(
                refusal(
                    Refuses.NONE_COMFORTABLE,
                    name,
                    [view.bundles.name(heaviest)],
                    limit=config.comfort_percent,
                )
            )
        else:
            proposals.append(
                Unload(
                    bundle=heaviest,
                    source=broker,
                    reason="Overloaded",
                    rule=BOTTLENECKS[bottleneck],
                    saw=float(considered[:, broker].max()) / 100,
                    limit=config.overloaded_threshold_percent / 100,
                    average=None,
                    expected_after=None,
                )
            )
    return Unloads(tuple(proposals), tuple(refusals)), None


def _loads(view: ClusterView, bottleneck: str) -> tuple[Floats, Callable[[Floats], Floats], str]:
    """Return each bundle's load of one resource, a function that rounds it to steps, its unit."""
    bundles = view.bundles
    if bottleneck == "cpu":
        return bundles.latest.rate, lambda rates: rounded(rates / RATE_STEP), "msg/s"
    if bottleneck == "memory":
        connections = (bundles.topics + bundles.sessions).astype(np.float64)
        return connections, lambda counts: counts // CONNECTIONS_STEP, "connections"
    throughput = (
        bundles.latest.throughput_in
        if bottleneck == "bandwidth_in"
        else bundles.latest.throughput_out
    )
    return throughput, lambda flows: rounded(flows / THROUGHPUT_STEP), "bytes/s"
