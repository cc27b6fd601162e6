"""Approval of proposals, each of which is checked again first. See docs/approval.md "Proposals"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

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
from lb_stream.core.round.limits import MoveAllowance, build_holds
from lb_stream.core.round.merge import explain_overlap
from lb_stream.core.round.shed import REPAIR, preselects
from lb_stream.core.round.state import Division, RoundState
from lb_stream.core.shedding.base import traits_of

DIGITS = 4
"""Digits of usages in the memory, which every round logs."""
STALE: Literal["stale"] = "stale"
"""The outcome of a proposal that can never be decided any more."""


# --- waiting proposals, and the loads that they are judged by ---


def waiting_moves(state: RoundState) -> list[Proposal]:
    """Return the waiting moves whose brokers have reported, in the order of their plan."""
    moves = [proposal for proposal in state.responder.book.waiting if proposal.is_move]
    heard = {proposal.proposal_id for proposal in select_reported(state, moves)}
    unheard = {proposal.together for proposal in moves if proposal.proposal_id not in heard}
    return [proposal for proposal in moves if proposal.together not in unheard]


def select_reported(state: RoundState, waiting: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals whose bundles and destinations have been reported.

    After a job has lost its averages, reports name bundles and brokers again one by one.
    """
    known = {None, *state.view.brokers.names}
    rows = state.view.bundles.rows_of(proposal.bundle for proposal in waiting).tolist()
    return [
        proposal
        for proposal, row in zip(waiting, rows, strict=True)
        if row >= 0 and proposal.destination in known
    ]


def group_proposals(proposals: Sequence[Proposal]) -> list[list[Proposal]]:
    """Return the proposals in groups that are approved together; their order stays."""
    groups: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        groups.setdefault(proposal.together, []).append(proposal)
    return list(groups.values())


def build_loads_ahead(
    state: RoundState, view: ClusterView, moves: Sequence[Proposal | Decision]
) -> LoadsAhead:
    """Return the loads of a view, with the change of loads by each of these moves."""
    rows = view.bundles.rows_of(move.bundle for move in moves).tolist()
    ends = [(str(move.source), _expected_destination(move)) for move in moves]
    steps = [(row, *end) for row, end in zip(rows, ends, strict=True)]
    repairs = frozenset(place for place, move in enumerate(moves) if is_repair(move))
    overloaded = state.config.balancer.overloaded_threshold_percent / 100.0
    return LoadsAhead.build(view, steps, repairs, overloaded)


def is_repair(move: Proposal | Decision) -> bool:
    """Whether a move keeps an anti-affinity group apart. Such a move belongs to no plan."""
    return move.strategy == REPAIR


def _expected_destination(move: Proposal | Decision) -> str | None:
    """Return a move's destination; if it has none, the best candidate of its explanation."""
    if move.destination is not None:
        return move.destination
    explain = move.explain if isinstance(move, Decision) else Explain.model_validate(move.explain)
    fitting = (other.broker for other in explain.candidates if other.refused_by is None)
    return next(fitting, None)


def build_present_view(state: RoundState) -> ClusterView:
    """Return the view with pending, new and queued moves carried out, but no waiting proposal."""
    pending = () if state.config.balancer.count_pending_moves else state.memory.pending
    return apply_pending_moves(
        state.view, [*pending, *state.decisions, *state.queued_moves()], True
    )


def round_usage(loads: LoadsAhead, broker: int) -> float | None:
    """Return a broker's usage, rounded as in the memory; None: the broker is not known."""
    return None if broker < 0 else round(float(loads.usage[broker]), DIGITS)


# --- approval by operators ---


def approve(
    state: RoundState, names: Sequence[str], by: str, even_if_worse: bool
) -> list[BundleAnswer]:
    """Decide these proposals, as far as they can still be decided; return an answer to each.

    Each time, the first group in the order of the plan that does not raise the max usage is
    decided. Proposals that raise it in every order are refused, unless `even_if_worse`.
    """
    # The named proposals that wait.
    book = state.responder.book
    found = {name: book.find(name) for name in dict.fromkeys(names)}
    unknown = [name for name, proposal in found.items() if proposal is None]
    answers = [
        BundleAnswer("refused", book.explain_unknown([name]), "unknown_proposal")
        for name in unknown
    ]
    asked = {proposal.together for proposal in found.values() if proposal is not None}
    # The loads, which change with each decided move; needed if a move is named.
    moves = waiting_moves(state)
    loads = None
    if any(move.together in asked for move in moves):
        loads = build_loads_ahead(state, build_present_view(state), moves)
    places = {move.proposal_id: place for place, move in enumerate(moves)}
    left = [group for group in group_proposals(book.waiting) if group[0].together in asked]
    while left:
        # The first group that does not raise the max; if all do, the plan's first.
        group = next((group for group in left if not _harms(loads, group, places)), None)
        harms = group is None and not even_if_worse
        group = left[0] if group is None else group
        left.remove(group)
        mine = _find_places(group, places)
        before = _find_places(_steps_before(moves, group), places)
        refused = find_refusal(state, group, loads, (mine, before))
        if refused is None and harms and loads is not None:
            refused = _refuse_raised_max(group, loads, mine)
        if refused is not None:
            # A stale proposal ends; the others go on waiting.
            answers.append(refused)
            if refused.rule == STALE:
                book.end(group[0], STALE, why=refused.text)
            continue
        answers += _decide_group(state, group, by, loads, mine)
        moves = [move for move in moves if move.together != group[0].together]
    return answers


