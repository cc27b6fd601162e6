"""Proposals of mode `approve`: decisions of balancing that wait for approval, and their plan.

Moves of a shedder and splits wait. Assigns, drains, commands, and decisions that follow from an
approved one are made at once.

The moves of one pass are a plan. Each pass judges the loads with approved moves carried out, but no
waiting ones. Its plan replaces the waiting plan, unless that one serves as well. Moves that keep an
anti-affinity group apart are repairs: they belong to no plan, do not have to even out loads, and do
not depend on the shedder.

See docs/approval.md "Proposals".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from lb_stream.contracts.decisions import RESHAPES, Candidate, Decision, Explain
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.config.auto_approve import AutoApproval, auto_approval
from lb_stream.core.disruption.budgets import HOUR_MS
from lb_stream.core.model.memory import Pending, Proposal
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import apply_pending_moves
from lb_stream.core.observing.loads_ahead import Group, LoadsAhead, order_groups, serves_as_well
from lb_stream.core.round.approval import (
    DIGITS,
    STALE,
    build_loads_ahead,
    build_present_view,
    decide_proposed,
    find_refusal,
    group_proposals,
    is_repair,
    round_usage,
    select_reported,
    waiting_moves,
)
from lb_stream.core.round.limits import MINUTE_MS
from lb_stream.core.round.settle import count_preallocated
from lb_stream.core.round.shed import count_loads
from lb_stream.core.round.split import find_small_enough
from lb_stream.core.round.state import RoundState
from lb_stream.core.shedding.base import traits_of

MAX_CANDIDATES_KEPT = 3
NOT_WANTED = "balancing no longer wants it, as loads are now"

Stage = Callable[[RoundState], None]
"""A stage of balancing, which adds decisions to a round."""


def propose(state: RoundState, split: Stage, shed: Stage) -> None:
    """Propose the decisions of balancing, and make those that a rule of auto_approve approves."""
    fork = _propose_splits(state, split)
    _propose_moves(state, fork, shed)
    _note_usages(state)


def _propose_splits(state: RoundState, split: Stage) -> RoundState:
    """Propose splits, and end proposals of splits that are no longer needed.

    Returns the fork of the round on which the shedder runs. Limits count waiting splits, too.
    """
    # End splits of bundles that have become small enough. Those of a plan wait until they expire.
    book = state.responder.book
    planned = state.config.shedder.name
    waiting = [
        proposal
        for proposal in book.waiting
        if not proposal.is_move and proposal.strategy != planned
    ]
    small = find_small_enough(state, [proposal.bundle for proposal in waiting])
    for proposal in waiting:
        if proposal.bundle in small:
            book.end(proposal, STALE, why=f"{proposal.bundle} is no longer too large")
    # Propose the splits that are wanted now.
    fork = _fork_without_waiting(state)
    before = len(fork.decisions)
    split(fork)
    for decision in fork.decisions[before:]:
        _propose_or_approve(state, [decision])
    if len(fork.decisions) == before:
        return fork
    # End waiting moves of bundles that are to be split.
    chosen = {proposal.bundle for proposal in book.waiting if not proposal.is_move}
    for proposal in tuple(book.waiting):
        still_waits = book.find(proposal.proposal_id) is not None  # the end of another may end it
        if proposal.is_move and proposal.bundle in chosen and still_waits:
            book.end(proposal, "superseded", why=f"{proposal.bundle} is to be split first")
    return _fork_without_waiting(state)


def _propose_or_approve(state: RoundState, group: Sequence[Decision]) -> None:
    """Propose a split; decide it if a rule approves it, refuse it if too many proposals wait."""
    book, most = state.responder.book, state.config.balancer.max_proposals
    new = _build_proposals(state, group, _next_number(state))
    if (rule := _find_approving_rule(state, new)) is not None:
        for proposal, wanted in zip(new, group, strict=True):
            decide_proposed(state, proposal, f"auto_approve: {rule.text}", wanted.explain)
    elif len(book.waiting) + len(new) <= most:
        book.waiting += new
        book.news += [
            _build_news(proposal, wanted) for proposal, wanted in zip(new, group, strict=True)
        ]
    else:
        _refuse_too_many(state, [proposal.bundle for proposal in new], len(book.waiting))


def _build_news(proposal: Proposal, wanted: Decision) -> ProposalNews:
    """Return the news that a proposal waits, with the whole explanation of its decision."""
    explain = wanted.explain.model_dump(mode="json")
    return ProposalNews(replace(proposal, explain=explain), "waiting")


def _refuse_too_many(state: RoundState, bundles: Sequence[str], waiting: int) -> None:
    """Refuse to propose decisions about these bundles, as too many proposals wait."""
    most = state.config.balancer.max_proposals
    state.refusals.append(refusal(Refuses.MAX_PROPOSALS, None, bundles, saw=[waiting], limit=most))


def _fork_without_waiting(state: RoundState) -> RoundState:
    """Return a fork of the round in which no waiting move is carried out.

    Moves that the round has decided or queued are carried out. Waiting splits count as pending.
    """
    splits = [
        split for split in select_reported(state, state.responder.book.waiting) if not split.is_move
    ]
    pending = tuple(
        _build_pending_split(split) for split in splits if state.find_pending(split.bundle) is None
    )
    memory = state.memory
    after = replace(memory, pending=(*memory.pending, *pending))
    ordered = apply_pending_moves(state.view, [*state.decisions, *state.queued_moves()], True)
    view = apply_pending_moves(ordered, pending, True)
    fork = state.fork(replace(state.inputs, view=view, memory=after))
    count_loads(fork)
    count_preallocated(fork)
    return fork


def _build_pending_split(split: Proposal) -> Pending:
    """Return a waiting split as a pending decision."""
    return Pending(
        decision_id=split.proposal_id,
        kind=split.kind,
        bundle=split.bundle,
        source=split.source,
        destination=split.destination,
        issued_ms=split.proposed_ms,
        expires_ms=split.expires_ms,
        version=0,
        children=split.children,
    )


def _group_exchanges(fork: RoundState, made: Sequence[Decision]) -> list[list[Decision]]:
    """Return the decisions in groups, one for each exchange; their order stays."""
    exchange = {bundle: group for group in fork.exchanges for bundle in group}
    groups: dict[tuple[str, ...], list[Decision]] = {}
    for decision in made:
        groups.setdefault(exchange.get(decision.bundle, (decision.bundle,)), []).append(decision)
    return list(groups.values())


def _build_plan_id(state: RoundState) -> str:
    """Return the id of a plan that this round makes."""
    return f"{state.view.cluster}:{state.memory.seq + 1}"


def _next_number(state: RoundState) -> int:
    """Return the number of this round's next proposal."""
    prefix = f"{_build_plan_id(state)}:p"
    ids = {news.proposal.proposal_id for news in state.responder.book.news}
    return sum(name.startswith(prefix) for name in ids)


