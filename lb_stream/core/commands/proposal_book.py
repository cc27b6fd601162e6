"""The proposals of a round: those that wait for an operator's approval, and what has become of
others.

Those that wait are part of the cluster's memory. What becomes of each is told once, in the log of
the round in which it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lb_stream.contracts.base import dataclass_fields
from lb_stream.core.commands.base import named
from lb_stream.core.model.memory import Proposal

State = Literal["waiting", "approved", "rejected", "expired", "stale", "superseded", "withdrawn"]
"""Stale: what it wants can't be any more; superseded: balancing doesn't want it any more;
withdrawn: nothing waits for approval in the cluster any more. All but `waiting` are the end.
"""


@dataclass(frozen=True, slots=True)
class ProposalNews:
    """What has become of a proposal: who did it, why, until when a rejection holds, and the
    decision that an approval has led to."""

    proposal: Proposal
    state: State
    by: str = ""
    why: str = ""
    until_ms: int | None = None
    decision_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields."""
        own = {
            name: getattr(self, name) for name in ("state", "by", "why", "until_ms", "decision_id")
        }
        one = dataclass_fields(self.proposal)
        return (
            one | {"children": list(one["children"]), "boundaries": list(one["boundaries"])} | own
        )


@dataclass(slots=True)
class ProposalBook:
    """A cluster's proposals in one round: those that wait, in the order in which they came, and
    what is to be told of them."""

    waiting: list[Proposal] = field(default_factory=list)
    news: list[ProposalNews] = field(default_factory=list)

    def find(self, proposal_id: str) -> Proposal | None:
        """A proposal that waits."""
        return next((one for one in self.waiting if one.proposal_id == proposal_id), None)

    def together(self, proposal: Proposal) -> list[Proposal]:
        """Those that are approved and rejected with it, itself among them."""
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
        """Tell what has become of a proposal and of those that belong to it; they wait no more.

        Returns all of them.
        """
        ended = self.take(proposal)
        self.news += [ProposalNews(other, state, by, why, until_ms) for other in ended]
        return ended

    def reject(self, proposals: Iterable[Proposal], by: str, why: str, until_ms: int) -> None:
        """End proposals that an operator has rejected."""
        for proposal in proposals:
            # one that belongs to another has ended with it
            if self.find(proposal.proposal_id) is not None:
                self.end(proposal, "rejected", by=by, why=why, until_ms=until_ms)

    def explain_unknown(self, names: Sequence[str]) -> str:
        """Say that nothing waits under these ids, and how to find what does."""
        verb = "waits" if len(names) == 1 else "wait"
        return (
            f"no proposal {named(names)} {verb}: lbctl proposals shows those that do, "
            "with --last what has become of others"
        )

    def take(self, proposal: Proposal) -> list[Proposal]:
        """Have a proposal and those that belong to it wait no more. Returns all of them."""
        taken = self.together(proposal)
        self.waiting = [other for other in self.waiting if other.together != proposal.together]
        return taken
