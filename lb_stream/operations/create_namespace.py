"""`create-namespace`: a new namespace, cut into bundles of equal size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import NamespaceName
from lb_stream.contracts.namespaces import MOST_BUNDLES
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    StateCommand,
    argument,
    command,
    done,
    option,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext


@command(
    CommandLine(
        "namespaces create",
        "namespaces create shop/orders --bundles 16",
        "Create a namespace with bundles of equal size, which get owners.",
        all_clusters=True,
    ),
    verb="namespaces",
    effect="creates a namespace with N bundles, 16,384 at most. They get owners before any report "
    "names them, and are not forgotten",
    buttons=[
        Button(
            "create-namespace",
            "New namespace",
            "Create a namespace with bundles of equal size, which get owners.",
            asks=("namespace", "bundles"),
        )
    ],
)
class CreateNamespace(StateCommand):
    """A new namespace, cut into bundles of equal size."""

    kind: Literal["create-namespace"] = "create-namespace"
    phrase = "creates {namespace} with {bundles} bundles"
    namespace: Annotated[NamespaceName, argument("TENANT/NAMESPACE")]
    bundles: Annotated[
        int | None,
        option("--bundles", "-b", metavar="N"),
        Field(
            ge=1,
            le=MOST_BUNDLES,
            description="How many bundles. Default: the setting namespace_default_bundles.",
        ),
    ] = None
    namespaces = ("namespace",)
    instead = "a namespace stays: lbctl namespaces delete removes it if it has no topics"

    def apply(self, context: CommandContext) -> Effect:
        name, operator_state = self.namespace, context.operator_state
        if context.is_system_namespace(name):
            text = f"{name} is the name of a heartbeat or SLA-monitor namespace, which brokers make"
            return refused("system_namespace", text)
        if (error := context.find_name_error(name)) is not None:
            return refused("not_a_namespace", error)
        if name in operator_state.deleted:
            text = f"{name} is being deleted: try again when all its bundles are forgotten"
            return refused("being_deleted", text)
        if name in operator_state.namespaces or context.has_bundles(name):
            return refused("namespace_exists", f"there is a namespace {name} already")
        count = self.bundles or context.config.splitting.namespace_default_bundles
        bundles = f"{count} bundle{'s' if count > 1 else ''}"
        return done(f"{name} has {bundles}", namespaces={**operator_state.namespaces, name: count})

    def made(self) -> tuple[str, ...]:
        return (self.namespace,)
