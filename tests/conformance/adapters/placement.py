"""place_least_long_term: the placement strategies on views whose bundles are those preallocated to a broker."""

from typing import Any

import numpy as np

from lb_stream.core.chance import draw
from lb_stream.core.config import cluster_config
from lb_stream.core.placement.base import Targets
from tests.conformance.forms import view_of_loads
from tests.conformance.registry import PROFILE, Case, kind


@kind("place_least_long_term")
def place_least_long_term(case: Case) -> Any:
    """LeastLongTermMessageRate: the brokers among which it would draw."""
    config = cluster_config(PROFILE | {"placement_strategy": "LeastLongTermMessageRate"} | case["config"])
    results = []
    for given in case["rounds"]:
        for _ in range(int(given.get("repeat", 1))):
            targets = targets_of(given, config.balancer.weights)
            names = targets.view.brokers.names
            candidates = np.array([names.index(name) for name in given["candidates"]], np.intp)
            best, _memory = config.placement.function(targets, candidates, -1, config.placement_config, None)
            chosen = [names[row] for row in best.rows]
            pick_is_best = not chosen or names[draw(0, "bundle", best.rows)] in chosen
            results.append({"best": chosen, "pickIsBest": pick_is_best, "empty": not chosen})
    return results


def targets_of(loads: dict[str, Any], weights: Any) -> Targets:
    """The brokers' loads: their long-term rates as given, and each preallocated bundle added as a choice of this very round."""
    preallocated = {
        f"{bundle}@{row}": (row, data)
        for row, broker in enumerate(loads["brokers"].values())
        for bundle, data in broker.get("preallocatedBundleData", {}).items()
    }
    brokers = {name: broker | {"bundles": []} for name, broker in loads["brokers"].items()}
    view = view_of_loads({"brokers": brokers, "bundleData": {name: data for name, (_, data) in preallocated.items()}}, weights)
    targets = Targets.of(view)
    for row, broker in enumerate(brokers.values()):
        average = broker.get("timeAverageData", {})
        targets.long_rate[row] = average.get("longTermMsgRateIn", 0.0) + average.get("longTermMsgRateOut", 0.0)
    for bundle, (row, _) in enumerate(preallocated.values()):
        targets.add(bundle, row)
    return targets
