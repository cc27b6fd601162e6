"""The proposals of a round: those that wait for approval, and changes of others.

Waiting proposals are part of the cluster's memory. Each change of a proposal is logged once, in the
round in which it happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lb_stream.contracts.base import dataclass_fields
from lb_stream.core.commands.base import named
from lb_stream.core.model.memory import Proposal

State = Literal["waiting", "approved", "rejected", "expired", "stale", "superseded", "withdrawn"]
"""Stale: it can't be done any more; superseded: balancing no longer wants it; withdrawn: the
cluster no longer asks for approval. All but `waiting` are final."""


@dataclass(frozen=True, slots=True)
class ProposalNews:
    """A change of a proposal's state."""

    proposal: Proposal
    state: State
    by: str = ""  # operator, or rule of auto_approve; empty: the balancer itself
    why: str = ""
    until_ms: int | None = None  # end of a rejection
    decision_id: str | None = None  # the decision that an approval has led to

    def to_dict(self) -> dict[str, object]:
        """Return the fields for JSON."""
        own = ("state", "by", "why", "until_ms", "decision_id")
        proposal = dataclass_fields(self.proposal)
        lists = {name: list(proposal[name]) for name in ("children", "boundaries")}
        return proposal | lists | {name: getattr(self, name) for name in own}


@dataclass(slots=True)
class ProposalBook:
    """A cluster's proposals in one round: those that wait, oldest first, and changes of state."""

    waiting: list[Proposal] = field(default_factory=list)
    news: list[ProposalNews] = field(default_factory=list)

    def find(self, proposal_id: str) -> Proposal | None:
        """Return the waiting proposal of this id; None: there is none."""
        waiting = (other for other in self.waiting if other.proposal_id == proposal_id)
        return next(waiting, None)

    def together(self, proposal: Proposal) -> list[Proposal]:
        """Return the proposals that are approved and rejected with this one, itself included."""
        return [other for other in self.waiting if other.together == proposal.together]

    def end(
        self,
        proposal: Proposal,
        state: State,
        *,
        by: str = "",
        why: str = "",
        until_ms: int | None = None,
    ) -> list[Proposal]:
        """End a proposal and those that belong to it. Returns all of them."""
        ended = self.take(proposal)
        self.news += [ProposalNews(other, state, by, why, until_ms) for other in ended]
        return ended

    def reject(self, proposals: Iterable[Proposal], by: str, why: str, until_ms: int) -> None:
        """End proposals that an operator has rejected."""
        for proposal in proposals:
            # A proposal that belongs to another has ended with it.
            if self.find(proposal.proposal_id) is not None:
                self.end(proposal, "rejected", by=by, why=why, until_ms=until_ms)

    def explain_unknown(self, names: Sequence[str]) -> str:
        """Explain that no proposal with these ids waits, and how to find those that do."""
        return (
            f"no proposal with the id {named(names)} waits: lbctl proposals shows those that wait, "
            "and with --last those that have ended"
        )

    def take(self, proposal: Proposal) -> list[Proposal]:
        """Remove a proposal and those that belong to it from the waiting. Returns all of them."""
        taken = self.together(proposal)
        self.waiting = [other for other in self.waiting if other.together != proposal.together]
        return taken
