"""The verbs of operators' commands: what each allows, and the roles that are sets of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verb = Literal[
    "approve",
    "assign",
    "capacity",
    "declare-dead",
    "drain",
    "forget",
    "merge",
    "move",
    "namespaces",
    "pause",
    "pin",
    "policies",
    "rollout",
    "settings",
    "split",
]
VERBS: dict[Verb, str] = {
    "approve": "approve and reject proposals",
    "assign": "assign a bundle without an owner, as lookup servers do",
    "capacity": "say what brokers can carry",
    "declare-dead": "declare silent brokers dead",
    "drain": "drain brokers, and end drains",
    "forget": "forget a cluster",
    "merge": "merge bundles",
    "move": "unload bundles, and move them to a broker",
    "namespaces": "create, delete and import namespaces",
    "pause": "pause and resume balancing",
    "pin": "pin bundles to their brokers, and end pins",
    "policies": "set isolation policies, anti-affinity groups and failure domains",
    "rollout": "order and steer rollouts",
    "settings": "change settings, among them a cluster's mode",
    "split": "split bundles",
}
"""Verb → what it allows."""

BuiltInRole = Literal["viewer", "operator", "admin"]
_ADMINS: frozenset[Verb] = frozenset(
    ("declare-dead", "forget", "namespaces", "policies", "settings")
)
BUILT_IN_ROLES: dict[BuiltInRole, frozenset[Verb]] = {
    "viewer": frozenset(),
    "operator": frozenset(VERBS) - _ADMINS,
    "admin": frozenset(VERBS),
}
"""Role → its verbs. Each has those of the roles before it."""

ALL = "*"


@dataclass(frozen=True, slots=True)
class RequiredRight:
    """A right that a command requires: a verb on brokers and on namespaces.

    `broker`: host:port, or a pattern with * that stands for all that it matches; `namespace`:
    <tenant>/<namespace>. What a command does not name, it may concern wholly: a drain names no
    namespace, so it requires all.
    """

    verb: Verb
    broker: str = ALL
    namespace: str = ALL

    def describe(self) -> str:
        """Return verb and objects, such as "drain broker-3:8080", as `lbctl access can-i` does."""
        objects = [name for name in (self.namespace, self.broker) if name != ALL]
        return " ".join([self.verb, *objects])


def find_role(verb: Verb) -> BuiltInRole:
    """Return the first built-in role that has a verb."""
    return next(role for role, verbs in BUILT_IN_ROLES.items() if verb in verbs)
