"""The agent's loop: reports out, decisions and ownership records in, acknowledgements out.

One thread, for one or many brokers; another one sends the heartbeats.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from lb_stream.agent.adapter import BrokerAdapter, MeasuringAdapter, YieldingAdapter
from lb_stream.agent.carry_out import carry_out, give_up
from lb_stream.agent.clock import RecordClock, wall_clock_ms
from lb_stream.agent.config import AgentConfig
from lb_stream.agent.connection import CLOSE_S, Connection
from lb_stream.agent.hooks import MoveHooks
from lb_stream.agent.obey import AgentMemory, AgentVerdict, addressee, with_record_time
from lb_stream.agent.reporter import HeartbeatSender, OnReport, Reporter
from lb_stream.agent.splits import SplitWatch
from lb_stream.contracts.decisions import Decision, Ownership, read_decision
from lb_stream.contracts.reports import Goodbye

log = logging.getLogger(__name__)

OnDecision = Callable[[Decision, str | None, AgentVerdict | None], None]


class Agent:
    """Speaks and acts for the brokers of one cluster that it is given.

    `on_report` (broker, report) and `on_decision` (decision, broker of ours that it addresses or
    None, what was done) are called from the agent's thread, after the record was handed to Kafka:
    for displays, tests, metrics.
    """

    def __init__(
        self,
        config: AgentConfig,
        adapters: Iterable[BrokerAdapter],
        on_report: OnReport | None = None,
        on_decision: OnDecision | None = None,
    ) -> None:
        self.config = config
        self.adapters = {adapter.name: adapter for adapter in adapters}
        self.seen = AgentMemory()
        self.clock = RecordClock()
        self.failure: Exception | None = None  # why the loop ended by itself, if it did
        self.connection = Connection(config)
        self.reporter = Reporter(
            self.adapters, self.connection, self.clock, config.make_throttle, on_report
        )
        self._hooks = MoveHooks(config.hooks)
        self._on_decision = on_decision
        self._stop = threading.Event()
        self._goodbye = False
        self._watches = self._watched(config.make_split_watch)
        self._pulse = HeartbeatSender(
            self.adapters, self.reporter.beat, config.heartbeat_interval_s
        )
        self._thread: threading.Thread | None = None

    def _watched(
        self, make: Callable[[], SplitWatch] | None
    ) -> list[tuple[MeasuringAdapter, SplitWatch]]:
        if make is None:
            return []
        return [
            (adapter, make())
            for adapter in self.adapters.values()
            if isinstance(adapter, MeasuringAdapter)
        ]

    def start(self) -> None:
        """Connect, send the first reports, and go on in a thread of its own. Raises AgentError."""
        self.connection.open()
        self._thread = threading.Thread(target=self._run, name="lb-agent", daemon=True)
        self._thread.start()

    def stop(self, goodbye: bool = False, timeout_s: float = 15.0) -> None:
        """End the loop, hand everything to Kafka, disconnect.

        `goodbye` tells the balancer that the brokers leave on purpose.
        """
        self._goodbye = goodbye
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def running(self) -> bool:
        """Whether the loop goes on."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        self._pulse.start()
        try:
            self._loop()
            self._pulse.stop(CLOSE_S)  # a heartbeat after the goodbye would take it back
            if self._goodbye:
                for broker in self.adapters:
                    self.reporter.send(
                        broker, Goodbye(sent_ms=wall_clock_ms()).to_json(), "goodbye"
                    )
        except Exception as error:  # the thread's last words: `failure` tells whoever started it
            self.failure = error
            log.exception("the agent of cluster %s ended", self.config.cluster)
        finally:
            self._pulse.stop(CLOSE_S)
            self.connection.close()
            self._hooks.close(CLOSE_S)

    def _loop(self) -> None:
        report_at = look_at = time.monotonic()
        while not self._stop.is_set():
            self.connection.tend()
            now = time.monotonic()
            if now >= report_at:
                for broker in self.adapters:
                    self.reporter.report(broker)
                    self.reporter.ask_who_balances(broker)
                report_at = _next(report_at, self.config.report_interval_s, now)
            if self._watches and now >= look_at:
                for adapter, watch in self._watches:
                    self.reporter.ask_for_splits(adapter, watch)
                look_at = _next(look_at, self._watches[0][1].interval_s, now)
            records = self.connection.poll()
            changed = self._follow(
                [record for record in records if record.topic == self.config.ownership_topic]
            )
            changed += [self._carry_out(decision) for decision in self._hooks.answered()]
            topic = self.config.decisions_topic
            decisions = [record for record in records if record.topic == topic]
            changed += [self._take(record.value, record.timestamp) for record in decisions]
            for broker in dict.fromkeys(broker for broker in changed if broker is not None):
                self.reporter.report(
                    broker, forced=True
                )  # once, after the acknowledgements of all that it shows

    def _follow(self, records: Iterable[Any]) -> list[str | None]:
        """Deal with some records of the ownership topic.

        Returns the brokers whose ownership they changed.
        """
        owners: dict[str, str | None] = {}
        prefix = f"{self.config.cluster}/"
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            if not key.startswith(prefix):
                continue
            try:
                unit = Ownership.model_validate_json(record.value) if record.value else None
            except ValidationError as error:
                log.warning(
                    "a record of %s is no ownership record: %s", self.config.ownership_topic, error
                )
                continue
            bundle = key.removeprefix(prefix)
            self.seen.note_record(bundle, unit, self.clock.now_ms())
            self._hooks.follow(bundle, unit)
            owners[bundle] = unit.owner if unit is not None and unit.state == "Owned" else None
        yielding = [
            adapter for adapter in self.adapters.values() if isinstance(adapter, YieldingAdapter)
        ]
        given_up = [
            (adapter, bundle, owner)
            for bundle, owner in owners.items()
            if owner
            for adapter in yielding
            if adapter.name != owner
        ]
        return [give_up(*one) for one in given_up]

    def _take(self, value: bytes | None, appended_ms: int = 0) -> str | None:
        """Deal with one record of the decisions topic.

        Returns the broker whose ownership it changed, if any.

        `appended_ms`: when Kafka took the record, 0 where that isn't known. Nobody could obey the
        decision before.
        """
        try:
            decision = with_record_time(read_decision(value or b""), appended_ms)
        except ValidationError as error:
            log.warning("a record of %s is no decision: %s", self.config.decisions_topic, error)
            return None
        if decision.cluster != self.config.cluster:
            return None
        if self.seen.note_epoch(decision):
            self.reporter.owe(self.adapters)
        if addressee(decision) in self.adapters:
            return self._carry_out(decision)
        if self._on_decision is not None:
            self._on_decision(decision, None, None)
        return None

    def _carry_out(self, decision: Decision) -> str | None:
        """Deal with a decision for a broker of ours.

        Returns the broker, if its ownership has changed.
        """
        adapter = self.adapters[addressee(decision) or ""]
        verdict, ack = carry_out(adapter, self.seen, decision, self.clock.now_ms(), self._hooks)
        if verdict.action == "wait":
            return None
        if ack is not None:
            self.reporter.send(adapter.name, ack.to_json(), "ack")
        if self._on_decision is not None:
            self._on_decision(decision, adapter.name, verdict)
        return adapter.name if verdict.action in ("release", "acquire", "split", "merge") else None


def _next(due: float, interval_s: float, now: float) -> float:
    """The next due time, on the beat of the first one; beats that were missed are left out."""
    return due + interval_s * max(1, int((now - due) // interval_s) + 1)
