"""A round while it is being made: what the stages of `decide` share. It lives within one call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, isinf, isnan
from typing import Any

import numpy as np

from lb_stream.contracts.decisions import Candidate, Decision, DecisionKind, Explain
from lb_stream.core.commands.apply import destination_of
from lb_stream.core.commands.responder import CommandResponder
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.candidates import Candidates, Steps
from lb_stream.core.model.memory import Memory, Pending, Retry
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.registry import Strategy
from lb_stream.core.model.rules import FilteredBy, Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.observing.liveness import Liveness
from lb_stream.core.observing.outcomes import Settled
from lb_stream.core.observing.overlaps import Overlapped, find_overlaps
from lb_stream.core.ownership.ledger import Ledger
from lb_stream.core.placement.base import Best, PlacementContext, Targets
from lb_stream.core.shedding.base import NOTHING, Unloads
from lb_stream.core.splitting.merging import MergeLook

MOST_CANDIDATES_SHOWN = 20
LEAST_REFUSED_SHOWN = 3
"""Of each filter, however many candidates there are."""


@dataclass(frozen=True, slots=True)
class Call:
    """The placement strategy was asked about `candidates` and answered `best` (rows)."""

    candidates: Rows
    best: Rows


@dataclass(frozen=True, slots=True)
class Choice:
    """A destination and what it was chosen from."""

    destination: int
    candidates: list[Candidate]
    score: float
    unit: str  # of the score
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """What a split or merge makes of its bundle.

    No children: its owner finds them by the algorithm.
    """

    children: tuple[str, ...]
    boundaries: tuple[int, ...] = ()
    algorithm: str | None = None
    unload_children: bool = False
    neighbour: str | None = None  # of a merge


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """What a round decides on: observed and settled before its first decision, and changed by
    none."""

    reported: ClusterView  # dead brokers marked, moves in flight still where they were
    view: ClusterView  # the same with moves in flight carried out: what strategies see
    memory: (
        Memory  # with what commands have laid down; `pending` are the decisions that are still open
    )
    config: ClusterConfig
    seed: int | None  # None: no chance, always the first
    alive: Liveness
    settled: Settled
    recently_unloaded: Mapping[str, int]  # bundle → when
    retries: Mapping[str, Retry]
    reserved: Mapping[str, str]  # released bundle → the destination that its unload named
    released: frozenset[str]  # bundles that this balancer had released and nobody has taken yet
    unloaded_brokers: Mapping[str, int]  # broker → when a move out of it was last confirmed

    @staticmethod
    def of(
        view: ClusterView, config: ClusterConfig, seed: int | None, memory: Memory | None = None
    ) -> RoundInputs:
        """Those of a cluster in which nothing has been decided yet."""
        alive, settled = Liveness(view, (), None), Settled((), ())
        return RoundInputs(
            view,
            view,
            memory or Memory(),
            config,
            seed,
            alive,
            settled,
            {},
            {},
            {},
            frozenset(),
            {},
        )


@dataclass(slots=True)
class RoundState:
    """What the round has decided, refused and answered so far, and how its choices count in the
    next ones."""

    inputs: RoundInputs
    ledger: Ledger
    responder: CommandResponder  # where commands are answered
    decisions: list[Decision] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    relieved: frozenset[int] = (
        frozenset()
    )  # brokers that bundles leave in this round, and that are spared in it
    shed: bool = False
    looked: bool = False  # the shedder has looked at the loads, and waits for nothing
    proposed: Unloads = NOTHING  # by the shedder
    merges: MergeLook | None = None  # what a look for bundles to merge has found
    exchanges: list[tuple[str, ...]] = field(
        default_factory=list
    )  # bundles whose moves belong together
    dequeued: set[str] = field(default_factory=set)  # bundles whose queued moves have been decided
    approvals: tuple[
        tuple[str, int, int], ...
    ] = ()  # as the memory has them: what rules have approved within the last hour
    reserved: dict[str, str] = field(
        init=False
    )  # the inputs', without those that are left to the next lookup
    targets: Targets = field(init=False)
    candidates: Candidates = field(init=False)
    _overlapped: Overlapped | None = None  # once asked for
    _strategies: dict[str, Any] = field(
        default_factory=dict
    )  # strategy → its memory, where it has been used in this round
    _candidates_shown: dict[tuple[str, float | None, str | None], Candidate] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.reserved = dict(self.inputs.reserved)
        self.targets = Targets.from_view(self.view, self.inputs.seed)
        self.candidates = Candidates(self.view, self.config.balancer, self.refusals)

    @staticmethod
    def of(inputs: RoundInputs) -> RoundState:
        """Before the first decision, with nothing recorded and nothing answered."""
        ledger = Ledger.of(
            inputs.view, inputs.reported, inputs.memory, inputs.config.balancer.dry_run
        )
        return RoundState(inputs, ledger, CommandResponder(inputs.memory.operator_state))

    def fork(self, inputs: RoundInputs) -> RoundState:
        """The same round with other inputs.

        What is decided there is decided there only; refusals and what strategies learn are this
        one's.

        The rows of bundles and brokers must be the same.
        """
        other = RoundState(inputs, self.ledger, self.responder, list(self.decisions), self.refusals)
        other._strategies = self._strategies
        return other

    @property
    def view(self) -> ClusterView:
        """What strategies see."""
        return self.inputs.view

    @property
    def config(self) -> ClusterConfig:
        """The settings in force."""
        return self.inputs.config

    @property
    def memory(self) -> Memory:
        """What was remembered when the round began, with what its commands have laid down."""
        return self.inputs.memory

    @property
    def now_ms(self) -> int:
        """The round's time."""
        return self.inputs.view.now_ms

    def place(self, bundle: int, avoid: Collection[str] = ()) -> Choice | None:
        """Find a destination for a bundle; None when there is no candidate at all.

        Those to `avoid` are asked when nobody else may have it.

        When the modular manager's choice is overloaded the strategy is asked again, about all that
        policies allow.
        """
        pool = self.candidates.pool_for(bundle, self.targets)
        if avoid:
            failed = np.array([name in avoid for name in self.view.brokers.names], np.bool_)
            others, steps = (
                self.candidates.allowed_by_rules(bundle, self.targets)
                if failed[pool.kept].all()
                else (pool.kept, pool.steps)
            )
            if not failed[others].all():
                willing = others[~failed[others]]
                return self.place_among(
                    bundle, willing, (*steps, (FilteredBy.FAILED_BEFORE.name, others, willing))
                )
        return self._choose(bundle, (pool.kept, pool.steps), (pool.allowed, pool.policy_steps))

    def place_among(
        self, bundle: int, rows: Rows, steps: Steps, refused: Choice | None = None
    ) -> Choice | None:
        """One of these brokers, which rules and wishes have left.

        `refused`: the choice that they didn't leave.
        """
        even, more = self.candidates.prefer_even(bundle, rows, self.targets)
        choice = self._choose(bundle, (even, steps + more), (rows, steps))
        return (
            choice
            if choice is None or refused is None
            else replace(choice, calls=refused.calls + choice.calls)
        )

    def _choose(
        self, bundle: int, first: tuple[Rows, Steps], then: tuple[Rows, Steps]
    ) -> Choice | None:
        """The strategy's choice among the first, or among the others when that one is overloaded
        (modular manager)."""
        ranked, steps = first
        best = self._rank(ranked, bundle)
        calls = [Call(ranked, best.rows)]
        if not len(best.rows):
            return None
        name = self.view.bundles.name(bundle)
        chosen, balancer = self.targets.draw(name, best.rows), self.config.balancer
        if (
            balancer.load_manager == "modular"
            and self.targets.usage[chosen] > balancer.overloaded_threshold_percent / 100.0
        ):
            again = self._rank(then[0], bundle)
            calls.append(Call(then[0], again.rows))
            if len(again.rows):
                best, (ranked, steps) = again, then
                chosen = self.targets.draw(name, best.rows)
        score = float(best.scores[np.flatnonzero(ranked == chosen)[0]])
        return Choice(chosen, self._shown(ranked, best, steps), score, best.unit, tuple(calls))

    def no_candidate(self, bundle: int, source: str | None) -> list[Refusal]:
        """That no broker may have a bundle; and if its isolation policy matches none that lives."""
        name = [self.view.bundles.name(bundle)]
        found = [refusal(Refuses.NO_CANDIDATE, source, name, limit=1)]
        if self.candidates.matches_none(bundle):
            found.append(refusal(Refuses.ISOLATION_MATCHES_NONE, source, name))
        return found

    def free_bundles(self) -> Bools:
        """Bundles that may be decided on.

        Not the system's, not on their way or queued, not decided on in this round, not backing off.
        """
        bundles = self.view.bundles
        free = ~bundles.system & ~bundles.in_flight
        backing_off = (
            name for name, retry in self.inputs.retries.items() if self.now_ms < retry.not_before_ms
        )
        decided = (bundle for decision in self.decisions for bundle in decision.bundles)
        queued = (move.bundle for move in self.queued_moves())
        taken = bundles.rows_of([*backing_off, *decided, *queued])
        free[taken[taken >= 0]] = False
        return free

    @property
    def overlapped(self) -> Overlapped:
        """Bundles whose ranges others have, too, as reported. Found once in a round."""
        if self._overlapped is None:
            self._overlapped = find_overlaps(self.inputs.reported)
        return self._overlapped

    def under_way(self, bundle: str) -> tuple[str, str] | None:
        """Id and kind of the decision about a bundle that is not confirmed yet."""
        open_: list[Pending | Decision] = [*self.memory.pending, *self.decisions]
        return next(
            (
                (decision.decision_id, decision.kind)
                for decision in reversed(open_)
                if bundle in decision.bundles
            ),
            None,
        )

    def describe_busy(self, bundle: str) -> str | None:
        """Say which move, split or merge of the bundle is to end before another begins, if any."""
        if (found := self.under_way(bundle)) is not None:
            return f"{bundle}: the decision {found[0]} ({found[1]}) is under way"
        for waiting in self.responder.operator_state.waiting:
            if bundle in waiting.queued:
                order = waiting.command["id"]
                return f"{bundle}: its move, which the command {order} has ordered, waits for room"
        return None

    def queued_moves(self) -> list[Pending]:
        """Moves that operators have ordered and that wait for room, as decisions yet to be made."""
        now_ms = self.now_ms
        return [
            Pending("", "unload", bundle, None, destination_of(one), now_ms, now_ms, version=0)
            for one in self.responder.operator_state.waiting
            for bundle in one.queued
        ]

    def claim(self, bundle: int, destination: int) -> None:
        """Count the load of a bundle whose move waits for room at its destination from now on."""
        self._count(bundle, destination)

    def remembered(self, strategy: Strategy[Any]) -> Any:
        """What a strategy remembers, as it stands in this round."""
        if strategy.name not in self._strategies:
            self._strategies[strategy.name] = strategy.memory(
                self.memory.strategies.get(strategy.name, {})
            )
        return self._strategies[strategy.name]

    def remember(self, strategy: Strategy[Any], memory: Any) -> None:
        """Take a strategy's memory as that which it sees at its next call."""
        self._strategies[strategy.name] = memory

    def strategies_after(self) -> dict[str, Any]:
        """Strategy → the JSON object that the next round starts from.

        Of strategies that the cluster no longer uses nothing is kept.
        """
        used = {self.config.shedder.name, self.config.placement.name}
        kept = {name: data for name, data in self.memory.strategies.items() if name in used}
        return kept | {
            name: memory.to_dict()
            for name, memory in self._strategies.items()
            if memory is not None
        }

    def _rank(self, candidates: Rows, bundle: int) -> Best:
        strategy = self.config.placement
        best, memory = strategy.function(
            PlacementContext(
                self.targets,
                candidates,
                bundle,
                self.config.placement_config,
                self.remembered(strategy),
            )
        )
        self.remember(strategy, memory)
        return best

    def _shown(self, ranked: Rows, best: Best, steps: Steps) -> list[Candidate]:
        """The best candidates, and for each filter some of those that it took out, for the
        decision's explanation."""
        names = self.view.brokers.names
        order = _lowest(best.scores, MOST_CANDIDATES_SHOWN)
        shown = [
            self._candidate(
                names[row],
                score if isfinite(score) else None,
                FilteredBy.OVERLOADED.name
                if isinf(score)
                else FilteredBy.NO_LOAD_DATA.name
                if isnan(score)
                else None,
            )
            for row, score in zip(ranked[order].tolist(), best.scores[order].tolist(), strict=True)
        ]
        for name, before, after in steps:
            is_out = np.ones(len(names), np.bool_)
            is_out[after] = False
            taken_out = before[is_out[before]]
            room = max(LEAST_REFUSED_SHOWN, MOST_CANDIDATES_SHOWN - len(shown))
            shown += [self._candidate(names[row], None, name) for row in taken_out[:room].tolist()]
        return shown

    def _candidate(self, broker: str, score: float | None, refused_by: str | None) -> Candidate:
        """Kept for the round: the next bundle's are nearly the same, and one is dear to make."""
        key = broker, score, refused_by
        if key not in self._candidates_shown:
            self._candidates_shown[key] = Candidate(
                broker=broker, score=score, refused_by=refused_by
            )
        return self._candidates_shown[key]

    def decide(
        self,
        kind: DecisionKind,
        bundle: int,
        source: str | None,
        destination: int | None,
        *,
        reason: str,
        rule: Rule,
        strategy: str,
        explain: Explain,
        division: Division | None = None,
    ) -> None:
        """Add one decision and count its load at its destination from now on."""
        name = self.view.bundles.name(bundle)
        seq = self.memory.seq + 1
        self.decisions.append(
            Decision(
                decision_id=f"{self.view.cluster}:{seq}:{len(self.decisions)}",
                cluster=self.view.cluster,
                seq=seq,
                epoch=self.memory.epoch,
                kind=kind,
                bundle=name,
                source=source,
                destination=None if destination is None else self.view.brokers.names[destination],
                expected_owner=source,
                expected_version=self.ledger.version(name, bundle),
                neighbour=division.neighbour if division else None,
                children=list(division.children) if division else [],
                boundaries=list(division.boundaries) if division else [],
                algorithm=division.algorithm if division else None,
                unload_children=division.unload_children if division else False,
                reason=reason,
                rule=rule.name,
                strategy=strategy,
                issued_ms=self.now_ms,
                expires_ms=self.now_ms + self.config.balancer.unloading_timeout_ms,
                dry_run=self.config.balancer.dry_run,
                explain=explain,
            )
        )
        if destination is not None:
            self._count(bundle, destination)

    def _count(self, bundle: int, destination: int) -> None:
        """Count a bundle's load at its destination from now on."""
        self.candidates.add(bundle, destination)
        self.targets.add(bundle, destination)


def _lowest(scores: Floats, most: int) -> Rows:
    """Where the lowest scores stand, the lowest first, equal ones in their order, NaN last.

    O(scores).
    """
    if len(scores) > most:
        limit = np.partition(scores, most - 1)[most - 1]
        few = np.flatnonzero(scores <= limit)
        if len(few) >= most:  # else NaN are among them
            return few[np.argsort(scores[few], kind="stable")[:most]]
    return np.argsort(scores, kind="stable")[:most]
