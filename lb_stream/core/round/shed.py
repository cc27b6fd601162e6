"""The shedding round: ask the shedder, then find each proposal a destination or a reason why not.

See docs/strategies.md "Shedding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from lb_stream.contracts.decisions import MOVES, Candidate, Decision, DecisionKind, Explain
from lb_stream.core.disruption.holds import Holds
from lb_stream.core.filters import AntiAffinity, domains_of
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, FilteredBy, Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Ints, Rows, apply_pending_moves
from lb_stream.core.observing.outcomes import Outcome
from lb_stream.core.round.limits import MoveBudget, build_holds
from lb_stream.core.round.state import Choice, RoundState
from lb_stream.core.shedding.base import Disruption, ShedContext, Unload, Unloads, traits_of

APART, REPAIR = "AntiAffinity", "anti_affinity_repair"
"""Reason and strategy of the moves that keep anti-affinity groups apart."""
UNEVEN = 0.1
"""A pass that does nothing about a broker so far above the brokers' mean usage says so."""


def shedding_is_due(state: RoundState) -> bool:
    """Whether the interval has passed; an interval of 0 means every batch with a new sample."""
    config, last = state.config.balancer, state.memory.last_shed_ms
    if not config.shedding_enabled:
        return False
    if config.shedding_interval_ms == 0 or traits_of(state.config.shedder).paces_itself:
        return bool(state.view.brokers.sampled.any())
    return last is None or state.now_ms - last >= config.shedding_interval_ms


def observe_loads(state: RoundState) -> None:
    """Show a shedder that follows its brokers from round to round what has been reported, and
    placement what it made of it."""
    strategy = state.config.shedder
    traits, reported = traits_of(strategy), state.inputs.reported
    if traits.observe is not None:
        state.remember(
            strategy,
            traits.observe(reported, state.config.shedder_config, state.remembered(strategy)),
        )
    count_loads(state)


def count_loads(state: RoundState) -> None:
    """Show placement the loads of brokers as the shedder knows them, if it does."""
    strategy, reported = state.config.shedder, state.inputs.reported
    traits = traits_of(strategy)
    if traits.loads is not None:
        loads = traits.loads(state.remembered(strategy))
        known = np.array([loads.get(name, np.nan) for name in state.view.brokers.names])
        state.targets.load[:] = (
            known + state.view.brokers.usage - reported.brokers.usage
        )  # moves in flight counted


def observe_moves(state: RoundState, outcomes: Iterable[Outcome]) -> None:
    """Show a shedder that learns what moves cost how long those that have ended well have left
    their bundles without an owner.

    A bundle that nobody saw leave before it came had none for no longer than its move took.
    """
    learn = traits_of(state.config.shedder).learn_moves
    if learn is None:
        return
    # A move without a destination ends where it leaves; an assignment ends its move once more.
    ended = [pending for pending, _ in state.inputs.settled.ended]
    others = {
        pending.decision_id
        for pending in ended
        if pending.destination is None or pending.kind not in MOVES
    }
    moved = [
        outcome
        for outcome in outcomes
        if outcome.outcome == "confirmed"
        and outcome.released_ms is not None
        and outcome.decision_id not in others
    ]
    unserved_ms = [
        outcome.at_ms - (outcome.released_ms or 0) or outcome.took_ms for outcome in moved
    ]
    if unserved_ms:
        strategy = state.config.shedder
        state.remember(strategy, learn(unserved_ms, state.remembered(strategy)))


