"""The memory of a cluster: what one round gives to the next.

It is an argument and a result of `decide`, and is logged with each round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import msgspec

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import (
    LATE_FOR_BALANCER,
    RESHAPES,
    Decision,
    DecisionKind,
    expiry,
)
from lb_stream.core.model.followed_profile import FollowedProfile
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.rollout import BEGUN, RolloutProgress


@dataclass(frozen=True, slots=True)
class Pending:
    """A published decision without an outcome."""

    decision_id: str
    kind: str
    bundle: str
    source: str | None
    destination: str | None
    issued_ms: int
    expires_ms: int
    version: int  # of the ownership record that the decision led to
    former: str | None = None  # of an assign: the owner before, by the ownership record
    children: tuple[str, ...] = ()  # of a split or merge; empty: the owner finds them
    unload_children: bool = False
    neighbour: str | None = None  # of a merge: the other bundle
    start_ms: int = 0  # start of the asked broker's process, as known then; 0: not known
    released_ms: int | None = None  # of an assign: since when no broker serves the bundle
    detour: str = ""  # of a move: where the bundle was on its way, as its source says

    @property
    def asked(self) -> str | None:
        """Return the broker that has to act: the destination of an assign, else the source."""
        return self.destination if self.kind == "assign" else self.source

    @property
    def bundles(self) -> tuple[str, ...]:
        """Return the bundle, and the neighbour that is merged with it."""
        return (self.bundle,) if self.neighbour is None else (self.bundle, self.neighbour)

    def published_by(self, now_ms: int) -> Pending:
        """Return the decision with its expiry, if it was published no later than `now_ms`."""
        expires_ms = expiry(self.issued_ms, self.expires_ms, now_ms, LATE_FOR_BALANCER)
        return self if expires_ms == self.expires_ms else replace(self, expires_ms=expires_ms)

    def is_before_restart(self, starts: Mapping[str, int]) -> bool:
        """Return whether the asked broker has restarted since: it doesn't read older decisions.

        `starts`: broker → current start of its process. Starts of the same broker are compared,
        because brokers' clocks may be wrong. If the start at the time of the decision is not known,
        the current start is compared with the decision's time.
        """
        now_ms = starts.get(self.asked or "", 0)
        if now_ms and not self.start_ms:
            return now_ms > self.issued_ms
        return 0 not in (self.start_ms, now_ms) and now_ms != self.start_ms


def bound_for(broker: str, decisions: Iterable[Pending | Decision]) -> set[str]:
    """Return the bundles that these decisions send to a broker.

    An unload counts too: agents of Pulsar brokers have the source hand the bundle over to the
    destination, without another decision.
    """
    moving = (decision for decision in decisions if decision.kind not in RESHAPES)
    return {decision.bundle for decision in moving if decision.destination == broker}


@dataclass(frozen=True, slots=True)
class BackOff:
    """The back-off of a bundle whose last decision failed or expired."""

    attempts: int  # failures in a row
    not_before_ms: int  # no other decision before this time
    kind: str = "assign"  # of the decision
    avoid: tuple[str, ...] = ()  # destinations that refused it, or let its assign expire


@dataclass(frozen=True, slots=True)
class Suspension:
    """A suspension: why and since when nothing is decided, and when it is reported again."""

    rule: str
    since_ms: int
    next_report_ms: int
    brokers: tuple[str, ...] = ()  # silent when it was last reported


@dataclass(frozen=True, slots=True)
class MoveInProgress:
    """A move whose bundle has left its source and has no owner yet.

    It fails if it expires while no decision about it is pending.
    """

    decision_id: str
    kind: str
    source: str | None
    destination: str
    issued_ms: int
    released_ms: int
    expires_ms: int
    detour: str = ""  # where the bundle was on its way, as its source says


@dataclass(frozen=True, slots=True)
class UnservedBundle:
    """A bundle that no broker serves, by its ownership record."""

    state: str  # of the record: Free, or Deleted (split or merged)
    since_ms: int
    source: str | None = None  # the broker that released it, if known


class Mergeable(NamedTuple):
    """A bundle that is small enough to be merged with its neighbour."""

    neighbour: str
    since_ms: int  # since when both are small
    advised_ms: int  # last merge advice; 0: none


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """A job's own settings for the cluster, as given, and the job's epoch."""

    epoch: int
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A decision that waits for approval, with the load of its bundle.

    Usages are those of the last round, without waiting proposals.
    """

    proposal_id: str  # <cluster>:<seq>:p<number>
    together: str  # first id of those that are approved and rejected together; else its own id
    kind: DecisionKind
    bundle: str
    source: str
    destination: str | None
    reason: str
    rule: str
    strategy: str
    explain: Mapping[str, Any]  # with the best candidates only: every round logs it
    bytes_per_s: float  # throughput of the bundle
    proposed_ms: int
    expires_ms: int
    children: tuple[str, ...] = ()
    boundaries: tuple[int, ...] = ()
    algorithm: str | None = None
    unload_children: bool = False
    plan: str | None = None  # <cluster>:<seq>; None: a split, or a move for anti-affinity
    step: int = 0  # place in the plan, from 1
    begun: bool = False  # steps of the plan have been approved
    source_usage: float | None = None
    destination_usage: float | None = None
    max_usage: float | None = None  # of the cluster
    usage_alone: float | None = None  # max usage if it were approved now, alone
    usage_in_order: float | None = None  # max usage if it were approved after all steps before it

    @property
    def is_move(self) -> bool:
        """Return whether the bundle leaves its broker; else it is split there."""
        return self.kind not in RESHAPES


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that a cluster's rounds remember. Times are ms since the epoch."""

    seq: int = 0  # of the last round
    epoch: int = 0
    first_ms: int | None = None  # when the cluster was first seen
    last_shed_ms: int | None = None  # last shedding pass

    # Decisions and moves.
    pending: tuple[Pending, ...] = ()
    recently_unloaded: Mapping[str, int] = field(default_factory=dict)  # bundle → when it moved
    # Broker → when a move out of it was last confirmed.
    unloaded_brokers: Mapping[str, int] = field(default_factory=dict)
    retries: Mapping[str, BackOff] = field(default_factory=dict)  # bundle → its back-off
    reserved: Mapping[str, str] = field(default_factory=dict)  # released bundle → destination
    moves: Mapping[str, MoveInProgress] = field(default_factory=dict)  # bundle → its move
    released: tuple[str, ...] = ()  # bundles that this balancer released, still unassigned
    # Unassigned bundle that no broker could be given → when it last had to wait.
    unplaced: Mapping[str, int] = field(default_factory=dict)

    # Ownership records.
    versions: Mapping[str, int] = field(default_factory=dict)  # bundle → version, where not 1
    unserved: Mapping[str, UnservedBundle] = field(default_factory=dict)  # bundle → its record
    unpublished: tuple[str, ...] = ()  # bundles whose record changed in a dry run
    published_to: str | None = ""  # last bundle whose record is published; None: all are
    missed_ms: int | None = None  # since when rounds have failed, and changes of owners are missed

    # Brokers.
    # Broker → settings with which its own load manager still balances.
    balances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clashing: int = 0  # number of brokers in `balances` while decisions are published
    # Keys of Pulsar's, with commas between → brokers whose values of these differ from ours.
    differing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    merging: tuple[str, ...] = ()  # brokers whose agents can merge bundles
    dead: tuple[str, ...] = ()  # brokers declared dead
    suspension: Suspension | None = None
    unsteady_ms: int | None = None  # last doubt about silent brokers (extensible manager)

    followed: FollowedProfile = field(default_factory=FollowedProfile)

    # Failed rounds.
    errors: int = 0  # in a row
    retry_ms: int = 0  # time of the next round, after many failures

    # Strategies.
    strategies: Mapping[str, Any] = field(default_factory=dict)  # strategy → its memory as JSON
    quotas: Mapping[str, Any] = field(default_factory=dict)  # of core.placement.learn_quotas

    own_settings: OwnSettings | None = None  # of the last job; None: not known

    # Operators.
    operator_state: OperatorState = field(default_factory=OperatorState)
    proposals: tuple[Proposal, ...] = ()  # that wait for approval
    rollout: RolloutProgress | None = None  # of the rollout that is on; None: none is

    # Limits.
    moved: tuple[tuple[int, int, float], ...] = ()  # (when, moves, bytes/s) of the last minute
    assigned: tuple[tuple[int, int], ...] = ()  # (when, unassigned bundles) of the last minute
    # Namespace → (until when they count, moves) of its disruption budget.
    spent: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    spending: tuple[str, ...] = ()  # ids of pending decisions that count in a budget
    # (rule of auto_approve, until when they count, approvals), for rules with a budget.
    approvals: tuple[tuple[str, int, int], ...] = ()

    # Merge advice.
    mergeable: Mapping[str, Mergeable] = field(default_factory=dict)  # bundle → its neighbour
    merges_sought_ms: int | None = None  # last search; None: merge advice is switched off

    @property
    def emptied(self) -> frozenset[str]:
        """Return the brokers that get no bundle: drained ones, and those a rollout has begun."""
        begun = () if self.rollout is None else self.rollout.in_phases(*BEGUN)
        return frozenset((*self.operator_state.drained, *begun))

    def to_json(self) -> str:
        """Return the memory as canonical JSON, without fields that have their default."""
        return canonical_json(self)

    @staticmethod
    def from_json(text: str) -> Memory:
        """Return the memory that `to_json` wrote. Raises msgspec.DecodeError."""
        return _decoder().decode(text)


@cache
def _decoder() -> msgspec.json.Decoder[Memory]:
    """Return the decoder. It is built when it is first needed, which takes long."""
    return msgspec.json.Decoder(Memory)
