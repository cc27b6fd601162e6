"""Decides who leads a pipeline, and when a standby may take over, from records and times.

There is no Kafka here and no clock. All jobs that have read the topic equally far agree on what it
says (`Standing`, by the topic's order and append times). Each job decides by its own clock when to
claim (`Follower`): one that is cut off from Kafka, or was suspended, concludes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from lb_stream.contracts.commands import Claim, LeadershipRecord, Tick

CLAIM_MS = 20_000
"""How long others wait for the first tick of a job that has claimed; then they may claim."""
FORCED_CLAIM_MS = 120_000
"""The same for a job that was started to take over: its Spark is not running yet."""
CLAIM_AGAIN_MS = 1_000
"""How long a job waits before it claims again, after a claim that didn't count."""


@dataclass(frozen=True, slots=True)
class ReceivedRecord:
    """A leadership record, and its append time."""

    record: LeadershipRecord
    append_ms: int


class Action(Enum):
    """What a follower does next."""

    WAIT = "wait"
    CLAIM = "claim"  # send a claim, and read on
    LEAD = "lead"  # its claim counts: fence the job that led, and begin


@dataclass(frozen=True, slots=True)
class Standing:
    """What the topic says.

    `tick`: the last tick of any job; None: none is known. `vacant`: the leader has stopped in
    order. `heir`: the claim that counts, until a job ticks that began to lead after it: the job
    that has claimed, or one that was faster.
    """

    tick: ReceivedRecord | None = None
    heir: ReceivedRecord | None = None
    vacant: bool = False

    def after(self, received: ReceivedRecord, failover_ms: int) -> Standing:
        """Return what the topic says with one more record."""
        record = received.record
        if isinstance(record, Tick):
            return self._after_tick(record, received)
        if isinstance(record, Claim) and self._counts(record, received.append_ms, failover_ms):
            return replace(self, heir=received)
        return self

    def _after_tick(self, tick: Tick, received: ReceivedRecord) -> Standing:
        # The last tick of a job that was shut out says nothing about the job that leads now.
        if tick.ends:
            is_leader = self.tick is None or self.tick.record.epoch <= tick.epoch
            return replace(self, tick=received, vacant=True) if is_leader else self

        # A leader that was taken for dead may tick until it is shut out: the claim stays valid.
        heir = self.heir
        if heir is not None:
            leads_anew = tick.epoch > heir.record.epoch or tick.instance == heir.record.instance
            too_late = received.append_ms - heir.append_ms >= patience_ms(heir.record)
            if leads_anew or too_late:
                heir = None
        return Standing(received, heir)

    def _counts(self, claim: Claim, at_ms: int, failover_ms: int) -> bool:
        """Return whether a claim that was appended at this time makes its job the heir.

        The leader must have stopped or been silent, and no other claim may count.
        """
        if claim.forced:
            return True
        if self.heir is not None and at_ms - self.heir.append_ms < patience_ms(self.heir.record):
            return False
        if self.tick is None:
            return True
        named = self.tick.record.to if isinstance(self.tick.record, Tick) and self.vacant else None
        if named is not None and named in ("", claim.instance):
            return True
        return at_ms - self.tick.append_ms >= failover_ms


def patience_ms(claim: LeadershipRecord) -> int:
    """Return how long (ms) others wait for the first tick of a job that has claimed."""
    return FORCED_CLAIM_MS if isinstance(claim, Claim) and claim.forced else CLAIM_MS


@dataclass(slots=True)
class Follower:
    """One job that stands by.

    Times are those of its own clock: ms since any beginning, which only grow.
    """

    instance: str
    failover_ms: int
    standing: Standing = Standing()
    # Since when it has read to the topic's end again and again, without a record of a leader.
    _since: float | None = None
    _observed_at: float = 0.0
    # The id of its claim, and when it was made.
    _claimed: tuple[str, float] | None = None

    def observe(
        self,
        received: Iterable[ReceivedRecord] | None,
        asked_at: float,
        answered_at: float | None = None,
    ) -> Action:
        """Take the topic's new records into account, and return what to do next.

        `received`: all new records up to the topic's end; None: Kafka didn't answer. `asked_at`,
        `answered_at`: the times before and after Kafka was asked; None: it took no time.
        """
        if received is None:
            self._since = None
            return Action.WAIT

        # After a pause of its own the job can't know whether the leader was silent.
        if self._since is None or asked_at - self._observed_at > self.failover_ms / 2:
            self._since = asked_at
        self._observed_at = asked_at

        # A record may have come while Kafka was slow to answer.
        for record in received:
            before, self.standing = self.standing, self.standing.after(record, self.failover_ms)
            if self.standing is not before:
                self._since = asked_at if answered_at is None else answered_at
        heir = self.standing.heir
        if heir is not None and self._claimed is not None and heir.record.id == self._claimed[0]:
            return Action.LEAD
        return Action.CLAIM if self._may_claim(asked_at) else Action.WAIT

    def claimed(self, claim: Claim, at: float) -> None:
        """Note that this job has sent a claim."""
        self._claimed = claim.id, at

    def begin_anew(self) -> None:
        """Forget its claim and the silence before: the job has led, or tried to."""
        self._claimed, self._since = None, None

    def _may_claim(self, now: float) -> bool:
        silent_ms = 0.0 if self._since is None else now - self._since
        if self._claimed is not None and now - self._claimed[1] < CLAIM_AGAIN_MS:
            return False
        if self.standing.heir is not None:
            return silent_ms >= patience_ms(self.standing.heir.record)
        if self.standing.vacant and self.standing.tick is not None:
            assert isinstance(self.standing.tick.record, Tick)
            if self.standing.tick.record.to in ("", self.instance):
                return True
        return silent_ms >= self.failover_ms
