"""Views of the tables that requests share: opened every few seconds, each question asked once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

from kafka.errors import KafkaError

from lb_stream.access.refusals import AccessRefusal
from lb_stream.console.sources.page_cache import PageCache
from lb_stream.query import QueryError
from lb_stream.query.health import Facts, Verdict, explain_staleness, judge
from lb_stream.query.lake import open_lake
from lb_stream.query.status_facts import add_kafka_facts, gather_table_facts
from lb_stream.store import Store

if TYPE_CHECKING:
    from lb_stream.contracts.settings import Settings
    from lb_stream.query.lake import Lake

T = TypeVar("T")

MIN_LIFETIME_S = 3.0
"""The first request after a view's lifetime opens the next one; others get the old one meanwhile.
"""
LIFETIME_PER_CPU_TIME = 4.0
"""A view lives for this many times the CPU time that it takes: to open tables, to answer questions,
to render pages. So tables of any size and any number of viewers take a quarter of a core."""
MAX_LIFETIME_S = 30.0
"""A view lives no longer than this, whatever it takes."""
MAX_DELAY_S = 20.0
"""Requests wait for the next view once it is later than this."""
MAX_ANSWERS, MAX_PAGES = 1_000, 200
"""Answers and pages that are kept of one view, so that requests can't fill the memory."""
KAFKA_INTERVAL_S = 15.0
"""Time between two checks whether Kafka answers and whether the job runs."""


@dataclass(slots=True)
class TablesView:
    """The tables at one moment. `lake` None: there are none, and `error` says why.

    `opened_s`: on the reader's clock; `cpu_s`: the CPU time that this view has taken so far.
    """

    lake: Lake | None
    facts: Facts
    opened_s: float
    error: str = ""
    cpu_s: float = 0.0
    pages: PageCache = field(default_factory=lambda: PageCache(MAX_PAGES))
    _answers: dict[Hashable, object] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def ask(self, key: Hashable, question: Callable[[Lake], T]) -> T:
        """Return a question's answer from the tables, asked once for each key. Raises QueryError.

        A key says what is asked, and so the type of its answer.
        """
        with self._lock:  # a connection of DuckDB serves one thread at a time
            if self.lake is None:
                raise QueryError(self.error)
            if key in self._answers:
                return cast("T", self._answers[key])
            begun_s = time.process_time()  # DuckDB and Arrow have threads of their own
            try:
                answer = question(self.lake)
            finally:
                self.cpu_s += time.process_time() - begun_s
            while len(self._answers) >= MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = answer
            return answer

    @property
    def lifetime_s(self) -> float:
        """Return for how long this view is the current one."""
        return min(MAX_LIFETIME_S, max(MIN_LIFETIME_S, LIFETIME_PER_CPU_TIME * self.cpu_s))

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of `lbctl status`."""
        return judge(self.facts)

    @property
    def staleness(self) -> str | None:
        """Return why the tables are not up to date; None: they are."""
        return explain_staleness(self.facts)


class Reader:
    """Opens the tables and gives requests the current view. `bootstrap` None: without Kafka."""

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
        self._view: TablesView | None = None
        self._opening = threading.Lock()
        # the last facts with Kafka's answers, and when Kafka was asked
        self._kafka_facts: Facts | None = None
        self._kafka_asked_s = -KAFKA_INTERVAL_S
        self._kafka_asking = threading.Lock()

    def current_view(self) -> TablesView:
        """Return the tables as they are now, or were a few seconds ago."""
        view = self._view
        if view is not None and not self._has_expired(view):
            return view
        must_wait = view is None or self._has_expired(view, MAX_DELAY_S)
        if self._opening.acquire(blocking=must_wait):
            try:
                if self._view is view:
                    self._view = self._open_next(view)
            finally:
                self._opening.release()
        assert self._view is not None
        return self._view

    def find_fresh_view(self) -> TablesView | None:
        """Return the current view; None: the request has to open the next one, or to wait."""
        view = self._view
        delay_s = MAX_DELAY_S if self._opening.locked() else 0.0
        return None if view is None or self._has_expired(view, delay_s) else view

    def open_lake(self) -> Lake:
        """Open the tables for long questions, which must not block the view. Raises QueryError."""
        return open_lake(self._tables)

    def _has_expired(self, view: TablesView, delay_s: float = 0.0) -> bool:
        return self._clock() - view.opened_s >= view.lifetime_s + delay_s

    def _open_next(self, before: TablesView | None) -> TablesView:
        if before is None:
            return self._open()  # loading modules is no part of a view's CPU time
        is_late = self._has_expired(before, MAX_DELAY_S)
        begun_s = time.process_time()
        view = self._open()
        view.cpu_s += time.process_time() - begun_s
        if not is_late:
            view.pages = PageCache(MAX_PAGES, before.pages)
        return view

    def _open(self) -> TablesView:
        now_s = self._clock()
        try:
            lake = open_lake(self._tables)
        except QueryError as error:
            facts = gather_table_facts(None, self._tables, self.settings)
            return TablesView(None, self._with_kafka(facts, now_s), now_s, str(error))
        facts = gather_table_facts(lake, self._tables, self.settings)
        return TablesView(lake, self._with_kafka(facts, now_s), now_s)

    def _with_kafka(self, facts: Facts, now_s: float) -> Facts:
        """Add Kafka's last answers. Kafka is asked in a thread, so that no page waits for it."""
        if self._kafka is None:
            return facts
        if now_s - self._kafka_asked_s > KAFKA_INTERVAL_S:
            self._kafka_asked_s = now_s
            thread = threading.Thread(
                target=self._ask_kafka, args=(facts,), name="kafka-facts", daemon=True
            )
            thread.start()
            if self._kafka_facts is None:
                thread.join(timeout=MIN_LIFETIME_S)
        answers, job = self._kafka_facts, facts.job
        if answers is None:
            return facts
        if job.running is None and answers.job.epoch == job.epoch:
            job = replace(job, running=answers.job.running, evidence=answers.job.evidence)
        return replace(facts, kafka=answers.kafka, standbys=answers.standbys, job=job)

    def _ask_kafka(self, facts: Facts) -> None:
        settings = self.settings.model_copy(update={"kafka": self._kafka})
        with self._kafka_asking:
            try:
                self._kafka_facts = add_kafka_facts(facts, settings)
            except (KafkaError, AccessRefusal) as error:  # a login or a right is missing
                self._kafka_facts = replace(facts, kafka=str(error))