def unload_from_hot(state: RoundState) -> None:
    """Run the shedder and turn its proposals into decisions."""
    if state.memory.operator_state.paused:
        state.refusals.append(refusal(Refuses.PAUSED, None))
        return
    seen = _without_drained(_as_decided(state))
    alive = int(np.count_nonzero(seen.brokers.alive))
    if alive <= 1:
        state.refusals.append(refusal(Refuses.SINGLE_BROKER, None, saw=[alive], limit=2))
        return
    strategy, holds = state.config.shedder, build_holds(state)
    if (refused := holds.refusal([])) is not None:
        state.refusals.append(refused)
        return
    unloads, memory = strategy.function(_shed_context(state, seen, holds.disruption(state.view)))
    state.remember(strategy, memory)
    state.proposed, state.looked = unloads, _has_looked(unloads)
    state.refusals += holds.standing(state.view)
    state.refusals += unloads.refusals or _nothing_proposed(state, seen)
    if state.config.balancer.count_pending_moves and preselects(state):
        state.relieved = frozenset(proposal.source for proposal in unloads.proposals)
    room = MoveBudget.build(state)
    for proposals in _exchanges(unloads.proposals):
        if _has_room(state, proposals, holds, room) and _by_rules(state, proposals):
            before = len(state.decisions)
            for proposal in proposals:
                _decide(state, proposal, room)
            made = state.decisions[before:]
            state.exchanges += (
                [tuple(decision.bundle for decision in made)] if len(made) > 1 else []
            )
            holds.take(made)


def _nothing_proposed(state: RoundState, seen: ClusterView) -> list[Refusal]:
    """Say that a strategy proposed and refused nothing, though a broker is far above the others.

    One that is asked in every batch is asked about brokers that have just reported.
    """
    brokers, alive = seen.brokers, np.flatnonzero(seen.brokers.alive)
    limit = float(brokers.usage[alive].mean()) + UNEVEN
    if traits_of(state.config.shedder).paces_itself:
        alive = alive[brokers.sampled[alive]]
    if state.proposed.proposals or not len(alive):
        return []
    highest = int(alive[np.argmax(brokers.usage[alive])])
    saw = float(brokers.usage[highest])
    if saw < limit:
        return []
    return [refusal(Refuses.NOTHING_PROPOSED, brokers.names[highest], saw=[saw], limit=limit)]


_NOT_YET = {
    rule.name
    for rule in (
        Refuses.UNLOADING,
        Refuses.COOL_DOWN,
        Refuses.HIT_COUNT,
        Refuses.OUTDATED_DATA,
        Refuses.NO_LOAD_DATA,
        Refuses.NOT_HOT_FOR_LONG,
        Refuses.WITHIN_NOISE,
        Refuses.RESTARTS,
    )
}
"""Rules by which a shedder leaves open whether it wants something."""


def _has_looked(unloads: Unloads) -> bool:
    """Whether a shedder's answer says what it wants: one that waits for something says nothing."""
    return bool(unloads.proposals) or not any(one.rule in _NOT_YET for one in unloads.refusals)


def _as_decided(state: RoundState) -> ClusterView:
    """The view with what this very round has decided carried out, for a shedder that asks for it:
    it fills no destination twice.

    Pulsar's decide on what was there before, as the reference does. But all of them see what comes
    to brokers by operators' orders that are older, and to those whose drain this round has ended.
    """
    if not state.config.balancer.count_pending_moves:
        return state.view
    decided = state.decisions
    if not traits_of(state.config.shedder).sees_own_decisions:
        decided = [decision for decision in decided if _comes_by_order(state, decision)]
    return apply_pending_moves(state.view, [*decided, *state.queued_moves()], moves_count=True)


def _comes_by_order(state: RoundState, decision: Decision) -> bool:
    """Whether a decision of this round follows an earlier order, or brings a bundle back.

    It follows an order if it was queued, or is the second half of an ordered move: the bundle has
    left its broker then, and counts nowhere else. It goes back where a drain has ended in this
    round.
    """
    if decision.kind == "assign":
        orders = (
            waiting
            for waiting in state.responder.operator_state.waiting
            if waiting.command["kind"] == "unload"
        )
        return any(decision.bundle in order.bundles for order in orders)
    is_order = decision.rule == Decides.UNLOAD_COMMAND.name
    return is_order and (
        decision.destination in state.responder.undrained or decision.bundle in state.dequeued
    )


