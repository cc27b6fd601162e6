"""`rollout-next`: begin the next broker of a rollout, and say when it may be restarted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Ended,
    StateCommand,
    command,
    named,
    refused,
)
from lb_stream.core.commands.rollouts import (
    RolloutState,
    describe_refusal,
    describe_rest,
    find_rollout,
    refuse_without_rollout,
)
from lb_stream.core.model.operator_state import WaitingCommand

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.commands.progress import Progress

KIND = "rollout-next"


@command(
    CommandLine(
        "rollout next",
        "rollout next --wait --cluster eu-1",
        "Empty the next broker of a rollout, and wait until it may be restarted.",
        handwritten=True,
    ),
    role="operator",
    effect="empties the next broker of the rollout, and waits until it may be restarted: it has no "
    "bundle, and those that have left it are at other brokers. If as many brokers as allowed are "
    "begun already, it waits for one of these. Fails if no broker may be begun now",
    buttons=[
        Button(
            "rollout-next",
            "Begin the next broker",
            "Empty the next broker of the rollout; then restart it.",
        )
    ],
)
class RolloutNext(StateCommand):
    """Begin the next broker of the rollout that is on. Done when the broker may be restarted.

    Then the text of the answer begins with the broker's name.
    """

    kind: Literal["rollout-next"] = "rollout-next"
    instead = "lbctl rollout pause stops the rollout, lbctl rollout abort ends it"

    def apply(self, context: CommandContext) -> Effect:
        now = find_rollout(context)
        if now is None:
            return refuse_without_rollout()
        order = now.order
        if order.paused:
            return refused("rollout_paused", "it is paused: lbctl rollout resume lets it go on")
        if context.config.balancer.dry_run:
            return refused("dry_run", "nothing is published in a dry run, so nothing is emptied")
        begun, left = now.begun, now.left_to_begin
        is_full = len(begun) + left >= order.at_most
        if is_full or not now.waiting:
            return self._attach(now, begun, left)
        wanted = len(order.brokers) - len(now.waiting) + left + 1
        return Effect(
            "accepted",
            f"the next of {len(now.waiting)} waiting brokers is begun; {now.describe()}",
            None,
            {"rollout": replace(order, wanted=max(order.wanted, wanted))},
        )

    def _attach(self, now: RolloutState, begun: list[str], left: int) -> Effect:
        """Return the effect where no other broker can be begun: wait for one of those begun."""
        if not begun and not left:
            away = now.in_phases("down")
            text = f"no broker is left to begin; {now.describe()}"
            if not away:
                text = f"all brokers of the rollout are restarted; {now.describe()}"
            return refused("rollout_done", text)
        text = f"{named(begun)} is begun already" if begun else "a broker is to be begun already"
        return Effect("accepted", f"{text}; {now.describe()}")

    @classmethod
    def follow(cls, progress: Progress, waiting: WaitingCommand) -> WaitingCommand | Ended:
        """End when its broker is empty; first find which broker that is."""
        order = progress.operator_state.rollout
        if order is None or order.aborted:
            return Ended("failed", "the rollout has ended")
        now = RolloutState(order, progress.rollout)
        broker = waiting.broker
        if broker is None:
            broker = _find_broker(progress, now, waiting)
        if broker is None:
            return _explain_wait(progress, now, waiting)
        found = now.known.brokers.get(broker)
        if found is None or found.phase == "waiting":
            return Ended("failed", f"{broker} is no longer begun; {now.describe()}")
        if found.phase == "empty" and not progress.is_moving_from(broker):
            return Ended("done", f"{broker} is empty: restart it now")
        if found.phase == "down":
            return Ended("failed", f"{broker} has stopped meanwhile; {now.describe()}")
        if found.phase == "done":
            text = f"{broker} has been restarted already"
            return Ended("failed", f"{text}; {now.describe()}: give the command again")
        if order.paused and found.phase == "draining":
            return Ended("failed", f"the rollout is paused, and {broker} keeps what it has")
        if found.phase == "draining" and (why := describe_rest(progress.next_refused)):
            return Ended("failed", f"{broker} keeps what it has: {why}")
        return replace(progress.with_moves_from(broker, waiting), broker=broker)


def _find_broker(progress: Progress, now: RolloutState, waiting: WaitingCommand) -> str | None:
    """Return the begun broker that a command waits for from now on; None: there is none yet.

    Each command gets a broker of its own, as long as others can be begun.
    """
    begun = now.begun
    others = [other for other in progress.operator_state.waiting if other.command["kind"] == KIND]
    claimed = {other.broker for other in others}
    free = [broker for broker in begun if broker not in claimed]
    unbound = [other.command["id"] for other in others if other.broker is None]
    place = unbound.index(waiting.command["id"])
    if place < len(free):
        return free[place]
    return begun[0] if begun and not now.left_to_begin else None


def _explain_wait(
    progress: Progress, now: RolloutState, waiting: WaitingCommand
) -> WaitingCommand | Ended:
    """Return a command without a broker as it goes on waiting, or why it waits in vain.

    Then no broker is begun later for it, unless the rollout goes on by itself.
    """
    order = now.order
    changes: dict[str, object] = {}
    if now.left_to_begin and not order.continues:
        changes = {"rollout": replace(order, wanted=order.wanted - now.left_to_begin)}
    if order.paused:
        return Ended("failed", "the rollout is paused, and no broker is begun", (), changes)
    if not now.left_to_begin:
        return Ended("failed", f"no broker was begun; {now.describe()}: give the command again")
    if progress.next_refused:
        why = "; ".join(describe_refusal(refused) for refused in progress.next_refused)
        return Ended("failed", f"no broker is begun: {why}", (), changes)
    return waiting
