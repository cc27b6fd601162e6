"""What keeps balancing from moving bundles: as columns for strategies, as refusals for tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.decisions import Decision
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.config.windows import ClosedWindow, closed
from lb_stream.core.disruption.budgets import HOUR_MS, Budget, build_budgets, select_counted
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import MOST_SUBJECTS, Refusal, refusal
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.model.view import ClusterView
from lb_stream.core.shedding.base import Disruption


@dataclass(slots=True)
class Holds:
    """Windows, freezes, pins, rejections and budgets, and how much is left of the budgets."""

    namespaces: Mapping[str, NamespaceConfig]
    memory: Memory
    budgets: dict[str, Budget]
    cluster: ClosedWindow | None  # why nothing may move now
    closed: Mapping[str, ClosedWindow]  # namespace → why its bundles may not move now

    @staticmethod
    def build(
        config: ClusterConfig, memory: Memory, decisions: Iterable[Decision], now_ms: int
    ) -> Holds:
        """Return what holds now. `decisions`: those of this round, which count already."""
        namespaces = {
            name: found
            for name, own in config.namespaces.items()
            if (found := closed(own, now_ms)) is not None
        }
        budgets = build_budgets(config.namespaces, memory, decisions, now_ms)
        cluster = closed(config.balancer, now_ms)
        return Holds(config.namespaces, memory, budgets, cluster, namespaces)

    def disruption(self, view: ClusterView) -> Disruption:
        """Return what holds as columns of the view's bundles.

        O(1) if no namespace has settings and no bundle is pinned or rejected, else O(bundles).
        """
        bundles = view.bundles
        if not self.namespaces and not self.memory.operator_state.pins and not self._rejected:
            return Disruption.none(len(bundles))
        held = np.zeros(len(bundles), np.bool_)
        weight = np.ones(len(bundles))
        budget = np.full(len(bundles), -1, np.int32)
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
        """Return refusals for namespaces whose bundles may not move, and for named bundles.

        Bundles are named by pins and rejections.
        """
        found = [self._named(rule, bundles) for rule, bundles in self._by_name if bundles]
        for name in self.namespaces:
            mine = view.bundles.rows_of_namespace(name)
            end = min(mine.stop, mine.start + MOST_SUBJECTS)
            some = view.bundles.names[mine.start : end].to_pylist()
            refused = self._refusal(name, some, 1) if some else None
            if refused is not None:
                found.append(replace(refused, count=mine.stop - mine.start))
        return found

    def refusal(self, bundles: Sequence[str]) -> Refusal | None:
        """Return why these bundles may not all move now; None: they may."""
        if self.cluster is not None:
            return refusal(self.cluster.rule, None, bundles, until_ms=self.cluster.until_ms)
        for rule, held in self._by_name:
            if some := {name: held[name] for name in bundles if name in held}:
                return self._named(rule, some)
        for namespace, moves in Counter(map(namespace_of, bundles)).items():
            mine = [bundle for bundle in bundles if namespace_of(bundle) == namespace]
            found = self._refusal(namespace, mine, moves)
            if found is not None:
                return found
        return None

    @property
    def _rejected(self) -> Mapping[str, int]:
        """Bundle whose moves an operator has rejected → until when."""
        return self.memory.operator_state.rejected(moves=True)

    @property
    def _by_name(self) -> tuple[tuple[Rule, Mapping[str, int]], ...]:
        """Of each rule that holds named bundles: bundle → until when."""
        return (Refuses.PINNED, self.memory.operator_state.pins), (Refuses.REJECTED, self._rejected)

    @staticmethod
    def _named(rule: Rule, bundles: Mapping[str, int]) -> Refusal:
        """Return the refusal of bundles that operators have named; `bundles`: until when."""
        return refusal(rule, None, bundles, until_ms=min(bundles.values()))

    def _refusal(self, namespace: str, bundles: Sequence[str], moves: int) -> Refusal | None:
        """Return why so many of a namespace's bundles may not move now; None: they may."""
        shut, budget = self.closed.get(namespace), self.budgets.get(namespace)
        if shut is not None:
            return refusal(shut.rule, None, bundles, namespace=namespace, until_ms=shut.until_ms)
        if budget is not None and budget.left < moves:
            return budget.refusal(bundles, moves)
        return None

    def take(self, decisions: Iterable[Decision]) -> None:
        """Count these decisions in the budgets."""
        for decision in select_counted(decisions, self.budgets, self.memory):
            budget = self.budgets[namespace_of(decision.bundle)]
            self.budgets[budget.namespace] = replace(
                budget, until_ms=(*budget.until_ms, decision.expires_ms + HOUR_MS)
            )
