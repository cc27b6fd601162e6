"""One look at the tables that many requests share: opened at most every few seconds, each figure
computed once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kafka.errors import KafkaError

from lb_stream.access.refusals import AccessRefusal
from lb_stream.console.sources.shared import SharedPages
from lb_stream.query import QueryError
from lb_stream.query.health import Facts, Verdict, explain_staleness, judge
from lb_stream.query.lake import open_lake
from lb_stream.query.status_facts import add_kafka_facts, gather_table_facts
from lb_stream.store import Store

if TYPE_CHECKING:
    import duckdb

    from lb_stream.contracts.settings import Settings

T = TypeVar("T")

REFRESH_S = 3.0
"""A look older than this is replaced by the next request; the others see the older one
meanwhile."""
REST = 4.0
"""A look stays so many times as long as the CPU time that it took: to open the tables, to put the
questions, to render pages. However large the tables are and however many people watch, that takes a
quarter of one core at most."""
LONGEST_S = 30.0
"""It stays no longer, whatever it took."""
LATE_S = 20.0
"""Requests wait for the next look once it is later than this."""
MOST_ANSWERS, MOST_PAGES = 1_000, 200
"""So many are kept of one look: whoever asks for ever other addresses fills no memory."""
KAFKA_EVERY_S = 15.0
"""Whether Kafka answers, and whether a job on another machine ticks, is asked so seldom: both take
a moment."""


@dataclass(slots=True)
class TablesView:
    """The tables at one moment. `lake` None: there are none, and `trouble` says why."""

    lake: duckdb.DuckDBPyConnection | None
    facts: Facts
    made_s: float
    trouble: str = ""
    spent_s: float = 0.0  # CPU time that it took: to open the tables, to answer, to render
    pages: SharedPages = field(default_factory=lambda: SharedPages(MOST_PAGES))
    _answers: dict[Hashable, Any] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def ask(self, key: Hashable, question: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """The answer to a question, which is put once for each key. Raises QueryError."""
        with self._lock:  # a connection of DuckDB serves one thread at a time
            if self.lake is None:
                raise QueryError(self.trouble)
            if key in self._answers:
                found: T = self._answers[key]
                return found
            begun_s = time.process_time()  # DuckDB and Arrow have threads of their own
            try:
                answer = question(self.lake)
            finally:
                self.spent_s += time.process_time() - begun_s
            while len(self._answers) >= MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = answer
            return answer

    @property
    def stays_s(self) -> float:
        """How long it is shown."""
        return min(LONGEST_S, max(REFRESH_S, REST * self.spent_s))

    @property
    def verdict(self) -> Verdict:
        """That of `lbctl status`."""
        return judge(self.facts)

    @property
    def stale(self) -> str | None:
        """The banner above every page, if there is one."""
        return explain_staleness(self.facts)


class Reader:
    """Gives the newest look there is. `kafka` None: Kafka is not asked."""

    def __init__(
        self,
        tables: Store,
        settings: Settings,
        bootstrap: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._tables, self._clock = tables, clock
        self._kafka = (
            None
            if bootstrap is None
            else settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
        )
        self._look: TablesView | None = None
        self._making = threading.Lock()
        self._asked: Facts | None = None
        self._asked_s = -KAFKA_EVERY_S
        self._asking = threading.Lock()

    def current_view(self) -> TablesView:
        """The tables now, or a few seconds ago."""
        there = self._look
        if there is not None and not self._old(there, 0.0):
            return there
        if self._making.acquire(blocking=there is None or self._old(there, LATE_S)):
            try:
                if self._look is there:
                    self._look = self._next(there)
            finally:
                self._making.release()
        assert self._look is not None
        return self._look

    def find_fresh_view(self) -> TablesView | None:
        """The look, if nobody has to wait for it and nobody has to make another one."""
        there = self._look
        if there is None or self._old(there, LATE_S if self._making.locked() else 0.0):
            return None
        return there

    def _old(self, look: TablesView, late_s: float) -> bool:
        return self._clock() - look.made_s >= look.stays_s + late_s

    def _next(self, before: TablesView | None) -> TablesView:
        late = before is None or self._old(before, LATE_S)
        begun_s, made = time.process_time(), self._made()
        if before is not None:  # the first one has loaded modules besides
            made.spent_s += time.process_time() - begun_s
        if before is not None and not late:
            made.pages = SharedPages(MOST_PAGES, before.pages)
        return made

    def lake(self) -> duckdb.DuckDBPyConnection:
        """The tables now, for one who asks them for long: the look is not kept from others.

        Raises QueryError.
        """
        return open_lake(self._tables)

    def _made(self) -> TablesView:
        now_s = self._clock()
        try:
            lake = open_lake(self._tables)
        except QueryError as error:
            facts = gather_table_facts(None, self._tables, self.settings)
            return TablesView(None, self._with_kafka(facts, now_s), now_s, str(error))
        return TablesView(
            lake,
            self._with_kafka(gather_table_facts(lake, self._tables, self.settings), now_s),
            now_s,
        )

    def _with_kafka(self, facts: Facts, now_s: float) -> Facts:
        """With what Kafka said lately; asked anew beside this, so that no page waits for it."""
        if self._kafka is None:
            return facts
        if now_s - self._asked_s > KAFKA_EVERY_S:
            self._asked_s = now_s
            thread = threading.Thread(
                target=self._ask_kafka, args=(facts,), name="kafka-look", daemon=True
            )
            thread.start()
            if self._asked is None:
                thread.join(timeout=REFRESH_S)
        if self._asked is None:
            return facts
        job = facts.job
        if job.running is None and self._asked.job.epoch == job.epoch:
            job = replace(job, running=self._asked.job.running, evidence=self._asked.job.evidence)
        return replace(facts, kafka=self._asked.kafka, standbys=self._asked.standbys, job=job)

    def _ask_kafka(self, facts: Facts) -> None:
        assert self._kafka is not None
        with self._asking:
            try:
                self._asked = add_kafka_facts(
                    facts, self.settings.model_copy(update={"kafka": self._kafka})
                )
            except (KafkaError, AccessRefusal) as error:  # a right or a login is missing
                self._asked = replace(facts, kafka=str(error))
