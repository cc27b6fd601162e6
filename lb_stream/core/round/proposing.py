"""Proposals: what balancing wants in mode `approve`, and the plan that it is part of.

Only what balancing decides by itself waits: moves of a shedder, and splits. Owners for bundles that
have none, drains, what operators have ordered and what follows from an approved decision go on at
once.

The moves of one pass are a plan. Each pass looks at loads as they are, with what is approved or
done: its plan takes the place of what waits, unless that serves as well. Moves that part an
anti-affinity group stand alone: they needn't even loads, and don't wait for the shedder.

See docs/approval.md "Proposals".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

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
    decide_proposed,
    groups_of,
    is_repair,
    known,
    loads_ahead,
    present,
    usage_of,
    waiting_moves,
    why_refused,
)
from lb_stream.core.round.limits import MINUTE_MS
from lb_stream.core.round.settle import count_preallocated
from lb_stream.core.round.shed import count_loads
from lb_stream.core.round.split import find_small_enough
from lb_stream.core.round.state import RoundState
from lb_stream.core.shedding.base import traits_of

MOST_CANDIDATES_KEPT = 3
NOT_WANTED = "balancing doesn't want it any more, by loads as they are now"


# --- what balancing wants ---


Stage = Callable[[RoundState], None]


def propose(state: RoundState, split: Stage, shed: Stage) -> None:
    """Have what balancing wants wait, but for what a rule of auto_approve lets through."""
    fork = _propose_splits(state, split)
    _propose_moves(state, fork, shed)
    _measure_plan(state)


def _propose_splits(state: RoundState, split: Stage) -> RoundState:
    """Propose what is to be split, and end what has become small enough.

    Returns the round without what waits. Limits on splits count splits that wait.
    """
    book = state.responder.book
    waiting = [proposal for proposal in book.waiting if not proposal.is_move]
    small = find_small_enough(state, [proposal.bundle for proposal in waiting])
    for proposal in waiting:
        if proposal.bundle in small:
            book.end(proposal, STALE, why=f"{proposal.bundle} is not too large any more")
    fork = _without_what_waits(state)
    before = len(fork.decisions)
    split(fork)
    for decision in fork.decisions[before:]:
        _wait(state, [decision])
    if len(fork.decisions) == before:
        return fork
    chosen = {proposal.bundle for proposal in book.waiting if not proposal.is_move}
    for proposal in tuple(book.waiting):
        there = book.find(proposal.proposal_id) is not None  # it may have ended with another one
        if proposal.is_move and proposal.bundle in chosen and there:
            book.end(proposal, "superseded", why=f"{proposal.bundle} is to be split first")
    return _without_what_waits(state)


def _wait(state: RoundState, group: Sequence[Decision]) -> None:
    """Have a split wait, unless a rule approves it or too much waits already."""
    book, most = state.responder.book, state.config.balancer.max_proposals
    new = _proposals(state, group, _next_number(state))
    if (rule := _auto_approved(state, new)) is not None:
        for proposal, wanted in zip(new, group, strict=True):
            decide_proposed(state, proposal, f"auto_approve: {rule.text}", wanted.explain)
    elif len(book.waiting) + len(new) <= most:
        book.waiting += new
        book.news += [_news(proposal, wanted) for proposal, wanted in zip(new, group, strict=True)]
    else:
        _refuse_too_many(state, [proposal.bundle for proposal in new], len(book.waiting))


def _news(proposal: Proposal, wanted: Decision) -> ProposalNews:
    """That it waits, with the whole explanation of what is wanted."""
    explain = wanted.explain.model_dump(mode="json")
    return ProposalNews(replace(proposal, explain=explain), "waiting")


def _refuse_too_many(state: RoundState, bundles: Sequence[str], waiting: int) -> None:
    most = state.config.balancer.max_proposals
    state.refusals.append(refusal(Refuses.MAX_PROPOSALS, None, bundles, saw=[waiting], limit=most))


def _without_what_waits(state: RoundState) -> RoundState:
    """The round with its loads as they are, moves that it has decided or queued carried out.

    Splits that wait count as under way.
    """
    splits = [split for split in known(state, state.responder.book.waiting) if not split.is_move]
    pending = tuple(_pending(split) for split in splits if state.under_way(split.bundle) is None)
    memory = state.memory
    after = replace(memory, pending=(*memory.pending, *pending))
    ordered = apply_pending_moves(state.view, [*state.decisions, *state.queued_moves()], True)
    view = apply_pending_moves(ordered, pending, True)
    fork = state.fork(replace(state.inputs, view=view, memory=after))
    count_loads(fork)
    count_preallocated(fork)
    return fork


def _pending(split: Proposal) -> Pending:
    place = split.proposal_id, split.kind, split.bundle, split.source, split.destination
    times = split.proposed_ms, split.expires_ms
    return Pending(*place, *times, version=0, children=split.children)


def _groups(fork: RoundState, made: Sequence[Decision]) -> list[list[Decision]]:
    """The decisions in their order, those of one exchange together."""
    exchange = {bundle: group for group in fork.exchanges for bundle in group}
    groups: dict[tuple[str, ...], list[Decision]] = {}
    for decision in made:
        groups.setdefault(exchange.get(decision.bundle, (decision.bundle,)), []).append(decision)
    return list(groups.values())


def _plan_id(state: RoundState) -> str:
    """Of a plan that is made in this round."""
    return f"{state.view.cluster}:{state.memory.seq + 1}"


def _next_number(state: RoundState) -> int:
    """Of the first proposal that this round has not made yet."""
    prefix = f"{_plan_id(state)}:p"
    ids = {news.proposal.proposal_id for news in state.responder.book.news}
    return sum(name.startswith(prefix) for name in ids)


def _proposals(state: RoundState, group: Sequence[Decision], first: int) -> list[Proposal]:
    """The proposals that stand for these decisions, under new ids from that number on."""
    prefix = f"{_plan_id(state)}:p"
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
            explain=_shortened(decision).model_dump(mode="json"),
            bytes_per_s=float(short.throughput[number]),
            proposed_ms=state.now_ms,
            expires_ms=state.now_ms + state.config.balancer.proposal_expires_ms,
            children=tuple(decision.children),
            boundaries=tuple(decision.boundaries),
            algorithm=decision.algorithm,
            unload_children=decision.unload_children,
            plan=None if decision.kind in RESHAPES or is_repair(decision) else _plan_id(state),
        )
        for number, decision in enumerate(group)
    ]


def _shortened(decision: Decision) -> Explain:
    """A decision's explanation with its destination and the best others only."""

    def place(other: Candidate) -> tuple[bool, float]:
        return other.broker != decision.destination, np.inf if other.score is None else other.score

    fitting = [other for other in decision.explain.candidates if other.refused_by is None]
    kept = sorted(fitting, key=place)[:MOST_CANDIDATES_KEPT]
    return decision.explain.model_copy(update={"candidates": kept})


