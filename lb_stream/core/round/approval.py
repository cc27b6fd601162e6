"""Approval: what balancing wants waits for somebody to say yes, and is looked at again when they do. See docs/operating.md "Approval".

Only what balancing decides by itself waits: moves of a shedder, and splits. Owners for bundles that have none, drains, what operators
have ordered and what follows from an approved decision go on at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lb_stream.contracts.commands import ApproveProposals
from lb_stream.contracts.decisions import Candidate, Decision, Explain
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.proposals import unknown_proposals
from lb_stream.core.commands.responder import BundleAnswer
from lb_stream.core.config.auto_approve import AutoApproval, auto_approval
from lb_stream.core.disruption.budgets import HOUR_MS
from lb_stream.core.model.memory import Pending, Proposal
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.observing.ahead import carry_out
from lb_stream.core.round.limits import MINUTE_MS, MoveBudget, holds_of
from lb_stream.core.round.settle import count_preallocated
from lb_stream.core.round.shed import count_loads
from lb_stream.core.round.state import Division, RoundState

MOST_CANDIDATES_KEPT = 3
STALE = "stale"


# --- what balancing wants ---


def propose(state: RoundState, balance: Callable[[RoundState], None]) -> None:
    """Have what balancing wants wait, but for what a rule of auto_approve lets through.

    Balancing is asked as if what waits already had been approved: it proposes nothing twice, and limits count what waits.
    """
    aside, book, most = _as_if_approved(state), state.desk.book, state.config.balancer.max_proposals
    before = len(aside.decisions)
    balance(aside)
    state.shed, state.proposed = aside.shed, aside.proposed
    full = list[str]()
    for group in _groups(aside, aside.decisions[before:]):
        new = _proposals(state, group)
        if (rule := _auto_approved(state, new)) is not None:
            for one, wanted in zip(new, group, strict=True):
                _decide(state, one, f"auto_approve: {rule.text}", wanted.explain)
        elif len(book.waiting) + len(new) <= most:
            told = [replace(one, explain=wanted.explain.model_dump(mode="json")) for one, wanted in zip(new, group, strict=True)]
            book.waiting += new
            book.news += [ProposalNews(one, "waiting") for one in told]
        else:
            full += [one.bundle for one in new]
    if full:
        state.refusals.append(refusal(Refuses.MAX_PROPOSALS, None, full, saw=[len(book.waiting)], limit=most))


def _as_if_approved(state: RoundState) -> RoundState:
    """The round with what waits under way, as far as nothing else is under way with its bundle."""
    view, memory = state.view, state.memory
    taken = {bundle for one in state.decisions for bundle in one.bundles}
    taken |= {bundle for one in memory.pending for bundle in one.bundles}
    pending = tuple(_pending(one) for one in _known(state, state.desk.book.waiting) if one.bundle not in taken)
    after = replace(
        memory,
        pending=(*memory.pending, *pending),
        spending=(*memory.spending, *(one.decision_id for one in pending)),
    )
    aside = state.aside(replace(state.inputs, view=carry_out(view, pending, True), memory=after))
    count_loads(aside)
    count_preallocated(aside)
    aside.count_decided()
    return aside


def _known(state: RoundState, waiting: Sequence[Proposal]) -> list[Proposal]:
    """Those whose bundles and destinations have been reported. After a job has lost its averages they come back one by one."""
    names, rows = state.view.brokers.names, state.view.bundles.rows_of(one.bundle for one in waiting).tolist()
    return [one for one, row in zip(waiting, rows, strict=True) if row >= 0 and (one.destination is None or one.destination in names)]


def _pending(one: Proposal) -> Pending:
    place = one.proposal_id, one.kind, one.bundle, one.source, one.destination
    return Pending(*place, one.proposed_ms, one.expires_ms, version=0, children=one.children)


def _groups(aside: RoundState, made: Sequence[Decision]) -> list[list[Decision]]:
    """The decisions in their order, those of one exchange together."""
    exchange = {bundle: group for group in aside.exchanges for bundle in group}
    groups: dict[tuple[str, ...], list[Decision]] = {}
    for one in made:
        groups.setdefault(exchange.get(one.bundle, (one.bundle,)), []).append(one)
    return list(groups.values())


def _proposals(state: RoundState, group: Sequence[Decision]) -> list[Proposal]:
    """The proposals that stand for these decisions, under new ids."""
    prefix = f"{state.view.cluster}:{state.memory.seq + 1}:p"
    first = sum(one.proposal.proposal_id.startswith(prefix) for one in state.desk.book.news)
    short = state.view.bundles.short.take(state.view.bundles.rows_of(one.bundle for one in group))
    return [
        Proposal(
            proposal_id=f"{prefix}{first + number}",
            together=f"{prefix}{first}",
            kind=one.kind,
            bundle=one.bundle,
            source=str(one.source),
            destination=one.destination,
            reason=one.reason,
            rule=one.rule,
            strategy=one.strategy,
            explain=_shortened(one).model_dump(mode="json"),
            bytes_per_s=float(short.throughput[number]),
            proposed_ms=state.now_ms,
            expires_ms=state.now_ms + state.config.balancer.proposal_expires_ms,
            children=tuple(one.children),
            boundaries=tuple(one.boundaries),
            algorithm=one.algorithm,
            unload_children=one.unload_children,
        )
        for number, one in enumerate(group)
    ]


def _shortened(one: Decision) -> Explain:
    """A decision's explanation with its destination and the best others only."""

    def place(other: Candidate) -> tuple[bool, float]:
        return other.broker != one.destination, np.inf if other.score is None else other.score

    kept = sorted((other for other in one.explain.candidates if other.refused_by is None), key=place)[:MOST_CANDIDATES_KEPT]
    return one.explain.model_copy(update={"candidates": kept})


