"""What to do with a decision: do it, refuse it, or leave it to others.

Pure: the time is an argument.

A decision is obeyed by the broker that it addresses, once, while it is fresh, only if it comes from
the newest run of the balancer that this agent has heard of, and only if no later ownership record
of its bundle is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lb_stream.contracts.decisions import LATE_FOR_AGENTS, Decision, Ownership, expiry
from lb_stream.contracts.reports import Ack

REMEMBERED_MS = 600_000
"""How long a decision is remembered after it has expired.

Afterwards its age alone keeps it from being done again.
"""


@dataclass(frozen=True, slots=True)
class AgentVerdict:
    """What to do. `reason` says why a decision is refused or ignored, or what is waited for."""

    action: Literal["release", "acquire", "split", "merge", "refuse", "ignore", "wait"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LastOwnership:
    """What is remembered of a bundle's last ownership record, and since when."""

    version: int
    decision_id: str | None
    seen_ms: int


@dataclass(slots=True)
class AgentMemory:
    """What an agent remembers of earlier decisions, and of ownership records.

    `done` holds (broker, decision id) → when the decision expires, `records` bundle → its last
    record; both the oldest first.
    """

    epoch: int = 0
    done: dict[tuple[str, str], int] = field(default_factory=dict)
    records: dict[str, LastOwnership] = field(default_factory=dict)

    def note_epoch(self, decision: Decision) -> bool:
        """Learn the epoch of any decision of the cluster, whomever it addresses.

        Returns whether the balancer has been started anew.
        """
        anew = 0 < self.epoch < decision.epoch
        self.epoch = max(self.epoch, decision.epoch)
        return anew

    def note_done(self, broker: str, decision: Decision, now_ms: int) -> None:
        """Remember that the broker has dealt with a decision; forget those that expired long
        ago."""
        self.done[broker, decision.decision_id] = decision.expires_ms
        while (oldest := next(iter(self.done), None)) and self.done[
            oldest
        ] + REMEMBERED_MS < now_ms:
            del self.done[oldest]

    def note_record(self, bundle: str, record: Ownership | None, now_ms: int) -> None:
        """Remember a bundle's ownership record (None: it has none any more) for as long as a
        decision from before it might still come.

        First records are left out: no decision comes before them.
        """
        self.records.pop(bundle, None)
        if record is not None and record.version > 1:
            self.records[bundle] = LastOwnership(record.version, record.decision_id, now_ms)
        while (oldest := next(iter(self.records), None)) and self.records[
            oldest
        ].seen_ms + REMEMBERED_MS < now_ms:
            del self.records[oldest]

    def find_later_version(self, decision: Decision) -> int | None:
        """The version of the bundle's record, if that record is later than the decision."""
        known = self.records.get(decision.bundle)
        if known is None or known.version <= decision.expected_version:
            return None
        own = (
            known.version == decision.expected_version + 1
            and known.decision_id == decision.decision_id
        )
        return None if own else known.version


def with_record_time(decision: Decision, appended_ms: int) -> Decision:
    """The decision with the end of its time, counted from its record's time if that was late."""
    expires_ms = expiry(decision.issued_ms, decision.expires_ms, appended_ms, LATE_FOR_AGENTS)
    return decision.model_copy(update={"expires_ms": expires_ms})


def addressee(decision: Decision) -> str | None:
    """The broker that has to act: the destination of an assignment, the source of everything
    else."""
    return decision.destination if decision.kind == "assign" else decision.source


def judge(
    broker: str, seen: AgentMemory, decision: Decision, owns: bool, now_ms: int
) -> AgentVerdict:
    """What `broker` has to do about a decision.

    `owns`: whether it serves the decision's bundles. Changes nothing.

    A transfer's source releases the bundle as for an unload; its destination gets an assignment of
    its own once that has been seen.
    """
    if addressee(decision) != broker:
        return AgentVerdict("ignore", f"addressed to {addressee(decision)}")
    if decision.dry_run:
        return AgentVerdict("ignore", "dry run")
    if (broker, decision.decision_id) in seen.done:
        return AgentVerdict("ignore", "done before")
    if decision.epoch < seen.epoch:
        return AgentVerdict("refuse", f"epoch {decision.epoch} is over, {seen.epoch} has been seen")
    if now_ms >= decision.expires_ms:
        return AgentVerdict("refuse", f"expired {now_ms - decision.expires_ms} ms ago")
    if (version := seen.find_later_version(decision)) is not None:
        return AgentVerdict(
            "refuse",
            f"follows version {decision.expected_version} of the bundle's record, which is at "
            f"{version} now",
        )
    if decision.kind == "assign":
        return AgentVerdict("acquire")
    if not owns:
        return AgentVerdict("refuse", f"{' or '.join(decision.bundles)} is not served here")
    reshapes: dict[str, Literal["split", "merge"]] = {"split": "split", "merge": "merge"}
    return AgentVerdict(reshapes.get(decision.kind, "release"))


_OUTCOMES: dict[str, Literal["released", "acquired", "split", "merged", "refused", "failed"]] = {
    "release": "released",
    "acquire": "acquired",
    "split": "split",
    "merge": "merged",
    "refuse": "refused",
    "failed": "failed",
}


def acknowledgement(decision: Decision, done: str, reason: str, sent_ms: int) -> Ack:
    """What the broker says to the balancer. `done`: a verdict's action, or `failed`."""
    outcome = _OUTCOMES[done]
    changes_hands = outcome == "acquired" or (outcome == "released" and decision.kind == "transfer")
    return Ack(
        decision_id=decision.decision_id,
        outcome=outcome,
        reason=reason,
        bundle=decision.bundle if changes_hands else None,
        sent_ms=sent_ms,
    )
