"""Approval: a proposal is looked at again when it is approved. See docs/approval.md "Proposals"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lb_stream.contracts.decisions import Decision, Explain
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.responder import BundleAnswer
from lb_stream.core.model.memory import Proposal
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.model.view import ClusterView, apply_pending_moves
from lb_stream.core.observing.loads_ahead import ROUNDING_TOLERANCE, Group, LoadsAhead
from lb_stream.core.round.limits import MoveBudget, build_holds
from lb_stream.core.round.merge import explain_overlap
from lb_stream.core.round.shed import REPAIR, preselects
from lb_stream.core.round.state import Division, RoundState
from lb_stream.core.shedding.base import traits_of

DIGITS = 4
"""Of usages that the memory keeps: it is logged in every round."""
STALE: Literal["stale"] = "stale"


# --- what waits, and the loads that it is judged on ---


def waiting_moves(state: RoundState) -> list[Proposal]:
    """Those that wait, as far as their brokers have been heard, in the order of their plan."""
    moves = [proposal for proposal in state.responder.book.waiting if proposal.is_move]
    heard = {proposal.proposal_id for proposal in known(state, moves)}
    unheard = {proposal.together for proposal in moves if proposal.proposal_id not in heard}
    return [proposal for proposal in moves if proposal.together not in unheard]


def known(state: RoundState, waiting: Sequence[Proposal]) -> list[Proposal]:
    """Those whose bundles and destinations have been reported.

    After a job has lost its averages they come back one by one.
    """
    names, rows = (
        state.view.brokers.names,
        state.view.bundles.rows_of(proposal.bundle for proposal in waiting).tolist(),
    )
    return [
        one
        for one, row in zip(waiting, rows, strict=True)
        if row >= 0 and (one.destination is None or one.destination in names)
    ]


def groups_of(proposals: Sequence[Proposal]) -> list[list[Proposal]]:
    """Proposals in their order, those that are approved together as one group."""
    groups: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        groups.setdefault(proposal.together, []).append(proposal)
    return list(groups.values())


def loads_ahead(
    state: RoundState, view: ClusterView, moves: Sequence[Proposal | Decision]
) -> LoadsAhead:
    """The loads of a view, and what each of these moves changes."""
    rows = view.bundles.rows_of(move.bundle for move in moves).tolist()
    ends = [(str(move.source), _expected(move)) for move in moves]
    steps = [(row, *end) for row, end in zip(rows, ends, strict=True)]
    repairs = frozenset(place for place, move in enumerate(moves) if is_repair(move))
    overloaded = state.config.balancer.overloaded_threshold_percent / 100.0
    return LoadsAhead.of(view, steps, repairs, overloaded)


def is_repair(move: Proposal | Decision) -> bool:
    """Whether a move parts an anti-affinity group: it stands outside of any plan for load."""
    return move.strategy == REPAIR


def _expected(move: Proposal | Decision) -> str | None:
    """A move's destination; where none is named, the best one of those that were considered."""
    if move.destination is not None:
        return move.destination
    explain = move.explain if isinstance(move, Decision) else Explain.model_validate(move.explain)
    return next((other.broker for other in explain.candidates if other.refused_by is None), None)


def present(state: RoundState) -> ClusterView:
    """The loads with what is approved or ordered carried out, and nothing that isn't yet."""
    pending = () if state.config.balancer.count_pending_moves else state.memory.pending
    return apply_pending_moves(
        state.view, [*pending, *state.decisions, *state.queued_moves()], True
    )


def usage_of(loads: LoadsAhead, broker: int) -> float | None:
    return None if broker < 0 else round(float(loads.usage[broker]), DIGITS)


# --- what operators approve ---


