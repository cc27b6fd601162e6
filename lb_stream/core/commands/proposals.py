"""What ends a proposal without a decision: an operator's rejection, its time, and a cluster in
which it can't be carried out any more."""

from __future__ import annotations

from lb_stream.contracts.commands import MOST_REJECTIONS, RejectProposals
from lb_stream.core.commands.proposal_book import ProposalBook, State
from lb_stream.core.commands.responder import CommandResponder, Received, named
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Proposal
from lb_stream.core.model.operator_state import OperatorState, Rejection
from lb_stream.core.model.view import ClusterView


def reject(
    desk: CommandResponder,
    received: Received,
    command: RejectProposals,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    """End proposals and remember that; or change for how long an earlier rejection holds.

    A rejection that is over can be ended, too.
    """
    earlier = {rejection.proposal_id: rejection for rejection in desk.orders.rejections}
    found = {name: desk.book.find(name) for name in dict.fromkeys(command.proposals)}
    unknown = [name for name, one in found.items() if one is None and name not in earlier]
    if unknown and command.for_ms:
        desk.answer(received, "refused", unknown_proposals(unknown), "unknown_proposal")
        return
    until_ms, by = view.now_ms + command.for_ms, str(received.head["by"])
    waiting = [
        other
        for proposal in found.values()
        if proposal is not None
        for other in desk.book.together(proposal)
    ]
    named_again = {one.together for name, one in earlier.items() if name in found}
    again = [rejection for rejection in desk.orders.rejections if rejection.together in named_again]
    about = {
        (rejection.bundle, rejection.is_move): (rejection.proposal_id, rejection.together)
        for rejection in again
    }
    about |= {
        (proposal.bundle, proposal.is_move): (proposal.proposal_id, proposal.together)
        for proposal in waiting
    }
    others = [
        rejection
        for rejection in desk.orders.rejections
        if (rejection.bundle, rejection.is_move) not in about
    ]
    new = [
        Rejection(*ids, bundle, is_move, until_ms, by, command.why)
        for (bundle, is_move), ids in about.items()
    ]
    after = [*others, *new] if command.for_ms else others
    if len(after) > MOST_REJECTIONS:
        held = f"{len(desk.orders.rejections)} rejections hold, {MOST_REJECTIONS} at most"
        desk.answer(
            received,
            "refused",
            f"{held}: exclude a namespace (shedding_excluded_namespaces)",
            "too_many_rejections",
        )
        return
    desk.change(rejections=tuple(sorted(after, key=lambda one: (one.bundle, one.is_move))))
    for proposal in waiting:
        if (
            desk.book.find(proposal.proposal_id) is not None
        ):  # else it has ended with the one that it belongs to
            desk.book.end(proposal, "rejected", by=by, why=command.why, until_ms=until_ms)
    bundles = named(sorted({bundle for bundle, _ in about}))
    span = (
        f"for {command.for_ms / 60_000:g} min nothing like it is proposed"
        if command.for_ms
        else "it may be proposed again"
    )
    desk.answer(
        received,
        "done",
        f"{span}: {bundles}"
        if about
        else f"nothing holds any more that {named(unknown)} was rejected for",
    )


def unknown_proposals(names: list[str]) -> str:
    """What is said of ids under which nothing waits."""
    verb = "waits" if len(names) == 1 else "wait"
    return (
        f"no proposal {named(names)} {verb}: lbctl proposals shows those that do, with --last "
        "what has become of others"
    )


def end_proposals(
    book: ProposalBook, view: ClusterView, config: ClusterConfig, orders: OperatorState
) -> None:
    """End the proposals whose time is over, and those that can't come about any more.

    `view`: as reported, with the dead marked.

    Of brokers that nobody has heard yet (the job has lost its averages, or taken the cluster over)
    nothing is known: those wait.
    """
    if not book.waiting:
        return
    rows = dict(
        zip(
            (proposal.bundle for proposal in book.waiting),
            view.bundles.rows_of(proposal.bundle for proposal in book.waiting).tolist(),
            strict=True,
        )
    )
    for one in tuple(book.waiting):
        ended = _why_ended(one, rows[one.bundle], view, config, orders)
        if ended is not None and book.find(one.proposal_id) is not None:
            book.end(one, ended[0], why=ended[1])


def _why_ended(
    one: Proposal, row: int, view: ClusterView, config: ClusterConfig, orders: OperatorState
) -> tuple[State, str] | None:
    if config.balancer.mode != "approve":
        return "withdrawn", f"the cluster's mode is {config.balancer.mode}"
    if not config.balancer.enabled:
        return "withdrawn", "the cluster balances nothing by itself any more (enabled is false)"
    if view.now_ms >= one.expires_ms:
        return "expired", "nobody has approved or rejected it in time"
    owner = int(view.bundles.owner[row]) if row >= 0 else -1
    if row < 0 and one.source not in view.brokers.names:
        return None
    if owner < 0 or view.brokers.names[owner] != one.source:
        has = "nobody" if owner < 0 else view.brokers.names[owner]
        return "stale", f"{one.source} doesn't have the bundle any more: {has} has it"
    if one.is_move and one.source in orders.drained:
        return "stale", f"{one.source} is being drained: all its bundles leave it"
    if one.destination is None:
        return None
    if one.destination in orders.drained:
        return "stale", f"{one.destination} is being drained"
    dead = (
        one.destination in view.brokers.names
        and not view.brokers.alive[view.brokers.names.index(one.destination)]
    )
    return ("stale", f"{one.destination} is not alive") if dead else None