def _find_places(proposals: Sequence[Proposal], places: Mapping[str, int]) -> Group:
    """Return the places of the proposals that are waiting moves; `places`: id → place."""
    return [
        places[proposal.proposal_id] for proposal in proposals if proposal.proposal_id in places
    ]


def _harms(loads: LoadsAhead | None, group: Sequence[Proposal], places: Mapping[str, int]) -> bool:
    """Whether a group raises the max usage if it is approved now. Splits never do."""
    return loads is not None and loads.is_worse_after(_find_places(group, places))


def _steps_before(moves: Sequence[Proposal], group: Sequence[Proposal]) -> list[Proposal]:
    """Return the waiting steps of the same plan that come before a group."""
    plan, step = group[0].plan, group[0].step
    return [move for move in moves if plan is not None and move.plan == plan and move.step < step]


def _refuse_raised_max(group: Sequence[Proposal], loads: LoadsAhead, mine: Group) -> BundleAnswer:
    """Return the refusal of a group that raises the max usage, with advice."""
    after, names = loads.after(mine), [*loads.names]
    busiest = names[int(np.argmax(np.where(after.counted, after.usage, -np.inf)))]
    bundles = ", ".join(proposal.bundle for proposal in group)
    advice = "give --even-if-worse"
    if (plan := group[0].plan) is not None:
        advice = f"approve its whole plan (lbctl approve --plan {plan}), or {advice}"
    text = (
        f"{bundles}: alone that would bring {busiest} to {after.max_usage:.1%} usage, and the "
        f"busiest broker is at {loads.max_usage:.1%} now: {advice}; the proposal still waits"
    )
    return BundleAnswer("refused", text, Refuses.RAISES_MAX.name)


def _decide_group(
    state: RoundState, group: Sequence[Proposal], by: str, loads: LoadsAhead | None, mine: Group
) -> list[BundleAnswer]:
    """Decide a waiting group and begin its plan; return an answer to each of its proposals."""
    book, answers = state.responder.book, list[BundleAnswer]()
    for number, proposal in enumerate(book.take(group[0])):
        figures = None if loads is None or not mine else (loads, mine[number], mine)
        decide_proposed(state, proposal, by, Explain.model_validate(proposal.explain), figures)
        to = f" for {proposal.destination}" if proposal.destination is not None else ""
        source = proposal.source
        change = f"leaves {source}{to}" if proposal.is_move else f"is split at {source}"
        answers.append(BundleAnswer("decided", f"{proposal.bundle} {change}"))
    if loads is not None and mine:
        loads.apply_moves(mine)
        if (plan := group[0].plan) is not None:
            book.waiting = [
                replace(proposal, begun=True) if proposal.plan == plan else proposal
                for proposal in book.waiting
            ]
    return answers


def decide_proposed(
    state: RoundState,
    proposal: Proposal,
    by: str,
    explain: Explain,
    figures: tuple[LoadsAhead, int, Group] | None = None,
) -> None:
    """Make the decision of an approved proposal. `by`: the operator or rule that approved it.

    `figures`: of a move, the loads before it, its place among their moves, and its group.
    """
    row = int(state.view.bundles.rows_of([proposal.bundle])[0])
    destination = None
    if proposal.destination is not None:
        destination = state.view.brokers.names.index(proposal.destination)
    division = None
    if not proposal.is_move:
        division = Division(
            proposal.children, proposal.boundaries, proposal.algorithm, proposal.unload_children
        )
    if figures is not None:
        explain = explain.model_copy(update=_usages_at_approval(*figures))
    state.decide(
        proposal.kind,
        row,
        proposal.source,
        destination,
        reason=proposal.reason,
        rule=Rule(proposal.rule, ""),
        strategy=proposal.strategy,
        explain=explain,
        division=division,
    )
    approval = {"approved_by": by, "proposal_id": proposal.proposal_id}
    made = state.decisions[-1] = state.decisions[-1].model_copy(update=approval)
    news = ProposalNews(proposal, "approved", by, decision_id=made.decision_id)
    state.responder.book.news.append(news)


