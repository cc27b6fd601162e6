"""`forget-cluster`: forget a cluster whose brokers are all silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    StateCommand,
    command,
    done,
    named,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext


@command(
    CommandLine(
        "clusters forget",
        "clusters forget eu-l",
        "Forget a cluster that no longer reports, such as one with a mistyped name: its state, "
        "commands and ownership records end.",
        cluster="argument",
        must_be_known=True,
    ),
    verb="forget",
    effect="forgets a cluster whose brokers are all silent: its state, averages, commands, "
    "proposals and ownership records end. Rows about its past stay until "
    "[upkeep](day-two.md#upkeep) deletes them. If reports with that name come later, it is "
    "a new cluster",
    buttons=[
        Button(
            "forget",
            "Forget",
            "Forget this cluster, if all its brokers are silent: its state, its commands, its "
            "ownership records.",
        )
    ],
)
class ForgetCluster(StateCommand):
    """Forget a cluster whose brokers are all silent: state, commands, ownership records."""

    kind: Literal["forget-cluster"] = "forget-cluster"
    phrase = "has the cluster forgotten"
    instead = "a forgotten cluster can't be restored: one that reports is a new cluster"

    def apply(self, context: CommandContext) -> Effect:
        """Return the answer. Because of it the job forgets the cluster in its next batch."""
        speaking = context.speaking_brokers()
        if speaking:
            text = (
                f"brokers have reported recently: {named(speaking)}. The cluster would be known "
                "again at once. Stop its agents, or correct the cluster's name in their settings; "
                "try again when these brokers are silent"
            )
            return refused("reports", text)
        brokers, bundles = len(context.view.brokers), len(context.view.bundles)
        return done(f"forgotten with {brokers} brokers, {bundles} bundles and all commands")
