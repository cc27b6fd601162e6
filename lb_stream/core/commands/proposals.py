"""What ends a proposal by itself: its time, and a cluster in which it can't be carried out any
more."""

from __future__ import annotations

from lb_stream.core.commands.proposal_book import ProposalBook, State
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Proposal
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.view import ClusterView


def end_proposals(
    book: ProposalBook, view: ClusterView, config: ClusterConfig, operator_state: OperatorState
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
        ended = _why_ended(one, rows[one.bundle], view, config, operator_state)
        if ended is not None and book.find(one.proposal_id) is not None:
            book.end(one, ended[0], why=ended[1])


def _why_ended(
    one: Proposal, row: int, view: ClusterView, config: ClusterConfig, operator_state: OperatorState
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
    if one.is_move and one.source in operator_state.drained:
        return "stale", f"{one.source} is being drained: all its bundles leave it"
    if one.destination is None:
        return None
    if one.destination in operator_state.drained:
        return "stale", f"{one.destination} is being drained"
    dead = (
        one.destination in view.brokers.names
        and not view.brokers.alive[view.brokers.names.index(one.destination)]
    )
    return ("stale", f"{one.destination} is not alive") if dead else None
