"""The shedding pass: run the shedder, and turn its proposals into decisions or refusals.

See docs/strategies.md "Shedding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from lb_stream.contracts.decisions import MOVES, Candidate, Decision, DecisionKind, Explain
from lb_stream.core.disruption.holds import Holds
from lb_stream.core.filters import AntiAffinity, domains_of
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, FilteredBy, Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Ints, Rows, apply_pending_moves
from lb_stream.core.observing.outcomes import Outcome
from lb_stream.core.round.limits import MoveAllowance, build_holds
from lb_stream.core.round.planned_splits import find_splittable, with_expectation
from lb_stream.core.round.state import Choice, RoundState
from lb_stream.core.shedding.base import (
    Choosable,
    Disruption,
    ShedContext,
    Unload,
    Unloads,
    traits_of,
)

APART, REPAIR = "AntiAffinity", "anti_affinity_repair"
"""Reason and strategy of the moves that keep anti-affinity groups apart."""
IMPOSSIBLE = 2.0
"""A reported usage above this is none: the limit is wrong."""
UNEVEN = 0.1
"""A refusal is added if a pass leaves a broker this far above the mean usage without a reason."""


def shedding_is_due(state: RoundState) -> bool:
    """Whether a pass is due: its interval has passed, or is 0 and this batch has new samples."""
    config, last = state.config.balancer, state.memory.last_shed_ms
    if not config.shedding_enabled:
        return False
    if config.shedding_interval_ms == 0 or traits_of(state.config.shedder).paces_itself:
        return bool(state.view.brokers.sampled.any())
    return last is None or state.now_ms - last >= config.shedding_interval_ms


def observe_loads(state: RoundState) -> None:
    """Give the reported loads to a shedder that follows them from round to round.

    Placement then uses the loads that this shedder has computed.
    """
    strategy = state.config.shedder
    traits, reported = traits_of(strategy), state.inputs.reported
    if traits.observe is not None:
        remembered = state.remembered(strategy)
        state.remember(strategy, traits.observe(reported, state.config.shedder_config, remembered))
    count_loads(state)


def count_loads(state: RoundState) -> None:
    """Give placement the loads that the shedder has computed, with pending moves, if any."""
    strategy, reported = state.config.shedder, state.inputs.reported
    traits = traits_of(strategy)
    if traits.loads is not None:
        loads = traits.loads(state.remembered(strategy))
        known = np.array([loads.get(name, np.nan) for name in state.view.brokers.names])
        moved = state.view.brokers.usage - reported.brokers.usage  # by pending moves
        state.targets.load[:] = known + moved


def observe_moves(state: RoundState, outcomes: Iterable[Outcome]) -> None:
    """Give a shedder that learns costs the times that confirmed moves left bundles unassigned.

    If no report shows that time, it is the time that the move took, which is its maximum.
    """
    learn = traits_of(state.config.shedder).learn_moves
    if learn is None:
        return
    # Exclude unloads without a destination, which end before the bundle has an owner, and assigns,
    # which end the same move once more.
    ended = [pending for pending, _ in state.inputs.settled.ended]
    not_moves = {
        pending.decision_id
        for pending in ended
        if pending.destination is None or pending.kind not in MOVES
    }
    moved = [
        outcome
        for outcome in outcomes
        if outcome.outcome == "confirmed"
        and outcome.released_ms is not None
        and outcome.decision_id not in not_moves
    ]
    unserved_ms = [
        outcome.at_ms - (outcome.released_ms or 0) or outcome.took_ms for outcome in moved
    ]
    if unserved_ms:
        strategy = state.config.shedder
        state.remember(strategy, learn(unserved_ms, state.remembered(strategy)))


def unload_from_hot(state: RoundState, only: Rows | None = None) -> None:
    """Run the shedder, and turn its proposals into decisions.

    `only`: the brokers that bundles may leave; None: any.
    """
    # Reasons not to run it.
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
    # Its proposals.
    unloads, memory = strategy.function(_shed_context(state, seen, holds.disruption(state.view)))
    state.remember(strategy, memory)
    state.proposed, state.judged = unloads, _has_judged(unloads)
    state.refusals += holds.standing(state.view)
    state.refusals += unloads.refusals or _nothing_proposed(state, seen)
    if state.config.balancer.count_pending_moves and preselects(state):
        state.relieved = frozenset(proposal.source for proposal in unloads.proposals)
    # Decisions, as far as budgets, limits and rules allow them.
    room = MoveAllowance.build(state)
    for proposals in _exchanges(_without_excluded(state, unloads.proposals)):
        if only is not None and not np.isin([move.source for move in proposals], only).any():
            continue
        if _has_room(state, proposals, holds, room) and _by_rules(state, proposals):
            before = len(state.decisions)
            for proposal in proposals:
                _decide(state, proposal, room)
            made = state.decisions[before:]
            if len(made) > 1:
                state.exchanges.append(tuple(decision.bundle for decision in made))
            holds.take(made)
    if (end_pass := traits_of(strategy).end_pass) is not None:
        state.remember(strategy, end_pass(state.config.shedder_config, state.remembered(strategy)))


def _nothing_proposed(state: RoundState, seen: ClusterView) -> list[Refusal]:
    """Return a refusal if the shedder leaves a broker far above the others without a reason.

    For a shedder that paces itself, only brokers with a new sample in this batch count. A reported
    usage that no broker can have comes from a wrong limit: its plan's figure counts instead.
    """
    brokers, alive = seen.brokers, np.flatnonzero(seen.brokers.alive)
    usage, facts = brokers.usage, state.proposed.plan
    if facts is not None:
        usage = np.where(usage > IMPOSSIBLE, np.nan_to_num(facts.usage), usage)
    limit = float(usage[alive].mean()) + UNEVEN
    if traits_of(state.config.shedder).paces_itself:
        alive = alive[brokers.sampled[alive]]
    if state.proposed.proposals or state.proposed.splits or not len(alive):
        return []
    highest = int(alive[np.argmax(usage[alive])])
    saw = float(usage[highest])
    if saw < limit:
        return []
    return [refusal(Refuses.NOTHING_PROPOSED, brokers.names[highest], saw=[saw], limit=limit)]


_WAITING_RULES = {
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
        Refuses.CHILDREN_AWAITED,
    )
}
"""Rules by which a shedder waits before it judges the loads."""


def _has_judged(unloads: Unloads) -> bool:
    """Whether a shedder has judged the loads; if it has not, it waits by one of _WAITING_RULES."""
    waits = any(refused.rule in _WAITING_RULES for refused in unloads.refusals)
    return bool(unloads.proposals) or not waits


def _as_decided(state: RoundState) -> ClusterView:
    """Return the view of the shedder, with moves of this round carried out.

    With `sees_own_decisions` these are all moves, so that no destination is filled twice. Pulsar's
    shedders, as in the reference, see only moves that follow earlier commands, and moves to brokers
    whose drain this round has ended.
    """
    if not state.config.balancer.count_pending_moves:
        return state.view
    decided = state.decisions
    if not traits_of(state.config.shedder).sees_own_decisions:
        decided = [decision for decision in decided if _follows_command(state, decision)]
    return apply_pending_moves(state.view, [*decided, *state.queued_moves()], moves_count=True)


def _follows_command(state: RoundState, decision: Decision) -> bool:
    """Whether a decision follows an earlier command, or moves a bundle to an undrained broker.

    The first is so if the move was queued, or if the decision is the assign of a commanded move,
    whose bundle is at no broker in the view.
    """
    if decision.kind == "assign":
        return any(
            decision.bundle in waiting.bundles
            for waiting in state.responder.operator_state.waiting
            if waiting.command["kind"] == "unload"
        )
    if decision.rule != Decides.UNLOAD_COMMAND.name:
        return False
    was_queued = decision.bundle in state.dequeued
    return was_queued or decision.destination in state.responder.undrained


def _without_drained(view: ClusterView) -> ClusterView:
    """Return the view in which drained brokers are not alive, so that no shedder fills them."""
    if not view.policies.drained:
        return view
    drained = np.array([name in view.policies.drained for name in view.brokers.names], np.bool_)
    return replace(view, brokers=replace(view.brokers, alive=view.brokers.alive & ~drained))


def movable_bundles(state: RoundState, held: Bools) -> Bools:
    """Return the bundles that may leave their broker at all.

    They are free and not held, have had their owner for `min_dwell_ms`, and are in no excluded
    namespace. Bundles that were split elsewhere stay, as they will vanish from reports.
    """
    movable = state.free_bundles() & ~held & ~state.overlapped.moving
    if state.config.balancer.min_dwell_ms:
        movable &= (
            state.now_ms - state.view.bundles.owner_since_ms >= state.config.balancer.min_dwell_ms
        )
    if _passes_over_later(state):
        return movable
    for namespace in state.config.balancer.shedding_excluded_namespaces:
        movable[state.view.bundles.rows_of_namespace(namespace)] = False
    return movable


def _staying_bundles(state: RoundState, held: Bools) -> Bools:
    """Return the bundles that may not move for long: operators or their namespaces hold them."""
    stays = state.view.bundles.system | held
    for namespace in state.config.balancer.shedding_excluded_namespaces:
        stays[state.view.bundles.rows_of_namespace(namespace)] = True
    return stays


def eligible_bundles(state: RoundState, movable: Bools) -> Bools:
    """Return the bundles that a shedder may choose: movable, not unloaded in the grace period."""
    eligible = movable.copy()
    recent = state.view.bundles.rows_of(state.inputs.recently_unloaded)
    eligible[recent[recent >= 0]] = False
    return eligible


def _shed_context(
    state: RoundState, seen: ClusterView, disruption: Disruption
) -> ShedContext[object, object]:
    """Return the input of the shedder; `seen`: the view that it decides on."""

    @cache
    def choosable() -> Choosable:
        movable = movable_bundles(state, disruption.held)
        return Choosable(
            eligible_bundles(state, movable), movable, _staying_bundles(state, disruption.held)
        )

    unloading = {
        pending.source
        for pending in state.memory.pending
        if pending.kind in MOVES and pending.source is not None
    }
    return ShedContext(
        view=seen,
        config=state.config.shedder_config,
        memory=state.remembered(state.config.shedder),
        choosable=choosable,
        reported=state.inputs.reported,
        may_take=_may_take(state),
        takers=find_takers(state),
        unloaded=state.inputs.unloaded_brokers,
        unloading=tuple(sorted(unloading)),
        disruption=disruption,
        number=state.memory.seq + 1,
        splittable=find_splittable(state),
    )


def _may_take(state: RoundState) -> Callable[[int, int], bool]:
    """Return a function (bundle, broker) → whether the broker may have the bundle.

    With the extensible manager all filters count. With others only policies and the limit on topics
    count, as even distribution would refuse most exchanges.
    """
    config, topics = state.config.balancer, state.targets.topics

    @cache
    def takers(bundle: int) -> Rows:
        if config.load_manager == "extensible":
            return state.candidates.pool_for(bundle, state.targets).kept
        allowed = state.candidates.allowed(bundle, state.targets)
        return allowed[topics[allowed] <= config.broker_max_topics]

    return lambda bundle, broker: bool((takers(bundle) == broker).any())


def find_takers(state: RoundState) -> Callable[[int], Rows]:
    """Return a function bundle → the brokers that rules allow.

    Bundles of a namespace have the same ones; in an anti-affinity group, those with the same owner.
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


