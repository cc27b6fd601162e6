"""The state that the stages of a round share, within one call of `decide`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, isinf, isnan
from typing import Any

import numpy as np

from lb_stream.contracts.decisions import Candidate, Decision, DecisionKind, Explain
from lb_stream.core.commands.apply import destination_of
from lb_stream.core.commands.responder import CommandResponder
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.candidates import Candidates, Steps
from lb_stream.core.model.memory import BackOff, Memory, Pending
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.registry import Strategy
from lb_stream.core.model.rollout import BEGUN, RolloutNews, RolloutProgress
from lb_stream.core.model.rules import FilteredBy, Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.observing.liveness import Liveness
from lb_stream.core.observing.outcomes import Settled
from lb_stream.core.observing.overlaps import Overlapped, find_overlaps
from lb_stream.core.ownership.ledger import Ledger
from lb_stream.core.placement.base import Best, Placement, PlacementContext, Targets, placement
from lb_stream.core.shedding.base import NOTHING, Unloads
from lb_stream.core.splitting.merging import MergeLook

ROUND_ROBIN = "RoundRobinBrokerSelector"
"""The placement strategy of excluded namespaces, where `excluded_placement` gives them one."""
MAX_CANDIDATES_SHOWN = 20
RETRIES_AT_ONCE = 2
"""A broker that is emptied waits for nothing: so often a failed move is repeated at once."""
MIN_REFUSED_SHOWN = 3
"""At least this many brokers are shown for each filter, even if there are many candidates."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the placement strategy, with `candidates`; its result was `best` (rows)."""

    candidates: Rows
    best: Rows
    unit: str  # of the scores
    strategy: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A destination, and the candidates that it was chosen from."""

    destination: int  # a row
    candidates: list[Candidate]
    score: float
    unit: str  # of the score
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """The bundles that a split or merge makes."""

    children: tuple[str, ...]  # none: the bundle's owner finds them by the algorithm
    boundaries: tuple[int, ...] = ()
    algorithm: str | None = None
    unload_children: bool = False
    neighbour: str | None = None  # of a merge: the other bundle


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """The inputs of a round's decisions, which do not change them."""

    reported: ClusterView  # with dead brokers marked, without pending moves
    view: ClusterView  # of strategies: the same with pending moves carried out
    memory: Memory  # with the state that commands have set, without ended decisions
    config: ClusterConfig
    seed: int | None  # of draws among equals; None: the first is taken
    alive: Liveness
    settled: Settled
    recently_unloaded: Mapping[str, int]  # bundle → when it left its source
    retries: Mapping[str, BackOff]
    reserved: Mapping[str, str]  # released bundle → its reserved destination
    released: frozenset[str]  # bundles that this balancer released, still unassigned
    unloaded_brokers: Mapping[str, int]  # broker → when a move out of it was last confirmed

    @staticmethod
    def untouched(
        view: ClusterView, config: ClusterConfig, seed: int | None, memory: Memory | None = None
    ) -> RoundInputs:
        """Return the inputs of a cluster without pending or ended decisions."""
        return RoundInputs(
            reported=view,
            view=view,
            memory=memory or Memory(),
            config=config,
            seed=seed,
            alive=Liveness(view, (), None),
            settled=Settled((), ()),
            recently_unloaded={},
            retries={},
            reserved={},
            released=frozenset(),
            unloaded_brokers={},
        )