def _auto_approved(state: RoundState, group: Sequence[Proposal]) -> AutoApproval | None:
    """The first rule that approves all of these; what it approves counts in its budget."""
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
            # in whole minutes, so that an hour has few of them
            until_ms = -(-state.now_ms // MINUTE_MS) * MINUTE_MS + HOUR_MS
            counted = Counter({(text, at_ms): count for text, at_ms, count in state.approvals})
            counted[rule.text, until_ms] += len(group)
            state.approvals = tuple((*each, count) for each, count in sorted(counted.items()))
            return rule
    return None


# --- the plan of a pass ---


Planned = tuple[Group, list[Proposal]]
"""A group of moves by their places among all moves, and as proposals."""


def _propose_moves(state: RoundState, fork: RoundState, shed: Stage) -> None:
    """Have the shedder look at `fork`.

    Its plan takes the place of the one that waits, unless that serves as well.

    While the shedder isn't asked, or itself waits for something, its plan stays as it is. What
    parts anti-affinity groups is looked at in every pass.
    """
    strategy = state.config.shedder
    if traits_of(strategy).paces_itself and waiting_moves(state) and not _looks_again(state):
        return
    forget = traits_of(strategy).forget_plan
    before = None if forget is None else state.remembered(strategy)
    first, decided = len(fork.decisions), len(state.decisions)
    shed(fork)
    state.shed, state.proposed = fork.shed, fork.proposed
    if not fork.shed:
        return
    _take_plan(_Pass.of(state, fork, _groups(fork, fork.decisions[first:])))
    if forget is not None and fork.proposed.proposals and len(state.decisions) == decided:
        state.remember(strategy, forget(before, state.remembered(strategy)))


def _looks_again(state: RoundState) -> bool:
    """Whether the shedding interval has passed since the last pass.

    A plan takes long to make, and is read by people.
    """
    last = state.memory.last_shed_ms
    return last is None or state.now_ms - last >= state.config.balancer.shedding_interval_ms


@dataclass(frozen=True, slots=True)
class _Pass:
    """What a pass wants, beside what waits. Groups name moves by their places in `moves`."""

    state: RoundState
    moves: Sequence[Proposal | Decision]
    loads: LoadsAhead  # before any of them
    waiting: list[Group]  # proposals of brokers that have been heard
    wanted: list[Group]  # decisions

    @staticmethod
    def of(state: RoundState, fork: RoundState, wanted: list[list[Decision]]) -> _Pass:
        """Of what is wanted on the loads of `fork`.

        Without the shedder's plan if it hasn't looked at them.
        """
        moves_waiting = [move for move in waiting_moves(state) if fork.looked or is_repair(move)]
        waiting = groups_of(moves_waiting)
        every: list[Sequence[Proposal | Decision]] = [*waiting, *wanted]
        moves = [move for group in every for move in group]
        numbers = iter(range(len(moves)))
        groups = [[next(numbers) for _ in group] for group in every]
        loads = loads_ahead(state, fork.view, moves)
        return _Pass(state, moves, loads, groups[: len(waiting)], groups[len(waiting) :])

    def proposals(self, group: Group) -> list[Proposal]:
        """Those of a group that waits."""
        return [move for place in group if isinstance(move := self.moves[place], Proposal)]

    def decisions(self, group: Group) -> list[Decision]:
        """Those of a group that is wanted."""
        return [move for place in group if isinstance(move := self.moves[place], Decision)]

    def for_load(self, groups: Sequence[Group]) -> list[Group]:
        """Those of the groups that are part of a plan."""
        return [group for group in groups if not is_repair(self.moves[group[0]])]

    def repairs(self, groups: Sequence[Group]) -> list[Group]:
        """Those of the groups that part an anti-affinity group."""
        return [group for group in groups if is_repair(self.moves[group[0]])]

    def leaving(self, group: Group) -> frozenset[tuple[str, str | None]]:
        """Which bundles leave which brokers."""
        return frozenset((self.moves[place].bundle, self.moves[place].source) for place in group)

    def key(self, group: Group) -> tuple[Any, ...]:
        """The same for groups of the same moves."""
        moves = [self.moves[place] for place in group]
        named = ((move.bundle, move.kind, move.source, move.destination or "") for move in moves)
        return tuple(sorted(named))


def _take_plan(found: _Pass) -> None:
    """Have the better of two plans wait, in its order: the one that waits, or what is wanted now.

    What is no part of it ends. What only can't be now waits on, behind the plan.
    """
    # Two plans: what waits and can still be made, and what is wanted now.
    book, loads = found.state.responder.book, found.loads
    possible, held = _still_possible(found)
    waits, wrong = order_groups(loads, possible)
    wanted, harmful = order_groups(loads, found.wanted)
    _refuse_harmful(found, harmful)
    # The better one, with repairs and what can only be made later behind it.
    keeps = _keeps(found, *(found.for_load(groups) for groups in (waits, wrong, wanted)))
    chosen = found.for_load(waits if keeps else wanted) + _repairs(found, waits, wanted)
    plan, explained = _as_proposals(found, [*waits, *wrong], chosen, held, keeps)
    plan += _behind(found, plan, held)
    # What waited and is no part of it ends.
    kept = {proposal.proposal_id for _, group in plan for proposal in group}
    known = {proposal.proposal_id for group in found.waiting for proposal in found.proposals(group)}
    bundles = {proposal.bundle for _, group in plan for proposal in group}
    for proposal in tuple(book.waiting):
        name = proposal.proposal_id
        unwanted = name in known or (proposal.is_move and proposal.bundle in bundles)
        if unwanted and name not in kept and book.find(name) is not None:
            book.end(proposal, "superseded", why=NOT_WANTED)
    # What rules don't approve at once waits.
    plan = _approve_by_rules(found, plan, explained)
    moves = [proposal for _, group in plan for proposal in group]
    others = [proposal for proposal in book.waiting if proposal.proposal_id not in known]
    book.waiting = others + moves
    new = [proposal for proposal in moves if proposal.proposal_id in explained]
    book.news += [_news(proposal, explained[proposal.proposal_id]) for proposal in new]


def _still_possible(found: _Pass) -> tuple[list[Group], list[Group]]:
    """Groups that wait and could be approved now, and those that could be later.

    What never can be ends.
    """
    possible, held = list[Group](), list[Group]()
    before = Group()
    for group in found.waiting:
        proposals = found.proposals(group)
        refused = why_refused(found.state, proposals, found.loads, (group, before), places=False)
        before += group
        if refused is None:
            possible.append(group)
        elif refused.rule == STALE:
            found.state.responder.book.end(proposals[0], STALE, why=refused.text)
        else:
            held.append(group)
    return possible, held


def _refuse_harmful(found: _Pass, harmful: Sequence[Group]) -> None:
    """Refuse what is wanted and would make the busiest broker busier."""
    for group in harmful:
        decisions, after = found.decisions(group), found.loads.after(group).max_usage
        bundles = [decision.bundle for decision in decisions]
        source, limit = decisions[0].source, found.loads.max_usage
        refused = refusal(Refuses.RAISES_MAX, source, bundles, saw=[after], limit=limit)
        found.state.refusals.append(refused)


def _keeps(found: _Pass, waits: list[Group], wrong: list[Group], wanted: list[Group]) -> bool:
    """Whether the plan that waits stays.

    One that has been begun does so when nothing else is wanted, too.
    """
    begun = any(proposal.begun for group in waits for proposal in found.proposals(group))
    if not wanted:
        return begun
    return not wrong and serves_as_well(found.loads, [*chain(*waits)], [*chain(*wanted)], begun)


def _repairs(found: _Pass, waits: list[Group], wanted: list[Group]) -> list[Group]:
    """What is to part anti-affinity groups: moves that wait for the same bundles, or new ones.

    Which of several equal brokers gets a bundle is drawn anew in each pass.
    """
    waiting = {found.leaving(group): group for group in found.repairs(waits)}
    return [waiting.get(found.leaving(group), group) for group in found.repairs(wanted)]


def _refreshed(found: _Pass, group: Group) -> list[Proposal]:
    """Proposals of a group that waits on, with what this pass says of them, if anything."""
    bundles, proposals = found.state.view.bundles, found.proposals(group)
    wanted = [decision for other in found.wanted for decision in found.decisions(other)]
    same = {(move.bundle, move.source, move.destination): _shortened(move) for move in wanted}
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


def _as_proposals(
    found: _Pass, waits: list[Group], chosen: list[Group], held: list[Group], keeps: bool
) -> tuple[list[Planned], dict[str, Decision]]:
    """What is chosen as proposals, and the decision that each new one stands for.

    A move that waits already keeps its id. `keeps`: the plan that waits goes on under its name;
    else what differs from it is a new plan.
    """
    state, book = found.state, found.state.responder.book
    known = {found.key(group): group for group in waits}
    others = len(book.waiting) - sum(map(len, found.waiting)) + sum(map(len, held))
    room, number = state.config.balancer.max_proposals - others, _next_number(state)
    plan, explained, full = list[Planned](), dict[str, Decision](), list[str]()
    before, after = found.for_load(waits), found.for_load(chosen)
    is_new = not keeps and {*map(found.key, before)} != {*map(found.key, after)}
    for group in chosen:
        decisions = found.decisions(group)
        if len(group) > room:
            full += [found.moves[place].bundle for place in group]
            room = 0
            continue
        room -= len(group)
        if (same := known.get(found.key(group))) is not None:
            proposals = _refreshed(found, same)
        else:
            proposals = _proposals(state, decisions, number)
            number += len(proposals)
            ids = [proposal.proposal_id for proposal in proposals]
            explained |= dict(zip(ids, decisions, strict=True))
        if is_new and not is_repair(proposals[0]):
            name = _plan_id(state)
            proposals = [replace(proposal, plan=name, begun=False) for proposal in proposals]
        plan.append((group, proposals))
    if full:
        _refuse_too_many(state, full, others + sum(len(group) for group, _ in plan))
    return plan, explained


def _behind(found: _Pass, plan: list[Planned], held: list[Group]) -> list[Planned]:
    """Groups that only can't be made now, but for those that are in the plan or harm behind it."""
    after = found.loads.after([*chain.from_iterable(group for group, _ in plan)])
    bundles = {proposal.bundle for _, group in plan for proposal in group}
    name = next((group[0].plan for _, group in plan if group[0].plan is not None), None)
    kept = list[Planned]()
    for group in held:
        proposals = found.proposals(group)
        if after.is_worse_after(group) or bundles & {proposal.bundle for proposal in proposals}:
            continue
        after.carry_out(group)
        if not is_repair(proposals[0]):
            proposals = [replace(proposal, plan=name or proposal.plan) for proposal in proposals]
        kept.append((group, proposals))
    return kept


def _approve_by_rules(
    found: _Pass, plan: list[Planned], explained: dict[str, Decision]
) -> list[Planned]:
    """Decide what rules of auto_approve let through, if it makes nothing worse by itself.

    Returns what waits on.
    """
    state, loads = found.state, found.loads.copy()
    waits, before, begun = list[Planned](), Group(), set[str | None]()
    for group, proposals in plan:
        harms = loads.is_worse_after(group)
        refused = harms or why_refused(state, proposals, loads, (group, before)) is not None
        if refused or (rule := _auto_approved(state, proposals)) is None:
            waits.append((group, proposals))
            before += group
            continue
        for place, proposal in zip(group, proposals, strict=True):
            wanted = explained.get(proposal.proposal_id)
            explain = Explain.model_validate(proposal.explain) if wanted is None else wanted.explain
            figures = loads, place, group
            decide_proposed(state, proposal, f"auto_approve: {rule.text}", explain, figures)
        loads.carry_out(group)
        begun.add(proposals[0].plan)
    begun -= {None}
    return [
        (group, [replace(move, begun=move.begun or move.plan in begun) for move in proposals])
        for group, proposals in waits
    ]


def _measure_plan(state: RoundState) -> None:
    """Note what usages are now, and with each move that waits, alone and in the plan's order."""
    moves = waiting_moves(state)
    if not moves:
        return
    ahead, measured = loads_ahead(state, present(state), moves), dict[str, Proposal]()
    places = {proposal.proposal_id: place for place, proposal in enumerate(moves)}
    now = ahead.copy()
    for group in groups_of(moves):
        mine = [places[proposal.proposal_id] for proposal in group]
        alone = now.after(mine).max_usage
        ahead.carry_out(mine)
        for proposal in group:
            source, destination = now.ends[places[proposal.proposal_id]]
            measured[proposal.proposal_id] = replace(
                proposal,
                step=len(measured) + 1,
                source_usage=usage_of(now, source),
                destination_usage=usage_of(now, destination),
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
