"""`resume-cluster`: the end of a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lb_stream.core.commands.base import (
    Button,
    CannotPreview,
    CommandLine,
    Effect,
    Operation,
    Present,
    StateCommand,
    WhatIf,
    command,
    done,
    make,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


@command(
    CommandLine(
        "clusters resume",
        "clusters resume eu-1 · lbctl clusters resume --all-clusters",
        "End a pause.",
        cluster="argument",
        all_clusters=True,
        preview=True,
    ),
    verb="pause",
    effect="shedding and splits go on",
    buttons=[Button("resume", "Resume", "Shed and split again.")],
)
class ResumeCluster(StateCommand):
    """The end of a pause."""

    kind: Literal["resume-cluster"] = "resume-cluster"
    phrase = "resumes balancing"

    def apply(self, context: CommandContext) -> Effect:
        return done("resumed" if context.operator_state.paused else "was not paused", paused=False)

    def preview(self, present: Present) -> WhatIf:
        if not present.is_paused():
            raise CannotPreview("the cluster is not paused: nothing would change")
        return WhatIf(resumes=True)

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        return [make("pause-cluster")] if before.paused else []

    def subject(self) -> tuple[str, str]:
        return "paused", ""

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return not now.paused
