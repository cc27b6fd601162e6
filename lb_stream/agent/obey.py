"""What to do with a decision: do it, refuse it, or leave it to others. Pure: the time is an argument.

A decision is obeyed by the broker that it addresses, once, while it is fresh, and only if it comes from the newest run of the
balancer that this agent has heard of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lb_stream.contracts.decisions import Decision

REMEMBERED_MS = 600_000
"""How long a decision is remembered after it has expired. Afterwards its age alone keeps it from being done again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do. `reason` says why a decision is refused or ignored."""

    action: Literal["release", "acquire", "split", "refuse", "ignore"]
    reason: str = ""


@dataclass(slots=True)
class Seen:
    """What an agent remembers of earlier decisions. `done` holds (broker, decision id) → when the decision expires, oldest first."""

    epoch: int = 0
    done: dict[tuple[str, str], int] = field(default_factory=dict)

    def note_epoch(self, decision: Decision) -> None:
        """Learn the epoch of any decision of the cluster, whomever it addresses."""
        self.epoch = max(self.epoch, decision.epoch)

    def note_done(self, broker: str, decision: Decision, now_ms: int) -> None:
        """Remember that the broker has dealt with a decision; forget those that expired long ago."""
        self.done[broker, decision.decision_id] = decision.expires_ms
        while (oldest := next(iter(self.done), None)) and self.done[oldest] + REMEMBERED_MS < now_ms:
            del self.done[oldest]


def addressee(decision: Decision) -> str | None:
    """The broker that has to act: who takes an assigned bundle, who gives up or splits any other."""
    return decision.destination if decision.kind == "assign" else decision.source


def judge(broker: str, seen: Seen, decision: Decision, owns: bool, now_ms: int) -> Verdict:
    """What `broker` has to do about a decision. `owns`: whether it serves the decision's bundle. Changes nothing.

    A transfer's source releases the bundle as for an unload; its destination gets an assignment of its own once that has been seen.
    """
    if addressee(decision) != broker:
        return Verdict("ignore", f"addressed to {addressee(decision)}")
    if decision.dry_run:
        return Verdict("ignore", "dry run")
    if (broker, decision.decision_id) in seen.done:
        return Verdict("ignore", "done before")
    if decision.epoch < seen.epoch:
        return Verdict("refuse", f"epoch {decision.epoch} is over, {seen.epoch} has been seen")
    if now_ms >= decision.expires_ms:
        return Verdict("refuse", f"expired {now_ms - decision.expires_ms} ms ago")
    if decision.kind == "assign":
        return Verdict("acquire")
    if not owns:
        return Verdict("refuse", f"{decision.bundle} is not served here")
    return Verdict("split" if decision.kind == "split" else "release")
