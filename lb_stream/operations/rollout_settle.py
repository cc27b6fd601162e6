"""`rollout-settle`: say that a broker of a rollout has been restarted, as its reports don't."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from lb_stream.contracts.commands import BrokerName
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    StateCommand,
    argument,
    broker_of,
    command,
    done,
    named,
    refused,
)
from lb_stream.core.commands.rollouts import find_rollout, refuse_without_rollout

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext


@command(
    CommandLine(
        "rollout settle",
        "rollout settle broker-3.eu:8080 --cluster eu-1",
        "Say that a broker has been restarted, where its reports don't tell when it started.",
    ),
    verb="rollout",
    effect="says that an empty broker has been restarted. Only for brokers whose reports don't "
    "tell when their process started: all others are seen to be back",
    buttons=[
        Button(
            "rollout-settle",
            "Say it has restarted",
            "Say that {broker} has been restarted: its reports don't tell when it started.",
            on=("broker",),
        )
    ],
)
class RolloutSettle(StateCommand):
    """Take the operator's word that a broker has been restarted: its reports show no start."""

    kind: Literal["rollout-settle"] = "rollout-settle"
    phrase = "says that {broker} has been restarted"
    broker: Annotated[BrokerName, argument("BROKER")]
    brokers = ("broker",)
    instead = "lbctl brokers drain empties the broker again"

    def apply(self, context: CommandContext) -> Effect:
        now = find_rollout(context)
        if now is None:
            return refuse_without_rollout()
        name = broker_of(self.broker)
        if name not in now.order.brokers:
            text = f"{name} is no broker of the rollout: {named(now.order.brokers)} are"
            return refused("unknown_broker", text)
        if start_ms := context.view.brokers.starts().get(name):
            text = f"{name} reports when it started ({start_ms} ms): its restart is seen"
            return refused("reports_start", text)
        broker = now.known.brokers.get(name)
        phase = "waiting" if broker is None else broker.phase
        if phase == "done":
            return done(f"{name} is back already; {now.describe()}")
        if phase not in ("empty", "down"):
            text = f"{name} is {phase}: it is restarted once it is empty"
            return refused("not_empty", text)
        order = replace(now.order, restarted=tuple(sorted({*now.order.restarted, name})))
        return done(f"{name} has been restarted; {now.describe()}", rollout=order)