def _passes_over_later(state: RoundState) -> bool:
    """Return whether the shedder may choose bundles of excluded namespaces, which then stay."""
    strategy = state.config.shedder
    return state.config.balancer.excluded_still_count and traits_of(strategy).manager == "modular"


def _without_excluded(state: RoundState, proposals: Sequence[Unload]) -> Sequence[Unload]:
    """Return the proposals without those about excluded namespaces; add a refusal per source."""
    excluded = state.config.balancer.shedding_excluded_namespaces
    if not excluded or not _passes_over_later(state):
        return proposals
    kept, stay = list[Unload](), dict[int, list[str]]()
    for proposal in proposals:
        name = state.view.bundles.name(proposal.bundle)
        if namespace_of(name) in excluded:
            stay.setdefault(proposal.source, []).append(name)
        else:
            kept.append(proposal)
    brokers = state.view.brokers.names
    state.refusals += [
        refusal(Refuses.EXCLUDED_NAMESPACE, brokers[source], names)
        for source, names in stay.items()
    ]
    return kept


def _exchanges(proposals: Iterable[Unload]) -> Iterator[list[Unload]]:
    """Yield the proposals in groups, one for each exchange; their order stays."""
    group: list[Unload] = []
    for proposal in proposals:
        group.append(proposal)
        if not proposal.with_next:
            yield group
            group = []
    if group:
        yield group


