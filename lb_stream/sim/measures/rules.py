"""A scenario's rules as columns: isolation, anti-affinity, pinned namespaces, budgets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lb_stream.sim.scenario.scenario import Bools, Ints, Scenario, ScenarioIsolation


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a scenario. Each column has a row for each bundle."""

    namespaces: tuple[str, ...]
    namespace: Ints  # row of `namespaces`
    isolation: tuple[ScenarioIsolation, ...]
    policy: Ints  # row of `isolation`, -1: none
    group: Ints  # row of the anti-affinity groups, -1: none
    pinned: Bools
    pinned_at: Ints  # row of the broker at which each pinned bundle starts; -1: none, or not pinned
    budget: Ints  # of each of `namespaces`: max moves in any hour, -1: no limit

    @staticmethod
    def from_scenario(scenario: Scenario) -> Rules:
        """Read a scenario's rules. The first isolation policy that names a namespace counts."""
        names = tuple(dict.fromkeys(scenario.namespaces))
        row = {name: at for at, name in enumerate(names)}
        namespace = np.array([row[name] for name in scenario.namespaces], np.int64)
        given = scenario.policies
        policy = {
            name: at
            for at, policy in reversed(list(enumerate(given.isolation)))
            for name in policy.namespaces
        }
        group = {
            name: at for at, group in enumerate(given.anti_affinity) for name in group.namespaces
        }
        pinned = set(given.pinned_namespaces)
        is_pinned = np.array([name in pinned for name in names], np.bool_)[namespace]
        return Rules(
            namespaces=names,
            namespace=namespace,
            isolation=given.isolation,
            policy=np.array([policy.get(name, -1) for name in names], np.int64)[namespace],
            group=np.array([group.get(name, -1) for name in names], np.int64)[namespace],
            pinned=is_pinned,
            pinned_at=np.where(is_pinned, scenario.bundles.start_owner, -1),
            budget=np.array([given.budgets.get(name, -1) for name in names], np.int64),
        )

    def of_bundles(self, root: Ints) -> Rules:
        """Return the rules of bundles that are parts of these ones, given by row."""
        return replace(
            self,
            namespace=self.namespace[root],
            policy=self.policy[root],
            group=self.group[root],
            pinned=self.pinned[root],
            pinned_at=self.pinned_at[root],
        )

    def allowed(self, up: Bools) -> Bools:
        """Return which brokers each isolation policy allows while the brokers in `up` are up.

        Policies × brokers; the last row is for bundles without a policy.
        """
        may = np.zeros((len(self.isolation) + 1, len(up)), np.bool_)
        may[-1] = True
        for row, policy in enumerate(self.isolation):
            primary = list(policy.primary)
            may[row, primary] = True
            may[-1, primary] = False
            if np.count_nonzero(up[primary]) < policy.min_available:
                may[row, list(policy.secondary)] = True
        return may
