"""How load moves over time: each workload gives every bundle a factor on its base load, as a function of the time passed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

Workload = Callable[[int, float], float]
"""(number of the bundle, seconds since the start) → factor on its base load, 0 or more."""


def steady() -> Workload:
    """Every bundle keeps its base load."""
    return lambda _bundle, _elapsed_s: 1.0


def skewed(bundles: int, seed: int, exponent: float = 0.6) -> Workload:
    """Few bundles carry much: Zipf's law with this exponent, dealt to the bundles by chance; the mean factor is 1.

    With exponent 0.6 the greatest of 96 bundles carries 7 % of the cluster's load; with 1.0 it would be 19 %, more than a
    sixth: no balancer could then even out six brokers.
    """
    weights = [(rank + 1) ** -exponent for rank in range(bundles)]
    mean = sum(weights) / bundles
    random.Random(f"skewed:{seed}").shuffle(weights)
    factors = [weight / mean for weight in weights]
    return lambda bundle, _elapsed_s: factors[bundle] if bundle < bundles else 1.0  # those of new namespaces come later


def hot_spot(hot: Collection[int], factor: float = 3.0, at_s: float = 0.0, rise_s: float = 0.0) -> Workload:
    """From `at_s` on the `hot` bundles carry `factor` times their base load, after rising evenly for `rise_s` seconds."""
    chosen = frozenset(hot)

    def load(bundle: int, elapsed_s: float) -> float:
        if bundle not in chosen or elapsed_s < at_s:
            return 1.0
        risen = min(1.0, (elapsed_s - at_s) / rise_s) if rise_s > 0 else 1.0
        return 1.0 + (factor - 1.0) * risen

    return load


WORKLOADS: dict[str, str] = {
    "steady": "every bundle keeps its load",
    "skewed": "few bundles carry much of it (Zipf)",
    "hot_spot": "the bundles of the first broker carry three times their load",
}
"""Names that the command line knows, and what they are."""


def workload(name: str, brokers: int, bundles: int, seed: int, at_s: float = 0.0) -> Workload:
    """A workload by name, for bundles that are dealt to brokers in turn: bundle i to broker i modulo `brokers`. Raises KeyError."""
    makers: dict[str, Callable[[], Workload]] = {
        "steady": steady,
        "skewed": lambda: skewed(bundles, seed),
        "hot_spot": lambda: hot_spot(range(0, bundles, brokers), at_s=at_s),
    }
    return makers[name]()