def approve(
    state: RoundState, names: Sequence[str], by: str, even_if_worse: bool
) -> list[BundleAnswer]:
    """Make the decisions of these proposals as far as they still can be made.

    They are made in the order of their plan, or another one in which none makes the max worse.
    What does so in every order is refused, unless `even_if_worse`. Returns an
    answer to each.
    """
    # What is named, and waits.
    book = state.responder.book
    found = {name: book.find(name) for name in dict.fromkeys(names)}
    unknown = [name for name, proposal in found.items() if proposal is None]
    answers = [
        BundleAnswer("refused", book.explain_unknown([name]), "unknown_proposal")
        for name in unknown
    ]
    asked = {proposal.together for proposal in found.values() if proposal is not None}
    # Usage as the plan's moves are made one after another, if moves are among what is asked for.
    moves = waiting_moves(state)
    loads = None
    if any(move.together in asked for move in moves):
        loads = loads_ahead(state, present(state), moves)
    places = {move.proposal_id: place for place, move in enumerate(moves)}
    left = [group for group in groups_of(book.waiting) if group[0].together in asked]
    while left:
        # The first one that makes no broker worse; where there is none, the plan's first.
        group = next((group for group in left if not _harms(loads, group, places)), None)
        harms = group is None and not even_if_worse
        group = left[0] if group is None else group
        left.remove(group)
        mine = _places_of(group, places)
        before = _places_of(_steps_before(moves, group), places)
        refused = why_refused(state, group, loads, (mine, before))
        if refused is None and harms and loads is not None:
            refused = _raises_max(group, loads, mine)
        if refused is not None:
            # What is stale never can be decided, all else waits on.
            answers.append(refused)
            if refused.rule == STALE:
                book.end(group[0], STALE, why=refused.text)
            continue
        answers += _approved(state, group, by, loads, mine)
        moves = [move for move in moves if move.together != group[0].together]
    return answers


def _places_of(proposals: Sequence[Proposal], places: Mapping[str, int]) -> Group:
    """The places of those that are moves which wait. `places`: by their ids."""
    return [
        places[proposal.proposal_id] for proposal in proposals if proposal.proposal_id in places
    ]


def _harms(loads: LoadsAhead | None, group: Sequence[Proposal], places: Mapping[str, int]) -> bool:
    """Whether these, approved now, make the busiest broker busier. Splits move nothing."""
    return loads is not None and loads.is_worse_after(_places_of(group, places))


def _steps_before(moves: Sequence[Proposal], group: Sequence[Proposal]) -> list[Proposal]:
    """The steps of the same plan that wait and come before these."""
    plan, step = group[0].plan, group[0].step
    return [move for move in moves if plan is not None and move.plan == plan and move.step < step]


def _raises_max(group: Sequence[Proposal], loads: LoadsAhead, mine: Group) -> BundleAnswer:
    after, names = loads.after(mine), [*loads.names]
    busiest = names[int(np.argmax(np.where(after.counted, after.usage, -np.inf)))]
    bundles = ", ".join(proposal.bundle for proposal in group)
    advice = "say --even-if-worse"
    if (plan := group[0].plan) is not None:
        advice = f"approve the plan that it is part of (lbctl approve --plan {plan}), or {advice}"
    text = (
        f"{bundles}: by itself that would bring {busiest} to {after.max_usage:.1%}, where the "
        f"busiest broker is at {loads.max_usage:.1%} now: {advice}; it waits on"
    )
    return BundleAnswer("refused", text, Refuses.RAISES_MAX.name)


def _approved(
    state: RoundState, group: Sequence[Proposal], by: str, loads: LoadsAhead | None, mine: Group
) -> list[BundleAnswer]:
    """Decide a group that waits. Returns an answer to each. The rest of its plan has been begun."""
    book, answers = state.responder.book, list[BundleAnswer]()
    for number, proposal in enumerate(book.take(group[0])):
        figures = None if loads is None or not mine else (loads, mine[number], mine)
        decide_proposed(state, proposal, by, Explain.model_validate(proposal.explain), figures)
        to = f" for {proposal.destination}" if proposal.destination is not None else ""
        source = proposal.source
        what = f"leaves {source}{to}" if proposal.is_move else f"is split at {source}"
        answers.append(BundleAnswer("decided", f"{proposal.bundle} {what}"))
    if loads is not None and mine:
        loads.carry_out(mine)
        if (plan := group[0].plan) is not None:
            book.waiting = [
                replace(proposal, begun=True) if proposal.plan == plan else proposal
                for proposal in book.waiting
            ]
    return answers


