"""Records that the balancer publishes: decisions and ownership records."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lb_stream.contracts.base import Millis, OwnRecord

SCHEMA_VERSION = 1

DecisionKind = Literal["assign", "unload", "transfer", "split", "merge"]
MOVES: tuple[DecisionKind, ...] = ("unload", "transfer")
"""Kinds of decisions that move a bundle from one broker to another."""
RESHAPES: tuple[DecisionKind, ...] = ("split", "merge")
"""Kinds of decisions that replace bundles by others, at the same broker."""
OwnershipState = Literal[
    "Init", "Free", "Assigning", "Owned", "Releasing", "Splitting", "Merging", "Deleted"
]
"""States of an ownership record: Pulsar's, and Merging, which is this project's.

Init is in the log only: on the topic it is an empty value, in the table there is no row.
"""

LATE_FOR_AGENTS, LATE_FOR_BALANCER = (1 / 3, 5.0), (1 / 4, 6.0)
"""Shares of a decision's time: a decision published between them counts as late; see `expiry`.

A decision published even later has expired, because it rests on old figures. The balancer's shares
are wider than the agents': what has expired for the balancer must have expired for every agent.
"""


def expiry(issued_ms: int, expires_ms: int, readable_ms: int, late: tuple[float, float]) -> int:
    """Return when (ms) a decision expires that could be read from `readable_ms` on.

    Its time is `expires_ms - issued_ms`. It counts from when the decision was made; for a decision
    that was published `late` (shares of its time, from and to), from when it could be read. The
    batch that makes a decision may take longer than a minute, as a job's first one does.
    """
    span_ms, (least, most) = expires_ms - issued_ms, late
    is_late = least < (readable_ms - issued_ms) / max(span_ms, 1) <= most
    return readable_ms + span_ms if is_late else expires_ms


def _is_none(value: object) -> bool:
    """Return whether to leave a field out of the record."""
    return value is None


class Candidate(OwnRecord):
    """A broker that was considered as the destination: its score, or the rule that refused it."""

    broker: str
    score: float | None = Field(
        None, description="the strategy's own measure; null: infinite, or refused"
    )
    refused_by: str | None = None


class Explain(OwnRecord):
    """The figures behind a decision. Usages are ratios; other figures are in `unit`."""

    saw: float | None = None
    limit: float | None = None
    average: float | None = None
    expected_after: float | None = None
    unit: str = "ratio"
    candidates: list[Candidate] = []
    cost: float | None = Field(
        None,
        description="cost of the move by the strategy's own measure; the average bundle's is 1",
        exclude_if=_is_none,
    )
    client_seconds: float | None = Field(
        None,
        description="seconds that the bundle's clients lose by the move, as learned from moves",
        exclude_if=_is_none,
    )
    gain: float | None = Field(
        None, description="what the move lowers the usage of the source by", exclude_if=_is_none
    )
    plan_moves: int | None = Field(
        None,
        description="number of moves in the plan that this one belongs to",
        exclude_if=_is_none,
    )
    plan_fewest: int | None = Field(
        None, description="a lower bound of the number of moves", exclude_if=_is_none
    )
    plan: str | None = Field(
        None,
        description="id of the plan with splits that this decision belongs to: <cluster>:<seq> of "
        "the round that made it",
        exclude_if=_is_none,
    )
    plan_max_before: float | None = Field(
        None, description="max usage when that plan was made", exclude_if=_is_none
    )
    plan_max_unsplit: float | None = Field(
        None,
        description="max usage expected after the best moves without its splits",
        exclude_if=_is_none,
    )
    plan_max_split: float | None = Field(
        None, description="max usage expected after its splits alone", exclude_if=_is_none
    )
    plan_max_after: float | None = Field(
        None, description="max usage expected after its splits and moves", exclude_if=_is_none
    )
    source_usage: float | None = Field(
        None, description="usage of the source when the move was approved", exclude_if=_is_none
    )
    destination_usage: float | None = Field(
        None, description="usage of the destination when the move was approved", exclude_if=_is_none
    )
    max_usage: float | None = Field(
        None,
        description="usage of the busiest broker when the move was approved",
        exclude_if=_is_none,
    )
    max_usage_after: float | None = Field(
        None,
        description="usage of the busiest broker with this move and those approved before it",
        exclude_if=_is_none,
    )
    died: str | None = Field(
        None,
        description="the broker that had the assigned bundle, and has died",
        exclude_if=_is_none,
    )


class Decision(OwnRecord):
    """One decision about one bundle, with all that an agent needs to obey or refuse it."""

    schema_version: int = SCHEMA_VERSION
    decision_id: str = Field(description="<cluster>:<seq>:<ordinal>, never used twice")
    cluster: str
    seq: int = Field(description="number of the round within its cluster; it grows for ever")
    epoch: int = Field(
        description="number of the job's start; an agent refuses a lower one than it has seen"
    )
    kind: DecisionKind
    bundle: str
    source: str | None = Field(None, description="the broker that gives the bundle up")
    destination: str | None = Field(
        None, description="the broker that takes it; null: chosen later"
    )
    expected_owner: str | None = Field(
        None,
        description="the owner that the balancer knows; with another owner the decision is stale",
    )
    expected_version: int = Field(
        description="version of the ownership record that this decision follows"
    )
    neighbour: str | None = Field(
        None,
        description="of a merge: the bundle whose range follows; the only child covers both",
        exclude_if=_is_none,
    )
    children: list[str] = []
    boundaries: list[int] = []
    algorithm: str | None = None
    unload_children: bool = False
    reason: str = Field(
        description="Pulsar's name of the reason: Overloaded, Underloaded, Admin, Topics, ..."
    )
    rule: str = Field(description="the rule that led to the decision")
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
        description="who approved it: the sender of a command, or a rule of auto_approve; "
        "missing: it needed no approval",
        exclude_if=_is_none,
    )
    proposal_id: str | None = Field(
        None, description="the proposal that was approved", exclude_if=_is_none
    )

    @property
    def bundles(self) -> tuple[str, ...]:
        """Return the bundle, and the neighbour that is merged with it."""
        return (self.bundle,) if self.neighbour is None else (self.bundle, self.neighbour)


class Ownership(OwnRecord):
    """The ownership record of one bundle, keyed `<cluster>/<bundle>` on the compacted topic."""

    cluster: str
    bundle: str
    state: OwnershipState
    owner: str | None = Field(
        None, description="the broker that serves the bundle, as far as the balancer knows"
    )
    source: str | None = Field(None, description="the broker that gives it up, or had it before")
    destination: str | None = Field(None, description="the broker that serves it, or will")
    children: list[str] = Field(
        [],
        description="bundles that a bundle in state Splitting or Merging becomes; empty: its owner "
        "chooses them",
    )
    version: int = Field(1, description="1 for a bundle's first record, then one more for each")
    force: bool = Field(
        False,
        description="whether the record overrides the one before, whose state does not allow it",
    )
    since_ms: Millis = 0
    epoch: int = 0
    decision_id: str | None = None
    watermark: int | None = Field(
        None,
        description="the log's number of the batch that published it: topic and table agree at an "
        "equal watermark",
    )


def read_decision(value: bytes | str) -> Decision:
    """Parse one record of `lb-decisions`. Raises pydantic.ValidationError when it is none."""
    return Decision.model_validate_json(value)


def example_decision(**changes: Any) -> Decision:
    """Return a plausible decision, for schemas and documentation."""
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
