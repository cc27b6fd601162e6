"""Sets up a job's log on stderr, without secrets and control characters."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from lb_stream.io.messages.shown import shown
from lb_stream.settings.secrets import hide

KAFKA_EVERY_S = 60.0
"""Seconds between two lines of Kafka's client."""
SLOW_TASK = "blocking the event loop"
"""Part of a warning of kafka-python about its own tasks that take over 0.1 s.

It concerns programs that serve many others from one event loop. Here each client has a thread, and
a busy machine is enough to cause the warning.
"""

CLOSED = "Metadata refresh: failed Cancelled"
"""An error of kafka-python without meaning: a client was closed before its first answer."""


class Lines(logging.Formatter):
    """Formats log lines and traces without secrets and control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's text."""
        return shown(hide(super().format(record)), "\n\t")


class KafkaLogRateLimiter(logging.Filter):
    """Lets through one line a minute of Kafka's client, which logs every attempt to reconnect."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._last, self._left_out = clock, -KAFKA_EVERY_S, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        if record.name.partition(".")[0] != "kafka":
            return True
        if SLOW_TASK in str(record.msg) or record.getMessage() == CLOSED:
            return False
        if self._clock() - self._last < KAFKA_EVERY_S:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"{record.getMessage()} (and {self._left_out} lines before it)"
            record.args = ()
        record.exc_info = record.exc_text = None
        self._last, self._left_out = self._clock(), 0
        return True


def print_trace(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    """Print the trace of an error that nobody has foreseen, without secrets, as a program ends."""
    text = "".join(traceback.format_exception(kind, error, trace))
    print(shown(hide(text), "\n\t"), file=sys.stderr, end="", flush=True)


def set_up(level: int = logging.INFO) -> None:
    """Log to stderr, also what ends the program or one of its threads."""
    sys.excepthook = print_trace
    threading.excepthook = lambda ended: print_trace(
        ended.exc_type, ended.exc_value, ended.exc_traceback
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(KafkaLogRateLimiter())
    logging.basicConfig(level=level, handlers=[handler])
    # py4j logs a failed batch with Java's whole stack; the job's last line says why it ended.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
