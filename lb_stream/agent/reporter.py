"""What an agent sends for its brokers: reports, heartbeats, requests for splits.

A failure at one broker affects no other, and is logged once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from kafka.errors import KafkaError

from lb_stream.access.refusals import REFUSED
from lb_stream.agent.adapter import (
    BalancedAdapter,
    BrokerAdapter,
    BrokerError,
    ComparedAdapter,
    JsonReport,
    MeasuringAdapter,
    MergingAdapter,
    ProbingAdapter,
    Report,
)
from lb_stream.agent.clock import RecordClock, wall_clock_ms
from lb_stream.agent.columnar import ReportEncoder
from lb_stream.agent.connection import Connection, Headers, SendFuture
from lb_stream.agent.report_throttle import ReportThrottle
from lb_stream.agent.splits import SplitWatch
from lb_stream.contracts.reads import Reads
from lb_stream.contracts.reports import Heartbeat

log = logging.getLogger(__name__)

BALANCING_MAX_AGE_S = 30.0
"""How long heartbeats repeat what was read last of a broker's own balancing, if a reading fails."""

OnReport = Callable[[str, JsonReport], None]
"""Called with a broker and its report."""


class Reporter:
    """Sends the records of an agent's brokers.

    The heartbeats' thread calls `send_heartbeat`, the agent's thread everything else.
    """

    def __init__(
        self,
        adapters: Mapping[str, BrokerAdapter],
        connection: Connection,
        clock: RecordClock,
        make_throttle: Callable[[], ReportThrottle] | None = None,
        on_report: OnReport | None = None,
        min_columns: int = 0,
    ) -> None:
        """Take the adapters by their brokers' names.

        `make_throttle` makes the throttle of one broker's reports; None: all are sent. `clock`
        learns from acknowledged heartbeats. `min_columns`: bundles of a report from which on it is
        sent as columns; 0: none is.
        """
        self.encoder = ReportEncoder(min_columns)
        self._adapters = adapters
        self._connection = connection
        self._clock = clock
        self._on_report = on_report
        self._throttles = {name: make_throttle() for name in adapters} if make_throttle else {}
        # Broker → why it gives no report or heartbeat.
        self._troubles: dict[str, str] = {}
        # Brokers whose next report is sent even if it says nothing new: the last one may be lost.
        self._forced: set[str] = set()
        # Brokers whose last record did not reach Kafka.
        self._unsent: set[str] = set()
        # Broker → settings by which its own cluster balances, and when (s) they were read.
        self._own_balancing: dict[str, tuple[list[str], float]] = {}
        # Broker → its settings that differ from the balancer's, as last read.
        self._differing: dict[str, list[str]] = {}
        # Brokers that don't answer.
        self._silent: set[str] = set()

    def force_next_report(self, brokers: Iterable[str]) -> None:
        """Send the next report of these brokers even if it says nothing new."""
        self._forced.update(brokers)

    def note_reads(self, reads: Reads) -> None:
        """Note which forms of reports the job reads, and which brokers must report again."""
        self.force_next_report(self.encoder.note_reads(reads, self._adapters))

    def send_report(self, broker: str, forced: bool = False) -> None:
        """Send a broker's report, if it gives one that is needed or `forced`."""
        try:
            reports = self._read_reports(broker, forced)
            encoded = [self.encoder.encode(broker, report) for report in reports]
        except BrokerError as error:
            self.note_trouble(broker, f"gives no report: {error}")
            return
        except Exception:  # the next report may succeed; the other brokers must not wait for it
            log.exception("%s gave no report", broker)
            return
        if self._troubles.pop(broker, None) is not None:
            log.warning("%s reports again", broker)
        if encoded:
            # Before the sending: if this report is lost, the next one is forced again.
            self._forced.discard(broker)
        for report, records in zip(reports, encoded, strict=True):
            for kind, value in records:
                self.send(broker, value, kind)
            if self._on_report is not None:
                fields = report if isinstance(report, Mapping) else json.loads(report)
                self._on_report(broker, fields)

    def _read_reports(self, broker: str, forced: bool) -> list[Report]:
        """Return the reports of a broker that are to be sent now."""
        given = self._adapters[broker].report()
        reports = [given] if isinstance(given, Mapping | bytes) else list(given)
        throttle = self._throttles.get(broker)
        if throttle is None:
            return reports
        now_ms = time.monotonic_ns() // 1_000_000
        forced = forced or broker in self._forced
        taken = [throttle.take(report, now_ms, forced) for report in reports]
        return [report for report in taken if report is not None]

    def request_splits(self, adapter: MeasuringAdapter, watch: SplitWatch) -> None:
        """Send a request for each split that a broker's bundles need."""
        if adapter.name in self._troubles:  # that has been logged
            return
        try:
            requests = watch.find_splits(adapter)
        except BrokerError as error:
            log.warning("the bundles of %s can't be read: %s", adapter.name, error)
            return
        except Exception:  # the next time may succeed
            log.exception("the bundles of %s can't be read", adapter.name)
            return
        for request in requests:
            stamped = request.model_copy(update={"sent_ms": wall_clock_ms()})
            self.send(adapter.name, stamped.to_json(), "ask")

    def read_own_balancing(self, broker: str) -> None:
        """Read the settings with which a broker's own load manager balances, and those that differ.

        Heartbeats carry them. They are read apart, because a leader may be slow to answer. A broker
        that gives no report may answer this question all the same.
        """
        adapter = self._adapters[broker]
        if not isinstance(adapter, BalancedAdapter) or broker in self._silent:
            return
        try:
            self._own_balancing[broker] = list(adapter.balances()), time.monotonic()
            if isinstance(adapter, ComparedAdapter):
                self._differing[broker] = list(adapter.differing())
        except BrokerError as error:  # heartbeats repeat what was read last, for a while
            log.info("whether the load manager of %s balances is unknown: %s", broker, error)
        except Exception:  # the next time may succeed
            log.exception("whether the load manager of %s balances is unknown", broker)

    def _recent_balancing(self, broker: str) -> list[str] | None:
        """Return the settings with which a broker's own load manager balances; None: not known."""
        if not isinstance(self._adapters[broker], BalancedAdapter):
            return []
        keys, read_at = self._own_balancing.get(broker, (None, 0.0))
        return keys if time.monotonic() - read_at < BALANCING_MAX_AGE_S else None

    def send_heartbeat(self, broker: str) -> None:
        """Send a heartbeat of a broker, if the broker is alive."""
        adapter = self._adapters[broker]
        try:
            alive = not isinstance(adapter, ProbingAdapter) or adapter.alive()
        except Exception:  # a broker that can't be asked does not count as alive
            log.exception("whether %s is alive is unknown", broker)
            return
        if not alive:
            self._silent.add(broker)
            self.note_trouble(broker, "does not answer: no heartbeat is sent for it")
            return
        self._silent.discard(broker)
        sent_ms = wall_clock_ms()
        heartbeat = Heartbeat(
            sent_ms=sent_ms,
            balances=self._recent_balancing(broker),
            differing=self._differing.get(broker, []),
            merges=isinstance(adapter, MergingAdapter),
        )
        future = self.send(broker, heartbeat.to_json(), "heartbeat")
        if future is not None:
            future.add_callback(lambda written: self._clock.note(sent_ms, written.timestamp))

    def note_trouble(self, broker: str, trouble: str) -> None:
        """Log that a broker gives no report or heartbeat: once, until it reports again.

        Its next report is forced: the balancer may take it for dead meanwhile.
        """
        self._forced.add(broker)
        if self._troubles.get(broker) is None:
            log.warning("%s %s", broker, trouble)
        self._troubles[broker] = trouble

    def send(
        self, broker: str, value: str | bytes, kind: str, headers: Headers = ()
    ) -> SendFuture | None:
        """Send one record of a broker; return its future, or None if Kafka refuses it at once."""
        try:
            future = self._connection.send(broker, value, kind, headers)
        except KafkaError as error:
            self._note_lost(broker, kind, error)
            return None
        future.add_errback(lambda error: self._note_lost(broker, kind, error))
        future.add_callback(lambda _: self._unsent.discard(broker))
        return future

    def _note_lost(self, broker: str, kind: str, error: Exception) -> None:
        """Log a record that did not reach Kafka: once, until another one of its broker does.

        The producer's thread calls this too. Refusals are left to the connection's log: they are
        the same for all brokers.
        """
        if broker not in self._unsent and not isinstance(error, REFUSED):
            log.warning("a %s of %s did not reach Kafka: %s", kind, broker, error)
        self._unsent.add(broker)
        self._forced.add(broker)
        self.encoder.forget(broker)


class HeartbeatSender:
    """Calls `send` for each broker every `interval_s` seconds, in a thread, at once first."""

    def __init__(
        self, brokers: Iterable[str], send: Callable[[str], None], interval_s: float
    ) -> None:
        self._brokers = list(brokers)
        self._send = send
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lb-agent-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread; no call follows, unless one takes longer than the time-out."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            for broker in self._brokers:
                if self._stop.is_set():
                    return
                self._send(broker)
            if self._stop.wait(self._interval_s):
                return