def _build_proposals(state: RoundState, group: Sequence[Decision], first: int) -> list[Proposal]:
    """Return proposals of these decisions; `first`: the number of the first one, for their ids."""
    prefix = f"{_build_plan_id(state)}:p"
    bundles = state.view.bundles
    short = bundles.short.take(bundles.rows_of(decision.bundle for decision in group))
    return [
        Proposal(
            proposal_id=f"{prefix}{first + number}",
            together=f"{prefix}{first}",
            kind=decision.kind,
            bundle=decision.bundle,
            source=str(decision.source),
            destination=decision.destination,
            reason=decision.reason,
            rule=decision.rule,
            strategy=decision.strategy,
            explain=_shorten_explanation(decision).model_dump(mode="json"),
            bytes_per_s=float(short.throughput[number]),
            proposed_ms=state.now_ms,
            expires_ms=state.now_ms + state.config.balancer.proposal_expires_ms,
            children=tuple(decision.children),
            boundaries=tuple(decision.boundaries),
            algorithm=decision.algorithm,
            unload_children=decision.unload_children,
            plan=None
            if decision.kind in RESHAPES or is_repair(decision)
            else _build_plan_id(state),
        )
        for number, decision in enumerate(group)
    ]


def _shorten_explanation(decision: Decision) -> Explain:
    """Return a decision's explanation with its destination and the best other candidates only."""

    def rank(other: Candidate) -> tuple[bool, float]:
        return other.broker != decision.destination, np.inf if other.score is None else other.score

    fitting = [other for other in decision.explain.candidates if other.refused_by is None]
    kept = sorted(fitting, key=rank)[:MAX_CANDIDATES_KEPT]
    return decision.explain.model_copy(update={"candidates": kept})


