"""`declare-dead`: treat silent brokers as dead now, without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import BrokerName
from lb_stream.core.commands.base import (
    Button,
    CannotPreview,
    CommandLine,
    Effect,
    Present,
    StateCommand,
    WhatIf,
    broker_of,
    command,
    named,
    option,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext


@command(
    CommandLine(
        "clusters declare-dead",
        "clusters declare-dead eu-1",
        "Declare silent brokers dead at once; this ends the wait after a mass disappearance.",
        cluster="argument",
        preview=True,
    ),
    verb="declare-dead",
    effect="declares dead all brokers that are silent for too long (with `--broker`, one of "
    "them). This ends the wait after a mass disappearance",
    buttons=[
        Button(
            "declare-dead",
            "Declare dead",
            "Treat {broker} as dead now, if it is silent: its bundles go to others.",
            on=("broker",),
        )
    ],
)
class DeclareDead(StateCommand):
    """Treat silent brokers as dead now, without waiting: their bundles go to others."""

    kind: Literal["declare-dead"] = "declare-dead"
    phrase = "declares {broker} dead"
    broker: Annotated[
        BrokerName | None,
        option("--broker", metavar="BROKER"),
        Field(description="Only this broker. Default: all that are silent for too long."),
    ] = None
    brokers = ("broker",)
    instead = (
        "the bundles of dead brokers have other owners now: balancing fills a broker that returns"
    )

    def apply(self, context: CommandContext) -> Effect:
        silent = context.silent_brokers()
        broker = None if self.broker is None else broker_of(self.broker)
        if broker is not None and broker not in context.view.brokers.names:
            return context.unknown_broker(broker)
        if not silent or broker not in (None, *silent):
            return refused(
                "speaks",
                f"{_explain_speaking(broker, silent)}: a broker that reports can be drained",
            )
        dead = context.declared_dead | set(silent if broker is None else [broker])
        text = f"declared dead: {named(sorted(dead))}; their bundles go to others"
        return Effect("done", text, declared_dead=frozenset(dead))

    def preview(self, present: Present) -> WhatIf:
        silent = present.silent_brokers()
        if not silent or self.broker not in (None, *silent):
            text = _explain_speaking(self.broker, silent)
            raise CannotPreview(f"it would be refused (speaks): {text}")
        return WhatIf(silent=silent if self.broker is None else (self.broker,))


def _explain_speaking(broker: str | None, silent: tuple[str, ...]) -> str:
    speaking = broker or "every broker"
    return f"{speaking} has reported recently; silent for too long: {named(silent)}"
