"""The state that operators' commands have set for a cluster, and commands that are not done.

It is part of the cluster's memory. Only another command changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lb_stream.contracts.namespaces import NamespaceIsolation
from lb_stream.core.model.policies import IsolationPolicy, Policies
from lb_stream.core.model.rollout import RolloutOrder


@dataclass(frozen=True, slots=True)
class WaitingCommand:
    """A command whose decisions are pending."""

    command: Mapping[str, Any]  # id, kind, by, at_ms and arguments
    text: str  # of its first answer
    bundles: tuple[str, ...] = ()
    decision_ids: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()  # descriptions of decisions that failed
    broker: str | None = None  # of a drain, which waits for this broker to be empty
    queued: tuple[str, ...] = ()  # bundles for whose moves limits leave no room yet


@dataclass(frozen=True, slots=True)
class RejectedProposal:
    """A rejection: until its end, balancing proposes no move of a bundle, or no split."""

    proposal_id: str
    together: str  # of the proposal
    bundle: str
    is_move: bool  # else a split
    until_ms: int
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class OperatorState:
    """Everything that commands have set for a cluster."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # under the names that were given
    paused: bool = False
    drained: tuple[str, ...] = ()  # brokers
    # Name → isolation policy, in the form of contracts.namespaces.
    isolation: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    anti_affinity: Mapping[str, str] = field(default_factory=dict)  # namespace → group
    failure_domains: Mapping[str, str] = field(default_factory=dict)  # broker → domain
    # Namespace → its number of equal bundles, or its boundaries.
    namespaces: Mapping[str, int | list[int]] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()  # namespaces with bundles that are not forgotten yet
    answers: tuple[Mapping[str, Any], ...] = ()  # the last answers, oldest first
    forgotten_ms: int = 0  # the answer to a command sent until then may be forgotten
    waiting: tuple[WaitingCommand, ...] = ()
    pins: Mapping[str, int] = field(default_factory=dict)  # bundle → end of its pin, ms
    rejections: tuple[RejectedProposal, ...] = ()
    capacities: tuple[str, ...] = ()  # rules in the form of `broker_capacities`; later ones win
    rollout: RolloutOrder | None = None  # the one that is on; None: none is

    def rejected(self, moves: bool) -> dict[str, int]:
        """Map bundles with a rejection to its end, ms. `moves`: of a move; else of a split."""
        return {
            rejection.bundle: rejection.until_ms
            for rejection in self.rejections
            if rejection.is_move == moves
        }

    def policies(self, others: Policies) -> Policies:
        """Return these policies, with those that commands have set over them.

        Isolation policies are in the order of their names, as in the log: the first that matches a
        namespace counts for it.
        """
        isolation = tuple(isolation_policy(self.isolation[name]) for name in sorted(self.isolation))
        return Policies(
            isolation=isolation or others.isolation,
            anti_affinity={**others.anti_affinity, **self.anti_affinity},
            failure_domains={**others.failure_domains, **self.failure_domains},
            non_persistent=others.non_persistent,
            drained=frozenset(self.drained),
        )


def isolation_policy(given: Mapping[str, Any]) -> IsolationPolicy:
    """Build an isolation policy from the fields of its record."""
    policy = NamespaceIsolation.model_validate(dict(given))
    return IsolationPolicy(
        tuple(policy.namespaces),
        tuple(policy.primary),
        tuple(policy.secondary),
        policy.min_available,
        policy.usage_threshold_percent,
    )
