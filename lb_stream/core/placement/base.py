"""What all placement strategies share: their working columns, their result, their registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lb_stream.core.chance import draw, draw_number
from lb_stream.core.registry import Registry
from lb_stream.core.resources import max_weighted_usage
from lb_stream.core.view import ClusterView, Floats, Ints, Rows, resource_share


@dataclass(slots=True)
class Targets:
    """The brokers' loads while one round places bundle after bundle: each choice counts in the next.

    The one mutable thing in the core; it lives within one `decide`.
    """

    view: ClusterView
    seed: int | None  # None: no chance, always the first
    usage: Floats
    load: Floats  # smoothed usage as the extensible manager follows it; NaN: nothing known
    long_rate: Floats
    topics: Ints
    placed: list[tuple[int, int]] = field(default_factory=list)  # (bundle, destination) of every choice so far
    _arrived: dict[str, Floats] = field(default_factory=dict)  # resource → what the choices so far bring to each broker

    @staticmethod
    def of(view: ClusterView, seed: int | None = 0) -> Targets:
        """The loads before the round's first choice. Moves in flight are in the view already."""
        brokers = view.brokers
        return Targets(view, seed, brokers.usage.copy(), brokers.load_ema.copy(), brokers.long.rate.copy(), brokers.topics.copy())

    def draw(self, subject: str, candidates: Rows) -> int:
        """One of the candidates (in order) by the round's seed and the subject's name."""
        return int(candidates[0]) if self.seed is None else draw(self.seed, subject, candidates)

    def number(self, subject: str, below: int) -> int:
        """A number 0..below-1 by the round's seed and the subject's name."""
        return 0 if self.seed is None else draw_number(self.seed, subject, below)

    def add(self, bundle: int, destination: int) -> None:
        """Count a bundle at its destination from now on."""
        view, row = self.view, np.array([bundle])
        self.placed.append((bundle, destination))
        self.long_rate[destination] += view.bundles.long.take(row).rate[0]
        self.topics[destination] += view.bundles.topics[bundle]
        source = view.bundles.owner[row].astype(np.intp)
        if source[0] < 0:
            return
        share = float(resource_share(view.brokers.latest.throughput, source, view.bundles.short.take(row).throughput)[0])
        resources = {}
        for name, (usage, limit) in view.brokers.resources.items():
            arrived = self._arrived.setdefault(name, np.zeros(len(usage)))
            arrived[destination] += share * max(float(usage[source[0]]), 0.0)
            resources[name] = (usage[[destination]] + arrived[destination], limit[[destination]])
        expected = float(max_weighted_usage(resources, view.brokers.weights)[0])
        more = max(0.0, expected - float(self.usage[destination]))
        self.usage[destination] += more
        self.load[destination] += more


@dataclass(frozen=True, slots=True)
class Best:
    """The brokers among which chance decides, and every candidate's score (lower is better, infinite: refused by the strategy)."""

    rows: Rows
    scores: Floats
    unit: str


Placement = Callable[[Targets, Rows, int, Any, Any], tuple[Best, Any]]
"""(loads, candidates, bundle, its config, its memory) → (best candidates, what it remembers)."""

placement: Registry[Placement] = Registry("placement", "lb_stream.placements")
"""The modular manager's; `placement_strategy` names one."""

simple_placement: Registry[Placement] = Registry("simple placement", "lb_stream.simple_placements")
"""The simple manager's; `simple_placement_strategy` names one."""

extensible_placement: Registry[Placement] = Registry("extensible placement", "lb_stream.extensible_placements")
"""The extensible manager's: it has one only, of the same name as one of the modular manager's."""
