"""What an agent sends for brokers: reports, heartbeats, requests for splits.

One broker's trouble harms no other, and is logged once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.errors import KafkaError

from lb_stream.access.refusals import REFUSED
from lb_stream.agent.adapter import (
    BalancedAdapter,
    BrokerAdapter,
    BrokerError,
    MeasuringAdapter,
    MergingAdapter,
    ProbingAdapter,
    Report,
)
from lb_stream.agent.clock import RecordClock, wall_clock_ms
from lb_stream.agent.connection import Connection
from lb_stream.agent.report_throttle import ReportThrottle
from lb_stream.agent.splits import SplitWatch
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.reports import Heartbeat

log = logging.getLogger(__name__)

OnReport = Callable[[str, Mapping[str, Any]], None]


class Reporter:
    """Speaks for brokers.

    The agent's thread calls all but `beat`, which the heartbeats' thread calls.

    `throttle` makes what decides whether a broker's report is needed; None: all are. `clock` learns
    from acknowledged heartbeats.
    """

    def __init__(
        self,
        adapters: Mapping[str, BrokerAdapter],
        connection: Connection,
        clock: RecordClock,
        throttle: Callable[[], ReportThrottle] | None = None,
        on_report: OnReport | None = None,
    ) -> None:
        self._adapters, self._connection, self._clock, self._on_report = (
            adapters,
            connection,
            clock,
            on_report,
        )
        self._throttles = {name: throttle() for name in adapters} if throttle is not None else {}
        self._troubles: dict[str, str] = {}  # broker → why it can't be spoken for
        self._owed: set[str] = (
            set()
            # brokers whose next report is sent whatever it says: the balancer may not have the last
            # one
        )
        self._unheard: set[str] = set()  # brokers whose last record did not reach Kafka
        self._balances: dict[
            str, list[str]
        ] = {}  # broker → settings by which its own cluster balances, as last asked

    def owe(self, brokers: Iterable[str]) -> None:
        """Send the next report of these brokers even if it says nothing new."""
        self._owed.update(brokers)

    def report(self, broker: str, forced: bool = False) -> None:
        """Send a broker's report, if it gives one and that is needed or `forced`."""
        try:
            given = self._adapters[broker].report()
            reports = [given] if isinstance(given, Mapping | bytes) else list(given)
            if (throttle := self._throttles.get(broker)) is not None:
                now_ms = time.monotonic_ns() // 1_000_000
                forced = forced or broker in self._owed
                reports = [
                    kept
                    for report in reports
                    if (kept := throttle.take(report, now_ms, forced)) is not None
                ]
            values = [_bytes_of(report) for report in reports]
        except BrokerError as error:
            self.silent(broker, f"gives no report: {error}")
            return
        except Exception:  # the next one may succeed; the other brokers' must not wait for it
            log.exception("%s gave no report", broker)
            return
        if self._troubles.pop(broker, None) is not None:
            log.warning("%s reports again", broker)
        if values:
            self._owed.discard(
                broker
            )  # before it is sent: should it get lost, the next one is owed
        for report, value in zip(reports, values, strict=True):
            self.send(broker, value, "report")
            if self._on_report is not None:
                self._on_report(
                    broker, report if isinstance(report, Mapping) else json.loads(report)
                )

    def ask_for_splits(self, adapter: MeasuringAdapter, watch: SplitWatch) -> None:
        """Ask for the splits that a look at a broker's bundles suggests."""
        if adapter.name in self._troubles:  # that has been said
            return
        try:
            asks = watch.look(adapter)
        except BrokerError as error:
            log.warning("the bundles of %s could not be looked at: %s", adapter.name, error)
            return
        except Exception:  # the next look may succeed
            log.exception("the bundles of %s could not be looked at", adapter.name)
            return
        for ask in asks:
            self.send(
                adapter.name, ask.model_copy(update={"sent_ms": wall_clock_ms()}).to_json(), "ask"
            )

    def ask_who_balances(self, broker: str) -> None:
        """Ask who balances.

        Not done with the heartbeats, which must not wait for a leader that hangs.
        """
        adapter = self._adapters[broker]
        if not isinstance(adapter, BalancedAdapter) or broker in self._troubles:
            return
        try:
            self._balances[broker] = list(adapter.balances())
        except BrokerError as error:  # what was known last is told until it is known anew
            log.info("%s does not tell whether its cluster balances by itself: %s", broker, error)

    def beat(self, broker: str) -> None:
        """Send a heartbeat of a broker that lives."""
        adapter = self._adapters[broker]
        try:
            alive = not isinstance(adapter, ProbingAdapter) or adapter.alive()
        except Exception:  # whoever can't be asked is not known to live
            log.exception("%s could not be asked whether it lives", broker)
            return
        if alive:
            sent_ms = wall_clock_ms()
            balances, merges = self._balances.get(broker, []), isinstance(adapter, MergingAdapter)
            future = self.send(
                broker,
                Heartbeat(sent_ms=sent_ms, balances=balances, merges=merges).to_json(),
                "heartbeat",
            )
            if future is not None:
                future.add_callback(lambda written: self._clock.note(sent_ms, written.timestamp))
        else:
            self.silent(broker, "does not answer: no heartbeat is sent for it")

    def silent(self, broker: str, trouble: str) -> None:
        """Log once, not every few seconds, that a broker doesn't answer.

        It may be taken for dead meanwhile, and lose its bundles.
        """
        self._owed.add(broker)
        if self._troubles.get(broker) is None:
            log.warning("%s %s", broker, trouble)
        self._troubles[broker] = trouble

    def send(self, broker: str, value: str | bytes, kind: str) -> Any:
        """Send one record of a broker.

        Returns the future of where it is written, None if it isn't.
        """
        try:
            future = self._connection.send(broker, value, kind)
        except KafkaError as error:
            self._lost(broker, kind, error)
            return None
        future.add_errback(lambda error: self._lost(broker, kind, error))
        future.add_callback(lambda _: self._unheard.discard(broker))
        return future

    def _lost(self, broker: str, kind: str, error: Exception) -> None:
        """Log a record that did not reach Kafka: once, until another one does.

        Called from the producer's thread too.

        The connection logs a refusal itself: it is the same for all brokers.
        """
        if broker not in self._unheard and not isinstance(error, REFUSED):
            log.warning("a %s of %s did not reach Kafka: %s", kind, broker, error)
        self._unheard.add(broker)
        self._owed.add(broker)


def _bytes_of(report: Report) -> bytes:
    return report if isinstance(report, bytes) else canonical_json(report).encode()


class HeartbeatSender:
    """Calls `beat` for each broker every `interval_s` seconds, the first time at once."""

    def __init__(
        self, brokers: Iterable[str], beat: Callable[[str], None], interval_s: float
    ) -> None:
        self._brokers, self._beat, self._interval_s = list(brokers), beat, interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lb-agent-pulse", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End; no call is made after that, unless one takes longer than the time-out."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            for broker in self._brokers:
                if self._stop.is_set():
                    return
                self._beat(broker)
            if self._stop.wait(self._interval_s):
                return