def _without_drained(view: ClusterView) -> ClusterView:
    """The brokers that are being drained are none of a shedder's: it is not to bring them to the
    others' load."""
    if not view.policies.drained:
        return view
    drained = np.array([name in view.policies.drained for name in view.brokers.names], np.bool_)
    return replace(view, brokers=replace(view.brokers, alive=view.brokers.alive & ~drained))


def movable_bundles(state: RoundState, held: Bools) -> Bools:
    """Bundles that may leave their broker at all.

    Free ones that nothing holds, long enough there, of namespaces that are not excluded. One that
    was split elsewhere is about to go by itself.
    """
    movable = state.free_bundles() & ~held & ~state.overlapped.moving
    if state.config.balancer.min_dwell_ms:
        movable &= (
            state.now_ms - state.view.bundles.owner_since_ms >= state.config.balancer.min_dwell_ms
        )
    for namespace in state.config.balancer.shedding_excluded_namespaces:
        movable[state.view.bundles.rows_of_namespace(namespace)] = False
    return movable


def eligible_bundles(state: RoundState, movable: Bools) -> Bools:
    """Bundles that a shedder may choose: not unloaded within the grace period."""
    eligible = movable.copy()
    recent = state.view.bundles.rows_of(state.inputs.recently_unloaded)
    eligible[recent[recent >= 0]] = False
    return eligible


def _shed_context(
    state: RoundState, seen: ClusterView, disruption: Disruption
) -> ShedContext[Any, Any]:
    movable = movable_bundles(state, disruption.held)
    unloading = {
        pending.source
        for pending in state.memory.pending
        if pending.kind in ("unload", "transfer") and pending.source is not None
    }
    return ShedContext(
        view=seen,
        config=state.config.shedder_config,
        memory=state.remembered(state.config.shedder),
        eligible=eligible_bundles(state, movable),
        movable=movable,
        reported=state.inputs.reported,
        may_take=_may_take(state),
        takers=_takers(state),
        unloaded=state.inputs.unloaded_brokers,
        unloading=tuple(sorted(unloading)),
        disruption=disruption,
    )


def _may_take(state: RoundState) -> Callable[[int, int], bool]:
    """(bundle, broker) → whether the broker may have the bundle.

    The extensible manager asks its whole pipeline. Elsewhere policies and the limit on topics
    count: even distribution would refuse most exchanges.
    """
    config, topics = state.config.balancer, state.targets.topics

    @cache
    def takers(bundle: int) -> Rows:
        if config.load_manager == "extensible":
            return state.candidates.pool_for(bundle, state.targets).kept
        allowed = state.candidates.allowed(bundle, state.targets)
        return allowed[topics[allowed] <= config.broker_max_topics]

    return lambda bundle, broker: bool((takers(bundle) == broker).any())


def _takers(state: RoundState) -> Callable[[int], Rows]:
    """Bundle → the brokers that the rules let have it.

    They go by namespace, and in an anti-affinity group by who has the bundle now.
    """
    view, found = state.view, dict[tuple[str, int], Rows]()

    def takers(bundle: int) -> Rows:
        namespace = namespace_of(view.bundles.name(bundle))
        key = (
            namespace,
            int(view.bundles.owner[bundle]) if view.policies.group_of(namespace) else -1,
        )
        if key not in found:
            found[key] = state.candidates.allowed_by_rules(bundle, state.targets)[0]
        return found[key]

    return takers


def _exchanges(proposals: Iterable[Unload]) -> Iterator[list[Unload]]:
    """The proposals in their order, those of one exchange together; nearly all stand alone."""
    group: list[Unload] = []
    for proposal in proposals:
        group.append(proposal)
        if not proposal.with_next:
            yield group
            group = []
    if group:
        yield group


def _has_room(state: RoundState, proposals: list[Unload], holds: Holds, room: MoveBudget) -> bool:
    """Whether budgets and limits leave room for all of these."""
    limit = holds.refusal([state.view.bundles.name(proposal.bundle) for proposal in proposals])
    limit = limit or room.refusal([(proposal.bundle, proposal.source) for proposal in proposals])
    state.refusals += [] if limit is None else [limit]
    return limit is None