def _auto_approved(state: RoundState, group: Sequence[Proposal]) -> AutoApproval | None:
    """The first rule that approves all of these; what it approves counts in its budget."""
    for rule in map(auto_approval, state.config.balancer.auto_approve):
        if not all(rule.allows(one.kind, (one.reason, one.rule), one.bytes_per_s, state.now_ms) for one in group):
            continue
        if rule.per_hour is None:
            return rule
        used = sum(count for text, _, count in state.approvals if text == rule.text)
        if used + len(group) <= rule.per_hour:
            until_ms = -(-state.now_ms // MINUTE_MS) * MINUTE_MS + HOUR_MS  # in whole minutes, so that an hour has few of them
            counted = Counter({(text, at_ms): count for text, at_ms, count in state.approvals})
            counted[rule.text, until_ms] += len(group)
            state.approvals = tuple((*each, count) for each, count in sorted(counted.items()))
            return rule
    return None


def _decide(state: RoundState, one: Proposal, by: str, explain: Explain) -> None:
    """Make the decision that a proposal has asked for, and tell who approved it."""
    row, names = int(state.view.bundles.rows_of([one.bundle])[0]), state.view.brokers.names
    state.decide(
        one.kind,
        row,
        one.source,
        None if one.destination is None else names.index(one.destination),
        reason=one.reason,
        rule=Rule(one.rule, ""),
        strategy=one.strategy,
        explain=explain,
        division=None if one.is_move else Division(one.children, one.boundaries, one.algorithm, one.unload_children),
    )
    made = state.decisions[-1] = state.decisions[-1].model_copy(update={"approved_by": by, "proposal_id": one.proposal_id})
    state.desk.book.news.append(ProposalNews(one, "approved", by, decision_id=made.decision_id))


# --- what operators approve ---


def approve(state: RoundState, command: ApproveProposals, by: str) -> list[BundleAnswer]:
    """Make the decisions of these proposals as far as they still can be made; what is said to each."""
    said, done, book = list[BundleAnswer](), set[str](), state.desk.book
    for name in dict.fromkeys(command.proposals):
        if name in done:
            continue
        if (one := book.find(name)) is None:
            said.append(BundleAnswer("refused", unknown_proposals([name]), "unknown_proposal"))
            continue
        group = book.together(one)
        done |= {other.proposal_id for other in group}
        if (refused := _refused(state, group)) is not None:
            said.append(refused)
            if refused.rule == STALE:
                book.end(one, "stale", why=refused.text)
            continue
        for other in book.take(one):
            _decide(state, other, by, Explain.model_validate(other.explain))
            to = f" for {other.destination}" if other.destination is not None else ""
            what = f"leaves {other.source}{to}" if other.is_move else f"is split at {other.source}"
            said.append(BundleAnswer("decided", f"{other.bundle} {what}"))
    return said


def _refused(state: RoundState, group: Sequence[Proposal]) -> BundleAnswer | None:
    """Why these can't be decided as things are now, if so. What is stale never can be; all else may be later."""
    if state.memory.orders.paused:
        return BundleAnswer("refused", "the balancing is paused: lbctl clusters resume ends that", Refuses.PAUSED.name)
    for one in group:
        if (busy := state.under_way(one.bundle)) is not None:
            return BundleAnswer("refused", f"{one.bundle}: the decision {busy[0]} ({busy[1]}) is under way", "in_flight")
    if len(_known(state, group)) < len(group):
        unheard = f"no report has named {', '.join(one.bundle for one in group)} and where it is to go yet"
        return BundleAnswer("refused", f"{unheard}; it waits on", "unknown_bundle")
    if not group[0].is_move:
        return _split_refused(state, group[0])
    names = state.view.brokers.names
    if silent := [one.destination for one in group if one.destination and not state.view.brokers.speaking[names.index(one.destination)]]:
        return BundleAnswer("refused", f"{', '.join(silent)} is silent now; it waits on", "inactive_destination")
    rows = [int(row) for row in state.view.bundles.rows_of(one.bundle for one in group)]
    for one, row in zip(group, rows, strict=True):
        if (wrong := _stale_move(state, one, row, alone=len(group) == 1)) is not None:
            return BundleAnswer("refused", f"{one.bundle} stays at {one.source}: {wrong}", STALE)
    bundles = [one.bundle for one in group]
    moves = [(row, int(state.view.bundles.owner[row])) for row in rows]
    return _said(bundles, holds_of(state).refusal(bundles) or MoveBudget.of(state).refusal(moves))


def _said(names: Sequence[str], found: Refusal | None) -> BundleAnswer | None:
    if found is None:
        return None
    figures = "" if found.least is None or found.limit is None else f" {found.least:.0f}, allowed {found.limit:.0f} {found.unit}"
    return BundleAnswer("refused", f"{', '.join(names)}: {found.rule.replace('_', ' ')}{figures}; it waits on", found.rule)


def _stale_move(state: RoundState, one: Proposal, row: int, alone: bool) -> str | None:
    """Why a move is not to be made any more. `alone`: no other bundle makes room for it."""
    if not state.config.balancer.shedding_enabled:
        return "shedding_enabled is false"
    if (namespace := namespace_of(one.bundle)) in state.config.balancer.shedding_excluded_namespaces:
        return f"{namespace} is excluded (shedding_excluded_namespaces)"
    if one.destination is None:
        choice = state.place(row)
        if choice is None:
            return "no broker may take it"
        keeps = choice.destination == int(state.view.bundles.owner[row])
        return f"{one.source} is the best broker for it by now ({Refuses.PLACEMENT_KEEPS_OWNER})" if keeps else None
    view, to = state.view, state.view.brokers.names.index(one.destination)
    if (policy := state.candidates.refused_by(row, to, state.targets)) is not None:
        return f"{one.destination} may not have it ({policy})"
    if view.policies.group_of(namespace) and not (state.candidates.by_rules(row, state.targets)[0] == to).any():
        return f"{one.destination} may not have it ({Refuses.ANTI_AFFINITY})"
    after, source = float(state.targets.with_bundle(row, np.array([to]))[0]), int(view.bundles.owner[row])
    most = max(state.config.balancer.overloaded_threshold_percent / 100.0, float(view.brokers.usage[source]))
    return f"{one.destination} would be at {after:.0%} usage with it ({Refuses.SHIFTS_OVERLOAD})" if alone and after > most else None


def _split_refused(state: RoundState, one: Proposal) -> BundleAnswer | None:
    config, view = state.config.splitting, state.view
    if not config.split_enabled:
        return BundleAnswer("refused", f"{one.bundle} stays whole: split_enabled is false", STALE)
    splitting = [other.bundle for other in state.memory.pending if other.kind == "split"]
    splitting += [other.bundle for other in state.decisions if other.kind == "split"]
    if len(splitting) >= config.max_splits_in_flight:
        return _said([one.bundle], refusal(Refuses.SPLITS_IN_FLIGHT, None, saw=[len(splitting)], limit=config.max_splits_in_flight))
    namespace = namespace_of(one.bundle)
    count = int(np.count_nonzero(view.bundles.owner[view.bundles.rows_of_namespace(namespace)] >= 0))
    count += sum(namespace_of(name) == namespace for name in splitting)
    if count + max(1, len(one.children) - 1) > config.namespace_max_bundles:
        return BundleAnswer("refused", f"{one.bundle} stays whole: {namespace} has {count} bundles, as many as allowed", STALE)
    return None
