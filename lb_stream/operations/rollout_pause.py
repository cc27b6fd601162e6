"""`rollout-pause`: begin no other broker of a rollout until `rollout-resume`."""

from __future__ import annotations

from dataclasses import replace
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
from lb_stream.core.commands.rollouts import find_rollout, refuse_without_rollout

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


@command(
    CommandLine(
        "rollout pause",
        "rollout pause --cluster eu-1",
        "Begin no other broker until `lbctl rollout resume`. Brokers that are draining keep what "
        "they have.",
    ),
    verb="rollout",
    effect="begins no other broker until `rollout resume`; brokers that are draining keep what "
    "they have, and moves that are pending go on",
    buttons=[
        Button(
            "rollout-pause",
            "Pause the rollout",
            "Begin no other broker until the rollout is resumed.",
        )
    ],
)
class RolloutPause(StateCommand):
    """Begin no other broker of the rollout that is on, until `rollout-resume`."""

    kind: Literal["rollout-pause"] = "rollout-pause"
    phrase = "pauses the rollout"

    def apply(self, context: CommandContext) -> Effect:
        now = find_rollout(context)
        if now is None:
            return refuse_without_rollout()
        text = "paused already" if now.order.paused else "paused: no other broker is begun"
        return done(f"{text}; {now.describe()}", rollout=replace(now.order, paused=True))

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        is_new = before.rollout is not None and not before.rollout.paused
        return [make("rollout-resume")] if is_new else []

    def subject(self) -> tuple[str, str]:
        return "rollout-paused", ""

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return now.rollout is not None and now.rollout.paused

    def explain_lost(self, now: OperatorState) -> str | None:
        return "no rollout is on any more" if now.rollout is None else None
