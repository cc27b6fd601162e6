"""What brokers carry while a rollout is planned, and the level that they should have.

Usages are ratios of the scarcest resource. Demands and capacities are those that LeastMoves learns
from reports, whatever strategy balances the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lb_stream.core.least_moves.capacities import RESOURCES
from lb_stream.core.least_moves.fleet import Fleet, load_of
from lb_stream.core.least_moves.targets import compute_even_loads
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows

FULL = 1.0
"""A broker with this usage can't take more."""


@dataclass(slots=True)
class Loads:
    """The brokers' loads at one point of a plan. Mutable: each planned move counts."""

    view: ClusterView
    fleet: Fleet
    takers: Callable[[int], Rows]  # bundle → brokers that rules allow for it
    used: Floats = field(init=False)  # (brokers, resources)
    per_unit: Floats = field(init=False)  # (brokers, resources): usage by one unit of load

    def __post_init__(self) -> None:
        capacity = self.fleet.capacity
        self.used = load_of(self.view, self.fleet)
        self.per_unit = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=capacity > 0)

    @property
    def usage(self) -> Floats:
        """Return each broker's usage."""
        found: Floats = (self.used * self.per_unit).max(axis=1, initial=0.0)
        return found

    def with_bundle(self, bundle: int, brokers: Rows) -> Floats:
        """Return the usage of these brokers with a bundle."""
        after = (self.used[brokers] + self.fleet.demand[bundle]) * self.per_unit[brokers]
        found: Floats = after.max(axis=1, initial=0.0)
        return found

    def move(self, bundle: int, source: int, destination: int) -> None:
        """Count a bundle at its destination from now on; `source` -1: it is unassigned."""
        if source >= 0:
            self.used[source] -= self.fleet.demand[bundle]
        self.used[destination] += self.fleet.demand[bundle]

    def weights(self, bundles: Rows, broker: int | None = None) -> Floats:
        """Return the usage that each bundle takes of a broker alone; None: of the average one."""
        per_unit = self.per_unit.mean(axis=0) if broker is None else self.per_unit[broker]
        found: Floats = (self.fleet.demand[bundles] * per_unit).max(axis=1, initial=0.0)
        return found

    def levels(self, among: Bools) -> Floats:
        """Return the even usage of each broker if only these carry all load. O(bundles)."""
        stays = np.zeros(len(self.view.bundles), np.bool_)
        return compute_even_loads(self.view, self.fleet, self.takers, among, stays).usage

    def scarcest(self, among: Bools) -> str:
        """Return the resource of which these brokers together have least to spare."""
        rows = np.flatnonzero(among)
        capacity = self.fleet.capacity[rows].sum(axis=0)
        total = self.fleet.demand.sum(axis=0) + self.fleet.fixed[rows].sum(axis=0)
        usage = np.divide(total, capacity, out=np.zeros_like(total), where=capacity > 0)
        return RESOURCES[int(usage.argmax())]
