"""`rollout-abort`: end a rollout before all of its brokers are restarted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import Word
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    StateCommand,
    command,
    done,
    named,
    option,
    refused,
)
from lb_stream.core.commands.rollouts import RESTARTABLE, find_rollout, refuse_without_rollout

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


@command(
    CommandLine(
        "rollout abort",
        "rollout abort --cluster eu-1",
        "End a rollout. Brokers that were emptied get bundles again.",
    ),
    verb="rollout",
    effect="ends the rollout. Brokers that were emptied get bundles again, those that are away do "
    "when they are back; nothing is moved back",
    buttons=[
        Button(
            "rollout-abort",
            "Abort the rollout",
            "End the rollout. Brokers that were emptied get bundles again.",
        )
    ],
)
class RolloutAbort(StateCommand):
    """End the rollout that is on. Brokers that were emptied for it get bundles again."""

    kind: Literal["rollout-abort"] = "rollout-abort"
    phrase = "aborts the rollout"
    rollout: Annotated[
        Word | None,
        option("--rollout", metavar="ID"),
        Field(description="Only the rollout with this id, as lbctl rollout status shows it."),
    ] = None
    objects = {"rollout": "rollout"}
    instead = "lbctl rollout start begins another one, of the brokers that are left"

    def apply(self, context: CommandContext) -> Effect:
        now = find_rollout(context)
        if now is None:
            return refuse_without_rollout()
        if self.rollout not in (None, now.order.id):
            text = f"the rollout {self.rollout} is not on: {now.order.id} is"
            return refused("no_rollout", text)
        begun = now.in_phases(*RESTARTABLE)
        then = f"; {named(begun)} gets bundles again" if begun else ""
        return done(f"aborted; {now.describe()}{then}", rollout=replace(now.order, aborted=True))

    def subject(self) -> tuple[str, str]:
        return "rollout", ""

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return now.rollout is None

    def explain_lost(self, now: OperatorState) -> str | None:
        if now.rollout is None or self.rollout not in (None, now.rollout.id):
            return "that rollout is not on any more"
        return None
