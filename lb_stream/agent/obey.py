"""Judges a decision: carry it out, refuse it, or ignore it. Pure: the time is an argument.

The broker that a decision addresses carries it out, once, before it expires. It must come from the
newest epoch that this agent knows, and no later ownership record of its bundle may be known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lb_stream.contracts.decisions import LATE_FOR_AGENTS, Decision, Ownership, expiry
from lb_stream.contracts.reports import Ack

REMEMBERED_MS = 600_000
"""How long a decision is remembered after it has expired; until then a repetition is ignored."""


@dataclass(frozen=True, slots=True)
class AgentVerdict:
    """What to do. `reason` says why a decision is refused, ignored or waits."""

    action: Literal["release", "acquire", "split", "merge", "refuse", "ignore", "wait"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LastOwnership:
    """What is remembered of a bundle's last ownership record; `seen_ms` is when it was read."""

    version: int
    decision_id: str | None
    seen_ms: int


@dataclass(slots=True)
class AgentMemory:
    """What an agent remembers of earlier decisions and of ownership records.

    `done` maps (broker, decision id) to the decision's expiry in ms, `records` bundles to their
    last records. Both have the oldest entry first.
    """

    epoch: int = 0
    done: dict[tuple[str, str], int] = field(default_factory=dict)
    records: dict[str, LastOwnership] = field(default_factory=dict)

    def note_epoch(self, decision: Decision) -> bool:
        """Note the epoch of a decision of the cluster; return whether a new epoch has begun.

        Decisions to other agents' brokers count too.
        """
        is_new = 0 < self.epoch < decision.epoch
        self.epoch = max(self.epoch, decision.epoch)
        return is_new

    def note_done(self, broker: str, decision: Decision, now_ms: int) -> None:
        """Note that the broker has dealt with a decision; forget those that expired long ago."""
        self.done[broker, decision.decision_id] = decision.expires_ms
        while (oldest := next(iter(self.done), None)) and self.done[
            oldest
        ] + REMEMBERED_MS < now_ms:
            del self.done[oldest]

    def note_record(self, bundle: str, record: Ownership | None, now_ms: int) -> None:
        """Remember a bundle's ownership record; None: its record was deleted.

        It is kept while an earlier decision could still arrive. No decision is earlier than a
        bundle's first record, so that one is not kept.
        """
        self.records.pop(bundle, None)
        if record is not None and record.version > 1:
            self.records[bundle] = LastOwnership(record.version, record.decision_id, now_ms)
        while (oldest := next(iter(self.records), None)) and self.records[
            oldest
        ].seen_ms + REMEMBERED_MS < now_ms:
            del self.records[oldest]

    def find_later_version(self, decision: Decision) -> int | None:
        """Return the version of the bundle's record if it is later than the decision, else None."""
        known = self.records.get(decision.bundle)
        if known is None or known.version <= decision.expected_version:
            return None
        own = (
            known.version == decision.expected_version + 1
            and known.decision_id == decision.decision_id
        )
        return None if own else known.version


def with_record_time(decision: Decision, appended_ms: int) -> Decision:
    """Return the decision with a later expiry if its record was appended late.

    `appended_ms` is when Kafka took the record, ms since the epoch; 0: unknown.
    """
    expires_ms = expiry(decision.issued_ms, decision.expires_ms, appended_ms, LATE_FOR_AGENTS)
    return decision.model_copy(update={"expires_ms": expires_ms})


def addressee(decision: Decision) -> str | None:
    """Return the broker that must act: the destination of an assign, else the source."""
    return decision.destination if decision.kind == "assign" else decision.source


def judge(
    broker: str, seen: AgentMemory, decision: Decision, owns: bool, now_ms: int
) -> AgentVerdict:
    """Return what `broker` has to do about a decision; `owns`: it serves the decision's bundles.

    The source of a transfer releases the bundle as for an unload. Its destination gets a decision
    of its own once a report shows the release.
    """
    if addressee(decision) != broker:
        return AgentVerdict("ignore", f"addressed to {addressee(decision)}")
    if decision.dry_run:
        return AgentVerdict("ignore", "dry run")
    if (broker, decision.decision_id) in seen.done:
        return AgentVerdict("ignore", "done before")
    if decision.epoch < seen.epoch:
        return AgentVerdict("refuse", f"epoch {decision.epoch} is over: {seen.epoch} has begun")
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
    """Return the broker's acknowledgement; `done` is the verdict's action, or `failed`."""
    outcome = _OUTCOMES[done]
    changes_hands = outcome == "acquired" or (outcome == "released" and decision.kind == "transfer")
    return Ack(
        decision_id=decision.decision_id,
        outcome=outcome,
        reason=reason,
        bundle=decision.bundle if changes_hands else None,
        sent_ms=sent_ms,
    )
