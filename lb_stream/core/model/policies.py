"""Operators' policies: which brokers may serve which namespaces. The filters read them.

See docs/placement.md "Filters".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from lb_stream.contracts.patterns import LONGEST_EXPRESSION, find_pattern_error, matches_whole

DEFAULT_DOMAIN = "default"
"""The failure domain of brokers without one."""
MOST_SHOWN = 6
"""The most brokers that a message names."""


def host_of(broker: str) -> str:
    """Return a broker's name without its port."""
    return broker.rpartition(":")[0] or broker


@dataclass(frozen=True, slots=True)
class IsolationPolicy:
    """An isolation policy: regular expressions of namespaces and of the brokers that serve them.

    An expression must match the whole name. A broker's name is its host, or its host:port if the
    expression has a colon, as in Pulsar 5.0.
    """

    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()  # serve too while fewer primaries than min_available are alive
    min_available: int = 1
    usage_threshold_percent: float = 100.0  # a field of Pulsar's policies, which has no effect

    def check(self) -> None:
        """Raise ValueError for an expression that is invalid, or not matched in linear time."""
        for pattern in chain(self.namespaces, self.primary, self.secondary):
            if (trouble := find_pattern_error(pattern)) is not None:
                shown = pattern
                if len(pattern) > LONGEST_EXPRESSION:
                    shown = f"{pattern[:LONGEST_EXPRESSION]}…"
                raise ValueError(
                    f"isolation policy: {shown!r} is no accepted regular expression: {trouble}"
                )

    def names(self, namespace: str) -> bool:
        """Return whether the policy is about that namespace."""
        return _matches(self.namespaces, namespace)

    def is_primary(self, broker: str, by_port: bool = True) -> bool:
        """Return whether the broker (host:port) is one of its primaries.

        `by_port`: an expression with a colon is matched against host:port too.
        """
        return _match_broker(self.primary, broker, by_port)

    def is_secondary(self, broker: str, by_port: bool = True) -> bool:
        """Return whether the broker (host:port) is one of its secondaries and no primary."""
        if self.is_primary(broker, by_port):
            return False
        return _match_broker(self.secondary, broker, by_port)


def matching(pattern: str, brokers: Iterable[str], by_port: bool = True) -> list[str]:
    """Return the brokers (host:port) that a policy's expression matches."""
    return [broker for broker in brokers if _match_broker((pattern,), broker, by_port)]


def count_matches(
    name: str, policy: IsolationPolicy, live: Sequence[str], by_port: bool = True
) -> list[tuple[str, int]]:
    """Return (description, live brokers that match) of each of a policy's broker expressions."""
    given = [("primary", pattern) for pattern in policy.primary]
    given += [("secondary", pattern) for pattern in policy.secondary]
    counts = [len(matching(pattern, live, by_port)) for _, pattern in given]
    texts = [f"{name}: {kind} {pattern!r}" for kind, pattern in given]
    return list(zip(texts, counts, strict=True))


def describe_matches(
    name: str, policy: IsolationPolicy, live: Sequence[str], by_port: bool = True
) -> list[str]:
    """Describe how many live brokers each of a policy's expressions matches; none is a warning."""
    there = f"{len(live)} live broker{'' if len(live) == 1 else 's'}"
    shown = ", ".join(live[:MOST_SHOWN]) + (", …" if len(live) > MOST_SHOWN else "")
    found = list[str]()
    for text, count in count_matches(name, policy, live, by_port):
        if count:
            found.append(f"{text} matches {count} of {there}")
        else:
            named = f" ({shown})" if live else ""
            found.append(f"warning: {text} matches none of {there}{named}")
    if found and not by_port:
        found[-1] += _describe_ports((*policy.primary, *policy.secondary), live)
    return found


def describe_no_match(
    policy: IsolationPolicy, live: Sequence[str], by_port: bool = True
) -> str | None:
    """Describe that a policy allows none of the live brokers; None: it allows some."""
    if any(
        policy.is_primary(broker, by_port) or policy.is_secondary(broker, by_port)
        for broker in live
    ):
        return None
    patterns = ", ".join(map(repr, (*policy.primary, *policy.secondary)))
    there = f"{len(live)} live broker{'' if len(live) == 1 else 's'}"
    ports = "" if by_port else _describe_ports((*policy.primary, *policy.secondary), live)
    return f"its isolation policy allows {patterns}, which match none of {there}{ports}"


def _describe_ports(patterns: tuple[str, ...], live: Sequence[str]) -> str:
    """Describe that expressions would match more brokers by host:port; else ""."""
    more = sum(
        _match_broker(patterns, name) > _match_broker(patterns, name, False) for name in live
    )
    if not more:
        return ""
    return f" (isolation_by_port is off: else expressions with a colon match {more} more)"


_BROKER_ID = re.compile(r"(\[[^\]]+\]|[^:]+):\d+")


@lru_cache(maxsize=1 << 16)
def _match_broker(patterns: tuple[str, ...], broker: str, by_port: bool = True) -> bool:
    """Return whether an expression matches the broker's host or, with a colon, its host:port."""
    if _matches(patterns, host_of(broker)):
        return True
    ids = tuple(pattern for pattern in patterns if ":" in pattern)
    return by_port and _BROKER_ID.fullmatch(broker) is not None and _matches(ids, broker)


@lru_cache(maxsize=1 << 16)
def _matches(patterns: tuple[str, ...], text: str) -> bool:
    """Return whether one of the expressions matches the whole text. Results are cached."""
    return any(matches_whole(pattern, text) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of one cluster."""

    isolation: tuple[IsolationPolicy, ...] = ()  # the first that is about a namespace counts
    anti_affinity: Mapping[str, str] = field(default_factory=dict)  # namespace → group
    failure_domains: Mapping[str, str] = field(default_factory=dict)  # broker or its host → domain
    non_persistent: frozenset[str] = frozenset()  # namespaces that have had non-persistent topics
    drained: frozenset[str] = frozenset()  # brokers that are drained

    def isolation_of(self, namespace: str) -> IsolationPolicy | None:
        """Return the policy that counts for a namespace; None: there is none."""
        return next((policy for policy in self.isolation if policy.names(namespace)), None)

    def domain_of(self, broker: str) -> str:
        """Return the failure domain of a broker (host:port), or that of its host."""
        of_host = self.failure_domains.get(host_of(broker), DEFAULT_DOMAIN)
        return self.failure_domains.get(broker, of_host)

    def group_of(self, namespace: str) -> str | None:
        """Return the namespace's anti-affinity group in lower case; None: it is in none."""
        group = self.anti_affinity.get(namespace, "").strip()
        return group.lower() or None

    def namespaces_of(self, group: str) -> tuple[str, ...]:
        """Return the namespaces of a group (in lower case), sorted."""
        return tuple(
            sorted(
                namespace for namespace in self.anti_affinity if self.group_of(namespace) == group
            )
        )


NO_POLICIES = Policies()
