"""What the balancer publishes: decisions on `lb-decisions`, ownership records on `lb-ownership`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lb_stream.contracts.base import Millis, OwnRecord

SCHEMA_VERSION = 1

DecisionKind = Literal["assign", "unload", "transfer", "split", "merge"]
MOVES: tuple[DecisionKind, ...] = ("unload", "transfer")
"""Kinds of decisions that take a bundle from one broker, for another one."""
RESHAPES: tuple[DecisionKind, ...] = ("split", "merge")
"""Kinds of decisions that put other bundles in a bundle's place, at the same broker."""
OwnershipState = Literal[
    "Init", "Free", "Assigning", "Owned", "Releasing", "Splitting", "Merging", "Deleted"
]
"""Init stands in the log only: on the topic it is an empty value, in the table no row.

Merging is not Pulsar's, but this project's.
"""


LATE_FOR_AGENTS, LATE_FOR_BALANCER = (1 / 3, 5.0), (1 / 4, 6.0)
"""Shares of a decision's time between which it was published late. What came later is not to be
begun: it was made of what was known then. The balancer's go farther: what it holds to have expired
must have expired for every agent, that begins by five times its time and has it once."""


def expiry(issued_ms: int, expires_ms: int, readable_ms: int, late: tuple[float, float]) -> int:
    """Return until when (ms) a decision may be obeyed that could be read from `readable_ms` on.

    Its time is `expires_ms - issued_ms`. It counts from when the decision was made, and where that
    was published `late` (shares of its time, from and to) from then: the batch that makes a
    decision may take longer than a minute, as a job's first one does.
    """
    span_ms, (least, most) = expires_ms - issued_ms, late
    is_late = least < (readable_ms - issued_ms) / max(span_ms, 1) <= most
    return readable_ms + span_ms if is_late else expires_ms


def _unknown(value: object) -> bool:
    """Whether to leave a field out of the record: those that strategies need not tell."""
    return value is None


class Candidate(OwnRecord):
    """One broker that was considered as destination: its score, or the rule that refused it."""

    broker: str
    score: float | None = Field(
        None, description="the strategy's own measure; None stands for infinite or refused"
    )
    refused_by: str | None = None


class Explain(OwnRecord):
    """The figures behind a decision.

    Usages are ratios 0..1, loads in the unit that the strategy names.
    """

    saw: float | None = None
    limit: float | None = None
    average: float | None = None
    expected_after: float | None = None
    unit: str = "ratio"
    candidates: list[Candidate] = []
    cost: float | None = Field(
        None,
        description="of the move, by the strategy's own measure: 1 is the average bundle's",
        exclude_if=_unknown,
    )
    client_seconds: float | None = Field(
        None,
        description="that the move takes from its bundle's clients, as the strategy has learned",
        exclude_if=_unknown,
    )
    gain: float | None = Field(
        None, description="what the source comes down by", exclude_if=_unknown
    )
    plan_moves: int | None = Field(
        None, description="moves of the plan that this one is part of", exclude_if=_unknown
    )
    plan_fewest: int | None = Field(
        None, description="a lower bound of what that takes at least", exclude_if=_unknown
    )
    source_usage: float | None = Field(
        None, description="of its source when it was approved", exclude_if=_unknown
    )
    destination_usage: float | None = Field(
        None, description="of its destination when it was approved", exclude_if=_unknown
    )
    max_usage: float | None = Field(
        None, description="of the busiest broker then", exclude_if=_unknown
    )
    max_usage_after: float | None = Field(
        None,
        description="of the busiest broker with it and with what was approved before it",
        exclude_if=_unknown,
    )


