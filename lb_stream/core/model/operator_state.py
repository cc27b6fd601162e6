"""What operators' commands have set for a cluster.

It is part of the cluster's memory and stays until another command changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lb_stream.contracts.namespaces import NamespaceIsolation
from lb_stream.core.model.policies import IsolationPolicy, Policies


@dataclass(frozen=True, slots=True)
class Waiting:
    """A command whose decisions are under way. `command`: its id, kind, by, at_ms and arguments.

    A broker's drain waits for the broker to be empty instead. `queued`: bundles whose moves the
    limits leave no room for yet.
    """

    command: Mapping[str, Any]
    text: str
    bundles: tuple[str, ...] = ()
    decision_ids: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    broker: str | None = None
    queued: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedProposal:
    """Balancing leaves a bundle where it is, or in one piece, until then, as somebody has said.

    `together`: as the proposal had it.
    """

    proposal_id: str
    together: str
    bundle: str
    is_move: bool
    until_ms: int
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class OperatorState:
    """Everything that commands have set.

    `settings` are under the names by which they were given; a namespace is a number of equal
    bundles, or its boundaries.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    paused: bool = False
    drained: tuple[str, ...] = ()
    isolation: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # name → policy, as contracts.namespaces has it
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    failure_domains: Mapping[str, str] = field(default_factory=dict)
    namespaces: Mapping[str, int | list[int]] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()  # namespaces whose bundles have not all been forgotten yet
    answers: tuple[Mapping[str, Any], ...] = ()  # the last ones, oldest first
    forgotten_ms: int = (
        0  # commands sent until then may have been answered and forgotten, as there were too many
    )
    waiting: tuple[Waiting, ...] = ()
    pins: Mapping[str, int] = field(
        default_factory=dict
    )  # bundles that balancing leaves where they are → until when (ms)
    rejections: tuple[RejectedProposal, ...] = ()  # what isn't to be proposed again before its time

    def rejected(self, moves: bool) -> dict[str, int]:
        """Bundles whose moves (or else splits) operators have rejected → until when (ms)."""
        return {
            rejection.bundle: rejection.until_ms
            for rejection in self.rejections
            if rejection.is_move == moves
        }

    def policies(self, others: Policies) -> Policies:
        """The policies of the orders, over others that are known already."""
        isolation = tuple(map(isolation_policy, self.isolation.values()))
        return Policies(
            isolation=isolation or others.isolation,
            anti_affinity={**others.anti_affinity, **self.anti_affinity},
            failure_domains={**others.failure_domains, **self.failure_domains},
            non_persistent=others.non_persistent,
            drained=frozenset(self.drained),
        )


def isolation_policy(given: Mapping[str, Any]) -> IsolationPolicy:
    """One isolation policy, from its record's fields."""
    policy = NamespaceIsolation.model_validate(dict(given))
    return IsolationPolicy(
        tuple(policy.namespaces),
        tuple(policy.primary),
        tuple(policy.secondary),
        policy.min_available,
        policy.usage_threshold_percent,
    )
