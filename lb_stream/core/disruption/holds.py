"""What keeps bundles from being moved by balancing in one round: for strategies as columns, for the
tables as refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.decisions import Decision
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.config.windows import Closed, closed
from lb_stream.core.disruption.budgets import HOUR_MS, Budget, budgets, counting
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import MOST_SUBJECTS, Refusal, refusal
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.model.view import ClusterView
from lb_stream.core.shedding.base import Disruption


@dataclass(slots=True)
class Holds:
    """The limits of namespaces, and how much of them is left."""

    namespaces: Mapping[str, NamespaceConfig]
    memory: Memory
    budgets: dict[str, Budget]
    cluster: Closed | None  # why nothing may move now
    closed: Mapping[str, Closed]  # the same of namespaces

    @staticmethod
    def of(
        config: ClusterConfig, memory: Memory, decisions: Iterable[Decision], now_ms: int
    ) -> Holds:
        """As things stand. `decisions`: those of this round, which count already."""
        shut = {
            name: found
            for name, own in config.namespaces.items()
            if (found := closed(own, now_ms)) is not None
        }
        left = budgets(config.namespaces, memory, decisions, now_ms)
        return Holds(config.namespaces, memory, left, closed(config.balancer, now_ms), shut)

    def disruption(self, view: ClusterView) -> Disruption:
        """The same as columns.

        O(1) where no namespace has settings and no bundle is pinned, else O(bundles).
        """
        bundles = view.bundles
        if not self.namespaces and not self.memory.operator_state.pins and not self._rejected:
            return Disruption.none(len(bundles))
        held, weight, budget = (
            np.zeros(len(bundles), np.bool_),
            np.ones(len(bundles)),
            np.full(len(bundles), -1, np.int32),
        )
        left = np.array([budget.left for budget in self.budgets.values()], np.int64)
        row_of = {name: row for row, name in enumerate(self.budgets)}
        for name, own in self.namespaces.items():
            rows = bundles.rows_of_namespace(name)
            weight[rows] = own.disruption_weight
            if name in row_of:
                budget[rows] = row_of[name]
                held[rows] = left[row_of[name]] == 0
            held[rows] |= name in self.closed
        named = bundles.rows_of([*self.memory.operator_state.pins, *self._rejected])
        held[named[named >= 0]] = True
        return Disruption(held, weight, budget, left)

    def standing(self, view: ClusterView) -> list[Refusal]:
        """Of each namespace none of whose bundles may move now, and of pinned and rejected bundles:
        why, and until when."""
        found = [self._named(rule, bundles) for rule, bundles in self._by_name if bundles]
        for name in self.namespaces:
            mine = view.bundles.rows_of_namespace(name)
            some = view.bundles.names[
                mine.start : min(mine.stop, mine.start + MOST_SUBJECTS)
            ].to_pylist()
            refused = self._refusal(name, some, 1) if some else None
            found += [replace(refused, count=mine.stop - mine.start)] if refused is not None else []
        return found

    def refusal(self, bundles: Sequence[str]) -> Refusal | None:
        """Why these bundles may not all move now, if so."""
        if self.cluster is not None:
            return refusal(self.cluster.rule, None, bundles, until_ms=self.cluster.until_ms)
        for rule, held in self._by_name:
            if some := {name: held[name] for name in bundles if name in held}:
                return self._named(rule, some)
        for namespace, moves in Counter(map(namespace_of, bundles)).items():
            found = self._refusal(
                namespace,
                [bundle for bundle in bundles if namespace_of(bundle) == namespace],
                moves,
            )
            if found is not None:
                return found
        return None

    @property
    def _rejected(self) -> Mapping[str, int]:
        return self.memory.operator_state.rejected(moves=True)

    @property
    def _by_name(self) -> tuple[tuple[Rule, Mapping[str, int]], ...]:
        """Bundles that operators have named, until when they are held, by rule."""
        return (Refuses.PINNED, self.memory.operator_state.pins), (Refuses.REJECTED, self._rejected)

    @staticmethod
    def _named(rule: Rule, bundles: Mapping[str, int]) -> Refusal:
        return refusal(rule, None, bundles, until_ms=min(bundles.values()))

    def _refusal(self, namespace: str, bundles: Sequence[str], moves: int) -> Refusal | None:
        """Why so many of a namespace's bundles may not move now, if so."""
        shut, budget = self.closed.get(namespace), self.budgets.get(namespace)
        if shut is not None:
            return refusal(shut.rule, None, bundles, namespace=namespace, until_ms=shut.until_ms)
        return (
            budget.refusal(bundles, moves) if budget is not None and budget.left < moves else None
        )

    def take(self, decisions: Iterable[Decision]) -> None:
        """Count these decisions in the budgets."""
        for decision in counting(decisions, self.budgets, self.memory):
            budget = self.budgets[namespace_of(decision.bundle)]
            self.budgets[budget.namespace] = replace(
                budget, until_ms=(*budget.until_ms, decision.expires_ms + HOUR_MS)
            )