class Decision(OwnRecord):
    """One decision about one bundle, complete enough to be obeyed, refused when stale, and
    understood later."""

    schema_version: int = SCHEMA_VERSION
    decision_id: str = Field(description="<cluster>:<seq>:<ordinal>, never used twice")
    cluster: str
    seq: int = Field(description="the round's number within its cluster, growing for ever")
    epoch: int = Field(
        description="grows at every start of the job; an agent refuses a lower one than it has seen"
    )
    kind: DecisionKind
    bundle: str
    source: str | None = Field(None, description="the broker that gives the bundle up")
    destination: str | None = Field(None, description="the broker that takes it; None: found later")
    expected_owner: str | None = Field(
        None,
        description="who owns the bundle as far as the balancer knows; else the decision is stale",
    )
    expected_version: int = Field(
        description="version of the ownership record that this decision follows"
    )
    neighbour: str | None = Field(
        None,
        description="merge: the bundle whose range follows, which becomes one with it; the only "
        "child is both",
        exclude_if=_unknown,
    )
    children: list[str] = []
    boundaries: list[int] = []
    algorithm: str | None = None
    unload_children: bool = False
    reason: str = Field(description="Pulsar's word: Overloaded, Underloaded, Admin, Topics, ...")
    rule: str = Field(description="this project's word for the rule that fired")
    strategy: str
    issued_ms: Millis
    expires_ms: Millis = Field(
        description="if its record has a time later than a third of `expires_ms - issued_ms`, "
        "this span counts from that time"
    )
    dry_run: bool = False
    explain: Explain = Explain()
    approved_by: str | None = Field(
        None,
        description="who approved it, where decisions wait for approval: a sender, or a rule of "
        "auto_approve",
        exclude_if=_unknown,
    )
    proposal_id: str | None = Field(
        None, description="the proposal that was approved", exclude_if=_unknown
    )

    @property
    def bundles(self) -> tuple[str, ...]:
        """The bundle, and what is merged with it."""
        return (self.bundle,) if self.neighbour is None else (self.bundle, self.neighbour)


class Ownership(OwnRecord):
    """The ownership record of one bundle, keyed `<cluster>/<bundle>` on the compacted topic."""

    cluster: str
    bundle: str
    state: OwnershipState
    owner: str | None = Field(
        None, description="who serves the bundle now, as far as the balancer knows"
    )
    source: str | None = Field(None, description="who lets it go, or had it before")
    destination: str | None = Field(None, description="who serves it, or is to")
    children: list[str] = Field(
        [],
        description="what a bundle in state Splitting or Merging becomes; empty: its owner finds "
        "them",
    )
    version: int = Field(1, description="1 for a bundle's first record, then one more for each")
    force: bool = Field(
        False,
        description="overrides what was there: the states alone would not allow this record after "
        "the one before",
    )
    since_ms: Millis = 0
    epoch: int = 0
    decision_id: str | None = None
    watermark: int | None = Field(
        None,
        description="number in the log of the batch that published it: topic and table agree at "
        "equal watermark",
    )


def read_decision(value: bytes | str) -> Decision:
    """Parse one record of `lb-decisions`. Raises pydantic.ValidationError when it is none."""
    return Decision.model_validate_json(value)


def example_decision(**changes: Any) -> Decision:
    """A plausible decision, for schemas and documentation."""
    fields: dict[str, Any] = {
        "decision_id": "eu-1:42:0",
        "cluster": "eu-1",
        "seq": 42,
        "epoch": 3,
        "kind": "unload",
        "bundle": "acme/orders/0x00000000_0x40000000",
        "source": "broker-7.eu.example:8080",
        "destination": "broker-9.eu.example:8080",
        "expected_owner": "broker-7.eu.example:8080",
        "expected_version": 1,
        "reason": "Overloaded",
        "rule": "above_average",
        "strategy": "ThresholdShedder",
        "issued_ms": 1767225660000,
        "expires_ms": 1767225720000,
        "explain": Explain(
            saw=0.62,
            limit=0.51,
            average=0.41,
            expected_after=0.55,
            candidates=[
                Candidate(broker="broker-8.eu.example:8080", score=2048.0),
                Candidate(broker="broker-9.eu.example:8080", score=310.5),
            ],
        ),
    }
    return Decision(**(fields | changes))
