"""`import-namespaces`: take over the namespaces and policies of an existing cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.namespaces import ClusterNamespaces
from lb_stream.contracts.verbs import RequiredRight
from lb_stream.core.commands.base import (
    CommandLine,
    Effect,
    NamedObject,
    StateCommand,
    argument,
    command,
    done,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext


@command(
    CommandLine(
        "namespaces import",
        "namespaces import namespaces.json --cluster eu-1",
        "Import namespaces, isolation policies, anti-affinity groups and failure domains of a "
        "Pulsar cluster.",
    ),
    verb="namespaces",
    effect="imports the output of `lbctl agent namespaces`: a Pulsar cluster's namespaces with "
    "their bundles and groups. Its isolation policies and failure domains replace those of "
    "the last import",
)
class ImportNamespaces(StateCommand):
    """Take over the namespaces and policies of an existing cluster.

    Policies and failure domains of earlier imports are replaced.
    """

    kind: Literal["import-namespaces"] = "import-namespaces"
    phrase = "imports namespaces"
    content: Annotated[
        ClusterNamespaces,
        argument("FILE", is_json_file=True),
        Field(description="A file with the output of `lbctl agent namespaces`; - is stdin."),
    ]
    instead = "an import can't be taken back: import the earlier namespaces and policies again"

    def named_objects(self) -> tuple[NamedObject, ...]:
        content = self.content
        return (
            *(NamedObject("broker", broker) for broker in content.failure_domains),
            *(NamedObject("namespace", namespace.name) for namespace in content.namespaces),
            *(NamedObject("policy", policy.name) for policy in content.isolation),
        )

    def required_rights(self) -> tuple[RequiredRight, ...]:
        # It replaces the policies of the last import, and adds any namespaces.
        return RequiredRight(self.spec.verb), RequiredRight("policies")

    def apply(self, context: CommandContext) -> Effect:
        content, operator_state = self.content, context.operator_state
        isolation = {policy.name: policy.model_dump(mode="json") for policy in content.isolation}
        if (malformed := context.explain_malformed(isolation)) is not None:
            return refused("not_an_expression", malformed)
        names = {namespace.name for namespace in content.namespaces}
        kept = {
            name: group for name, group in operator_state.anti_affinity.items() if name not in names
        }
        bundles = sum(len(namespace.boundaries) - 1 for namespace in content.namespaces)
        text = (
            f"{len(content.namespaces)} namespaces with {bundles} bundles, {len(isolation)} "
            f"isolation policies, {len(content.failure_domains)} brokers in failure domains"
        )
        text += context.describe_matches(isolation, isolation, content.failure_domains)
        return done(
            text,
            namespaces={
                **operator_state.namespaces,
                **{
                    namespace.name: context.compact(namespace.boundaries)
                    for namespace in content.namespaces
                },
            },
            anti_affinity={
                **kept,
                **{
                    namespace.name: namespace.anti_affinity_group
                    for namespace in content.namespaces
                    if namespace.anti_affinity_group
                },
            },
            isolation=isolation,
            failure_domains=content.failure_domains,
            deleted=tuple(name for name in operator_state.deleted if name not in names),
        )