def decide_proposed(
    state: RoundState,
    one: Proposal,
    by: str,
    explain: Explain,
    figures: tuple[LoadsAhead, int, Group] | None = None,
) -> None:
    """Make the decision that a proposal has asked for, and tell who approved it.

    `figures` of a move: the loads before it, its place and its group there.
    """
    row, names = int(state.view.bundles.rows_of([one.bundle])[0]), state.view.brokers.names
    if figures is not None:
        explain = explain.model_copy(update=_at_approval(*figures))
    state.decide(
        one.kind,
        row,
        one.source,
        None if one.destination is None else names.index(one.destination),
        reason=one.reason,
        rule=Rule(one.rule, ""),
        strategy=one.strategy,
        explain=explain,
        division=None
        if one.is_move
        else Division(one.children, one.boundaries, one.algorithm, one.unload_children),
    )
    made = state.decisions[-1] = state.decisions[-1].model_copy(
        update={"approved_by": by, "proposal_id": one.proposal_id}
    )
    state.responder.book.news.append(
        ProposalNews(one, "approved", by, decision_id=made.decision_id)
    )


def _at_approval(loads: LoadsAhead, place: int, group: Group) -> dict[str, Any]:
    """The usages that a move is approved on."""
    source, destination = loads.ends[place]
    return {
        "source_usage": usage_of(loads, source),
        "destination_usage": usage_of(loads, destination),
        "max_usage": round(loads.max_usage, DIGITS),
        "max_usage_after": round(loads.after(group).max_usage, DIGITS),
    }


def why_refused(
    state: RoundState,
    group: Sequence[Proposal],
    loads: LoadsAhead | None,
    order: tuple[Group, Group],
    places: bool = True,
) -> BundleAnswer | None:
    """Why these can't be decided as things are now, if so.

    What is stale never can be; all else may be later. `order`: places of these among the loads, and
    of the steps before them. `places`: whether placement is asked about moves whose destination is
    yet to be found.
    """
    if state.memory.operator_state.paused:
        return BundleAnswer(
            "refused",
            "the balancing is paused: lbctl clusters resume ends that",
            Refuses.PAUSED.name,
        )
    for one in group:
        if (busy := state.describe_busy(one.bundle)) is not None:
            return BundleAnswer("refused", busy, "in_flight")
    if len(known(state, group)) < len(group):
        unheard = (
            f"no report has named {', '.join(proposal.bundle for proposal in group)} and "
            "where it is to go yet"
        )
        return BundleAnswer("refused", f"{unheard}; it waits on", "unknown_bundle")
    if (overlaps := _overlap_refused(state, group)) is not None:
        return overlaps
    if not group[0].is_move:
        return _split_refused(state, group[0])
    names = state.view.brokers.names
    if silent := [
        proposal.destination
        for proposal in group
        if proposal.destination
        and not state.view.brokers.speaking[names.index(proposal.destination)]
    ]:
        return BundleAnswer(
            "refused", f"{', '.join(silent)} is silent now; it waits on", "inactive_destination"
        )
    rows = [int(row) for row in state.view.bundles.rows_of(proposal.bundle for proposal in group)]
    for one, row in zip(group, rows, strict=True):
        wrong = _not_allowed(state, one, row, places)
        # of several, another bundle makes room for it
        if wrong is None and len(group) == 1 and loads is not None:
            wrong = _shifts_overload(state, one, loads, order)
        if wrong is not None:
            return BundleAnswer("refused", f"{one.bundle} stays at {one.source}: {wrong}", STALE)
    bundles = [proposal.bundle for proposal in group]
    moves = [(row, int(state.view.bundles.owner[row])) for row in rows]
    return _said(
        bundles, build_holds(state).refusal(bundles) or MoveBudget.of(state).refusal(moves)
    )


def _overlap_refused(state: RoundState, group: Sequence[Proposal]) -> BundleAnswer | None:
    """Why these wait on whose ranges other served bundles have by now, too; None: there is none."""
    for proposal in group:
        row = int(state.view.bundles.rows_of([proposal.bundle])[0])
        overlapped = state.overlapped
        if (overlapped.moving if proposal.is_move else overlapped.reshaping)[row]:
            return explain_overlap(state, row)
    return None


