"""`reject-proposals`: end proposals, and keep balancing from proposing the same for a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import LONGEST_PIN_MS, LONGEST_WHY, MOST_REJECTIONS, ProposalIds
from lb_stream.contracts.spans import parse_span
from lb_stream.core.commands.base import (
    BadForm,
    Button,
    CommandLine,
    Effect,
    Operation,
    StateCommand,
    command,
    done,
    make,
    named,
    option,
    parse_hours,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.memory import Proposal
    from lb_stream.core.model.operator_state import OperatorState, RejectedProposal

Subject = tuple[str, bool]
"""A bundle, and whether a move of it is proposed, or a split."""


@command(
    CommandLine(
        "reject",
        'reject eu-1:4711:p0 --why "its topics go tonight" --for 12h',
        "Reject proposals: for a time, nothing of the kind is proposed for their bundles.",
        handwritten=True,
        arguments="ID…",
    ),
    verb="approve",
    effect="ends the proposals; nothing of their kind is proposed for their bundles for `--for` "
    "(2 h). 1,000 rejections of a cluster may be in force; `--for 0s` ends one. If one id "
    "is unknown, nothing is rejected",
    buttons=[
        Button(
            "reject",
            "Reject",
            "Reject {proposals}: for a time, nothing of the kind is proposed about the bundle.",
            on=("proposals",),
            asks=("why", "hours"),
        )
    ],
)
class RejectProposals(StateCommand):
    """End proposals, and keep balancing from proposing the same about their bundles for a time."""

    kind: Literal["reject-proposals"] = "reject-proposals"
    phrase = "rejects {proposals}: {why}"
    proposals: ProposalIds
    why: Annotated[
        str,
        option("--why", metavar="TEXT"),
        Field(
            min_length=1,
            max_length=LONGEST_WHY,
            description="Why; explanations show it.",
        ),
    ]
    for_ms: Annotated[
        int,
        option("--for", metavar="TIME", parse=parse_span, default="2h"),
        Field(
            ge=0,
            le=LONGEST_PIN_MS,
            description="How long nothing of the kind is proposed about the bundle; 0 ends an "
            "earlier rejection.",
        ),
    ]
    several = ("proposals",)
    objects = {"proposals": "proposal"}

    def apply(self, context: CommandContext) -> Effect:
        """End proposals and remember it, or change how long an earlier rejection holds."""
        rejections = context.operator_state.rejections
        earlier = {held.proposal_id for held in rejections}
        found = {name: context.book.find(name) for name in dict.fromkeys(self.proposals)}
        unknown = [name for name, proposal in found.items() if not proposal and name not in earlier]
        if unknown and self.for_ms:
            return refused("unknown_proposal", context.book.explain_unknown(unknown))

        # what is rejected: earlier rejections that are named again, and what waits
        waiting = [
            member
            for proposal in found.values()
            if proposal is not None
            for member in context.book.together(proposal)
        ]
        again = _named_again(rejections, found)
        rejected: list[Proposal | RejectedProposal] = [*again, *waiting]
        about = {_subject_of(member): member for member in rejected}
        kept = [held for held in rejections if _subject_of(held) not in about]
        after = [*kept, *self._rejections(about, context)] if self.for_ms else kept
        if len(after) > MOST_REJECTIONS:
            held = f"{len(rejections)} rejections hold, {MOST_REJECTIONS} at most"
            text = f"{held}: exclude a namespace (shedding_excluded_namespaces)"
            return refused("too_many_rejections", text)

        until_ms = context.view.now_ms + self.for_ms
        context.book.reject(waiting, context.by, self.why, until_ms)
        return done(
            self._describe({bundle for bundle, _ in about}, unknown),
            rejections=tuple(sorted(after, key=_subject_of)),
        )

    def _rejections(
        self, about: Mapping[Subject, Proposal | RejectedProposal], context: CommandContext
    ) -> list[RejectedProposal]:
        from lb_stream.core.model.operator_state import RejectedProposal

        until_ms = context.view.now_ms + self.for_ms
        return [
            RejectedProposal(
                held.proposal_id, held.together, bundle, is_move, until_ms, context.by, self.why
            )
            for (bundle, is_move), held in about.items()
        ]

    def _describe(self, bundles: set[str], unknown: list[str]) -> str:
        if not bundles:
            return f"no rejection holds any more: {named(unknown)}"
        span = "it may be proposed again"
        if self.for_ms:
            span = f"rejected for {self.for_ms / 60_000:g} min"
        return f"{span}: {named(sorted(bundles))}"

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        why = given.get("why", "").strip()
        if not 0 < len(why) <= LONGEST_WHY:
            expected = f"expected 1 to {LONGEST_WHY}, which explanations show"
            raise BadForm(f"why: {len(why)} characters: {expected}")
        for_ms = parse_hours(given, LONGEST_PIN_MS)
        return {"proposals": given["proposals"].split(), "why": why, "for_ms": for_ms}

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        """Return the commands that end the rejections, or restore earlier ones in their place."""
        left = defaultdict[tuple[int, str], list[str]](list)
        held = {rejection.proposal_id: rejection for rejection in before.rejections}
        for name in self.proposals:
            earlier = held.get(name)
            if earlier is None:
                left[0, "undone"].append(name)
            else:
                left[max(earlier.until_ms - now_ms, 0), earlier.why].append(name)
        return [
            make(self.kind, proposals=names, why=why, for_ms=for_ms)
            for (for_ms, why), names in left.items()
        ]

    def subject(self) -> tuple[str, str]:
        return self.kind, self.proposals[0]

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        left = [
            (max(held.until_ms - now_ms, 0), held.why)
            for held in now.rejections
            if held.proposal_id == self.proposals[0]
        ]
        return left == ([(self.for_ms, self.why)] if self.for_ms else [])

    def explain_lost(self, now: OperatorState) -> str | None:
        held = {rejection.proposal_id for rejection in now.rejections}
        lost = [name for name in self.proposals if name not in held]
        if not self.for_ms or not lost:
            return None
        return (
            f"the rejection of {', '.join(lost)} has ended: reject the next proposal, or pin the "
            "bundle"
        )


def _subject_of(held: Proposal | RejectedProposal) -> Subject:
    return held.bundle, held.is_move


def _named_again(
    rejections: tuple[RejectedProposal, ...], names: Mapping[str, Proposal | None]
) -> list[RejectedProposal]:
    """Return the earlier rejections that are named, with those that belong to them."""
    together = {held.together for held in rejections if held.proposal_id in names}
    return [held for held in rejections if held.together in together]
