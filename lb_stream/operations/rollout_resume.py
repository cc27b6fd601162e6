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
    named,
    option,
)
from lb_stream.core.commands.rollouts import RolloutState, find_rollout, refuse_without_rollout
from lb_stream.core.rollout.progress import find_overdue

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


@command(
    CommandLine(
        "rollout resume",
        "rollout resume --cluster eu-1 · lbctl rollout resume --continue",
        "Have a rollout go on that is paused, or go on without brokers that are not back.",
    ),
    verb="rollout",
    effect="has a rollout go on that is paused, or that waits for a broker that isn't back: it "
    "goes on [without brokers](rollouts.md#when-it-stands-still) for which it stands still, or "
    "that are down. With `--continue` it goes on by itself",
    buttons=[
        Button(
            "rollout-resume",
            "Resume the rollout",
            "Have the rollout go on, without brokers that are missing.",
        )
    ],
)
class RolloutResume(StateCommand):
    """Have the rollout go on: it is paused no longer, and goes on without missing brokers."""

    kind: Literal["rollout-resume"] = "rollout-resume"
    phrase = "resumes the rollout"
    continues: Annotated[
        bool,
        option("--continue"),
        Field(
            description="From now on begin each broker as soon as it may be begun, without a command."
        ),
    ] = False

    def apply(self, context: CommandContext) -> Effect:
        now = find_rollout(context)
        if now is None:
            return refuse_without_rollout()
        left_out = self._find_left_out(context, now)
        order = replace(
            now.order, paused=False, resumed_ms=context.view.now_ms, left_out=tuple(left_out)
        )
        text = "resumed" if now.order.paused else "it goes on"
        if self.continues:
            order = replace(order, wanted=len(order.brokers), continues=True)
            text += " by itself"
        if left_out:
            text += f", without {named(left_out)}"
        return done(f"{text}; {now.describe()}", rollout=order)

    def _find_left_out(self, context: CommandContext, now: RolloutState) -> list[str]:
        """Return the brokers without which the rollout goes on from now on.

        They are those for which it stands still. Where the command has nothing else to do, those
        that are down, too: an operator need not wait until it stands still. After a pause, brokers
        that drain have time again: they kept what they had.
        """
        order, progress = now.order, now.known
        within_ms = context.config.balancer.rollout_back_within_ms
        missing = find_overdue(order, progress, context.view.now_ms, within_ms)
        is_word = not order.paused and not (self.continues and not order.continues)
        return [
            name
            for name, broker in progress.brokers.items()
            if order.leaves_out(name, broker)
            or name in missing
            or (is_word and broker.phase == "down")
        ]

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        was_paused = before.rollout is not None and before.rollout.paused
        return [make("rollout-pause")] if was_paused else []

    def subject(self) -> tuple[str, str]:
        return "rollout-paused", ""

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return now.rollout is not None and not now.rollout.paused

    def explain_lost(self, now: OperatorState) -> str | None:
        return "no rollout is on any more" if now.rollout is None else None