def _said(names: Sequence[str], found: Refusal | None) -> BundleAnswer | None:
    if found is None:
        return None
    figures = (
        ""
        if found.least is None or found.limit is None
        else f" {found.least:.0f}, allowed {found.limit:.0f} {found.unit}"
    )
    return BundleAnswer(
        "refused",
        f"{', '.join(names)}: {found.rule.replace('_', ' ')}{figures}; it waits on",
        found.rule,
    )


def _not_allowed(state: RoundState, proposal: Proposal, row: int, places: bool) -> str | None:
    """Why settings, rules or placement don't have a bundle moved any more.

    `places`: whether placement is asked.
    """
    if not state.config.balancer.shedding_enabled:
        return "shedding_enabled is false"
    if (
        namespace := namespace_of(proposal.bundle)
    ) in state.config.balancer.shedding_excluded_namespaces:
        return f"{namespace} is excluded (shedding_excluded_namespaces)"
    if proposal.destination is None:
        if not places:
            return None
        choice = state.place(row)
        if choice is None:
            return "no broker may take it"
        keeps = choice.destination == int(state.view.bundles.owner[row])
        return (
            f"{proposal.source} is the best broker for it by now ({Refuses.PLACEMENT_KEEPS_OWNER})"
            if keeps
            else None
        )
    view, to = state.view, state.view.brokers.names.index(proposal.destination)
    if (policy := state.candidates.find_refusing_policy(row, to, state.targets)) is not None:
        return f"{proposal.destination} may not have it ({policy})"
    if (
        view.policies.group_of(namespace)
        and not (state.candidates.allowed_by_rules(row, state.targets)[0] == to).any()
    ):
        return f"{proposal.destination} may not have it ({Refuses.ANTI_AFFINITY})"
    return None


def _shifts_overload(
    state: RoundState, proposal: Proposal, loads: LoadsAhead, order: tuple[Group, Group]
) -> str | None:
    """Why a move would only shift the overload, even if the steps before it were made, too."""
    mine, before = order
    source, to = loads.ends[mine[0]]
    if proposal.destination is None or to < 0:
        return None
    after = min(float(loads.after(moves).usage[to]) for moves in (mine, [*before, *mine]))
    compared = loads.max_usage
    if _goes_by_relief(state):
        compared = float(state.view.brokers.usage[source])
    most = max(state.config.balancer.overloaded_threshold_percent / 100.0, compared)
    too_hot = (
        f"{proposal.destination} would be at {after:.0%} usage with it ({Refuses.SHIFTS_OVERLOAD})"
    )
    return too_hot if after > most + ROUNDING_TOLERANCE else None


def _goes_by_relief(state: RoundState) -> bool:
    """Whether a pass itself makes no broker hotter than the one that is relieved.

    What it may plan must not be stale as soon as it is planned.
    """
    counts = state.config.balancer.count_pending_moves and preselects(state)
    return counts and not traits_of(state.config.shedder).chooses_destination


def _split_refused(state: RoundState, proposal: Proposal) -> BundleAnswer | None:
    config, view = state.config.splitting, state.view
    if not config.split_enabled:
        return BundleAnswer(
            "refused", f"{proposal.bundle} stays whole: split_enabled is false", STALE
        )
    splitting = [other.bundle for other in state.memory.pending if other.kind == "split"]
    splitting += [other.bundle for other in state.decisions if other.kind == "split"]
    if len(splitting) >= config.max_splits_in_flight:
        return _said(
            [proposal.bundle],
            refusal(
                Refuses.SPLITS_IN_FLIGHT,
                None,
                saw=[len(splitting)],
                limit=config.max_splits_in_flight,
            ),
        )
    namespace = namespace_of(proposal.bundle)
    count = int(
        np.count_nonzero(view.bundles.owner[view.bundles.rows_of_namespace(namespace)] >= 0)
    )
    count += sum(namespace_of(name) == namespace for name in splitting)
    if count + max(1, len(proposal.children) - 1) > config.namespace_max_bundles:
        return BundleAnswer(
            "refused",
            f"{proposal.bundle} stays whole: {namespace} has {count} bundles, as many as allowed",
            STALE,
        )
    return None
