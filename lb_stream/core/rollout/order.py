"""Which broker of a rollout is begun next, and what keeps a broker from being begun.

Brokers that a command names come first. The others follow in the order that was given, or the
canary and then the broker that costs fewest second moves: the first one has few bundles, as all of
them move again, and none too heavy for the others; a later one fits into the brokers that have been
restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lb_stream.core.model.policies import DEFAULT_DOMAIN
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rollout import BEGUN, RolloutOrder, RolloutProgress
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import Bools, Floats, Rows
from lb_stream.core.rollout.destinations import TOLERANCE
from lb_stream.core.rollout.loads import FULL, Loads
from lb_stream.core.rollout.progress import count_begun


@dataclass(frozen=True, slots=True)
class Absence:
    """The cluster while one more broker is away."""

    broker: str
    remaining: Bools  # (brokers): those that carry all load then
    levels: Floats  # (brokers): their even usage then

    @property
    def usage(self) -> float:
        """Return the highest usage then, if load is spread evenly."""
        return float(self.levels[self.remaining].max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Turn:
    """The broker that is begun now."""

    absence: Absence
    why: str  # a part of a sentence


class Cost(NamedTuple):
    """What it costs to begin a broker: the lowest is best."""

    together: int  # namespaces that can't be kept apart from their anti-affinity group
    above: float  # by how much its heaviest bundle would fill another broker beyond the level
    again: int  # bundles that must move once more
    misfit: float  # its heaviest bundle; or the room that is left, or missing, where brokers stay


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting brokers of a rollout, and what decides which of them is next."""

    loads: Loads
    order: RolloutOrder
    progress: RolloutProgress
    active: Bools  # (brokers): reachable, not drained, and not begun
    by_port: bool  # as `isolation_by_port`
    called: Sequence[str] = ()  # brokers that commands want to be begun now, whoever is next

    def sort(self) -> list[str]:
        """Return the waiting brokers, the one that should be next first."""
        # Brokers that an operator has drained are restarted, too.
        reachable = self.loads.view.brokers.reachable
        waiting = [
            name for name in self.progress.in_phases("waiting") if reachable[self._row(name)]
        ]
        if waiting and not self.order.in_order:
            even = self.loads.levels(self.active)
            costs = {name: self._cost(name, even) for name in waiting}
            waiting.sort(key=lambda name: (name != self.order.canary, costs[name], name))
        first = [name for name in self.called if name in waiting]
        return list(dict.fromkeys([*first, *waiting]))

    def next(self, queue: Sequence[str]) -> tuple[Turn | None, list[Refusal]]:
        """Return the first broker of the queue that may be begun, and why others may not.

        If the order was given, only the first one is tried; so is the canary while it waits. Where
        commands name brokers, only these are tried.
        """
        refusals = list[Refusal]()
        for place, name in enumerate(queue):
            is_alone = self.order.in_order or queue[0] in (self.order.canary, *self.called)
            if place and is_alone and name not in self.called:
                break
            absence = self._absence(name)
            refused = self._find_refusal(absence)
            if refused is None:
                return Turn(absence, self._explain(name, absence)), refusals
            refusals.append(refused)
        return None, refusals

    def _row(self, name: str) -> int:
        return self.loads.view.brokers.names.index(name)

    def _absence(self, name: str) -> Absence:
        """Return the cluster without this broker."""
        remaining = self.active.copy()
        remaining[self._row(name)] = False
        levels = self.loads.levels(remaining) if remaining.any() else np.zeros(len(remaining))
        return Absence(name, remaining, levels)

    def _staying(self) -> Bools:
        """Return the active brokers that have been restarted, or needn't be."""
        waiting = set(self.progress.in_phases("waiting"))
        names = self.loads.view.brokers.names
        return self.active & np.array([name not in waiting for name in names], np.bool_)

    def _cost(self, name: str, even: Floats) -> Cost:
        """Return what it costs to begin this broker now. `even`: usage of the active brokers."""
        row = self._row(name)
        weights = np.sort(self.loads.weights(self._bundles_at(row)))[::-1]
        # How much room the others have, up to the level without this broker.
        capacity = self.loads.fleet.expected.mean(axis=1)
        others = self.active.copy()
        others[row] = False
        missing = capacity[row] / max(float(capacity[others].sum()), 1e-9)
        levels = even * (1.0 + missing) * (1.0 + TOLERANCE)
        room = np.where(others, np.maximum(levels - self.loads.usage, 0.0), 0.0)
        most = float(weights.max(initial=0.0))
        above = round(max(most - float(room.max(initial=0.0)), 0.0), 2)
        together = len(self._find_together(name, others))
        # If no broker stays, all its bundles move again. Else those for which there is no room.
        staying = self._staying() & others
        if not staying.any():
            return Cost(together, above, len(weights), most)
        excess = float(weights.sum() - room[staying].sum())
        if excess <= 0:
            return Cost(together, above, 0, -excess)
        again = int(np.searchsorted(np.cumsum(weights), excess) + 1)
        return Cost(together, above, again, excess)

    def _bundles_at(self, row: int) -> Rows:
        """Return the bundles of a broker that would have to leave it."""
        bundles = self.loads.view.bundles
        return np.flatnonzero((bundles.owner == row) & ~bundles.system)

    def _explain(self, name: str, absence: Absence) -> str:
        """Explain why this broker is next: a part of a sentence."""
        full = f"the others carry its load at {absence.usage:.0%} of the scarcest resource"
        if name in self.called:
            return f"an operator's command names it; {full}"
        if self.order.in_order:
            return f"it is next in the order given; {full}"
        if name == self.order.canary:
            return f"it is the canary; {full}"
        again = self._cost(name, self.loads.levels(self.active)).again
        if not self._staying().any():
            return f"it has the fewest bundles, {again}, and all of them move again; {full}"
        if again:
            return f"{again} of its bundles move again, fewer than of any other; {full}"
        return f"its bundles fit into brokers that stay, so that none moves again; {full}"

    # --- what keeps a broker from being begun ---

    def _find_refusal(self, absence: Absence) -> Refusal | None:
        """Return why a broker may not be begun now; None: it may."""
        name = absence.broker
        if not absence.remaining.any():
            return refusal(Refuses.ROLLOUT_TOO_FULL, name, limit=FULL)
        if self._is_last_of_domain(absence):
            return refusal(Refuses.ROLLOUT_DOMAIN, name)
        if (policy := self._find_policy(absence)) is not None:
            return refusal(Refuses.ROLLOUT_ISOLATION, name, [policy])
        if count_begun(self.order, self.progress):
            together = self._find_together(name, absence.remaining) or self._find_leaving(name)
            if together:
                return refusal(Refuses.ROLLOUT_ANTI_AFFINITY, name, together)
        if absence.usage > FULL and not self.order.even_if_full:
            scarcest = self.loads.scarcest(absence.remaining)
            rule = Refuses.ROLLOUT_TOO_FULL
            return refusal(rule, name, [scarcest], saw=[absence.usage], limit=FULL)
        return None

    def _is_last_of_domain(self, absence: Absence) -> bool:
        """Return whether a broker's failure domain has others, none of which would remain."""
        policies, names = self.loads.view.policies, self.loads.view.brokers.names
        domain = policies.domain_of(absence.broker) if policies.failure_domains else DEFAULT_DOMAIN
        if domain == DEFAULT_DOMAIN:
            return False
        members = np.array([policies.domain_of(name) == domain for name in names])
        return int(members.sum()) > 1 and not bool((members & absence.remaining).any())

    def _find_together(self, name: str, remaining: Bools) -> list[str]:
        """Return the broker's namespaces that none of these brokers takes apart from their group.

        Each would go beside other namespaces of its anti-affinity group, as from a drained broker.
        """
        broker, found = self._row(name), list[str]()
        for namespace, bundle in self._first_of_groups(broker).items():
            crowded = self._serve_others(namespace)
            apart = remaining & ~crowded
            if not crowded[broker] and not apart[self.loads.takers(bundle)].any():
                found.append(namespace)
        return found

    def _find_leaving(self, name: str) -> list[str]:
        """Return the broker's namespaces of whose groups others are still leaving another broker.

        Nobody knows yet which brokers these will leave free.
        """
        policies = self.loads.view.policies
        draining = map(self._row, self.progress.in_phases("draining"))
        leaving = {other for row in draining for other in self._first_of_groups(row)}
        return [
            namespace
            for namespace in self._first_of_groups(self._row(name))
            for other in leaving
            if other != namespace and policies.group_of(other) == policies.group_of(namespace)
        ]

    def _serve_others(self, namespace: str) -> Bools:
        """Return which brokers have bundles of other namespaces of a namespace's group.

        All moves are carried out, those of released bundles too.
        """
        bundles, policies = self.loads.view.bundles, self.loads.view.policies
        found = np.zeros(len(self.loads.view.brokers), np.bool_)
        for other in policies.namespaces_of(policies.group_of(namespace) or ""):
            owners = bundles.owner[bundles.rows_of_namespace(other)]
            if other != namespace:
                found[owners[owners >= 0]] = True
        return found

    def _first_of_groups(self, broker: int) -> dict[str, int]:
        """Return namespace → its first bundle at a broker, of namespaces in anti-affinity groups."""
        bundles, policies = self.loads.view.bundles, self.loads.view.policies
        found = dict[str, int]()
        for namespace in filter(policies.group_of, sorted(policies.anti_affinity)):
            rows = bundles.rows_of_namespace(namespace)
            mine = np.flatnonzero(bundles.owner[rows] == broker)
            if len(mine):
                found[namespace] = rows.start + int(mine[0])
        return found

    def _find_policy(self, absence: Absence) -> str | None:
        """Return the namespaces of the first isolation policy that the absence breaks; None: none.

        A policy is broken if none of its brokers remains, or if fewer primaries than its minimum
        do and another primary is away already.
        """
        names = self.loads.view.brokers.names
        remaining = [names[row] for row in np.flatnonzero(absence.remaining)]
        away = self.progress.in_phases(*BEGUN)
        for policy in self.loads.view.policies.isolation:
            is_primary = policy.is_primary(absence.broker, self.by_port)
            if not is_primary and not policy.is_secondary(absence.broker, self.by_port):
                continue
            primaries = sum(policy.is_primary(name, self.by_port) for name in remaining)
            secondaries = sum(policy.is_secondary(name, self.by_port) for name in remaining)
            another = any(policy.is_primary(name, self.by_port) for name in away)
            too_few = is_primary and another and primaries < policy.min_available
            if too_few or not primaries + secondaries:
                return ", ".join(policy.namespaces)
        return None