def _has_room(
    state: RoundState, proposals: list[Unload], holds: Holds, room: MoveAllowance
) -> bool:
    """Whether budgets and limits leave room for all of these proposals; if not, refuse them."""
    names = [state.view.bundles.name(proposal.bundle) for proposal in proposals]
    moves = [(proposal.bundle, proposal.source) for proposal in proposals]
    exceeded = holds.refusal(names) or room.refusal(moves)
    if exceeded is not None:
        state.refusals.append(exceeded)
    return exceeded is None


def _by_rules(state: RoundState, proposals: list[Unload]) -> bool:
    """Whether rules allow all moves of an exchange; if not, add refusals."""
    find_rule = _find_group_rule if _uses_takers(state) else _find_policy_rule
    allowed = True
    for proposal in proposals:
        rule = find_rule(state, proposal)
        if rule is not None:
            source = state.view.brokers.names[proposal.source]
            name = state.view.bundles.name(proposal.bundle)
            state.refusals.append(refusal(rule, source, [name]))
            allowed = False
    return allowed


def _uses_takers(state: RoundState) -> bool:
    """Whether the shedder chooses by `takers`, and so follows the rules of any load manager."""
    return traits_of(state.config.shedder).manager == "any"


def _decide(state: RoundState, proposal: Unload, room: MoveAllowance) -> None:
    """Decide an unload or transfer of one proposal, or refuse it if no broker takes the bundle."""
    # The kind, the destination, and the candidates: by the strategy, or by placement.
    view, plan = state.view, state.proposed.plan
    source = view.brokers.names[proposal.source]
    if traits_of(state.config.shedder).chooses_destination:
        destination = proposal.destination
        candidates = [
            Candidate(broker=view.brokers.names[row], score=score)
            for row, score in proposal.considered
        ]
        modular = state.config.balancer.load_manager == "modular"
        is_transfer = destination is not None and not (modular and _uses_takers(state))
        kind: DecisionKind = "transfer" if is_transfer else "unload"
    else:
        choice = place_shed(state, proposal.bundle)
        if isinstance(choice, Refusal):
            state.refusals.append(choice)
            return
        kind, candidates = "unload", choice.candidates
        destination = choice.destination if preselects(state) else None
    # The decision, with the figures of the strategy.
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
    explain = with_expectation(explain, None if plan is None else plan.expected)
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


