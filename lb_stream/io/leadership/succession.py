"""Who leads a pipeline, and when a job that stands by may take over: signs and times in, what to do
out. No Kafka, no clock of its own.

What the topic says is the same for everyone who has read it as far (`Standing`, by the topic's
order and append times). When it is time to claim is each job's own matter (`Follower`, by its own
clock): whoever is cut off from Kafka, or has slept, concludes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from lb_stream.contracts.commands import Claim, LeadershipRecord, Tick

CLAIM_MS = 20_000
"""Who has claimed has this long until its first tick; then others may claim."""
FORCED_CLAIM_MS = 120_000
"""The same of a job that was started to take over: its Spark isn't there yet."""
CLAIM_AGAIN_MS = 1_000
"""A claim that didn't count is not made again at once."""


@dataclass(frozen=True, slots=True)
class ReceivedRecord:
    """A sign, and Kafka's time of it."""

    record: LeadershipRecord
    append_ms: int


class Action(Enum):
    """What a follower does next."""

    WAIT = "wait"
    CLAIM = "claim"  # put a claim on the topic, and read on
    LEAD = "lead"  # its claim counts: fence whoever led, and begin


@dataclass(frozen=True, slots=True)
class Standing:
    """What the topic says.

    `tick`: the last one, whosever; None: none is known. `vacant`: the leader has stopped in order.

    `heir`: the claim that counts, until a job ticks that began to lead after it, its own or one
    that was faster.
    """

    tick: ReceivedRecord | None = None
    heir: ReceivedRecord | None = None
    vacant: bool = False

    def after(self, heard: ReceivedRecord, failover_ms: int) -> Standing:
        """With one more record of the topic."""
        if isinstance(heard.record, Tick):
            return self._after_tick(heard.record, heard)
        if isinstance(heard.record, Claim) and self._counts(
            heard.record, heard.append_ms, failover_ms
        ):
            return replace(self, heir=heard)
        return self

    def _after_tick(self, tick: Tick, heard: ReceivedRecord) -> Standing:
        if (
            tick.ends
        ):  # of one that was shut out meanwhile it says nothing about the one that leads now
            over = self.tick is None or self.tick.record.epoch <= tick.epoch
            return replace(self, tick=heard, vacant=True) if over else self
        # whoever was taken for dead may tick again until it is shut out: that doesn't make its
        # heir's claim void
        heir = self.heir
        if heir is not None:
            leads_anew = tick.epoch > heir.record.epoch or tick.instance == heir.record.instance
            heir = (
                None
                if leads_anew or heard.append_ms - heir.append_ms >= patience_ms(heir.record)
                else heir
            )
        return Standing(heard, heir)

    def _counts(self, claim: Claim, at_ms: int, failover_ms: int) -> bool:
        """Whether a claim that was appended then makes its job the heir: the leader has gone or
        been silent, and nobody was first."""
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
    """How long others wait for the first tick of a job that has claimed."""
    return FORCED_CLAIM_MS if isinstance(claim, Claim) and claim.forced else CLAIM_MS


@dataclass(slots=True)
class Follower:
    """One job that stands by.

    Times are its own clock's, ms, from any beginning; they only ever grow.
    """

    instance: str
    failover_ms: int
    standing: Standing = Standing()
    _since: float | None = (
        None  # since when it has read to the topic's end again and again, without a sign of life
    )
    _looked: float = 0.0
    _claimed: tuple[str, float] | None = None  # id of its claim, when it was made

    def observe(
        self,
        heard: Iterable[ReceivedRecord] | None,
        asked_at: float,
        answered_at: float | None = None,
    ) -> Action:
        """One look at the topic.

        `heard`: all that is new there, read to its end; None: Kafka didn't answer.

        `asked_at`, `answered_at`: just before it and just after; None: it took no time.
        """
        if heard is None:
            self._since = None
            return Action.WAIT
        if self._since is None or asked_at - self._looked > self.failover_ms / 2:
            self._since = (
                asked_at  # it was away itself: so may have been the leader, for no fault of its own
            )
        self._looked = asked_at
        for one in heard:
            before, self.standing = self.standing, self.standing.after(one, self.failover_ms)
            if self.standing is not before:  # the sign may have come while Kafka was slow to answer
                self._since = asked_at if answered_at is None else answered_at
        heir = self.standing.heir
        if heir is not None and self._claimed is not None and heir.record.id == self._claimed[0]:
            return Action.LEAD
        return Action.CLAIM if self._may_claim(asked_at) else Action.WAIT

    def claimed(self, claim: Claim, at: float) -> None:
        """Its claim is on the topic."""
        self._claimed = claim.id, at

    def begin_anew(self) -> None:
        """It has led, or tried to: an earlier claim of its own counts no more, and the silence
        before doesn't."""
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