def _by_rules(state: RoundState, proposals: list[Unload]) -> bool:
    """Whether rules let all of these move: half of an exchange is none."""
    kept = _kept_apart if _goes_by_takers(state) else _kept_by_policies
    against = [
        (rule, proposal) for proposal in proposals if (rule := kept(state, proposal)) is not None
    ]
    view = state.view
    state.refusals += [
        refusal(rule, view.brokers.names[one.source], [view.bundles.name(one.bundle)])
        for rule, one in against
    ]
    return not against


def _goes_by_takers(state: RoundState) -> bool:
    """Whether the strategy goes by what rules allowed before this round, and moves in the manager's
    own way."""
    return traits_of(state.config.shedder).manager == "any"


def _decide(state: RoundState, proposal: Unload, room: MoveBudget) -> None:
    view, plan = state.view, state.proposed.plan
    source = view.brokers.names[proposal.source]
    if traits_of(state.config.shedder).chooses_destination:
        destination = proposal.destination
        candidates = [
            Candidate(broker=view.brokers.names[row], score=score)
            for row, score in proposal.considered
        ]
        at_once = destination is not None and not (
            _goes_by_takers(state) and state.config.balancer.load_manager == "modular"
        )
        kind: DecisionKind = "transfer" if at_once else "unload"
    else:
        choice = place_shed(state, proposal.bundle)
        if isinstance(choice, Refusal):
            state.refusals.append(choice)
            return
        kind, candidates = "unload", choice.candidates
        destination = choice.destination if preselects(state) else None
    room.take(proposal.bundle, proposal.source)
    explain = Explain(
        saw=proposal.saw,
        limit=proposal.limit,
        average=proposal.average,
        expected_after=proposal.expected_after,
        unit=proposal.rule.unit,
        candidates=candidates,
        cost=proposal.cost,
        client_seconds=proposal.client_seconds,
        gain=proposal.gain,
        plan_moves=None if plan is None else len(state.proposed.proposals),
        plan_fewest=None if plan is None else plan.fewest,
    )
    state.decide(
        kind,
        proposal.bundle,
        source,
        destination,
        reason=proposal.reason,
        rule=proposal.rule,
        strategy=state.config.shedder.name,
        explain=explain,
    )


def _kept_apart(state: RoundState, proposal: Unload) -> Rule | None:
    """Whether what this very round has decided keeps the bundle from its destination: its group's
    others may be on their way there."""
    name = state.view.bundles.name(proposal.bundle)
    if proposal.destination is None or not state.view.policies.group_of(namespace_of(name)):
        return None
    allowed = state.candidates.allowed_by_rules(proposal.bundle, state.targets)[0]
    return None if (allowed == proposal.destination).any() else Refuses.ANTI_AFFINITY


def preselects(state: RoundState) -> bool:
    """Whether an unload names the destination that placement found.

    The simple manager finds it at the next lookup.
    """
    config = state.config.balancer
    return config.modular_preselect_destination and config.load_manager != "simple"


def _kept_by_policies(state: RoundState, proposal: Unload) -> Rule | None:
    """Which of the modular manager's policies keeps the bundle where it is, if any."""
    if state.config.balancer.load_manager != "modular":
        return None
    allowed = state.candidates.allowed(proposal.bundle, state.targets)
    if not (allowed != proposal.source).any():
        return Refuses.NO_OTHER_ALLOWED
    helps = state.candidates.unload_helps(proposal.bundle, proposal.source, allowed)
    return None if helps else Refuses.ANTI_AFFINITY


# --- where a bundle goes: rules first, then wishes, and load only where it is less than it was ---


