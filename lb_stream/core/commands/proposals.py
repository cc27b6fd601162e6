"""The end of proposals without an operator: their time is over, or they can't be done any more."""

from __future__ import annotations

from lb_stream.core.commands.proposal_book import ProposalBook, State
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Proposal
from lb_stream.core.model.view import ClusterView


def end_proposals(book: ProposalBook, view: ClusterView, config: ClusterConfig) -> None:
    """End the proposals whose time is over, and those that can't be done any more.

    `view`: as reported, with dead brokers marked. Proposals of brokers that have not reported yet,
    because the job has lost its averages or taken the cluster over, stay.
    """
    if not book.waiting:
        return
    bundles = [proposal.bundle for proposal in book.waiting]
    rows = view.bundles.rows_of(bundles).tolist()
    for proposal, row in zip(tuple(book.waiting), rows, strict=True):
        ended = _explain_end(proposal, row, view, config)
        if ended is not None and book.find(proposal.proposal_id) is not None:
            state, why = ended
            book.end(proposal, state, why=why)


def _explain_end(
    proposal: Proposal,
    row: int,
    view: ClusterView,
    config: ClusterConfig,
) -> tuple[State, str] | None:
    """Return the state in which a proposal ends, and why; None: it goes on waiting.

    `row`: of its bundle; -1: no report names it.
    """
    # The cluster, and the time.
    source, destination = proposal.source, proposal.destination
    if config.balancer.mode != "approve":
        return "withdrawn", f"the cluster's mode is {config.balancer.mode}"
    if not config.balancer.enabled:
        return "withdrawn", "balancing is switched off (enabled is false)"
    if view.now_ms >= proposal.expires_ms:
        return "expired", "it was neither approved nor rejected in time"

    # The source.
    names = view.brokers.names
    owner = int(view.bundles.owner[row]) if row >= 0 else -1
    if row < 0 and source not in names:
        return None
    if owner < 0 or names[owner] != source:
        now = "no broker" if owner < 0 else names[owner]
        return "stale", f"{source} doesn't have the bundle any more: {now} has it"
    if proposal.is_move and source in view.policies.drained:
        return "stale", f"{source} is being drained: all its bundles leave it"

    # The destination.
    if destination is None:
        return None
    if destination in view.policies.drained:
        return "stale", f"{destination} is being drained"
    if destination in names and not view.brokers.alive[names.index(destination)]:
        return "stale", f"{destination} is not alive"
    return None
