"""Decisions and results from their topics, sent to open pages before the tables have them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pydantic import ValidationError

from lb_stream.contracts.commands import CommandResult
from lb_stream.contracts.decisions import MOVES, read_decision
from lb_stream.contracts.reads import is_reads
from lb_stream.query.lake import Row
from lb_stream.query.screens.entries import OpenMoves, describe_command

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord

logger = logging.getLogger(__name__)

MAX_LISTENERS = 1_000
MAX_QUEUED = 200
"""Entries that wait for one listener. When there are more, the oldest are dropped: the tables have
them."""
POLL_MS = 200
RETRY_S = 3.0

PublishRow = Callable[[Row], None]
ClientOptions = Mapping[str, object]
"""Arguments of a client of kafka-python."""

SEARCHED_FIELDS = ("id", "kind", "bundle", "source", "destination", "rule", "text")


@dataclass(eq=False, slots=True)
class Listener:
    """An open page or a program: which entries it wants, and those that wait to be sent to it.

    `kinds` and `text` choose entries as in `query.screens.feed`. `as_html`: it gets them as HTML.
    """

    cluster: str
    kinds: str
    text: str
    loop: asyncio.AbstractEventLoop
    as_html: bool = True
    queue: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(MAX_QUEUED))

    def wants(self, row: Row) -> bool:
        """Return whether the page shows an entry."""
        if self.cluster and row["cluster"] != self.cluster:
            return False
        chosen = {
            "all": True,
            "commands": row["entry"] == "command",
            "decisions": row["entry"] in ("decision", "move"),
            "moves": row["kind"] in MOVES,
        }
        text = " ".join(str(row.get(name) or "") for name in SEARCHED_FIELDS)
        return chosen.get(self.kinds, True) and self.text.lower() in text.lower()

    def put(self, message: str) -> None:
        """Queue a message. Any thread may call."""
        with suppress(RuntimeError):  # its loop has ended
            self.loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: str) -> None:
        if self.queue.full():
            self.queue.get_nowait()
        self.queue.put_nowait(message)


class Hub:
    """Sends entries to the listeners that want them. Each entry is rendered once.

    `render` gives an entry as HTML, `encode` as JSON.
    """

    def __init__(self, render: Callable[[Row], str], encode: Callable[[Row], str]) -> None:
        self._render, self._encode = render, encode
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> bool:
        """Add a listener. Returns False when there are MAX_LISTENERS already."""
        with self._lock:
            if len(self._listeners) >= MAX_LISTENERS:
                return False
            self._listeners.add(listener)
            return True

    def remove(self, listener: Listener) -> None:
        """Remove a listener."""
        with self._lock:
            self._listeners.discard(listener)

    def publish(self, row: Row) -> None:
        """Send an entry to the listeners that want it."""
        with self._lock:
            listeners = [listener for listener in self._listeners if listener.wants(row)]
        for_pages = [listener for listener in listeners if listener.as_html]
        for_programs = [listener for listener in listeners if not listener.as_html]
        if for_pages:
            entry = {"id": row["id"], "cluster": row["cluster"], "html": self._render(row)}
            _send(json.dumps(entry), for_pages)
        if for_programs:
            _send(self._encode(row), for_programs)


def _send(message: str, listeners: Iterable[Listener]) -> None:
    for listener in listeners:
        listener.put(message)


class TopicFollower:
    """Reads new decisions and results from their topics, committed records only, until stopped."""

    def __init__(
        self, options: ClientOptions, decisions: str, results: str, publish: PublishRow
    ) -> None:
        self._options, self._publish = options, publish
        parse_decision = partial(parse_decision_row, OpenMoves())
        self._parsers: dict[str, Callable[[bytes], Row]] = {
            decisions: parse_decision,
            results: _parse_result_row,
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-follower", daemon=True)

    def start(self) -> None:
        """Start the thread that reads."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for it for 5 s at most."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except (KafkaError, OSError, ValueError) as error:
                logger.info("the topics can't be followed: %s: %s", type(error).__name__, error)
            self._stop.wait(RETRY_S)

    def _follow(self) -> None:
        with closing(
            KafkaConsumer(
                **self._options, isolation_level="read_committed", enable_auto_commit=False
            )
        ) as consumer:
            partitions = [
                TopicPartition(topic, number)
                for topic in self._parsers
                for number in sorted(consumer.partitions_for_topic(topic) or ())
            ]
            if not partitions:
                return  # no topics yet
            consumer.assign(partitions)
            for partition, end in consumer.end_offsets(partitions).items():
                consumer.seek(partition, end)
            while not self._stop.is_set():
                for partition, polled in consumer.poll(timeout_ms=POLL_MS).items():
                    for row in self._parse(partition.topic, polled):
                        self._publish(row)

    def _parse(self, topic: str, polled: Iterable[ConsumerRecord]) -> Iterator[Row]:
        """Yield the rows of records. Any client may have written them; bad ones are left out."""
        for record in polled:
            if is_reads(record.headers):
                continue
            try:
                yield self._parsers[topic](record.value)
            except (ValidationError, ValueError, TypeError):
                logger.info(
                    "%s, partition %s, offset %s can't be parsed: it is not shown",
                    topic,
                    record.partition,
                    record.offset,
                )


def parse_decision_row(open_moves: OpenMoves, value: bytes) -> Row:
    """Parse a record of the decisions topic to a row of the feed. Raises ValueError."""
    decision = read_decision(value)
    row = decision.model_dump(mode="json", exclude={"explain"})
    row |= {"explain": decision.explain.model_dump(mode="json")}
    return open_moves.add(row | dict.fromkeys(("outcome", "detail", "took_ms")))


def _parse_result_row(value: bytes) -> Row:
    """Parse a record of the results topic to a row of the feed. Raises ValueError."""
    result = CommandResult.model_validate_json(value)
    return {
        "entry": "command",
        "id": result.id,
        "cluster": result.cluster,
        "kind": result.kind,
        "sentence": describe_command(result.kind, {}, None),
        "at_ms": result.at_ms,
        "outcome": result.outcome,
        "text": result.text,
        "rule": result.rule,
        "by": None,
        "arguments": {},
        "dry_run": False,
    }


def now_ms() -> int:
    """Return the time, ms since the epoch."""
    return time.time_ns() // 1_000_000
