"""`drain-broker`: unload all bundles of a broker and give it none, until `undrain-broker`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import BrokerName
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Ended,
    Operation,
    Present,
    StateCommand,
    WhatIf,
    argument,
    broker_of,
    command,
    done,
    make,
    named,
    option,
    plural,
    refused_as_absurd,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.commands.progress import Progress
    from lb_stream.core.model.operator_state import OperatorState, WaitingCommand


@command(
    CommandLine(
        "brokers drain",
        "brokers drain broker-3.eu:8080 --cluster eu-1",
        "Unload all bundles of a broker and give it none; wait until it is empty.",
        preview=True,
    ),
    verb="drain",
    effect="unloads all its bundles, as the limits allow, and gives it none. Done when it is empty",
    buttons=[
        Button(
            "drain",
            "Drain",
            "Unload all bundles of {broker}, and give it none until the drain is ended.",
            on=("broker",),
            asks=("force",),
        )
    ],
)
class DrainBroker(StateCommand):
    """Unload all bundles of a broker and give it none, until `undrain-broker`."""

    kind: Literal["drain-broker"] = "drain-broker"
    phrase = "drains {broker}"
    broker: Annotated[BrokerName, argument("BROKER")]
    force: Annotated[
        bool | None,
        option("--force"),
        Field(description="Drain it even if no other broker takes bundles."),
    ] = None
    brokers = ("broker",)

    def apply(self, context: CommandContext) -> Effect:
        broker = broker_of(self.broker)
        if broker not in context.view.brokers.names:
            return context.unknown_broker(broker)
        before = context.operator_state.drained
        is_repeated = broker in before
        others = {*context.speaking_brokers()} - {*before, broker}
        if not (others or is_repeated or self.force):
            return refused_as_absurd(
                f"{broker} is the last broker that takes bundles: its own would stay, and bundles "
                "without an owner would get none"
            )
        drained = tuple(sorted({*before, broker}))
        serves = context.bundles_at(broker)
        arriving = context.bundles_bound_for(broker)
        if context.config.balancer.dry_run:
            stay = f"its {plural(len(serves), 'bundle')} stay because decisions aren't published"
            return done(f"dry run: {broker} takes no bundle, and {stay}", drained=drained)
        if not serves and not arriving:
            text = f"{broker} has no bundle, and gets none from now on"
            if is_repeated:
                text = f"{broker} is being drained already, and has no bundle"
            return done(text, drained=drained)
        text = f"{broker} gets no bundle from now on"
        if serves:
            text = f"{broker} gives up {plural(len(serves), 'bundle')}, and gets none from now on"
        if arriving:
            text += f"; {plural(len(arriving), 'bundle')} still moving to it will leave it again"
        if is_repeated:
            text = f"{broker} is being drained already; {text}"
        return Effect("accepted", text, None, {"drained": drained}, waits_for=broker)

    @classmethod
    def follow(cls, progress: Progress, waiting: WaitingCommand) -> WaitingCommand | Ended:
        """End when the broker has no bundle and none is moving to it."""
        broker = str(waiting.broker)
        is_drained = broker in progress.operator_state.drained
        row = progress.broker_row(broker)
        if row < 0 and is_drained:
            return waiting  # its averages are lost: its bundles are unknown until it reports
        if row >= 0 and not progress.view.brokers.alive[row]:
            return Ended("done", f"{broker} is not alive any more: its bundles go to others")
        left, arriving = progress.bundles_at(row), progress.bundles_bound_for(row)
        if not left and not arriving:
            return Ended("done", f"{broker} has no bundle any more, and none is moving to it")
        if is_drained:
            return progress.with_moves_from(broker, waiting)
        if left:
            text = f"{broker} was undrained with {len(left)} bundles left: {named(left)}"
            return Ended("failed", text)
        text = f"{broker} was undrained with {len(arriving)} bundles moving to it"
        return Ended("failed", f"{text}: {named(sorted(arriving))}")

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        force = {"force": True} if given.get("force") else {}
        return {"broker": given["broker"], **force}

    def preview(self, present: Present) -> WhatIf:
        return WhatIf(drained=[self.broker])

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        broker = broker_of(self.broker)
        return [] if broker in before.drained else [make("undrain-broker", broker=broker)]

    def subject(self) -> tuple[str, str]:
        return "drained", self.broker

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return self.broker in now.drained