def place_shed(state: RoundState, bundle: int) -> Choice | Refusal:
    """The destination of a bundle that leaves a hot broker, or why there is none. O(brokers).

    It is placement's own choice where that one has room and isn't being relieved in this round;
    else one is sought among those. When there is none, the wish to spare the relieved ones is given
    up, and then the rules are: somebody who would end no hotter than the source. Where pending
    moves don't count, placement's own choice stands, as the reference's.

    To have room is to end at or below the overloaded threshold, or no hotter than the source will
    be without the bundle.
    """
    view, targets = state.view, state.targets
    owner = int(view.bundles.owner[bundle])
    name, source = view.bundles.name(bundle), view.brokers.names[owner]
    choice = state.place(bundle)
    if choice is None:
        return refusal(Refuses.NO_CANDIDATE, source, [name], limit=1)
    if choice.destination == owner:
        return refusal(Refuses.PLACEMENT_KEEPS_OWNER, source, [name])
    if not state.relieved:
        return choice
    rows, steps = state.candidates.allowed_by_rules(bundle, targets)
    rows = rows[rows != owner]
    if not len(rows):
        kept_apart = bool(steps) and steps[-1][0] == AntiAffinity.rule.name
        return refusal(
            Refuses.ANTI_AFFINITY if kept_apart else Refuses.NO_CANDIDATE, source, [name]
        )
    is_relieved = np.zeros(len(view.brokers), np.bool_)
    is_relieved[list(state.relieved)] = True
    relieved, after = is_relieved[rows], targets.with_bundle(bundle, rows)
    left = targets.without_bundle(bundle)
    limit = np.where(
        relieved, left, max(state.config.balancer.overloaded_threshold_percent / 100.0, left)
    )
    wanted = fitting = rows[after <= limit]
    if (spared := rows[(after <= limit) & ~relieved]).size:
        wanted = spared
    if (wanted == choice.destination).any():
        return choice
    if not len(wanted):
        least = int(np.argmin(after - limit))
        return refusal(
            Refuses.SHIFTS_OVERLOAD, source, [name], saw=after[[least]], limit=float(limit[least])
        )
    steps += (
        (FilteredBy.SHIFTS_OVERLOAD.name, rows, fitting),
        (FilteredBy.BEING_RELIEVED.name, fitting, wanted),
    )
    return state.place_among(bundle, wanted, steps, choice) or refusal(
        Refuses.NO_CANDIDATE, source, [name], limit=1
    )


# --- anti-affinity groups ---


def move_groups_apart(state: RoundState) -> None:
    """Decide moves of bundles that share a broker or failure domain with others of their group.

    They go where none of the group's other namespaces is, so that each move leaves one bundle less
    that shares, and none more: repairs end, and don't undo one another. All that holds a shedder up
    holds these moves up, too.
    """
    config, policies = state.config.balancer, state.view.policies
    groups = {group for name in policies.anti_affinity if (group := policies.group_of(name))}
    if not groups or not config.anti_affinity_repair or config.load_manager == "simple":
        return
    holds = build_holds(state)
    if state.memory.operator_state.paused or holds.refusal([]) is not None:
        return  # the shedder's pass says so
    places = [(Decides.ANTI_AFFINITY, np.arange(len(state.view.brokers)))]
    domains = domains_of(state.view) if config.failure_domains_enabled else None
    if domains is not None:
        places.append((Decides.FAILURE_DOMAIN, domains))
    for rule, place_of in places:
        for group in sorted(groups):
            _Repair.of(state, policies.namespaces_of(group), rule, place_of, holds).part()


