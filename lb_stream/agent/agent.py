"""The agent's loop: reports out, decisions and ownership records in, acknowledgements out.

One thread runs the loop for one or many brokers; another thread sends the heartbeats.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from lb_stream.agent.adapter import (
    BrokerAdapter,
    JsonReport,
    MeasuringAdapter,
    YieldingAdapter,
)
from lb_stream.agent.carry_out import carry_out, give_up, must_give_up
from lb_stream.agent.clock import RecordClock, wall_clock_ms
from lb_stream.agent.config import AgentConfig
from lb_stream.agent.connection import CLOSE_S, Connection, Headers
from lb_stream.agent.hooks import MoveHooks
from lb_stream.agent.obey import AgentMemory, AgentVerdict, addressee, with_record_time
from lb_stream.agent.reporter import HeartbeatSender, OnReport, Reporter
from lb_stream.agent.rollout_log import RolloutLog
from lb_stream.agent.splits import SplitWatch
from lb_stream.agent.traces import AgentTraces
from lb_stream.contracts.decisions import Decision, Ownership, read_decision
from lb_stream.contracts.reads import Reads, is_reads
from lb_stream.contracts.reports import Goodbye
from lb_stream.io.kafka.signing import SignedRecord

log = logging.getLogger(__name__)

OnDecision = Callable[[Decision, str | None, AgentVerdict | None], None]
"""Called with a decision, the agent's broker that it addresses (None: none), and what was done."""