def _find_group_rule(state: RoundState, proposal: Unload) -> Rule | None:
    """Return the rule that forbids a bundle's destination; None: it is allowed.

    The round may have sent another bundle of its anti-affinity group there.
    """
    name = state.view.bundles.name(proposal.bundle)
    if proposal.destination is None or not state.view.policies.group_of(namespace_of(name)):
        return None
    allowed = state.candidates.allowed_by_rules(proposal.bundle, state.targets)[0]
    return None if (allowed == proposal.destination).any() else Refuses.ANTI_AFFINITY


def preselects(state: RoundState) -> bool:
    """Whether an unload has the destination that placement has chosen.

    With the simple manager it has none, as the next lookup chooses it.
    """
    config = state.config.balancer
    return config.modular_preselect_destination and config.load_manager != "simple"


def _find_policy_rule(state: RoundState, proposal: Unload) -> Rule | None:
    """Return the policy of the modular manager that keeps a bundle at its broker, if any."""
    if state.config.balancer.load_manager != "modular":
        return None
    allowed = state.candidates.allowed(proposal.bundle, state.targets)
    if not (allowed != proposal.source).any():
        return Refuses.NO_OTHER_ALLOWED
    helps = state.candidates.unload_helps(proposal.bundle, proposal.source, allowed)
    return None if helps else Refuses.ANTI_AFFINITY