def _find_approving_rule(state: RoundState, group: Sequence[Proposal]) -> AutoApproval | None:
    """Return the first rule that approves a whole group, and count the group in its budget."""
    for rule in map(auto_approval, state.config.balancer.auto_approve):
        if not all(
            rule.allows(
                proposal.kind,
                (proposal.reason, proposal.rule),
                proposal.bytes_per_s,
                state.now_ms,
            )
            for proposal in group
        ):
            continue
        if rule.per_hour is None:
            return rule
        used = sum(count for text, _, count in state.approvals if text == rule.text)
        if used + len(group) <= rule.per_hour:
            # Rounded up to whole minutes, so that the memory has few entries for an hour.
            until_ms = -(-state.now_ms // MINUTE_MS) * MINUTE_MS + HOUR_MS
            counted = Counter({(text, at_ms): count for text, at_ms, count in state.approvals})
            counted[rule.text, until_ms] += len(group)
            state.approvals = tuple((*key, count) for key, count in sorted(counted.items()))
            return rule
    return None


# --- the plan of a pass ---


Planned = tuple[Group, list[Proposal]]
"""A group of moves, and its proposals."""


def _propose_moves(state: RoundState, fork: RoundState, shed: Stage) -> None:
    """Run the shedder on the fork, and keep the better one of its plan and the waiting one.

    If the shedder does not run, or does not judge the loads yet, the waiting plan stays. Repairs
    are judged in every pass.
    """
    # The pass.
    strategy = state.config.shedder
    if traits_of(strategy).paces_itself and waiting_moves(state) and not _is_due(state):
        return
    forget = traits_of(strategy).forget_plan
    before = None if forget is None else state.remembered(strategy)
    first, decided = len(fork.decisions), len(state.decisions)
    shed(fork)
    state.shed, state.proposed = fork.shed, fork.proposed
    if not fork.shed:
        return
    # Its splits, each proposed by itself.
    wanted = [decision for decision in fork.decisions[first:] if decision.kind not in RESHAPES]
    for decision in fork.decisions[first:]:
        if decision.kind in RESHAPES:
            _propose_or_approve(state, [decision])
    # The better plan. The shedder forgets its plan, as none of its moves has been decided.
    _choose_plan(_Pass.build(state, fork, _group_exchanges(fork, wanted)))
    if forget is not None and fork.proposed.proposals and len(state.decisions) == decided:
        state.remember(strategy, forget(before, state.remembered(strategy)))


def _is_due(state: RoundState) -> bool:
    """Whether the shedding interval has passed since the last pass.

    A shedder that paces itself would plan in every batch, but operators need time to read a plan.
    """
    last = state.memory.last_shed_ms
    return last is None or state.now_ms - last >= state.config.balancer.shedding_interval_ms


@dataclass(frozen=True, slots=True)
class _Pass:
    """The waiting moves, and the wanted ones of a pass. Groups are places in `moves`."""

    state: RoundState
    moves: Sequence[Proposal | Decision]
    loads: LoadsAhead  # before any of the moves
    waiting: list[Group]  # proposals whose brokers have reported
    wanted: list[Group]  # decisions of the pass

    @staticmethod
    def build(state: RoundState, fork: RoundState, wanted: list[list[Decision]]) -> _Pass:
        """Return a pass that wants these groups, with the fork's loads.

        It does not have the waiting plan if the shedder has not judged the loads.
        """
        moves_waiting = [move for move in waiting_moves(state) if fork.judged or is_repair(move)]
        waiting = group_proposals(moves_waiting)
        every: list[Sequence[Proposal | Decision]] = [*waiting, *wanted]
        moves = [move for group in every for move in group]
        numbers = iter(range(len(moves)))
        groups = [[next(numbers) for _ in group] for group in every]
        loads = build_loads_ahead(state, fork.view, moves)
        return _Pass(state, moves, loads, groups[: len(waiting)], groups[len(waiting) :])

    def proposals(self, group: Group) -> list[Proposal]:
        """Return the proposals of a waiting group."""
        return [move for place in group if isinstance(move := self.moves[place], Proposal)]

    def decisions(self, group: Group) -> list[Decision]:
        """Return the decisions of a wanted group."""
        return [move for place in group if isinstance(move := self.moves[place], Decision)]

    def for_load(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups that belong to a plan for load."""
        return [group for group in groups if not is_repair(self.moves[group[0]])]

    def repairs(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups that keep an anti-affinity group apart."""
        return [group for group in groups if is_repair(self.moves[group[0]])]

    def leaving(self, group: Group) -> frozenset[tuple[str, str | None]]:
        """Return the (bundle, source) pairs of a group."""
        return frozenset((self.moves[place].bundle, self.moves[place].source) for place in group)

    def key(self, group: Group) -> tuple[tuple[str, str, str | None, str], ...]:
        """Return a key, which is the same for groups of the same moves."""
        moves = [self.moves[place] for place in group]
        keys = ((move.bundle, move.kind, move.source, move.destination or "") for move in moves)
        return tuple(sorted(keys))


def _choose_plan(pass_: _Pass) -> None:
    """Keep the better of two plans, the waiting one and the wanted one.

    Proposals of the other plan end. Those that can't be decided now, but later, wait on after the
    plan.
    """
    # The two plans: the waiting moves that can still be decided, and the wanted ones.
    book, loads = pass_.state.responder.book, pass_.loads
    possible, held = _sort_waiting_groups(pass_)
    waits, harmful_waiting = order_groups(loads, possible)
    wanted, harmful = order_groups(loads, pass_.wanted)
    _refuse_harmful(pass_, harmful)
    # The better one, with repairs, and after it the groups that can only be decided later.
    keeps = _keeps_waiting_plan(
        pass_, pass_.for_load(waits), pass_.for_load(harmful_waiting), pass_.for_load(wanted)
    )
    chosen = pass_.for_load(waits if keeps else wanted) + _choose_repairs(pass_, waits, wanted)
    plan, explained = _build_plan(pass_, [*waits, *harmful_waiting], chosen, held, keeps)
    plan += _keep_held_groups(pass_, plan, held)
    # End waiting proposals that are no part of it.
    kept = {proposal.proposal_id for _, group in plan for proposal in group}
    known = {proposal.proposal_id for group in pass_.waiting for proposal in pass_.proposals(group)}
    bundles = {proposal.bundle for _, group in plan for proposal in group}
    for proposal in tuple(book.waiting):
        name = proposal.proposal_id
        unwanted = name in known or (proposal.is_move and proposal.bundle in bundles)
        if unwanted and name not in kept and book.find(name) is not None:
            book.end(proposal, "superseded", why=NOT_WANTED)
    # Decide the groups that rules approve; the others wait.
    plan = _approve_by_rules(pass_, plan, explained)
    moves = [proposal for _, group in plan for proposal in group]
    others = [proposal for proposal in book.waiting if proposal.proposal_id not in known]
    book.waiting = others + moves
    new = [proposal for proposal in moves if proposal.proposal_id in explained]
    book.news += [_build_news(proposal, explained[proposal.proposal_id]) for proposal in new]


def _sort_waiting_groups(pass_: _Pass) -> tuple[list[Group], list[Group]]:
    """Return the waiting groups that could be decided now, and those that could be later.

    Ends the groups that can never be decided.
    """
    possible, held = list[Group](), list[Group]()
    before = Group()
    for group in pass_.waiting:
        proposals = pass_.proposals(group)
        refused = find_refusal(pass_.state, proposals, pass_.loads, (group, before), places=False)
        before += group
        if refused is None:
            possible.append(group)
        elif refused.rule == STALE:
            pass_.state.responder.book.end(proposals[0], STALE, why=refused.text)
        else:
            held.append(group)
    return possible, held


def _refuse_harmful(pass_: _Pass, harmful: Sequence[Group]) -> None:
    """Refuse wanted groups that would raise the max usage."""
    for group in harmful:
        decisions, after = pass_.decisions(group), pass_.loads.after(group).max_usage
        bundles = [decision.bundle for decision in decisions]
        source, limit = decisions[0].source, pass_.loads.max_usage
        refused = refusal(Refuses.RAISES_MAX, source, bundles, saw=[after], limit=limit)
        pass_.state.refusals.append(refused)


def _keeps_waiting_plan(
    pass_: _Pass, waits: list[Group], harmful: list[Group], wanted: list[Group]
) -> bool:
    """Whether the waiting plan stays.

    If no moves are wanted, only a partly approved plan stays.
    """
    begun = any(proposal.begun for group in waits for proposal in pass_.proposals(group))
    if not wanted:
        return begun
    return not harmful and serves_as_well(pass_.loads, [*chain(*waits)], [*chain(*wanted)], begun)


def _choose_repairs(pass_: _Pass, waits: list[Group], wanted: list[Group]) -> list[Group]:
    """Return the wanted repairs; a waiting repair of the same bundles replaces a wanted one.

    Without that, proposals would change with each pass, which draws anew among equal brokers.
    """
    waiting = {pass_.leaving(group): group for group in pass_.repairs(waits)}
    return [waiting.get(pass_.leaving(group), group) for group in pass_.repairs(wanted)]


def _refresh_proposals(pass_: _Pass, group: Group) -> list[Proposal]:
    """Return the proposals of a group that stays, with the figures of this pass."""
    bundles, proposals = pass_.state.view.bundles, pass_.proposals(group)
    wanted = [decision for other in pass_.wanted for decision in pass_.decisions(other)]
    same = {
        (move.bundle, move.source, move.destination): _shorten_explanation(move) for move in wanted
    }
    by_source = {(move.source, move.rule): move.explain for move in wanted}
    short = bundles.short.take(bundles.rows_of(proposal.bundle for proposal in proposals))
    refreshed = []
    for proposal, carried in zip(proposals, short.throughput.tolist(), strict=True):
        explain = dict(proposal.explain)
        if (own := same.get((proposal.bundle, proposal.source, proposal.destination))) is not None:
            explain = own.model_dump(mode="json")
        elif (other := by_source.get((proposal.source, proposal.rule))) is not None:
            explain |= {name: getattr(other, name) for name in ("saw", "limit", "average")}
        together = proposals[0].proposal_id if len(proposals) > 1 else proposal.proposal_id
        refreshed.append(replace(proposal, explain=explain, bytes_per_s=carried, together=together))
    return refreshed


def _build_plan(
    pass_: _Pass, waits: list[Group], chosen: list[Group], held: list[Group], keeps: bool
) -> tuple[list[Planned], dict[str, Decision]]:
    """Return the chosen groups with their proposals, and new proposals' decisions by id.

    A waiting move keeps its id. The waiting plan keeps its id if it stays (`keeps`), or if the
    wanted plan has the same moves.
    """
    # The places left for proposals, and the waiting groups.
    state, book = pass_.state, pass_.state.responder.book
    known = {pass_.key(group): group for group in waits}
    others = len(book.waiting) - sum(map(len, pass_.waiting)) + sum(map(len, held))
    room, number = state.config.balancer.max_proposals - others, _next_number(state)
    plan, explained, full = list[Planned](), dict[str, Decision](), list[str]()
    # Whether this is a new plan.
    before, after = pass_.for_load(waits), pass_.for_load(chosen)
    is_new = not keeps and {*map(pass_.key, before)} != {*map(pass_.key, after)}
    # The proposals, while there are places.
    for group in chosen:
        decisions = pass_.decisions(group)
        if len(group) > room:
            full += [pass_.moves[place].bundle for place in group]
            room = 0
            continue
        room -= len(group)
        if (same := known.get(pass_.key(group))) is not None:
            proposals = _refresh_proposals(pass_, same)
        else:
            proposals = _build_proposals(state, decisions, number)
            number += len(proposals)
            ids = [proposal.proposal_id for proposal in proposals]
            explained |= dict(zip(ids, decisions, strict=True))
        if is_new and not is_repair(proposals[0]):
            name = _build_plan_id(state)
            proposals = [replace(proposal, plan=name, begun=False) for proposal in proposals]
        plan.append((group, proposals))
    if full:
        _refuse_too_many(state, full, others + sum(len(group) for group, _ in plan))
    return plan, explained


def _keep_held_groups(pass_: _Pass, plan: list[Planned], held: list[Group]) -> list[Planned]:
    """Return the groups of `held` that may wait on after the plan, with their proposals.

    Groups with bundles of the plan, or that would raise the max usage after it, are left out.
    """
    after = pass_.loads.after([*chain.from_iterable(group for group, _ in plan)])
    bundles = {proposal.bundle for _, group in plan for proposal in group}
    name = next((group[0].plan for _, group in plan if group[0].plan is not None), None)
    kept = list[Planned]()
    for group in held:
        proposals = pass_.proposals(group)
        if after.is_worse_after(group) or bundles & {proposal.bundle for proposal in proposals}:
            continue
        after.apply_moves(group)
        if not is_repair(proposals[0]):
            proposals = [replace(proposal, plan=name or proposal.plan) for proposal in proposals]
        kept.append((group, proposals))
    return kept


def _approve_by_rules(
    pass_: _Pass, plan: list[Planned], explained: dict[str, Decision]
) -> list[Planned]:
    """Decide the groups that a rule of auto_approve approves; return those that wait.

    A group that would raise the max usage is not decided.
    """
    state, loads = pass_.state, pass_.loads.copy()
    waits, before, begun = list[Planned](), Group(), set[str | None]()
    for group, proposals in plan:
        harms = loads.is_worse_after(group)
        refused = harms or find_refusal(state, proposals, loads, (group, before)) is not None
        if refused or (rule := _find_approving_rule(state, proposals)) is None:
            waits.append((group, proposals))
            before += group
            continue
        for place, proposal in zip(group, proposals, strict=True):
            wanted = explained.get(proposal.proposal_id)
            explain = Explain.model_validate(proposal.explain) if wanted is None else wanted.explain
            figures = loads, place, group
            decide_proposed(state, proposal, f"auto_approve: {rule.text}", explain, figures)
        loads.apply_moves(group)
        begun.add(proposals[0].plan)
    begun -= {None}
    return [
        (group, [replace(move, begun=move.begun or move.plan in begun) for move in proposals])
        for group, proposals in waits
    ]


def _note_usages(state: RoundState) -> None:
    """Update the usages of waiting moves: now, after each move alone, and in the plan's order."""
    moves = waiting_moves(state)
    if not moves:
        return
    ahead, measured = (
        build_loads_ahead(state, build_present_view(state), moves),
        dict[str, Proposal](),
    )
    places = {proposal.proposal_id: place for place, proposal in enumerate(moves)}
    now = ahead.copy()
    for group in group_proposals(moves):
        mine = [places[proposal.proposal_id] for proposal in group]
        alone = now.after(mine).max_usage
        ahead.apply_moves(mine)
        for proposal in group:
            source, destination = now.ends[places[proposal.proposal_id]]
            measured[proposal.proposal_id] = replace(
                proposal,
                step=len(measured) + 1,
                source_usage=round_usage(now, source),
                destination_usage=round_usage(now, destination),
                max_usage=round(now.max_usage, DIGITS),
                usage_alone=round(alone, DIGITS),
                usage_in_order=round(ahead.max_usage, DIGITS),
            )
    book = state.responder.book
    book.waiting = [measured.get(proposal.proposal_id, proposal) for proposal in book.waiting]
    for at, news in enumerate(book.news):
        with_usages = measured.get(news.proposal.proposal_id)
        if news.state == "waiting" and with_usages is not None:
            proposal = replace(with_usages, explain=news.proposal.explain)
            book.news[at] = replace(news, proposal=proposal)
