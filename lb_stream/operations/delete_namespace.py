"""`delete-namespace`: unload the bundles of a namespace without topics, and forget it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from lb_stream.contracts.commands import NamespaceName
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Ended,
    StateCommand,
    argument,
    command,
    done,
    named,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.commands.progress import Progress
    from lb_stream.core.model.operator_state import WaitingCommand


@command(
    CommandLine(
        "namespaces delete",
        "namespaces delete shop/orders",
        "Delete a namespace without topics.",
        all_clusters=True,
    ),
    verb="namespaces",
    effect="deletes a namespace without topics: its bundles are unloaded and not placed again. "
    "Done when no broker has one",
    buttons=[
        Button(
            "delete-namespace",
            "Delete a namespace",
            "Delete a namespace without topics.",
            asks=("namespace",),
        )
    ],
)
class DeleteNamespace(StateCommand):
    """Delete a namespace without topics."""

    kind: Literal["delete-namespace"] = "delete-namespace"
    phrase = "deletes {namespace}"
    namespace: Annotated[NamespaceName, argument("TENANT/NAMESPACE")]
    namespaces = ("namespace",)
    instead = "a deleted namespace can't be restored: lbctl namespaces create makes an empty one"

    def apply(self, context: CommandContext) -> Effect:
        name, operator_state = self.namespace, context.operator_state
        if name not in operator_state.namespaces and not context.has_bundles(name):
            return refused("unknown_namespace", f"there is no namespace {name}")
        if topics := context.count_topics(name):
            return refused("namespace_not_empty", f"{name} has {topics} topics: delete these first")
        changes = {
            "namespaces": {
                other: cut for other, cut in operator_state.namespaces.items() if other != name
            },
            "deleted": tuple(sorted({*operator_state.deleted, name})),
        }
        left = context.bundles_left(name)
        text = f"{name} is deleted"
        text += f"; its {len(left)} bundles leave their brokers" if left else ""
        if not left or context.config.balancer.dry_run:
            return done(text, **changes)
        return Effect("accepted", text, None, changes)

    @classmethod
    def follow(cls, progress: Progress, waiting: WaitingCommand) -> WaitingCommand | Ended:
        """End when no broker has a bundle of it, and no decision about one is pending."""
        namespace = str(waiting.command["arguments"]["namespace"])
        left = progress.bundles_left(namespace)
        if not left:
            return Ended("done", f"{namespace} is deleted; no broker has its bundles any more")
        if namespace in progress.operator_state.deleted:
            return waiting
        text = f"{namespace} was made again with {len(left)} bundles left: {named(sorted(left))}"
        return Ended("failed", text)

    def unmakes(self) -> tuple[str, tuple[str, ...]] | None:
        return "create-namespace", (self.namespace,)