# --- destinations: rules come first, then wishes, and load must fall ---


def place_shed(state: RoundState, bundle: int) -> Choice | Refusal:
    """Choose the destination of a bundle that leaves a hot broker, or refuse. O(brokers).

    Placement's first choice counts if that broker has room and is not relieved in this round. Else
    placement chooses among the brokers with room, without relieved ones if possible. If pending
    moves don't count, the first choice always counts, as in the reference.

    A broker has room if its usage with the bundle is at most the overloaded threshold, or at most
    the source's without it. For a relieved broker only the second counts.
    """
    # Placement's first choice.
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
    # The brokers that rules allow.
    rows, steps = state.candidates.allowed_by_rules(bundle, targets)
    rows = rows[rows != owner]
    if not len(rows):
        kept_apart = bool(steps) and steps[-1][0] == AntiAffinity.rule.name
        rule = Refuses.ANTI_AFFINITY if kept_apart else Refuses.NO_CANDIDATE
        return refusal(rule, source, [name])
    # Those of them with room, and among these the ones that are not relieved.
    is_relieved = np.zeros(len(view.brokers), np.bool_)
    is_relieved[list(state.relieved)] = True
    relieved, after = is_relieved[rows], targets.with_bundle(bundle, rows)
    threshold = state.config.balancer.overloaded_threshold_percent / 100.0
    left = targets.without_bundle(bundle)
    limit = np.where(relieved, left, max(threshold, left))
    fitting = rows[after <= limit]
    spared = rows[(after <= limit) & ~relieved]
    wanted = spared if len(spared) else fitting
    if (wanted == choice.destination).any():
        return choice
    if not len(wanted):
        least = int(np.argmin(after - limit))
        saw, most = after[[least]], float(limit[least])
        return refusal(Refuses.SHIFTS_OVERLOAD, source, [name], saw=saw, limit=most)
    # The best of them.
    steps += (
        (FilteredBy.SHIFTS_OVERLOAD.name, rows, fitting),
        (FilteredBy.BEING_RELIEVED.name, fitting, wanted),
    )
    best = state.place_among(bundle, wanted, steps, choice)
    return best or refusal(Refuses.NO_CANDIDATE, source, [name], limit=1)


# --- anti-affinity groups ---


def move_groups_apart(state: RoundState) -> None:
    """Decide moves of bundles that share a broker or failure domain with others of their group.

    They go where no other namespace of the group is. So each move reduces the number of sharing
    bundles, and repairs end. Windows, budgets, limits and pauses apply as to moves of a shedder.
    """
    # The groups, and the windows and budgets.
    config, policies = state.config.balancer, state.view.policies
    groups = {group for name in policies.anti_affinity if (group := policies.group_of(name))}
    if not groups or not config.anti_affinity_repair or config.load_manager == "simple":
        return
    holds = build_holds(state)
    if state.memory.operator_state.paused or holds.refusal([]) is not None:
        return  # `unload_from_hot` adds the refusal
    # First brokers that serve several namespaces of a group, then failure domains that do.
    places = [(Decides.ANTI_AFFINITY, np.arange(len(state.view.brokers)))]
    domains = domains_of(state.view) if config.failure_domains_enabled else None
    if domains is not None:
        places.append((Decides.FAILURE_DOMAIN, domains))
    for rule, place_of in places:
        for group in sorted(groups):
            namespaces = policies.namespaces_of(group)
            _Repair.build(state, namespaces, rule, place_of, holds).part()


