"""`rollout-next`: begin the next broker of a rollout, or a named one, and say when it is empty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import BrokerName
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Ended,
    StateCommand,
    argument,
    broker_of,
    command,
    named,
    refused,
)
from lb_stream.core.commands.rollouts import (
    NEXT,
    RESTARTABLE,
    RolloutState,
    advise_on_refusal,
    describe_refusal,
    describe_rest,
    find_rollout,
    is_call,
    refuse_without_rollout,
)
from lb_stream.core.model.operator_state import WaitingCommand
from lb_stream.core.model.rollout import RolloutOrder

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.commands.progress import Progress


@command(
    CommandLine(
        "rollout next",
        "rollout next --wait --cluster eu-1",
        "Empty the next broker of a rollout, or a named one, and wait until it may be restarted.",
        handwritten=True,
    ),
    verb="rollout",
    effect="empties the next broker of the rollout, and waits until it may be restarted: it has no "
    "bundle, and those that have left it are at other brokers. If as many brokers as allowed are "
    "begun already, it waits for one of these. With a broker it empties that one, in whatever order "
    "the rollout is. Fails if no broker may be begun now, or not this one",
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
    phrase = "begins the next broker of the rollout"
    broker: Annotated[
        BrokerName | None,
        argument("[BROKER]"),
        Field(description="This broker, now. Without: the one whose turn it is."),
    ] = None
    brokers = ("broker",)
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
        if self.broker is not None:
            return self._call(context, now, broker_of(self.broker))
        if now.is_full or not now.waiting:
            return self._attach(context, now)
        text = f"the next of {len(now.waiting)} waiting brokers is begun; {now.describe()}"
        return Effect("accepted", text, None, {"rollout": _allow_another(now)})

    def _call(self, context: CommandContext, now: RolloutState, name: str) -> Effect:
        """Return the effect for a named broker, whose turn it need not be."""
        order = now.order
        if name not in order.brokers:
            text = f"{name} is no broker of the rollout: {named(order.brokers)} are"
            return refused("unknown_broker", text)
        found = now.known.brokers.get(name)
        if found is not None and found.phase == "done":
            return refused("rollout_done", f"{name} is restarted already; {now.describe()}")
        if found is not None and found.phase == "down":
            return refused("not_alive", f"{name} is down: it can't be emptied; {now.describe()}")
        if found is not None and found.phase in RESTARTABLE:
            text = f"{name} is begun already; {now.describe()}"
            return Effect("accepted", text, waits_for=name)
        if order.canary in now.waiting and order.canary != name:
            text = f"{order.canary} is the canary, and no other one is begun before it"
            advice = f"lbctl rollout next {order.canary} begins it"
            return refused("rollout_canary", f"{text}: {advice}; {now.describe()}")
        is_called = any(
            waiting.broker == name and is_call(waiting)
            for waiting in context.operator_state.waiting
        )
        if is_called:
            return Effect("accepted", f"{name} is to be begun; {now.describe()}", waits_for=name)
        if now.is_full:
            then = f"restart {named(now.begun)} first"
            if not now.begun:
                then = "another one is to be begun before it, by an earlier command"
            text = f"as many brokers as allowed ({order.at_most}) are begun: {then}"
            return refused("rollout_at_most", f"{text}; {now.describe()}")
        text = f"{name} is begun; {now.describe()}"
        return Effect("accepted", text, None, {"rollout": _allow_another(now)}, waits_for=name)

    def _attach(self, context: CommandContext, now: RolloutState) -> Effect:
        """Return the effect where no other broker can be begun: wait for one of those begun.

        Each command gets a broker of its own, as long as there are so many.
        """
        begun, left = now.begun, now.left_to_begin
        if not begun and not left:
            away = now.in_phases("down")
            text = f"no broker is left to begin; {now.describe()}"
            if not away:
                text = f"all brokers of the rollout are restarted; {now.describe()}"
            return refused("rollout_done", text)
        claimed = {
            other.broker
            for other in context.operator_state.waiting
            if other.command["kind"] == NEXT
        }
        broker = next((name for name in begun if name not in claimed), begun[0] if begun else None)
        text = f"{named(begun)} is begun already" if begun else "a broker is to be begun already"
        return Effect("accepted", f"{text}; {now.describe()}", waits_for=broker)

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
        if is_call(waiting) and (found is None or found.phase == "waiting"):
            return _explain_wait(progress, now, waiting)
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

    It is one that this round has begun: those that were begun before are other commands' brokers,
    and somebody may be restarting them.
    """
    begun = now.begun
    others = [other for other in progress.operator_state.waiting if other.command["kind"] == NEXT]
    claimed = {other.broker for other in others}
    free = [
        broker
        for broker in begun
        if broker not in claimed and now.known.brokers[broker].since_ms >= progress.view.now_ms
    ]
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
    what = "no broker" if waiting.broker is None else waiting.broker
    is_not = "is" if waiting.broker is None else "is not"
    changes: dict[str, object] = {}
    if now.left_to_begin and not order.continues:
        changes = {"rollout": replace(order, wanted=order.wanted - now.left_to_begin)}
    if order.paused:
        text = f"the rollout is paused, and {what} {is_not} begun"
        return Ended("failed", text, (), changes)
    if not now.left_to_begin:
        text = f"{what} {is_not} begun; {now.describe()}: give the command again"
        return Ended("failed", text)
    refusals = progress.next_refused
    if is_call(waiting):
        refusals = [
            replace(refusal, broker=None)
            for refusal in refusals
            if refusal.broker in (None, waiting.broker)
        ]
    if not refusals:
        return waiting
    why = "; ".join(describe_refusal(refusal) for refusal in refusals)
    if is_call(waiting):
        why += f": {advise_on_refusal(refusals[0])}"
    return Ended("failed", f"{what} {is_not} begun: {why}", (), changes)


def _allow_another(now: RolloutState) -> RolloutOrder:
    """Return the order by which one more broker may be begun."""
    order = now.order
    wanted = len(order.brokers) - len(now.waiting) + now.left_to_begin + 1
    return replace(order, wanted=max(order.wanted, wanted))
