"""Recognises transient errors by the texts of Spark and the system, and limits restarts."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from lb_stream.stream.ports import FatalError, StreamError


class Pauses(NamedTuple):
    """How long the stream rests before it restarts: at first, and at most; s."""

    first_s: float
    longest_s: float


PAUSES = Pauses(1.0, 30.0)
KAFKA_PAUSES = Pauses(0.25, 5.0)
"""After Kafka's absence: that Kafka answers again has been waited for already."""


class TransientError(StreamError):
    """A batch has failed for a reason that a later attempt may not meet.

    `by_a_record`: a poison record is another possible reason. `daemon_lost`: the daemon of Python
    workers has ended, and Spark may go on using it.
    """

    def __init__(self, message: str, by_a_record: bool = False, daemon_lost: bool = False) -> None:
        super().__init__(message)
        self.by_a_record, self.daemon_lost = by_a_record, daemon_lost


_SESSION_OVER = re.compile(
    r"SparkContext was shut down|stopped SparkContext|Master removed our application|Application "
    r"is killed"
)

_WORKER_LATE = re.compile(r"Python worker failed to connect back")
_WORKER_GONE = re.compile(
    r"Python worker exited unexpectedly|from \S+'s stdout|socket to Python daemon"
)
"""Spark's texts when a worker, or the daemon that forks workers, has ended without an exception."""

_DAEMON_LOST = re.compile(r"from \S+'s stdout|UnixDomainSocketAddress\.of\(")
"""Spark's texts when the daemon has ended while it started. Each later worker fails with them."""

_EXECUTOR_LATE = re.compile(
    r"unrelated to the running tasks|[Ww]orker lost|Executor heartbeat timed "
    r"out|RpcTimeoutException|Futures timed out|FetchFailed|"
    r"Missing an output location|maximum allowable number of times|UNRELEASED_THREAD_ERROR"
)
_EXECUTOR_GONE = re.compile(r"ExecutorLostFailure|Lost executor|Could not find executor")

_DISK = re.compile(r"Input/output error|Stale file handle|Transport endpoint is not connected")
"""The system's texts when a disk, mostly one on a network, doesn't answer for a moment."""


def find_failure(text: str) -> StreamError | None:
    """Return the failure that an error's text describes; None: no known one.

    It is a transient error, or a fatal one if Spark's session has ended.
    """
    if _SESSION_OVER.search(text):
        return FatalError(
            "Spark's session has ended: the lines above have the reason. On a standalone cluster "
            "the master gives up a job whose executors have ended ten times in a row; the "
            "executors' logs, on the workers, have the reason of that"
        )
    if _WORKER_LATE.search(text):
        return TransientError(
            "Python workers have not started in time: the machine is too busy, or has too little "
            "memory to start them"
        )
    daemon_lost = _DAEMON_LOST.search(text) is not None
    if daemon_lost or _WORKER_GONE.search(text):
        return TransientError(
            "Python workers have ended during a batch: they were killed from outside, or the "
            "machine had too little memory (see the system's log); then give it more, or let a "
            "batch read less (stream.max_offsets_per_trigger)",
            by_a_record=True,
            daemon_lost=daemon_lost,
        )
    if _EXECUTOR_LATE.search(text):
        return TransientError(
            "executors were lost, or did not answer in time: their machines or the network failed "
            "or were slow"
        )
    if _EXECUTOR_GONE.search(text):
        return TransientError(
            "executors have ended during a batch: they were killed from outside, or had too little "
            "memory; their logs have the reason",
            by_a_record=True,
        )
    if found := _DISK.search(text):
        return TransientError(
            f"the disk did not answer ({found[0]}): look at stream.tables, stream.checkpoint and "
            "the network to them"
        )
    return None


@dataclass(slots=True)
class Patience:
    """Limits restarts of the stream without a finished batch in between.

    `limit_s`: the time that they may take together; 0: no limit.
    """

    limit_s: float
    tries: int = 0
    _since: float = field(default_factory=time.monotonic)

    def next_pause_s(self, finished: bool, pauses: Pauses = PAUSES) -> float | None:
        """Return the pause before the next try (s); None: the limit is reached.

        `finished`: a batch has been finished since the last try.
        """
        if finished or not self.tries:
            self.tries, self._since = 0, time.monotonic()
        self.tries += 1
        pause = min(pauses.first_s * 2.0 ** min(self.tries - 1, 10), pauses.longest_s)
        over = self.limit_s and time.monotonic() - self._since + pause > self.limit_s
        return None if over else pause