@dataclass(slots=True)
class RoundState:
    """The decisions, refusals and answers of a round so far. Its stages change it."""

    inputs: RoundInputs
    ledger: Ledger
    responder: CommandResponder  # answers commands
    decisions: list[Decision] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    # The shedding pass.
    shed: bool = False  # a pass was due
    judged: bool = False  # the shedder has judged the loads, and does not wait
    proposed: Unloads = NOTHING  # the result of the shedder
    relieved: frozenset[int] = (
        frozenset()
    )  # sources of its proposals, which get no bundle if avoidable
    exchanges: list[tuple[str, ...]] = field(default_factory=list)  # bundles that move together
    # Other stages.
    merges: MergeLook | None = None  # found by this round's look for bundles to merge
    dequeued: set[str] = field(default_factory=set)  # bundles whose queued moves have been decided
    # Approvals by rules of auto_approve in the last hour, in the form of `Memory.approvals`.
    approvals: tuple[tuple[str, int, int], ...] = ()
    rollout_news: list[RolloutNews] = field(default_factory=list)
    next_refused: tuple[Refusal, ...] = ()  # why no other broker of a rollout is begun
    estimated: bool = False  # the estimates of a rollout have seen this round's reports
    # The inputs' reservations, without bundles that are left to the next lookup.
    reserved: dict[str, str] = field(init=False)
    targets: Targets = field(init=False)
    candidates: Candidates = field(init=False)
    _overlapped: Overlapped | None = None  # once needed
    _strategies: dict[str, Any] = field(default_factory=dict)  # strategy → its memory, once needed
    _candidates_shown: dict[tuple[str, float | None, str | None], Candidate] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.reserved = dict(self.inputs.reserved)
        self.targets = Targets.from_view(self.view, self.inputs.seed)
        self.candidates = Candidates(self.view, self.config.balancer, self.refusals)

    @staticmethod
    def begin(inputs: RoundInputs) -> RoundState:
        """Return a round before its first decision, without records and answers."""
        dry_run = inputs.config.balancer.dry_run
        ledger = Ledger.build(inputs.view, inputs.reported, inputs.memory, dry_run)
        return RoundState(inputs, ledger, CommandResponder(inputs.memory.operator_state))

    def fork(self, inputs: RoundInputs) -> RoundState:
        """Return a copy of the round with other inputs, which have the same rows.

        The copy has its own decisions. It shares refusals and memories of strategies.
        """
        other = RoundState(inputs, self.ledger, self.responder, list(self.decisions), self.refusals)
        other._strategies = self._strategies
        other.estimated = self.estimated
        return other

    def set_rollout(self, progress: RolloutProgress | None) -> None:
        """Set how far the rollout is. From now on its begun brokers get no bundle.

        In a dry run they may: another balancer places bundles, which knows of no rollout.
        """
        drained = frozenset(self.responder.operator_state.drained)
        if progress is not None and not self.config.balancer.dry_run:
            drained |= frozenset(progress.in_phases(*BEGUN))
        inputs = replace(self.inputs, memory=replace(self.memory, rollout=progress))
        if drained != self.view.policies.drained:
            policies = replace(self.view.policies, drained=drained)
            inputs = replace(
                inputs,
                view=replace(self.view, policies=policies),
                reported=replace(inputs.reported, policies=policies),
            )
            self.candidates.use_policies(inputs.view)
        self.inputs = inputs

    def refuse_next(self, refusals: Sequence[Refusal]) -> None:
        """Add the refusals by which no other broker of a rollout is begun in this round."""
        self.refusals += refusals
        self.next_refused += tuple(refusals)

    @property
    def view(self) -> ClusterView:
        """The view of strategies, with pending moves carried out."""
        return self.inputs.view

    @property
    def config(self) -> ClusterConfig:
        """The settings in force."""
        return self.inputs.config

    @property
    def memory(self) -> Memory:
        """The memory of the last round, with the state that commands have set."""
        return self.inputs.memory

    @property
    def now_ms(self) -> int:
        """The time of the round."""
        return self.inputs.view.now_ms

    def place(self, bundle: int, avoid: Collection[str] = ()) -> Choice | None:
        """Choose a destination for a bundle (row); None: there is no candidate.

        `avoid`: brokers that get it only if no other broker may have it. If the modular manager's
        choice is overloaded, the strategy is called again with all brokers that policies allow.
        """
        pool = self.candidates.pool_for(bundle, self.targets)
        if avoid:
            failed = np.array([name in avoid for name in self.view.brokers.names], np.bool_)
            others, steps = pool.kept, pool.steps
            if failed[others].all():
                others, steps = self.candidates.allowed_by_rules(bundle, self.targets)
            if not failed[others].all():
                rest = others[~failed[others]]
                step = FilteredBy.FAILED_BEFORE.name, others, rest
                return self.place_among(bundle, rest, (*steps, step))
        return self._choose(bundle, (pool.kept, pool.steps), (pool.allowed, pool.policy_steps))

    def place_among(
        self, bundle: int, rows: Rows, steps: Steps, refused: Choice | None = None
    ) -> Choice | None:
        """Choose a destination among these brokers.

        `steps`: the filters that have left them. `refused`: an earlier choice that is not among
        them.
        """
        even, more = self.candidates.prefer_even(bundle, rows, self.targets)
        choice = self._choose(bundle, (even, steps + more), (rows, steps))
        if choice is None or refused is None:
            return choice
        return replace(choice, calls=refused.calls + choice.calls)

    def _choose(
        self, bundle: int, first: tuple[Rows, Steps], then: tuple[Rows, Steps]
    ) -> Choice | None:
        """Return the strategy's choice among the brokers `first`.

        If the chosen broker is overloaded, and the manager is modular: among the brokers `then`.
        """
        balancer, usual = self.config.balancer, self.config.placement
        ranked, steps = first
        name = self.view.bundles.name(bundle)
        takes_turns = balancer.excluded_placement == "round_robin" and (
            namespace_of(name) in balancer.shedding_excluded_namespaces
        )
        strategy = placement[ROUND_ROBIN] if takes_turns else usual
        best = self._rank(strategy, ranked, bundle)
        calls = [Call(ranked, best.rows, best.unit, strategy.name)]
        if not len(best.rows):
            return None
        chosen = self.targets.draw(name, best.rows)
        if (
            balancer.load_manager == "modular"
            and self.targets.usage[chosen] > balancer.overloaded_threshold_percent / 100.0
        ):
            again = self._rank(usual, then[0], bundle)
            calls.append(Call(then[0], again.rows, again.unit, usual.name))
            if len(again.rows):
                best, (ranked, steps) = again, then
                chosen = self.targets.draw(name, best.rows)
        score = float(best.scores[np.flatnonzero(ranked == chosen)[0]])
        return Choice(chosen, self._shown(ranked, best, steps), score, best.unit, tuple(calls))

    def no_candidate(self, bundle: int, source: str | None) -> list[Refusal]:
        """Return the refusals of a bundle without candidates.

        One is that its isolation policy matches no broker, if that is so.
        """
        name = [self.view.bundles.name(bundle)]
        found = [refusal(Refuses.NO_CANDIDATE, source, name, limit=1)]
        if self.candidates.matches_none(bundle):
            found.append(refusal(Refuses.ISOLATION_MATCHES_NONE, source, name))
        return found

    def free_bundles(self, *, retry: bool = False) -> Bools:
        """Return the bundles that may be decided on. O(bundles).

        These are not system bundles, have no pending, queued or new decision, and no back-off.
        `retry`: the first failures of a bundle cause no back-off.
        """
        bundles = self.view.bundles
        free = ~bundles.system & ~bundles.in_flight
        at_once = RETRIES_AT_ONCE if retry else 0
        backing_off = (
            name
            for name, back_off in self.inputs.retries.items()
            if self.now_ms < back_off.not_before_ms and back_off.attempts > at_once
        )
        decided = (bundle for decision in self.decisions for bundle in decision.bundles)
        queued = (move.bundle for move in self.queued_moves())
        taken = bundles.rows_of([*backing_off, *decided, *queued])
        free[taken[taken >= 0]] = False
        return free

    @property
    def overlapped(self) -> Overlapped:
        """The reported bundles that overlap others. Found once in a round."""
        if self._overlapped is None:
            self._overlapped = find_overlaps(self.inputs.reported)
        return self._overlapped

    def find_pending(self, bundle: str) -> Pending | Decision | None:
        """Return the last decision about a bundle that is pending or new in this round, if any."""
        decisions: list[Pending | Decision] = [*self.memory.pending, *self.decisions]
        about = (decision for decision in reversed(decisions) if bundle in decision.bundles)
        return next(about, None)

    def describe_busy(self, bundle: str) -> str | None:
        """Describe the decision or queued move that blocks a bundle; None: it is not blocked."""
        decision = self.find_pending(bundle)
        if decision is not None:
            return f"{bundle}: the decision {decision.decision_id} ({decision.kind}) is pending"
        for waiting in self.responder.operator_state.waiting:
            if bundle in waiting.queued:
                command_id = waiting.command["id"]
                move = f"its move by the command {command_id}"
                return f"{bundle}: {move} is queued until limits allow it"
        return None

    def queued_moves(self) -> list[Pending]:
        """Return the queued moves of commands, as pending decisions."""
        now_ms = self.now_ms
        return [
            Pending("", "unload", bundle, None, destination_of(waiting), now_ms, now_ms, version=0)
            for waiting in self.responder.operator_state.waiting
            for bundle in waiting.queued
        ]

    def claim(self, bundle: int, destination: int) -> None:
        """Count a bundle's load at a destination in all later choices of this round."""
        self.candidates.add(bundle, destination)
        self.targets.add(bundle, destination)

    def remembered(self, strategy: Strategy[Any]) -> object:
        """Return a strategy's memory at this point of the round."""
        if strategy.name not in self._strategies:
            self._strategies[strategy.name] = strategy.memory(
                self.memory.strategies.get(strategy.name, {})
            )
        return self._strategies[strategy.name]

    def remember(self, strategy: Strategy[Any], memory: object) -> None:
        """Set the memory that a strategy gets at its next call."""
        self._strategies[strategy.name] = memory

    def strategies_after(self) -> dict[str, object]:
        """Return strategy → its memory as a JSON object, for the strategies of the cluster."""
        used = {self.config.shedder.name, self.config.placement.name}
        if self.config.balancer.excluded_placement == "round_robin":
            used.add(ROUND_ROBIN)
        kept = {name: data for name, data in self.memory.strategies.items() if name in used}
        return kept | {
            name: memory.to_dict()
            for name, memory in self._strategies.items()
            if memory is not None
        }

    def _rank(self, strategy: Strategy[Placement], candidates: Rows, bundle: int) -> Best:
        """Call a placement strategy, and keep its memory."""
        is_usual = strategy is self.config.placement
        config = self.config.placement_config if is_usual else strategy.config()
        remembered = self.remembered(strategy)
        best, memory = strategy.function(
            PlacementContext(self.targets, candidates, bundle, config, remembered)
        )
        self.remember(strategy, memory)
        return best

    def _shown(self, ranked: Rows, best: Best, steps: Steps) -> list[Candidate]:
        """Return the best candidates, and for each filter some brokers that it has excluded."""
        names = self.view.brokers.names
        order = _lowest(best.scores, MAX_CANDIDATES_SHOWN)
        shown = [
            self._candidate(names[row], score if isfinite(score) else None, _ranked_last_by(score))
            for row, score in zip(ranked[order].tolist(), best.scores[order].tolist(), strict=True)
        ]
        for name, before, after in steps:
            is_out = np.ones(len(names), np.bool_)
            is_out[after] = False
            taken_out = before[is_out[before]]
            room = max(MIN_REFUSED_SHOWN, MAX_CANDIDATES_SHOWN - len(shown))
            shown += [self._candidate(names[row], None, name) for row in taken_out[:room].tolist()]
        return shown

    def _candidate(self, broker: str, score: float | None, refused_by: str | None) -> Candidate:
        """Return a candidate, which all bundles of the round share: many have the same ones."""
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
        """Add a decision, and count its bundle's load at its destination from then on.

        `bundle`, `destination`: rows. `division`: of a split or merge.
        """
        name = self.view.bundles.name(bundle)
        seq = self.memory.seq + 1
        made = division or Division(())
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
                neighbour=made.neighbour,
                children=list(made.children),
                boundaries=list(made.boundaries),
                algorithm=made.algorithm,
                unload_children=made.unload_children,
                reason=reason,
                rule=rule.name,
                strategy=strategy,
                issued_ms=self.now_ms,
                expires_ms=self.now_ms + self.config.balancer.unloading_timeout_ms,
                dry_run=self.config.balancer.dry_run,
                explain=explain,
            )
        )
        # Without pending moves an unload counts nowhere: only what has been placed counts.
        counts = kind == "assign" or self.config.balancer.count_pending_moves
        if destination is not None and counts:
            self.claim(bundle, destination)


def _ranked_last_by(score: float) -> str | None:
    """Return the filter that an infinite or NaN score stands for; None: it is a score."""
    if isinf(score):
        return FilteredBy.OVERLOADED.name
    return FilteredBy.NO_LOAD_DATA.name if isnan(score) else None


def _lowest(scores: Floats, most: int) -> Rows:
    """Return the positions of the lowest scores, the lowest first, equal ones in order, NaN last.

    O(scores).
    """
    if len(scores) > most:
        limit = np.partition(scores, most - 1)[most - 1]
        few = np.flatnonzero(scores <= limit)
        if len(few) >= most:  # else NaN are among them
            return few[np.argsort(scores[few], kind="stable")[:most]]
    return np.argsort(scores, kind="stable")[:most]