class Agent:
    """Sends the reports of some brokers of one cluster, and carries out decisions for them.

    `on_report` (broker, report) and `on_decision` serve displays, tests and metrics. The agent's
    thread calls them after it has handed the record to Kafka.
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
        self.memory = AgentMemory()
        self.clock = RecordClock()
        self.failure: Exception | None = None  # the error that ended the loop, if one did
        self.connection = Connection(config)
        self.reporter = Reporter(
            self.adapters,
            self.connection,
            self.clock,
            config.make_throttle,
            self._note_report,
            config.min_columns,
        )
        self._rollouts = RolloutLog()
        self._on_report = on_report
        self._hooks = MoveHooks(config.hooks)
        self._traces = AgentTraces(config.telemetry)
        self._on_decision = on_decision
        self._stop = threading.Event()
        self._goodbye = False
        self._watches = self._make_watches(config.make_split_watch)
        self._heartbeats = HeartbeatSender(
            self.adapters, self.reporter.send_heartbeat, config.heartbeat_interval_s
        )
        self._thread: threading.Thread | None = None

    def _make_watches(
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
        """Connect to Kafka, then run the loop in a thread. Raises AgentError."""
        self.connection.open()
        self._thread = threading.Thread(target=self._run, name="lb-agent", daemon=True)
        self._thread.start()

    def stop(self, goodbye: bool = False, timeout_s: float = 15.0) -> None:
        """End the loop, send what is left, disconnect.

        `goodbye` tells the balancer that the brokers leave on purpose.
        """
        self._goodbye = goodbye
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        self._heartbeats.start()
        try:
            self._loop()
            # The heartbeats end first: one after the goodbye would cancel it.
            self._heartbeats.stop(CLOSE_S)
            if self._goodbye:
                for broker in self.adapters:
                    goodbye = Goodbye(sent_ms=wall_clock_ms())
                    self.reporter.send(broker, goodbye.to_json(), "goodbye")
        except Exception as error:  # the program that started the agent reads `failure`
            self.failure = error
            log.exception("the agent of cluster %s ended", self.config.cluster)
        finally:
            self._heartbeats.stop(CLOSE_S)
            self.connection.close()
            self._hooks.close(CLOSE_S)

    def _loop(self) -> None:
        report_at = look_at = time.monotonic()
        while not self._stop.is_set():
            self.connection.recover()
            now = time.monotonic()
            if now >= report_at:
                self._send_reports()
                report_at = _next_due(report_at, self.config.report_interval_s, now)
            if self._watches and now >= look_at:
                self._request_splits()
                look_at = _next_due(look_at, self._watches[0][1].interval_s, now)
            self._handle_records(self.connection.poll())

    def _send_reports(self) -> None:
        for broker in self.adapters:
            self.reporter.send_report(broker)
            self.reporter.read_own_balancing(broker)

    def _note_report(self, broker: str, report: JsonReport) -> None:
        self._rollouts.note_report(broker, report)
        if self._on_report is not None:
            self._on_report(broker, report)

    def _request_splits(self) -> None:
        for adapter, watch in self._watches:
            self.reporter.request_splits(adapter, watch)

    def _handle_records(self, records: Iterable[SignedRecord]) -> None:
        """Follow ownership records, carry out decisions, and report the brokers that changed."""
        records = list(records)
        ownership, decisions = self.config.ownership_topic, self.config.decisions_topic
        # Ownership records come first: they show which decisions are out of date.
        changed = self._follow([record for record in records if record.topic == ownership])
        # Moves that waited for a hook's answer.
        changed += [self._carry_out(decision) for decision in self._hooks.list_answered()]
        # What the job reads, and new decisions.
        others = [record for record in records if record.topic == decisions]
        self._note_reads([record for record in others if is_reads(record.headers)])
        changed += [
            self._take(record.value, record.timestamp, record.headers)
            for record in others
            if not is_reads(record.headers)
        ]
        # One report for each changed broker, after the acknowledgements of all that it shows.
        for broker in dict.fromkeys(broker for broker in changed if broker is not None):
            self.reporter.send_report(broker, forced=True)

    def _note_reads(self, records: Iterable[SignedRecord]) -> None:
        """Note which forms of reports the job reads."""
        for record in records:
            try:
                reads = Reads.model_validate_json(record.value or b"")
            except ValidationError as error:
                topic = self.config.decisions_topic
                log.warning("a record of %s does not tell what the job reads: %s", topic, error)
                continue
            if reads.cluster == self.config.cluster:
                self.reporter.note_reads(reads)

    def _follow(self, records: Iterable[SignedRecord]) -> list[str | None]:
        """Follow records of the ownership topic; return the brokers that gave a bundle up."""
        last: dict[str, Ownership | None] = {}  # by bundle
        prefix = f"{self.config.cluster}/"
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            if not key.startswith(prefix):
                continue
            try:
                ownership = Ownership.model_validate_json(record.value) if record.value else None
            except ValidationError as error:
                log.warning(
                    "a record of %s is no ownership record: %s", self.config.ownership_topic, error
                )
                continue
            bundle = key.removeprefix(prefix)
            self.memory.note_record(bundle, ownership, self.clock.now_ms())
            self._hooks.follow(bundle, ownership)
            last[bundle] = ownership
        return self._give_up(last)

    def _give_up(self, last: dict[str, Ownership | None]) -> list[str | None]:
        """Have brokers give up bundles that another one owns, or that were split or merged.

        `last`: bundle → its last record.
        """
        yielding = [
            adapter for adapter in self.adapters.values() if isinstance(adapter, YieldingAdapter)
        ]
        return [
            give_up(adapter, bundle, record)
            for bundle, record in last.items()
            if record is not None
            for adapter in yielding
            if must_give_up(adapter.name, record)
        ]

    def _take(self, value: bytes | None, appended_ms: int = 0, headers: Headers = ()) -> str | None:
        """Carry out one record of the decisions topic, if it addresses a broker of this agent.

        Returns the broker whose ownership has changed; None: no broker's has. `appended_ms` is
        when Kafka took the record (0: unknown): no agent could read the decision before. `headers`:
        of the record.
        """
        try:
            decision = with_record_time(read_decision(value or b""), appended_ms)
        except ValidationError as error:
            log.warning("a record of %s is no decision: %s", self.config.decisions_topic, error)
            return None
        if decision.cluster != self.config.cluster:
            return None
        if self.memory.note_epoch(decision):
            self.reporter.force_next_report(self.adapters)
        if addressee(decision) in self.adapters:
            self._traces.note(decision, headers)
            return self._carry_out(decision)
        if self._on_decision is not None:
            self._on_decision(decision, None, None)
        return None

    def _carry_out(self, decision: Decision) -> str | None:
        """Carry out a decision for a broker of this agent; return the broker if it has changed."""
        adapter = self.adapters[addressee(decision) or ""]
        verdict, ack = carry_out(adapter, self.memory, decision, self.clock.now_ms(), self._hooks)
        if verdict.action == "wait":
            return None
        trace = self._traces.record(adapter.name, decision, ack)
        if ack is not None:
            self.reporter.send(adapter.name, ack.to_json(), "ack", trace)
        self._rollouts.note_decision(adapter.name, decision, verdict)
        if self._on_decision is not None:
            self._on_decision(decision, adapter.name, verdict)
        return adapter.name if verdict.action in ("release", "acquire", "split", "merge") else None


def _next_due(due: float, interval_s: float, now: float) -> float:
    """Return the next due time, whole intervals after `due`; missed ones are skipped."""
    return due + interval_s * max(1, int((now - due) // interval_s) + 1)
