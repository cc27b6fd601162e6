"""What a cluster's rounds remember from one to the next.

An argument and a result of `decide`, written to the log with each round.
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
from lb_stream.core.model.operator_state import OperatorState


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision that no report has confirmed yet."""

    decision_id: str
    kind: str
    bundle: str
    source: str | None
    destination: str | None
    issued_ms: int
    expires_ms: int
    version: int  # of the ownership record that it led to
    former: str | None = None  # of an assignment: who had the bundle before, as its record says
    children: tuple[str, ...] = ()  # of a split or merge; none: its owner finds them
    unload_children: bool = False
    neighbour: str | None = None  # of a merge: the other bundle
    start_ms: int = 0  # of the process of the broker that was asked, as known then; 0: not known
    released_ms: int | None = None  # of an assignment: since when no broker serves the bundle

    @property
    def asked(self) -> str | None:
        """The broker that has to act: the destination of an assignment, the source of everything
        else."""
        return self.destination if self.kind == "assign" else self.source

    @property
    def bundles(self) -> tuple[str, ...]:
        """The bundle, and what is merged with it."""
        return (self.bundle,) if self.neighbour is None else (self.bundle, self.neighbour)

    def published_by(self, now_ms: int) -> Pending:
        """The decision, which was published before this moment, with the end of its time."""
        expires_ms = expiry(self.issued_ms, self.expires_ms, now_ms, LATE_FOR_BALANCER)
        return self if expires_ms == self.expires_ms else replace(self, expires_ms=expires_ms)

    def is_before_restart(self, starts: Mapping[str, int]) -> bool:
        """Whether the broker that was asked has been restarted since.

        Its new process reads no decision from before. `starts`: of the brokers' processes now. Each
        is compared with the same broker's start then: brokers' clocks may be wrong, and may be set
        back. Where the start then is not known, the one now is compared with the decision's time.
        """
        now_ms = starts.get(self.asked or "", 0)
        if now_ms and not self.start_ms:
            return now_ms > self.issued_ms
        return 0 not in (self.start_ms, now_ms) and now_ms != self.start_ms


def bound_for(broker: str, decisions: Iterable[Pending | Decision]) -> set[str]:
    """Find the bundles that decisions under way send to a broker.

    A move counts before its bundle has left its source: agents of Pulsar brokers have the source
    hand it over to the destination, without another decision.
    """
    moving = (decision for decision in decisions if decision.kind not in RESHAPES)
    return {decision.bundle for decision in moving if decision.destination == broker}


