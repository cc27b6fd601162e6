"""`set-policies`: isolation policies, anti-affinity groups, failure domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.commands import MOST_POLICIES, BrokerName, NamespaceName, Word
from lb_stream.contracts.namespaces import NamespaceIsolation
from lb_stream.contracts.verbs import ALL, RequiredRight
from lb_stream.core.commands.base import (
    BadForm,
    CommandLine,
    Effect,
    Form,
    Operation,
    StateCommand,
    argument,
    broker_of,
    command,
    done,
    make,
    named,
    option,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


class OnePolicy(Form):
    """A namespace's group, one isolation policy, brokers' failure domains."""

    namespace: Annotated[
        str | None,
        argument("[TENANT/NAMESPACE]"),
        Field(description="The namespace whose group is set."),
    ] = None
    group: Annotated[
        str | None,
        option("--anti-affinity-group", "-g", metavar="GROUP"),
        Field(description='The namespace\'s anti-affinity group; "": none.'),
    ] = None
    isolation: Annotated[
        str | None,
        option("--isolation", metavar="POLICY"),
        Field(description="The name of the isolation policy that is set."),
    ] = None
    namespaces: Annotated[
        list[str] | None,
        option("--namespaces", metavar="REGEX"),
        Field(
            description="The policy's namespaces, a regular expression; may be given several times."
        ),
    ] = None
    primary: Annotated[
        list[str] | None,
        option("--primary", metavar="REGEX"),
        Field(
            description="The policy's primary brokers: a regular expression for hosts or, with a "
            "colon, for host:port; may be given several times."
        ),
    ] = None
    secondary: Annotated[
        list[str] | None,
        option("--secondary", metavar="REGEX"),
        Field(
            description="The policy's secondary brokers, which are used if too few primary ones "
            "are alive."
        ),
    ] = None
    min_available: Annotated[
        int,
        option("--min-available", metavar="N"),
        Field(
            ge=0,
            description="How many primary brokers must be alive; with fewer, secondary "
            "ones are used, too.",
        ),
    ] = 1
    remove_isolation: Annotated[
        list[str] | None,
        option("--remove-isolation", metavar="POLICY"),
        Field(description="Remove the isolation policy with this name."),
    ] = None
    failure_domain: Annotated[
        list[str] | None,
        option("--failure-domain", metavar="BROKER=DOMAIN"),
        Field(
            description="Put a broker into a failure domain; BROKER= removes it from its "
            "domain. May be given several times."
        ),
    ] = None

    def fields(self) -> dict[str, object]:
        if (self.group is None) != (self.namespace is None):
            raise BadForm("a namespace and its --anti-affinity-group go together")
        fields: dict[str, object] = {}
        if self.namespace is not None:
            fields["anti_affinity"] = {self.namespace: self.group or None}
        if self.isolation is not None:
            fields["isolation"] = [self._policy()]
        elif self.namespaces or self.primary or self.secondary:
            raise BadForm(
                "--namespaces, --primary and --secondary belong to an isolation policy: name it "
                "with --isolation"
            )
        if self.failure_domain:
            fields["failure_domains"] = dict(map(_parse_domain, self.failure_domain))
        if self.remove_isolation:
            fields["remove_isolation"] = self.remove_isolation
        return fields

    def _policy(self) -> dict[str, object]:
        if not self.namespaces or not self.primary:
            raise BadForm("--isolation needs --namespaces and --primary")
        return {
            "name": self.isolation,
            "namespaces": self.namespaces,
            "primary": self.primary,
            "secondary": self.secondary or [],
            "min_available": self.min_available,
        }


def _parse_domain(text: str) -> tuple[str, str | None]:
    broker, equals, domain = text.partition("=")
    if not equals or not broker:
        raise BadForm(f"--failure-domain {text}: expected BROKER=DOMAIN")
    return broker, domain or None


@command(
    CommandLine(
        "namespaces set-policies",
        "namespaces set-policies shop/orders --anti-affinity-group payment",
        "Set where namespaces may live: isolation policies, anti-affinity groups, failure "
        "domains. Others stay as they are.",
        form=OnePolicy,
        all_clusters=True,
    ),
    verb="policies",
    effect="sets [where namespaces may live](#policies): anti-affinity groups, isolation "
    "policies, failure domains; others stay as they are",
)
class SetPolicies(StateCommand):
    """Set the policies that are named; null removes one, and all others stay."""

    kind: Literal["set-policies"] = "set-policies"
    phrase = "sets namespace policies"
    isolation: list[NamespaceIsolation] = Field(
        [], max_length=MOST_POLICIES, description="each takes the place of the policy of its name"
    )
    remove_isolation: list[str] = Field(
        [], max_length=MOST_POLICIES, description="names of policies"
    )
    anti_affinity: dict[NamespaceName, Word | None] = Field(
        {}, max_length=MOST_POLICIES, description="namespace → group"
    )
    failure_domains: dict[BrokerName, Word | None] = Field(
        {}, max_length=MOST_POLICIES, description="broker → domain"
    )
    brokers = ("failure_domains",)
    objects = {
        "anti_affinity": "namespace",
        "remove_isolation": "policy",
        "isolation": "policy",
    }
    several = ("isolation", "remove_isolation", "anti_affinity", "failure_domains")

    @model_validator(mode="after")
    def _something(self) -> SetPolicies:
        if not (
            self.isolation or self.remove_isolation or self.anti_affinity or self.failure_domains
        ):
            raise PydanticCustomError("nothing", "at least one policy, group or domain")
        return self

    def required_rights(self) -> tuple[RequiredRight, ...]:
        # Each for itself. The expressions of a policy may match any name.
        rights = (
            RequiredRight(
                self.spec.verb,
                found.name if found.kind == "broker" else ALL,
                found.namespace or ALL,
            )
            for found in self.named_objects()
        )
        return tuple(dict.fromkeys(rights))

    def apply(self, context: CommandContext) -> Effect:
        operator_state = context.operator_state
        unknown = [name for name in self.remove_isolation if name not in operator_state.isolation]
        if unknown:
            text = f"there is no isolation policy {named(unknown)}"
            return refused("unknown_policy", f"{text}; there are {named(operator_state.isolation)}")
        given = {policy.name: policy.model_dump(mode="json") for policy in self.isolation}
        if (malformed := context.explain_malformed(given)) is not None:
            return refused("not_an_expression", malformed)

        removed = set(self.remove_isolation)
        kept = {
            name: policy for name, policy in operator_state.isolation.items() if name not in removed
        }
        isolation = kept | given
        groups = _changed(operator_state.anti_affinity, self.anti_affinity)
        named_domains = {broker_of(name): to for name, to in self.failure_domains.items()}
        domains = _changed(operator_state.failure_domains, named_domains)

        counts = not domains or context.config.balancer.failure_domains_enabled
        note = "" if counts else ", which count only with failureDomainsEnabled"
        text = (
            f"in force: isolation policies {named(isolation)}; {len(groups)} namespaces in "
            f"anti-affinity groups; {len(domains)} brokers in failure domains{note}"
        )
        text += context.describe_matches(isolation, given, self.failure_domains)
        return done(text, isolation=isolation, anti_affinity=groups, failure_domains=domains)

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        policies = [*(policy.name for policy in self.isolation), *self.remove_isolation]
        fields: dict[str, object] = {
            "isolation": [
                dict(before.isolation[name]) for name in policies if name in before.isolation
            ],
            "remove_isolation": [name for name in policies if name not in before.isolation],
            "anti_affinity": {name: before.anti_affinity.get(name) for name in self.anti_affinity},
            "failure_domains": {
                name: before.failure_domains.get(name)
                for name in map(broker_of, self.failure_domains)
            },
        }
        return [make(self.kind, **{name: value for name, value in fields.items() if value})]

    def subject(self) -> tuple[str, str]:
        for policy in self.isolation:
            return "isolation", policy.name
        for name in self.remove_isolation:
            return "isolation", name
        for namespace in self.anti_affinity:
            return "anti_affinity", namespace
        return "failure_domains", next(iter(self.failure_domains))

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        isolation = (policy.model_dump(mode="json") for policy in self.isolation)
        return (
            all(now.isolation.get(policy["name"]) == policy for policy in isolation)
            and now.isolation.keys().isdisjoint(self.remove_isolation)
            and _agree(self.anti_affinity, now.anti_affinity)
            and _agree(self.failure_domains, now.failure_domains)
        )


def _agree(wanted: Mapping[str, str | None], now: Mapping[str, str]) -> bool:
    return all(now.get(name) == value for name, value in wanted.items())


def _changed(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**before, **changes}
    return {name: value for name, value in merged.items() if value}