def _usages_at_approval(loads: LoadsAhead, place: int, group: Group) -> dict[str, float | None]:
    """Return the usages at the approval of a move, as fields of its explanation."""
    source, destination = loads.ends[place]
    return {
        "source_usage": round_usage(loads, source),
        "destination_usage": round_usage(loads, destination),
        "max_usage": round(loads.max_usage, DIGITS),
        "max_usage_after": round(loads.after(group).max_usage, DIGITS),
    }


def find_refusal(
    state: RoundState,
    group: Sequence[Proposal],
    loads: LoadsAhead | None,
    order: tuple[Group, Group],
    places: bool = True,
) -> BundleAnswer | None:
    """Return the refusal of a group that can't be decided now; None: it can.

    A group refused as stale can never be decided; others may be decided later. `order`: the places
    of the group among the moves of `loads`, and those of the steps before it. `places`: whether
    moves without a destination are refused if placement has none.
    """
    # Moves and splits: a pause, decisions about the bundles, reports and overlaps.
    if state.memory.operator_state.paused:
        text = "balancing is paused: lbctl clusters resume ends that"
        return BundleAnswer("refused", text, Refuses.PAUSED.name)
    for proposal in group:
        busy = state.describe_busy(proposal.bundle)
        if busy is not None:
            return BundleAnswer("refused", busy, "in_flight")
    if len(select_reported(state, group)) < len(group):
        names = ", ".join(proposal.bundle for proposal in group)
        text = f"no report has named {names} and the destination yet; the proposal still waits"
        return BundleAnswer("refused", text, "unknown_bundle")
    overlaps = _find_overlap_refusal(state, group)
    if overlaps is not None:
        return overlaps
    if not group[0].is_move:
        return _find_split_refusal(state, group[0])
    # Moves only: silent destinations; settings, rules and placement; windows, budgets and limits.
    return (
        _find_silent_refusal(state, group)
        or _find_stale_refusal(state, group, loads, order, places)
        or _find_limit_refusal(state, group)
    )


def _find_silent_refusal(state: RoundState, group: Sequence[Proposal]) -> BundleAnswer | None:
    """Return the refusal of moves to brokers that are silent now; None: there is none."""
    brokers = state.view.brokers
    destinations = (proposal.destination for proposal in group if proposal.destination)
    silent = [name for name in destinations if not brokers.speaking[brokers.names.index(name)]]
    if not silent:
        return None
    text = f"{', '.join(silent)} is silent now; the proposal still waits"
    return BundleAnswer("refused", text, "inactive_destination")


def _find_stale_refusal(
    state: RoundState,
    group: Sequence[Proposal],
    loads: LoadsAhead | None,
    order: tuple[Group, Group],
    places: bool,
) -> BundleAnswer | None:
    """Return the refusal of a group with a move that can never be decided; None: there is none."""
    rows = state.view.bundles.rows_of(proposal.bundle for proposal in group).tolist()
    for proposal, row in zip(group, rows, strict=True):
        reason = _explain_forbidden(state, proposal, row, places)
        if reason is None and loads is not None and len(group) == 1:
            # In a larger group, another bundle may make room at the destination.
            reason = _explain_shifted_overload(state, proposal, loads, order)
        if reason is not None:
            text = f"{proposal.bundle} stays at {proposal.source}: {reason}"
            return BundleAnswer("refused", text, STALE)
    return None


def _find_limit_refusal(state: RoundState, group: Sequence[Proposal]) -> BundleAnswer | None:
    """Return the refusal of moves that a window, budget or limit forbids now; None: none does."""
    bundles = [proposal.bundle for proposal in group]
    rows = state.view.bundles.rows_of(bundles).tolist()
    moves = [(row, int(state.view.bundles.owner[row])) for row in rows]
    found = build_holds(state).refusal(bundles) or MoveAllowance.build(state).refusal(moves)
    return None if found is None else _answer_refusal(bundles, found)


def _find_overlap_refusal(state: RoundState, group: Sequence[Proposal]) -> BundleAnswer | None:
    """Return the refusal of a group with a bundle that overlaps another; None: none does."""
    for proposal in group:
        row = int(state.view.bundles.rows_of([proposal.bundle])[0])
        overlapped = state.overlapped
        if (overlapped.moving if proposal.is_move else overlapped.reshaping)[row]:
            return explain_overlap(state, row)
    return None


