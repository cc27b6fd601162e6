"""Where namespaces may live, by operators' policies. Plain data, which the filters read.

See docs/strategies.md "Placement".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import pyarrow as pa

from lb_stream.contracts.base import LONGEST_EXPRESSION, matches_whole, trouble_with

DEFAULT_DOMAIN = "default"
"""The failure domain of brokers that no domain names."""


def host_of(broker: str) -> str:
    """A broker's name without its port."""
    return broker.rpartition(":")[0] or broker


@dataclass(frozen=True, slots=True)
class IsolationPolicy:
    """Which brokers the namespaces that it names may use: regular expressions, each of which must match the whole name.

    Secondary hosts help out while fewer than `min_available` primary ones are there. `usage_threshold_percent` belongs to the
    policy's form and decides nothing here.
    """

    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    min_available: int = 1
    usage_threshold_percent: float = 100.0

    def check(self) -> None:
        """Raises ValueError for an expression that is invalid or can't be matched in linear time."""
        for pattern in chain(self.namespaces, self.primary, self.secondary):
            if (trouble := trouble_with(pattern)) is not None:
                shown = pattern if len(pattern) <= LONGEST_EXPRESSION else f"{pattern[:LONGEST_EXPRESSION]}…"
                raise ValueError(f"isolation policy: {shown!r} is no regular expression that is taken: {trouble}")

    def names(self, namespace: str) -> bool:
        """Whether the policy is about that namespace."""
        return _matches(self.namespaces, namespace)

    def is_primary(self, host: str) -> bool:
        """Whether the host is one of its primaries."""
        return _matches(self.primary, host)

    def is_secondary(self, host: str) -> bool:
        """Whether the host is one of its secondaries and no primary."""
        return not self.is_primary(host) and _matches(self.secondary, host)


@lru_cache(maxsize=1 << 16)
def _matches(patterns: tuple[str, ...], text: str) -> bool:
    """Whether one of the expressions matches the whole text. A policy's answers are kept from round to round."""
    return any(_matches_one(pattern, text) for pattern in patterns)


def _matches_one(pattern: str, text: str) -> bool:
    try:
        return matches_whole(pattern, text)
    except pa.ArrowInvalid:  # laid down before expressions were checked, and in a cluster's memory since
        return re.fullmatch(pattern, text) is not None


@dataclass(frozen=True, slots=True)
class Policies:
    """All of one cluster's."""

    isolation: tuple[IsolationPolicy, ...] = ()  # the first that names a namespace counts
    anti_affinity: Mapping[str, str] = field(default_factory=dict)  # namespace → group; groups are compared without regard to case
    failure_domains: Mapping[str, str] = field(default_factory=dict)  # broker → domain
    non_persistent: frozenset[str] = frozenset()  # namespaces whose bundles have had non-persistent topics
    drained: frozenset[str] = frozenset()  # brokers that shall have no bundle

    def isolation_of(self, namespace: str) -> IsolationPolicy | None:
        """The policy that counts for a namespace, if any."""
        return next((policy for policy in self.isolation if policy.names(namespace)), None)

    def group_of(self, namespace: str) -> str | None:
        """The namespace's anti-affinity group in the form in which groups are compared; None when it is in none."""
        group = self.anti_affinity.get(namespace, "").strip()
        return group.lower() or None

    def namespaces_of(self, group: str) -> tuple[str, ...]:
        """The namespaces of a group (as `group_of` gives it), sorted."""
        return tuple(sorted(namespace for namespace in self.anti_affinity if self.group_of(namespace) == group))


NO_POLICIES = Policies()