@dataclass(slots=True)
class _Repair:
    """The moves that keep one group apart at one kind of place: brokers, or failure domains."""

    state: RoundState
    namespaces: Sequence[str]  # of the group
    rule: Rule
    place_of: Ints  # (brokers): the place that each is at
    served: Ints  # (namespaces, places): bundles there, those on their way included
    holds: Holds
    stays: Bools  # (brokers): whose bundles are none of this: drained and silent ones'

    @staticmethod
    def of(
        state: RoundState, namespaces: Sequence[str], rule: Rule, place_of: Ints, holds: Holds
    ) -> _Repair:
        """As things stand in this round."""
        brokers, census = state.view.brokers, state.candidates.census
        drained = np.isin(brokers.names, list(state.view.policies.drained))
        counts = [np.where(drained, 0, census.of_namespace(name)) for name in namespaces]
        served = np.array([np.bincount(place_of, count) for count in counts], np.int64)
        stays = drained | ~brokers.reachable
        return _Repair(state, namespaces, rule, place_of, served, holds, stays)

    def part(self) -> None:
        """Leave one namespace at each place that serves several, if the others can go elsewhere."""
        shared = np.flatnonzero((self.served > 0).sum(axis=0) > 1).tolist()
        if not shared:
            return
        held = self.holds.disruption(self.state.view).held
        eligible = eligible_bundles(self.state, movable_bundles(self.state, held))
        for place in shared:
            refused: list[Refusal] = []
            # the one with the most bundles stays: as few as can be move
            for member in np.argsort(self.served[:, place], kind="stable").tolist():
                if self.served[member, place] and self._others(member)[place]:
                    refused += self._move_away(member, place, eligible)
            if (self.served[:, place] > 0).sum() > 1:
                self.state.refusals += refused

    def _others(self, member: int) -> Ints:
        """(places): how many namespaces of the group each serves without this one."""
        others: Ints = (self.served > 0).sum(axis=0) - (self.served[member] > 0)
        return others

    def _move_away(self, member: int, place: int, eligible: Bools) -> list[Refusal]:
        """Decide moves of all bundles that a namespace has at a place. Returns why one can't go."""
        state, bundles, room = self.state, self.state.view.bundles, MoveBudget.build(self.state)
        mine = np.arange(len(bundles))[bundles.rows_of_namespace(self.namespaces[member])]
        sources = np.append(self.place_of == place, False)[bundles.owner[mine]]
        mine = mine[sources & ~np.append(self.stays, True)[bundles.owner[mine]]]
        if not eligible[mine].all():
            return []  # on their way, pinned, or lately unloaded; some alone would part nobody
        before = len(state.decisions)
        refused: list[Refusal] = []
        for bundle in mine.tolist():
            source, name = int(bundles.owner[bundle]), bundles.name(bundle)
            full = self.holds.refusal([name]) or room.refusal([(bundle, source)])
            choice = self._place(bundle, source, self._others(member)) if full is None else None
            if choice is None:
                broker = state.view.brokers.names[source]
                refused = [full or refusal(Refuses.NOT_APART, broker, [name])]
                break
            self._decide(bundle, source, choice, float(self._others(member)[place]))
            room.take(bundle, source)
            self.served[member, place] -= 1
            self.served[member, self.place_of[choice.destination]] += 1
        if len(together := tuple(decision.bundle for decision in state.decisions[before:])) > 1:
            state.exchanges.append(together)  # one of them alone parts nobody
        return refused

    def _place(self, bundle: int, source: int, others: Ints) -> Choice | None:
        """The best broker for a bundle: one with room, at a place without the group's others."""
        targets = self.state.targets
        rows, steps = self.state.candidates.allowed_by_rules(bundle, targets)
        apart: Rows = rows[(others[self.place_of[rows]] == 0) & (rows != source)]
        left = targets.without_bundle(bundle)
        limit = max(self.state.config.balancer.overloaded_threshold_percent / 100.0, left)
        fitting = apart[targets.with_bundle(bundle, apart) <= limit]
        steps += ((self.rule.name, rows, apart), (FilteredBy.SHIFTS_OVERLOAD.name, apart, fitting))
        return self.state.place_among(bundle, fitting, steps) if len(fitting) else None

    def _decide(self, bundle: int, source: int, choice: Choice, others: float) -> None:
        state, before = self.state, len(self.state.decisions)
        extensible = state.config.balancer.load_manager == "extensible"
        state.decide(
            "transfer" if extensible else "unload",
            bundle,
            state.view.brokers.names[source],
            choice.destination if extensible or preselects(state) else None,
            reason=APART,
            rule=self.rule,
            strategy=REPAIR,
            explain=Explain(saw=others, limit=0, unit=self.rule.unit, candidates=choice.candidates),
        )
        self.holds.take(state.decisions[before:])
