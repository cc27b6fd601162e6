"""`pause-cluster`: shed and split nothing until `resume-cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Operation,
    StateCommand,
    command,
    done,
    make,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


@command(
    CommandLine(
        "clusters pause",
        "clusters pause eu-1 · lbctl clusters pause --all-clusters",
        "Stop shedding and splits until the cluster is resumed. Commands are carried out, and "
        "bundles without an owner get one.",
        cluster="argument",
        all_clusters=True,
    ),
    verb="pause",
    effect="stops shedding and splits. Unloads and splits by command are carried out, drains go "
    "on, and bundles without an owner get one",
    buttons=[
        Button(
            "pause",
            "Pause",
            "Shed and split nothing until balancing is resumed. Unassigned bundles are still "
            "assigned.",
        )
    ],
)
class PauseCluster(StateCommand):
    """Shed and split nothing until `resume-cluster`.

    Operators' commands are done, and unassigned bundles are assigned.
    """

    kind: Literal["pause-cluster"] = "pause-cluster"
    phrase = "pauses balancing"

    def apply(self, context: CommandContext) -> Effect:
        text = "paused: nothing is shed or split until it is resumed"
        if context.operator_state.paused:
            text = "paused already"
        return done(text + context.describe_pending() + context.describe_queued(), paused=True)

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        return [] if before.paused else [make("resume-cluster")]

    def subject(self) -> tuple[str, str]:
        return "paused", ""

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return now.paused
