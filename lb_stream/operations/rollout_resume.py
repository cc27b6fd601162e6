"""`rollout-resume`: have a rollout go on that is paused, or that stands still."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Operation,
    StateCommand,
    command,
    done,
    make,
    option,
)
from lb_stream.core.commands.rollouts import find_rollout, refuse_without_rollout

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


@command(
    CommandLine(
        "rollout resume",
        "rollout resume --cluster eu-1 · lbctl rollout resume --continue",
        "Have a rollout go on that is paused, or that stands still because a broker isn't back.",
    ),
    role="operator",
    effect="has a rollout go on that is paused, or that stands still because a broker isn't back: "
    "brokers that are missing now hold it up no longer. With `--continue` it goes on by itself",
    buttons=[
        Button(
            "rollout-resume",
            "Resume the rollout",
            "Have the rollout go on. Brokers that are missing now hold it up no longer.",
        )
    ],
)
class RolloutResume(StateCommand):
    """Have the rollout go on: it is paused no longer, and missing brokers hold it up no longer."""

    kind: Literal["rollout-resume"] = "rollout-resume"
    continues: Annotated[
        bool,
        option("--continue"),
        Field(description="From now on begin each broker without waiting for rollout-next."),
    ] = False

    def apply(self, context: CommandContext) -> Effect:
        now = find_rollout(context)
        if now is None:
            return refuse_without_rollout()
        order = replace(now.order, paused=False, resumed_ms=context.received.at_ms)
        text = "resumed" if now.order.paused else "it goes on"
        if self.continues:
            order = replace(order, wanted=len(order.brokers))
            text += " by itself"
        return done(f"{text}; {now.describe()}", rollout=order)

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        was_paused = before.rollout is not None and before.rollout.paused
        return [make("rollout-pause")] if was_paused else []

    def subject(self) -> tuple[str, str]:
        return "rollout-paused", ""

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return now.rollout is not None and not now.rollout.paused

    def explain_lost(self, now: OperatorState) -> str | None:
        return "no rollout is on any more" if now.rollout is None else None
