"""`approve-proposals`: make the decisions of proposals, if that is still possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import ProposalIds
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    MoveCommand,
    Operation,
    command,
    option,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.responder import BundleAnswer
    from lb_stream.core.model.operator_state import OperatorState
    from lb_stream.core.round.operator_moves import OperatorMoves


@command(
    CommandLine(
        "approve",
        "approve --plan eu-1:4711 · lbctl approve eu-1:4711:p0",
        "Approve proposals: the balancer carries them out, if that is still possible.",
        preview=True,
        handwritten=True,
        arguments="ID…",
    ),
    verb="approve",
    effect="carries out the proposals, if that is still possible, and waits until reports confirm "
    "it. `--plan PLAN`: all moves of a plan that wait. `--all`: shows all that wait and "
    "asks; `--yes` doesn't. `--even-if-worse`: also moves that make the busiest broker "
    "busier",
    buttons=[
        Button(
            "approve",
            "Approve",
            "Make the decisions of {proposals}, if that is still possible.",
            on=("proposals",),
        )
    ],
)
class ApproveProposals(MoveCommand):
    """Make the decisions of proposals, if that is still possible."""

    kind: Literal["approve-proposals"] = "approve-proposals"
    phrase = "approves {proposals}"
    proposals: ProposalIds
    even_if_worse: Annotated[
        bool | None,
        option("--even-if-worse"),
        Field(description="Also moves that would raise the usage of the busiest broker."),
    ] = None
    about = "proposals are approved"
    objects = {"proposals": "proposal"}

    def decide(self, moves: OperatorMoves) -> list[BundleAnswer]:
        return moves.approve(self.proposals, bool(self.even_if_worse))

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        return {"proposals": given["proposals"].split()}

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        return []  # it sets no state; undo moves its bundles back
