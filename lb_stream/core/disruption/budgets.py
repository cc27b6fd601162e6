"""Disruption budgets: how many moves a namespace's bundles bear in any hour.

A move counts from its decision until an hour after the last moment at which its bundle can have
left its source. That is the round that saw it gone, or the decision's expiry if that came first: so
a late acknowledgement breaks no budget. The count is part of the memory: a restart changes nothing.
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
"""Namespace → until when some of its moves count (ms, ascending, whole seconds), and how many."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A namespace's budget, and the moves that count in it."""

    namespace: str
    limit: int  # moves an hour
    until_ms: tuple[int, ...]  # until when each move counts, ascending

    @property
    def left(self) -> int:
        """How many more moves it allows now."""
        return max(0, self.limit - len(self.until_ms))

    def room_ms(self, moves: int = 1) -> int | None:
        """Return when there is room for so many more moves; 0: now; None: never."""
        over = len(self.until_ms) + moves - self.limit
        if moves > self.limit:
            return None
        return self.until_ms[over - 1] if over > 0 else 0

    def refusal(self, bundles: Collection[str], moves: int = 1) -> Refusal:
        """Return the refusal to move these bundles; `moves`: how many have to move together."""
        until_ms, saw = self.room_ms(moves), [len(self.until_ms)]
        return refusal(
            Refuses.MOVES_PER_HOUR,
            None,
            bundles,
            saw=saw,
            limit=self.limit,
            namespace=self.namespace,
            until_ms=until_ms,
        )


def build_budgets(
    namespaces: Mapping[str, NamespaceConfig],
    memory: Memory,
    decisions: Iterable[Decision],
    now_ms: int,
) -> dict[str, Budget]:
    """Return the namespaces that have a budget → the budget.

    `decisions`: those of this round, which count already.
    """
    limits = {
        name: own.moves_per_hour
        for name, own in namespaces.items()
        if own.moves_per_hour is not None
    }
    if not limits:
        return {}
    # Until when each move counts: of ended decisions, of pending ones, and of this round's.
    until: dict[str, list[int]] = defaultdict(list)
    for name in limits:
        for until_ms, moves in memory.spent.get(name, ()):
            until[name] += [until_ms] * moves if until_ms > now_ms else []
    spending = set(memory.spending)
    for pending in memory.pending:
        if pending.decision_id in spending:
            until[namespace_of(pending.bundle)].append(pending.expires_ms + HOUR_MS)
    for decision in select_counted(decisions, limits, memory):
        until[namespace_of(decision.bundle)].append(decision.expires_ms + HOUR_MS)
    return {name: Budget(name, limit, tuple(sorted(until[name]))) for name, limit in limits.items()}


def select_counted(
    decisions: Iterable[Decision], limited: Collection[str], memory: Memory
) -> list[Decision]:
    """Return the decisions that count in a budget; `limited`: the namespaces that have one.

    Those are moves of their bundles, but not out of brokers that are being drained.
    """
    return [
        decision
        for decision in decisions
        if decision.kind in MOVES
        and namespace_of(decision.bundle) in limited
        and decision.source not in memory.emptied
        and decision.rule != Decides.NAMESPACE_DELETED.name
    ]


def limited_namespaces(namespaces: Mapping[str, NamespaceConfig]) -> frozenset[str]:
    """Return the namespaces that have a budget."""
    return frozenset(name for name, own in namespaces.items() if own.moves_per_hour is not None)


def settle_spending(
    memory: Memory, settled: Settled, limited: Collection[str], now_ms: int
) -> tuple[Spent, tuple[str, ...]]:
    """Return `spent` and `spending` of the memory after these decisions have ended.

    A refused decision costs nothing; one that may have been carried out counts. A move out of a
    drained broker counts if the drain ended before the move did. A namespace without a budget is
    remembered until its moves no longer count.
    """
    # Moves that have ended, by namespace and the time until which they count.
    spending, ended = set(memory.spending), Counter[tuple[str, int]]()
    for pending, outcome in settled.ended:
        namespace = namespace_of(pending.bundle)
        left_undrained = (
            namespace in limited
            and outcome.released_ms is not None
            and pending.source not in memory.emptied
        )
        if (
            pending.kind in MOVES
            and outcome.outcome != "refused"
            and (pending.decision_id in spending or left_undrained)
        ):
            ended[namespace, _counts_until(min(now_ms, pending.expires_ms))] += 1
    # With those that ended in earlier rounds and still count.
    for name, entries in memory.spent.items():
        for until_ms, moves in entries:
            ended[name, until_ms] += moves
    spent: dict[str, tuple[tuple[int, int], ...]] = {}
    for (name, until_ms), moves in sorted(ended.items()):
        if until_ms > now_ms:
            spent[name] = (*spent.get(name, ()), (until_ms, moves))
    pending_ids = {pending.decision_id for pending in settled.pending}
    still_spending = (name for name in memory.spending if name in pending_ids)
    return spent, tuple(still_spending)


def _counts_until(gone_ms: int) -> int:
    """Return until when a move counts whose bundle had left by then, in whole seconds.

    So an hour has few different times.
    """
    return -(-gone_ms // SECOND_MS) * SECOND_MS + HOUR_MS