@dataclass(slots=True)
class _Repair:
    """The moves that keep one group apart at one kind of place: brokers or failure domains."""

    state: RoundState
    namespaces: Sequence[str]  # of the group
    rule: Rule
    place_of: Ints  # (brokers): the place that each is at
    served: Ints  # (namespaces, places): bundles there, with those that move there
    holds: Holds
    stays: Bools  # (brokers): drained and silent ones, whose bundles are left alone

    @staticmethod
    def build(
        state: RoundState, namespaces: Sequence[str], rule: Rule, place_of: Ints, holds: Holds
    ) -> _Repair:
        """Return the repair at this point of the round."""
        brokers, census = state.view.brokers, state.candidates.census
        drained = np.isin(brokers.names, list(state.view.policies.drained))
        counts = [np.where(drained, 0, census.of_namespace(name)) for name in namespaces]
        served = np.array([np.bincount(place_of, count) for count in counts], np.int64)
        stays = drained | ~brokers.reachable
        return _Repair(state, namespaces, rule, place_of, served, holds, stays)

    def part(self) -> None:
        """Move namespaces away from places that serve several, until each serves one."""
        shared = np.flatnonzero((self.served > 0).sum(axis=0) > 1).tolist()
        if not shared:
            return
        held = self.holds.disruption(self.state.view).held
        eligible = eligible_bundles(self.state, movable_bundles(self.state, held))
        for place in shared:
            refused: list[Refusal] = []
            # The namespace with the most bundles stays, so that few bundles move.
            for member in np.argsort(self.served[:, place], kind="stable").tolist():
                if self.served[member, place] and self._others(member)[place]:
                    refused += self._move_away(member, place, eligible)
            if (self.served[:, place] > 0).sum() > 1:
                self.state.refusals += refused

    def _others(self, member: int) -> Ints:
        """Return the number of other namespaces of the group that each place serves."""
        others: Ints = (self.served > 0).sum(axis=0) - (self.served[member] > 0)
        return others

    def _move_away(self, member: int, place: int, eligible: Bools) -> list[Refusal]:
        """Decide moves of all bundles that a namespace has at a place; return the refusals."""
        # Its bundles there, if all of them may move.
        state, bundles, room = self.state, self.state.view.bundles, MoveAllowance.build(self.state)
        mine = np.arange(len(bundles))[bundles.rows_of_namespace(self.namespaces[member])]
        sources = np.append(self.place_of == place, False)[bundles.owner[mine]]
        mine = mine[sources & ~np.append(self.stays, True)[bundles.owner[mine]]]
        if not eligible[mine].all():
            return []  # a move of only some bundles would not keep the group apart
        # Their moves, until one is refused.
        before = len(state.decisions)
        refused: list[Refusal] = []
        for bundle in mine.tolist():
            source, name = int(bundles.owner[bundle]), bundles.name(bundle)
            exceeded = self.holds.refusal([name]) or room.refusal([(bundle, source)])
            if exceeded is not None:
                refused = [exceeded]
                break
            choice = self._place(bundle, source, self._others(member))
            if choice is None:
                refused = [refusal(Refuses.NOT_APART, state.view.brokers.names[source], [name])]
                break
            self._decide(bundle, source, choice, float(self._others(member)[place]))
            room.take(bundle, source)
            self.served[member, place] -= 1
            self.served[member, self.place_of[choice.destination]] += 1
        # The moves are approved together, as one alone would not keep the group apart.
        together = tuple(decision.bundle for decision in state.decisions[before:])
        if len(together) > 1:
            state.exchanges.append(together)
        return refused

    def _place(self, bundle: int, source: int, others: Ints) -> Choice | None:
        """Choose the best broker with room, at a place without other namespaces of the group."""
        targets = self.state.targets
        rows, steps = self.state.candidates.allowed_by_rules(bundle, targets)
        apart: Rows = rows[(others[self.place_of[rows]] == 0) & (rows != source)]
        left = targets.without_bundle(bundle)
        limit = max(self.state.config.balancer.overloaded_threshold_percent / 100.0, left)
        fitting = apart[targets.with_bundle(bundle, apart) <= limit]
        steps += ((self.rule.name, rows, apart), (FilteredBy.SHIFTS_OVERLOAD.name, apart, fitting))
        return self.state.place_among(bundle, fitting, steps) if len(fitting) else None

    def _decide(self, bundle: int, source: int, choice: Choice, others: float) -> None:
        """Decide the move of one bundle; `others`: namespaces that share its place."""
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
