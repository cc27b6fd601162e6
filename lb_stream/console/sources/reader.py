"""One look at the tables that many requests share: opened at most every few seconds, each figure computed once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kafka.errors import KafkaError

from lb_stream.access.refusals import Refusal
from lb_stream.core.health import Facts, Verdict, stale, verdict
from lb_stream.query import QueryError
from lb_stream.query.lake import open_lake
from lb_stream.query.status_facts import gather_from, with_kafka
from lb_stream.store import Store

if TYPE_CHECKING:
    import duckdb

    from lb_stream.contracts.settings import Settings

T = TypeVar("T")

REFRESH_S = 3.0
"""A look older than this is replaced by the next request; the others see the older one meanwhile."""
OLDEST_S = 20.0
"""They wait when it is older than this."""
KAFKA_EVERY_S = 15.0
"""Whether Kafka answers, and whether a job on another machine ticks, is asked so seldom: both take a moment."""


@dataclass(slots=True)
class Look:
    """The tables at one moment. `lake` None: there are none, and `trouble` says why."""

    lake: duckdb.DuckDBPyConnection | None
    facts: Facts
    made_s: float
    trouble: str = ""
    _answers: dict[Hashable, Any] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def ask(self, key: Hashable, question: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """The answer to a question, which is put once for each key. Raises QueryError."""
        with self._lock:  # a connection of DuckDB serves one thread at a time
            if self.lake is None:
                raise QueryError(self.trouble)
            if key not in self._answers:
                self._answers[key] = question(self.lake)
            found: T = self._answers[key]
            return found

    @property
    def verdict(self) -> Verdict:
        """That of `lbctl status`."""
        return verdict(self.facts)

    @property
    def stale(self) -> str | None:
        """The banner above every page, if there is one."""
        return stale(self.facts)


class Reader:
    """Gives the newest look there is. `kafka` None: Kafka is not asked."""

    def __init__(self, tables: Store, settings: Settings, bootstrap: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._tables, self._clock = tables, clock
        self._kafka = None if bootstrap is None else settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
        self._look: Look | None = None
        self._making = threading.Lock()
        self._asked: Facts | None = None
        self._asked_s = -KAFKA_EVERY_S
        self._asking = threading.Lock()

    def look(self) -> Look:
        """The tables now, or a few seconds ago."""
        there, now_s = self._look, self._clock()
        if there is not None and now_s - there.made_s < REFRESH_S:
            return there
        if self._making.acquire(blocking=there is None or now_s - there.made_s > OLDEST_S):
            try:
                if self._look is there:
                    self._look = self._made()
            finally:
                self._making.release()
        assert self._look is not None
        return self._look

    def lake(self) -> duckdb.DuckDBPyConnection:
        """The tables now, for one who asks them for long: the look is not kept from others. Raises QueryError."""
        return open_lake(self._tables)

    def _made(self) -> Look:
        now_s = self._clock()
        try:
            lake = open_lake(self._tables)
        except QueryError as error:
            facts = gather_from(None, self._tables, self.settings)
            return Look(None, self._with_kafka(facts, now_s), now_s, str(error))
        return Look(lake, self._with_kafka(gather_from(lake, self._tables, self.settings), now_s), now_s)

    def _with_kafka(self, facts: Facts, now_s: float) -> Facts:
        """With what Kafka said lately; asked anew beside this, so that no page waits for it."""
        if self._kafka is None:
            return facts
        if now_s - self._asked_s > KAFKA_EVERY_S:
            self._asked_s = now_s
            thread = threading.Thread(target=self._ask_kafka, args=(facts,), name="kafka-look", daemon=True)
            thread.start()
            if self._asked is None:
                thread.join(timeout=REFRESH_S)
        if self._asked is None:
            return facts
        job = facts.job
        if job.running is None and self._asked.job.epoch == job.epoch:
            job = replace(job, running=self._asked.job.running, seen=self._asked.job.seen)
        return replace(facts, kafka=self._asked.kafka, standbys=self._asked.standbys, job=job)

    def _ask_kafka(self, facts: Facts) -> None:
        assert self._kafka is not None
        with self._asking:
            try:
                self._asked = with_kafka(facts, self.settings.model_copy(update={"kafka": self._kafka}))
            except (KafkaError, Refusal) as error:  # a right or a login is missing
                self._asked = replace(facts, kafka=str(error))