def _answer_refusal(bundles: Sequence[str], found: Refusal) -> BundleAnswer:
    """Return a refusal of balancing as the answer to an approval."""
    figures = ""
    if found.least is not None and found.limit is not None:
        figures = f" {found.least:.0f}, allowed {found.limit:.0f} {found.unit}"
    reason = f"{found.rule.replace('_', ' ')}{figures}"
    text = f"{', '.join(bundles)}: {reason}; the proposal still waits"
    return BundleAnswer("refused", text, found.rule)


def _explain_forbidden(state: RoundState, proposal: Proposal, row: int, places: bool) -> str | None:
    """Explain why settings, rules or placement forbid a move now; None: they allow it.

    `places`: whether placement counts.
    """
    config, namespace = state.config.balancer, namespace_of(proposal.bundle)
    # Settings.
    if not config.shedding_enabled:
        return "shedding_enabled is false"
    if namespace in config.shedding_excluded_namespaces:
        return f"{namespace} is excluded (shedding_excluded_namespaces)"
    # A move without a destination: placement has to choose another broker.
    if proposal.destination is None:
        if not places:
            return None
        choice = state.place(row)
        if choice is None:
            return "no broker may take it"
        if choice.destination == int(state.view.bundles.owner[row]):
            rule = Refuses.PLACEMENT_KEEPS_OWNER
            return f"{proposal.source} is the best broker for it now ({rule})"
        return None
    # A move with a destination: rules have to allow it.
    destination = state.view.brokers.names.index(proposal.destination)
    policy = state.candidates.find_refusing_policy(row, destination, state.targets)
    if policy is not None:
        return f"{proposal.destination} may not have it ({policy})"
    if state.view.policies.group_of(namespace):
        allowed = state.candidates.allowed_by_rules(row, state.targets)[0]
        if not (allowed == destination).any():
            return f"{proposal.destination} may not have it ({Refuses.ANTI_AFFINITY})"
    return None


def _explain_shifted_overload(
    state: RoundState, proposal: Proposal, loads: LoadsAhead, order: tuple[Group, Group]
) -> str | None:
    """Explain that a move, alone or after the steps before it, would only shift the overload.

    None: it would not.
    """
    mine, before = order
    source, destination = loads.ends[mine[0]]
    if proposal.destination is None or destination < 0:
        return None
    orders = (mine, [*before, *mine])
    after = min(float(loads.after(moves).usage[destination]) for moves in orders)
    allowed = loads.max_usage
    if _may_reach_source(state):
        allowed = float(state.view.brokers.usage[source])
    most = max(state.config.balancer.overloaded_threshold_percent / 100.0, allowed)
    if after <= most + ROUNDING_TOLERANCE:
        return None
    rule = Refuses.SHIFTS_OVERLOAD
    return f"{proposal.destination} would be at {after:.0%} usage with it ({rule})"


def _may_reach_source(state: RoundState) -> bool:
    """Whether a pass may fill destinations up to the usage of the source.

    Then approval allows the same, so that no proposal is stale from the start.
    """
    counts = state.config.balancer.count_pending_moves and preselects(state)
    return counts and not traits_of(state.config.shedder).chooses_destination


def _find_split_refusal(state: RoundState, proposal: Proposal) -> BundleAnswer | None:
    """Return the refusal of a split that can't be decided now; None: it can."""
    config, bundles = state.config.splitting, state.view.bundles
    if not config.split_enabled:
        text = f"{proposal.bundle} stays whole: split_enabled is false"
        return BundleAnswer("refused", text, STALE)
    # Splits that are pending or new.
    splitting = [pending.bundle for pending in state.memory.pending if pending.kind == "split"]
    splitting += [decision.bundle for decision in state.decisions if decision.kind == "split"]
    limit = config.max_splits_in_flight
    if len(splitting) >= limit:
        found = refusal(Refuses.SPLITS_IN_FLIGHT, None, saw=[len(splitting)], limit=limit)
        return _answer_refusal([proposal.bundle], found)
    # Bundles of its namespace, each split counted as one more.
    namespace = namespace_of(proposal.bundle)
    owned = bundles.owner[bundles.rows_of_namespace(namespace)] >= 0
    count = int(np.count_nonzero(owned)) + sum(
        namespace_of(name) == namespace for name in splitting
    )
    if count + max(1, len(proposal.children) - 1) > config.namespace_max_bundles:
        text = f"{proposal.bundle} stays whole: {namespace} has {count} bundles, which is the limit"
        return BundleAnswer("refused", text, STALE)
    return None
