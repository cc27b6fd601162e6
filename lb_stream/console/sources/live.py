"""What is said on the topics, told at once: a decision is on the page before the tables have it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pydantic import ValidationError

from lb_stream.contracts.commands import CommandResult
from lb_stream.contracts.decisions import MOVES, read_decision
from lb_stream.query.lake import Row
from lb_stream.query.screens.feed import with_explanation

logger = logging.getLogger(__name__)

MOST_LISTENERS = 1_000
MOST_WAITING = 200
"""Entries that one listener may be behind; one that is further behind misses the older ones, which
the tables have."""
POLL_MS = 200
AGAIN_S = 3.0

PublishRow = Callable[[Row], None]


@dataclass(eq=False, slots=True)
class Listener:
    """One open page: which entries it wants, and those that wait for it.

    `what` and `text` as of `query.screens.feed`.
    """

    cluster: str
    what: str
    text: str
    loop: asyncio.AbstractEventLoop
    waiting: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))

    def wants(self, row: Row) -> bool:
        """Whether an entry belongs on its page."""
        if self.cluster and row["cluster"] != self.cluster:
            return False
        kinds = {
            "all": True,
            "commands": row["entry"] == "command",
            "decisions": row["entry"] == "decision",
            "moves": row["kind"] in MOVES,
        }
        text = " ".join(
            str(row.get(name) or "")
            for name in ("id", "kind", "bundle", "source", "destination", "rule", "text")
        )
        return kinds.get(self.what, True) and self.text.lower() in text.lower()

    def put(self, html: str) -> None:
        """From whatever thread."""
        with suppress(RuntimeError):  # its loop has ended
            self.loop.call_soon_threadsafe(self._put, html)

    def _put(self, html: str) -> None:
        if self.waiting.full():
            self.waiting.get_nowait()
        self.waiting.put_nowait(html)


class Hub:
    """Who listens. An entry is made HTML once, however many want it."""

    def __init__(self, render: Callable[[Row], str]) -> None:
        self._render = render
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()

    def join(self, listener: Listener) -> bool:
        """Whether there was room."""
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS:
                return False
            self._listeners.add(listener)
            return True

    def leave(self, listener: Listener) -> None:
        """It hears no more."""
        with self._lock:
            self._listeners.discard(listener)

    def publish(self, row: Row) -> None:
        """Give an entry to all that want it."""
        with self._lock:
            those = [listener for listener in self._listeners if listener.wants(row)]
        if those:
            told = json.dumps(
                {"id": row["id"], "cluster": row["cluster"], "html": self._render(row)}
            )
            for listener in those:
                listener.put(told)


class TopicFollower:
    """Reads the topics of decisions and answers as agents do, committed records only, from their
    ends on, until it is stopped."""

    def __init__(
        self, options: dict[str, Any], decisions: str, results: str, tell: PublishRow
    ) -> None:
        self._options, self._topics, self._tell = (
            options,
            {decisions: decision_row, results: _result_row},
            tell,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-follower", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, within a moment."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except (KafkaError, OSError, ValueError) as error:
                logger.info("the topics can't be followed: %s: %s", type(error).__name__, error)
            self._stop.wait(AGAIN_S)

    def _follow(self) -> None:
        with closing(
            KafkaConsumer(
                **self._options, isolation_level="read_committed", enable_auto_commit=False
            )
        ) as consumer:
            partitions = [
                TopicPartition(topic, number)
                for topic in self._topics
                for number in sorted(consumer.partitions_for_topic(topic) or ())
            ]
            if not partitions:
                return  # no topics yet
            consumer.assign(partitions)
            for partition, end in consumer.end_offsets(partitions).items():
                consumer.seek(partition, end)
            while not self._stop.is_set():
                for partition, some in consumer.poll(timeout_ms=POLL_MS).items():
                    for row in self._rows(partition.topic, some):
                        self._tell(row)

    def _rows(self, topic: str, some: list[Any]) -> Iterator[Row]:
        for record in some:
            try:
                yield self._topics[topic](record.value)
            except (
                ValidationError,
                ValueError,
                TypeError,
            ):  # anybody may have written it; the tables have what is real
                logger.info(
                    "%s, partition %s, offset %s: not shown: can't be read",
                    topic,
                    record.partition,
                    record.offset,
                )


def decision_row(value: bytes) -> Row:
    """A decision, as its topic has it, as a row of the feed. Raises ValidationError, ValueError."""
    decision = read_decision(value)
    row = decision.model_dump(mode="json", exclude={"explain"}) | {
        "explain": decision.explain.model_dump(mode="json")
    }
    row |= {"entry": "decision", "id": decision.decision_id, "at_ms": decision.issued_ms}
    return with_explanation(row | dict.fromkeys(("outcome", "detail", "took_ms")))


def _result_row(value: bytes) -> Row:
    """As a row of the feed."""
    result = CommandResult.model_validate_json(value)
    row = {
        "entry": "command",
        "id": result.id,
        "cluster": result.cluster,
        "kind": result.kind,
        "at_ms": result.at_ms,
        "outcome": result.outcome,
    }
    return row | {
        "text": result.text,
        "rule": result.rule,
        "by": None,
        "arguments": {},
        "dry_run": False,
    }


def now_ms() -> int:
    """Ms since the epoch."""
    return time.time_ns() // 1_000_000
