"""Budgets: the most moves of a namespace's bundles in any hour, counted so that late
acknowledgements break none.

A move counts from its decision on, until an hour after the last moment at which its bundle can have
left: the round that saw it gone, or the decision's expiry if that came first. The count is part of
a cluster's memory, so that a restart changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.decisions import MOVES, Decision
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.observing.outcomes import Settled

HOUR_MS = 3_600_000
SECOND_MS = 1_000

Spent = Mapping[str, tuple[tuple[int, int], ...]]
"""Namespace → until when some of its moves count (ms, ascending, in whole seconds), and how
many."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One namespace's budget, and until when each of the moves that count in it does so (ms,
    ascending)."""

    namespace: str
    most: int
    until_ms: tuple[int, ...]

    @property
    def left(self) -> int:
        """How many more moves it allows now."""
        return max(0, self.most - len(self.until_ms))

    def room_ms(self, moves: int = 1) -> int | None:
        """When there is room for so many more; 0: now; None: never."""
        over = len(self.until_ms) + moves - self.most
        if moves > self.most:
            return None
        return self.until_ms[over - 1] if over > 0 else 0

    def refusal(self, bundles: Collection[str], moves: int = 1) -> Refusal:
        """Refuse to move these bundles; `moves`: how many would have to move together."""
        until_ms, saw = self.room_ms(moves), [len(self.until_ms)]
        return refusal(
            Refuses.MOVES_PER_HOUR,
            None,
            bundles,
            saw=saw,
            limit=self.most,
            namespace=self.namespace,
            until_ms=until_ms,
        )


def budgets(
    namespaces: Mapping[str, NamespaceConfig],
    memory: Memory,
    decisions: Iterable[Decision],
    now_ms: int,
) -> dict[str, Budget]:
    """Namespace → its budget, of those that have one.

    `decisions`: those of this round, which count already.
    """
    most = {
        name: own.moves_per_hour
        for name, own in namespaces.items()
        if own.moves_per_hour is not None
    }
    if not most:
        return {}
    until: dict[str, list[int]] = defaultdict(list)
    for name in most:
        for until_ms, moves in memory.spent.get(name, ()):
            until[name] += [until_ms] * moves if until_ms > now_ms else []
    spending = set(memory.spending)
    for pending in memory.pending:
        if pending.decision_id in spending:
            until[namespace_of(pending.bundle)].append(pending.expires_ms + HOUR_MS)
    for decision in counting(decisions, most, memory):
        until[namespace_of(decision.bundle)].append(decision.expires_ms + HOUR_MS)
    return {name: Budget(name, limit, tuple(sorted(until[name]))) for name, limit in most.items()}


def counting(
    decisions: Iterable[Decision], limited: Collection[str], memory: Memory
) -> list[Decision]:
    """The decisions that count in a budget: moves out of brokers that aren't being drained, of
    namespaces that have one."""
    return [
        decision
        for decision in decisions
        if decision.kind in MOVES
        and namespace_of(decision.bundle) in limited
        and decision.source not in memory.operator_state.drained
        and decision.rule != Decides.NAMESPACE_DELETED.name
    ]


def limited_namespaces(namespaces: Mapping[str, NamespaceConfig]) -> frozenset[str]:
    """Those that have a budget."""
    return frozenset(name for name, own in namespaces.items() if own.moves_per_hour is not None)


def spent_after(
    memory: Memory, settled: Settled, limited: Collection[str], now_ms: int
) -> tuple[Spent, tuple[str, ...]]:
    """`spent` and `spending` once these decisions have ended.

    A refused one costs nothing; one that may have been obeyed counts.

    A move out of a drained broker counts if the drain ended before it did. A namespace without a
    budget is remembered until its moves count no more.
    """
    spending, ended = set(memory.spending), Counter[tuple[str, int]]()
    for pending, outcome in settled.ended:
        namespace = namespace_of(pending.bundle)
        left_undrained = (
            namespace in limited
            and outcome.released_ms is not None
            and pending.source not in memory.operator_state.drained
        )
        if (
            pending.kind in MOVES
            and outcome.outcome != "refused"
            and (pending.decision_id in spending or left_undrained)
        ):
            ended[namespace, _until(min(now_ms, pending.expires_ms))] += 1
    for name, entries in memory.spent.items():
        for until_ms, moves in entries:
            ended[name, until_ms] += moves
    spent: dict[str, tuple[tuple[int, int], ...]] = {}
    for (name, until_ms), moves in sorted(ended.items()):
        if until_ms > now_ms:
            spent[name] = (*spent.get(name, ()), (until_ms, moves))
    still_open = {pending.decision_id for pending in settled.pending}
    return spent, tuple(decision_id for decision_id in memory.spending if decision_id in still_open)


def _until(gone_ms: int) -> int:
    """Until when a move counts whose bundle had left by then: in whole seconds, so that an hour has
    few of them."""
    return -(-gone_ms // SECOND_MS) * SECOND_MS + HOUR_MS
