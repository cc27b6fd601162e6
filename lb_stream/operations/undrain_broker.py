"""`undrain-broker`: let a drained broker take bundles again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from lb_stream.contracts.commands import BrokerName
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Operation,
    Present,
    StateCommand,
    WhatIf,
    argument,
    broker_of,
    command,
    make,
    named,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


@command(
    CommandLine(
        "brokers undrain",
        "brokers undrain broker-3.eu:8080 --cluster eu-1",
        "End a drain: the broker gets bundles again.",
        preview=True,
    ),
    verb="drain",
    effect="the broker gets bundles again",
    buttons=[
        Button("undrain", "End the drain", "Let {broker} take bundles again.", on=("broker",))
    ],
)
class UndrainBroker(StateCommand):
    """End a drain: the broker gets bundles again."""

    kind: Literal["undrain-broker"] = "undrain-broker"
    phrase = "ends the drain of {broker}"
    broker: Annotated[BrokerName, argument("BROKER")]
    brokers = ("broker",)

    def apply(self, context: CommandContext) -> Effect:
        broker, drained = broker_of(self.broker), context.operator_state.drained
        if broker not in drained:
            is_known = broker in context.view.brokers.names
            text = f"{broker} is not being drained; those that are: {named(drained)}"
            return refused("not_drained" if is_known else "unknown_broker", text)
        kept = tuple(name for name in drained if name != broker)
        text = f"{broker} may take bundles again"
        return Effect("done", text, None, {"drained": kept}, undrained=frozenset({broker}))

    def preview(self, present: Present) -> WhatIf:
        return WhatIf(undrained=[self.broker])

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        broker = broker_of(self.broker)
        return [make("drain-broker", broker=broker)] if broker in before.drained else []

    def subject(self) -> tuple[str, str]:
        return "drained", self.broker

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return self.broker not in now.drained