@dataclass(frozen=True, slots=True)
class Retry:
    """A bundle whose last decision failed or expired: how often in a row, when it may be decided
    again, and what it was about."""

    attempts: int
    not_before_ms: int
    kind: str = "assign"
    avoid: tuple[str, ...] = ()  # destinations that have refused it, or let its assignment expire


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why and since when nothing is decided, and when that is to be reported again."""

    rule: str
    since_ms: int
    next_report_ms: int
    brokers: tuple[str, ...] = ()  # who was silent when it was said last


@dataclass(frozen=True, slots=True)
class MoveInProgress:
    """A move whose bundle has left its source and has no owner yet.

    It fails when it expires while no decision is open.
    """

    decision_id: str
    kind: str
    source: str | None
    destination: str
    issued_ms: int
    released_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Unserved:
    """A bundle that nobody serves: its record's state (Free, or Deleted: split or merged), since
    when, and who let it go, if known."""

    state: str
    since_ms: int
    source: str | None = None


class Mergeable(NamedTuple):
    """A bundle that could be one with the neighbour whose range follows: since when, and when that
    was told last (0: it was not)."""

    neighbour: str
    since_ms: int
    advised_ms: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """A decision that is to be made if somebody approves it: its own fields, what its bundle
    carries, and until when it waits.

    `together`: the first of those that are approved and rejected together; its own id where it
    stands alone. `plan`, `step`: the plan that a move is part of, and its place in it. Usages are
    those of the last round, without what waits: `usage_alone` and `usage_in_order` are the max if
    it were approved now, alone and with all steps before it.
    """

    proposal_id: str  # <cluster>:<seq>:p<number>
    together: str
    kind: DecisionKind
    bundle: str
    source: str
    destination: str | None
    reason: str
    rule: str
    strategy: str
    explain: Mapping[str, Any]  # of the candidates the best ones only: every round logs it
    bytes_per_s: float
    proposed_ms: int
    expires_ms: int
    children: tuple[str, ...] = ()
    boundaries: tuple[int, ...] = ()
    algorithm: str | None = None
    unload_children: bool = False
    plan: str | None = None  # <cluster>:<seq>; None: a split, or a move that parts a group
    step: int = 0  # from 1
    begun: bool = False  # steps of its plan have been approved
    source_usage: float | None = None
    destination_usage: float | None = None
    max_usage: float | None = None
    usage_alone: float | None = None
    usage_in_order: float | None = None

    @property
    def is_move(self) -> bool:
        """Whether a bundle leaves its broker; else it is cut where it is."""
        return self.kind not in RESHAPES


@dataclass(frozen=True, slots=True)
class Memory:
    """All of it. Names are those of bundles and brokers; times ms since the epoch."""

    seq: int = 0  # of the last round
    epoch: int = 0
    first_ms: int | None = None  # when the cluster was first seen
    last_shed_ms: int | None = None
    pending: tuple[Pending, ...] = ()
    recently_unloaded: Mapping[str, int] = field(default_factory=dict)
    unloaded_brokers: Mapping[str, int] = field(
        default_factory=dict
    )  # broker → when a move out of it was last confirmed
    retries: Mapping[str, Retry] = field(default_factory=dict)
    reserved: Mapping[str, str] = field(
        default_factory=dict
    )  # released bundle → its unload's destination, to which it isn't assigned yet
    moves: Mapping[str, MoveInProgress] = field(
        default_factory=dict
    )  # bundle → the move that it is in the middle of
    released: tuple[
        str, ...
    ] = ()  # bundles that this balancer had released and nobody has taken yet
    versions: Mapping[str, int] = field(default_factory=dict)  # of ownership records, where not 1
    unserved: Mapping[str, Unserved] = field(
        default_factory=dict
    )  # bundles whose record says that nobody serves them
    balances: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # broker → settings by which its cluster balances by itself
    clashing: int = 0  # brokers that do so while decisions are published
    merging: tuple[str, ...] = ()  # brokers whose agents say that they can merge bundles
    unpublished: tuple[
        str, ...
    ] = ()  # bundles whose record has changed in a dry run, and is not on the topic
    published_to: str | None = (
        ""  # the last bundle whose ownership record is on the topic; None: those of all bundles are
    )
    missed_ms: int | None = (
        None  # since when changes of owners have not been seen, because rounds failed
    )
    dead: tuple[str, ...] = ()  # brokers declared dead
    suspension: Suspension | None = None
    unsteady_ms: int | None = (
        None  # when it was last in doubt whether silent brokers are silent (extensible manager)
    )
    errors: int = 0  # rounds that failed, in a row
    retry_ms: int = 0  # after too many of them: when the next one is tried
    strategies: Mapping[str, Any] = field(
        default_factory=dict
    )  # strategy → the JSON object that it remembers
    quotas: Mapping[str, Any] = field(
        default_factory=dict
    )  # what the simple manager has learned (core.placement.learn_quotas)
    operator_state: OperatorState = field(
        default_factory=OperatorState
    )  # what operators have laid down
    moved: tuple[
        tuple[int, int, float], ...
    ] = ()  # of each round of the last minute with moves: when, how many, their bytes/s
    assigned: tuple[
        tuple[int, int], ...
    ] = ()  # of each round of the last minute: when, how many orphans got an owner
    spent: Mapping[str, tuple[tuple[int, int], ...]] = field(
        default_factory=dict
    )  # namespace → until when how many moves count
    spending: tuple[str, ...] = ()  # decisions of `pending` that count in a budget
    mergeable: Mapping[str, Mergeable] = field(
        default_factory=dict
    )  # bundles that could be one with their neighbours
    merges_sought_ms: int | None = (
        None  # when such bundles were looked for last; None: nobody looks
    )
    proposals: tuple[Proposal, ...] = ()  # those that wait for approval
    approvals: tuple[
        tuple[str, int, int], ...
    ] = ()  # rules of auto_approve with a budget: until when how many approvals count

    def to_json(self) -> str:
        """Return it as canonical JSON: what has its default isn't written."""
        return canonical_json(self)

    @staticmethod
    def from_json(text: str) -> Memory:
        """Return the memory that `to_json` wrote. Raises msgspec.DecodeError."""
        return _decoder().decode(text)


@cache
def _decoder() -> msgspec.json.Decoder[Memory]:
    """Made when it is first needed: msgspec looks at every field's type."""
    return msgspec.json.Decoder(Memory)
