"""The agent's loop: reports out, decisions and ownership records in, acknowledgements out. One thread, for one or many brokers; another one
sends the heartbeats."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from pydantic import ValidationError

from lb_stream.agent.adapter import (
    BalancedAdapter,
    BrokerAdapter,
    BrokerError,
    MeasuringAdapter,
    ProbingAdapter,
    Refused,
    Report,
    SplittingAdapter,
    TransferringAdapter,
    YieldingAdapter,
)
from lb_stream.agent.clock import RecordClock, wall_clock_ms
from lb_stream.agent.obey import Seen, Verdict, addressee, judge
from lb_stream.agent.producer import LastingProducer
from lb_stream.agent.pulse import Pulse
from lb_stream.agent.reporting import ReportThrottle
from lb_stream.agent.splits import SplitWatch
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import Decision, Ownership, read_decision
from lb_stream.contracts.reports import Ack, Goodbye, Heartbeat

log = logging.getLogger(__name__)

LARGEST_RECORD_BYTES = 10 * 1024 * 1024  # a report of 10 000 bundles is 2–3 MB
POLL_MS = 50
"""How long the loop waits for decisions before it looks at its timers and at whether it should stop."""
CONNECT_MS = 10_000
"""How long starting looks for Kafka before it gives up."""
CLOSE_S = 10.0
"""How long stopping waits for records that Kafka has not taken yet."""
DELIVERY_MS = 20_000
"""How long a record may wait for Kafka to be there: what a broker served before it was taken for dead must not be reported afterwards."""

_OUTCOMES: dict[str, Literal["released", "acquired", "split", "refused"]] = {
    "release": "released",
    "acquire": "acquired",
    "split": "split",
    "refuse": "refused",
}

OnReport = Callable[[str, Mapping[str, Any]], None]
OnDecision = Callable[[Decision, str | None, Verdict | None], None]


class AgentError(RuntimeError):
    """The agent can't start. The text says what to do."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Where Kafka is and how often to speak.

    Every `report_interval_s` each broker's report is sent, or, with `sparing` (it makes one `ReportThrottle` for each broker), looked at
    whether it is needed. `split_watch` makes what looks for too large bundles, of each broker that can tell. `ownership_topic` None:
    decisions are not compared with their bundles' records. `start` is where to read decisions from: those that come from now on, all
    that are there, or offsets by partition.
    `client_options` go to kafka-python's clients (security_protocol, sasl_mechanism, ssl_cafile, ...).
    """

    bootstrap_servers: str
    cluster: str
    reports_topic: str = "lb-load-reports"
    decisions_topic: str = "lb-decisions"
    ownership_topic: str | None = "lb-ownership"
    report_interval_s: float = 5.0
    heartbeat_interval_s: float = 5.0
    sparing: Callable[[], ReportThrottle] | None = None
    split_watch: Callable[[], SplitWatch] | None = None
    start: Literal["latest", "earliest"] | Mapping[int, int] = "latest"
    client_options: Mapping[str, Any] = field(default_factory=dict)


class Agent:
    """Speaks and acts for the brokers of one cluster that it is given.

    `on_report` (broker, report) and `on_decision` (decision, broker of ours that it addresses or None, what was done) are
    called from the agent's thread, after the record was handed to Kafka: for displays, tests, metrics.
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
        self.seen = Seen()
        self.clock = RecordClock()
        self.failure: Exception | None = None  # why the loop ended by itself, if it did
        self._on_report, self._on_decision = on_report, on_decision
        self._stop = threading.Event()
        self._goodbye = False
        self._troubles: dict[str, str] = {}  # broker → why it can't be spoken for
        self._owed: set[str] = set()  # brokers whose next report is sent whatever it says: the balancer may not have the last one
        self._unheard: set[str] = set()  # brokers whose last record did not reach Kafka
        self._balances: dict[str, list[str]] = {}  # broker → settings by which its own cluster balances, as last asked
        self._sparing = {name: config.sparing() for name in self.adapters} if config.sparing is not None else {}
        self._watches = self._watched(config.split_watch)
        self._pulse = Pulse(self.adapters, self._beat, config.heartbeat_interval_s)
        self._thread: threading.Thread | None = None
        self._producer: LastingProducer | None = None
        self._consumer: KafkaConsumer | None = None

    def _watched(self, make: Callable[[], SplitWatch] | None) -> list[tuple[MeasuringAdapter, SplitWatch]]:
        if make is None:
            return []
        return [(adapter, make()) for adapter in self.adapters.values() if isinstance(adapter, MeasuringAdapter)]

    def start(self) -> None:
        """Connect, send the first reports, and go on in a thread of its own. Raises AgentError."""
        self._connect()
        self._thread = threading.Thread(target=self._run, name="lb-agent", daemon=True)
        self._thread.start()

    def stop(self, goodbye: bool = False, timeout_s: float = 15.0) -> None:
        """End the loop, hand everything to Kafka, disconnect. `goodbye` tells the balancer that the brokers leave on purpose."""
        self._goodbye = goodbye
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def running(self) -> bool:
        """Whether the loop goes on."""
        return self._thread is not None and self._thread.is_alive()

    # --- connecting ---

    def _connect(self) -> None:
        common = {"bootstrap_servers": self.config.bootstrap_servers, "bootstrap_timeout_ms": CONNECT_MS, **self.config.client_options}
        try:
            self._consumer = KafkaConsumer(isolation_level="read_committed", enable_auto_commit=False, **common)
            self._take_position()
            # Idempotent: one key's records stay in order and come once, however often the client has to send them again.
            self._producer = LastingProducer(
                lambda: KafkaProducer(
                    enable_idempotence=True,
                    compression_type="zstd",
                    max_request_size=LARGEST_RECORD_BYTES,
                    **{"delivery_timeout_ms": DELIVERY_MS, "request_timeout_ms": DELIVERY_MS // 2, **common},
                )
            )
        except KafkaError as error:
            self._disconnect()
            raise AgentError(f"no Kafka at {self.config.bootstrap_servers} ({error}): start it, or give its address") from error
        except AgentError:
            self._disconnect()
            raise

    def _take_position(self) -> None:
        """Settle where to read before the first report is sent: what that report leads to must not be missed."""
        consumer, config = self._consumer, self.config
        partitions: dict[str, list[TopicPartition]] = {}
        for topic in filter(None, (config.reports_topic, config.decisions_topic, config.ownership_topic)):
            numbers = consumer.partitions_for_topic(topic)
            if not numbers:
                raise AgentError(f"topic {topic} does not exist: create it (`lbctl topics create`)")
            partitions[topic] = [TopicPartition(topic, number) for number in sorted(numbers)]
        decisions, records = partitions[config.decisions_topic], partitions.get(config.ownership_topic or "", [])
        consumer.assign([*decisions, *records])
        if records:  # what is to come tells whether a decision is out of date
            consumer.seek_to_end(*records)
        if config.start == "latest":
            consumer.seek_to_end(*decisions)
        else:
            consumer.seek_to_beginning(*decisions)
        if isinstance(config.start, Mapping):
            for number, offset in config.start.items():
                consumer.seek(TopicPartition(config.decisions_topic, number), offset)
        for partition in (*decisions, *records):
            consumer.position(partition)

    def _disconnect(self) -> None:
        producer, consumer, self._producer, self._consumer = self._producer, self._consumer, None, None
        try:
            if producer is not None:
                producer.close(timeout=CLOSE_S)  # sends what is still waiting
        except KafkaError as error:
            log.warning("the last records of cluster %s did not reach Kafka: %s", self.config.cluster, error)
        if consumer is not None:
            consumer.close()

    # --- the loop ---

    def _run(self) -> None:
        self._pulse.start()
        try:
            self._loop()
            self._pulse.stop(CLOSE_S)  # a heartbeat after the goodbye would take it back
            if self._goodbye:
                for broker in self.adapters:
                    self._send(broker, Goodbye(sent_ms=wall_clock_ms()).to_json(), "goodbye")
        except Exception as error:  # the thread's last words: `failure` tells whoever started it
            self.failure = error
            log.exception("the agent of cluster %s ended", self.config.cluster)
        finally:
            self._pulse.stop(CLOSE_S)
            self._disconnect()

    def _loop(self) -> None:
        report_at = look_at = time.monotonic()
        while not self._stop.is_set():
            self._producer.tend()
            now = time.monotonic()
            if now >= report_at:
                for broker in self.adapters:
                    self._report(broker)
                    self._ask_who_balances(broker)
                report_at = _next(report_at, self.config.report_interval_s, now)
            if self._watches and now >= look_at:
                for adapter, watch in self._watches:
                    self._ask(adapter, watch)
                look_at = _next(look_at, self._watches[0][1].interval_s, now)
            polled = self._consumer.poll(timeout_ms=POLL_MS)
            records = [record for some in polled.values() for record in some]
            changed = self._follow([record for record in records if record.topic == self.config.ownership_topic])
            changed += [self._take(record.value) for record in records if record.topic == self.config.decisions_topic]
            for broker in dict.fromkeys(broker for broker in changed if broker is not None):
                self._report(broker, forced=True)  # once, after the acknowledgements of all that it shows

    def _follow(self, records: Iterable[Any]) -> list[str | None]:
        """Deal with some records of the ownership topic. Returns the brokers whose ownership they changed."""
        owners: dict[str, str | None] = {}
        prefix = f"{self.config.cluster}/"
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            if not key.startswith(prefix):
                continue
            try:
                unit = Ownership.model_validate_json(record.value) if record.value else None
            except ValidationError as error:
                log.warning("a record of %s is no ownership record: %s", self.config.ownership_topic, error)
                continue
            bundle = key.removeprefix(prefix)
            self.seen.note_record(bundle, unit, self.clock.now_ms())
            owners[bundle] = unit.owner if unit is not None and unit.state == "Owned" else None
        yielding = [adapter for adapter in self.adapters.values() if isinstance(adapter, YieldingAdapter)]
        given_up = [(adapter, bundle, owner) for bundle, owner in owners.items() if owner for adapter in yielding if adapter.name != owner]
        return [self._give_up(*one) for one in given_up]

    def _give_up(self, adapter: YieldingAdapter, bundle: str, owner: str) -> str | None:
        """Stop serving what somebody else owns by now. Returns the broker, if it served it."""
        try:
            if not adapter.owns(bundle):
                return None
            log.warning("%s gives %s up: it is %s's", adapter.name, bundle, owner)
            adapter.give_up(bundle)
        except Exception:  # the next record or report will tell; the other brokers must not wait for it
            log.exception("%s could not give %s up", adapter.name, bundle)
        return adapter.name

    def _take(self, value: bytes | None) -> str | None:
        """Deal with one record of the decisions topic. Returns the broker whose ownership it changed, if any."""
        try:
            decision = read_decision(value or b"")
        except ValidationError as error:
            log.warning("a record of %s is no decision: %s", self.config.decisions_topic, error)
            return None
        if decision.cluster != self.config.cluster:
            return None
        if self.seen.note_epoch(decision):
            self._owed.update(self.adapters)
        adapter = self.adapters.get(addressee(decision) or "")
        verdict = None if adapter is None else self._obey(adapter, decision)
        if self._on_decision is not None:
            self._on_decision(decision, None if adapter is None else adapter.name, verdict)
        return adapter.name if adapter is not None and verdict is not None and verdict.action in ("release", "acquire", "split") else None

    def _obey(self, adapter: BrokerAdapter, decision: Decision) -> Verdict:
        """Act and acknowledge. A decision counts as dealt with before it is begun: better not done than done twice."""
        now_ms = self.clock.now_ms()
        verdict, failure = Verdict("refuse"), ""
        try:
            verdict = judge(adapter.name, self.seen, decision, adapter.owns(decision.bundle), now_ms)
            if verdict.action == "ignore":
                return verdict
            self.seen.note_done(adapter.name, decision, now_ms)
            if verdict.action == "release" and decision.destination is not None and isinstance(adapter, TransferringAdapter):
                adapter.transfer(decision.bundle, decision.destination)
            elif verdict.action == "release":
                adapter.release(decision.bundle)
            elif verdict.action == "acquire":
                adapter.acquire(decision.bundle)
            elif isinstance(adapter, SplittingAdapter) and verdict.action == "split":
                adapter.split(decision.bundle, decision.boundaries, decision.algorithm or "", decision.unload_children)
            elif verdict.action == "split":
                verdict = Verdict("refuse", "this broker can't split")
        except Refused as refusal:
            log.warning("%s refuses to %s %s: %s", adapter.name, decision.kind, decision.bundle, refusal)
            verdict = Verdict("refuse", str(refusal))
        except BrokerError as error:
            log.warning("%s could not %s %s: %s", adapter.name, decision.kind, decision.bundle, error)
            failure = str(error)
        except Exception as error:  # one broker's trouble is told to the balancer and stays its own
            log.exception("%s could not %s %s", adapter.name, decision.kind, decision.bundle)
            failure = f"{type(error).__name__}: {error}"
        if failure:
            verdict = Verdict(verdict.action, failure)
        outcome = "failed" if failure else _OUTCOMES[verdict.action]
        changes_hands = outcome == "acquired" or (outcome == "released" and decision.kind == "transfer")
        ack = Ack(
            decision_id=decision.decision_id,
            outcome=outcome,
            reason=verdict.reason,
            bundle=decision.bundle if changes_hands else None,
            sent_ms=wall_clock_ms(),
        )
        self._send(adapter.name, ack.to_json(), "ack")
        return verdict

    def _report(self, broker: str, forced: bool = False) -> None:
        try:
            given = self.adapters[broker].report()
            reports = [given] if isinstance(given, Mapping | bytes) else list(given)
            if (sparing := self._sparing.get(broker)) is not None:
                now_ms = time.monotonic_ns() // 1_000_000
                forced = forced or broker in self._owed
                reports = [kept for one in reports if (kept := sparing.take(one, now_ms, forced)) is not None]
            values = [_bytes_of(one) for one in reports]
        except BrokerError as error:
            self._silent(broker, f"gives no report: {error}")
            return
        except Exception:  # the next one may succeed; the other brokers' must not wait for it
            log.exception("%s gave no report", broker)
            return
        if self._troubles.pop(broker, None) is not None:
            log.warning("%s reports again", broker)
        if values:
            self._owed.discard(broker)  # before it is sent: should it get lost, the next one is owed
        for report, value in zip(reports, values, strict=True):
            self._send(broker, value, "report")
            if self._on_report is not None:
                self._on_report(broker, report if isinstance(report, Mapping) else json.loads(report))

    def _ask(self, adapter: MeasuringAdapter, watch: SplitWatch) -> None:
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
            self._send(adapter.name, ask.model_copy(update={"sent_ms": wall_clock_ms()}).to_json(), "ask")

    def _ask_who_balances(self, broker: str) -> None:
        """Here and not with the heartbeats: these must not wait for a leader that hangs."""
        adapter = self.adapters[broker]
        if not isinstance(adapter, BalancedAdapter) or broker in self._troubles:
            return
        try:
            self._balances[broker] = list(adapter.balances())
        except BrokerError as error:  # what was known last is told until it is known anew
            log.info("%s does not tell whether its cluster balances by itself: %s", broker, error)

    def _beat(self, broker: str) -> None:
        adapter = self.adapters[broker]
        try:
            alive = not isinstance(adapter, ProbingAdapter) or adapter.alive()
        except Exception:  # whoever can't be asked is not known to live
            log.exception("%s could not be asked whether it lives", broker)
            return
        if alive:
            sent_ms = wall_clock_ms()
            future = self._send(broker, Heartbeat(sent_ms=sent_ms, balances=self._balances.get(broker, [])).to_json(), "heartbeat")
            if future is not None:
                future.add_callback(lambda written: self.clock.note(sent_ms, written.timestamp))
        else:
            self._silent(broker, "does not answer: no heartbeat is sent for it")

    def _silent(self, broker: str, trouble: str) -> None:
        """Say once, not every few seconds, that a broker can't be spoken for. It may be taken for dead meanwhile, and lose its bundles."""
        self._owed.add(broker)
        if self._troubles.get(broker) is None:
            log.warning("%s %s", broker, trouble)
        self._troubles[broker] = trouble

    def _send(self, broker: str, value: str | bytes, kind: str) -> Any:
        """Everything of one broker has one key, so it stays in order. Returns the future of where it was written, None if it isn't."""
        key, headers = f"{self.config.cluster}/{broker}".encode(), [("kind", kind.encode())]
        data = value if isinstance(value, bytes) else value.encode()
        try:
            future = self._producer.send(self.config.reports_topic, key=key, value=data, headers=headers)
        except KafkaError as error:
            self._lost(broker, kind, error)
            return None
        future.add_errback(lambda error: self._lost(broker, kind, error))
        future.add_callback(lambda _: self._unheard.discard(broker))
        return future

    def _lost(self, broker: str, kind: str, error: Exception) -> None:
        """A record that did not reach Kafka: said once, until another one does. Called from the producer's thread too."""
        if broker not in self._unheard:
            log.warning("a %s of %s did not reach Kafka: %s", kind, broker, error)
        self._unheard.add(broker)
        self._owed.add(broker)


def _bytes_of(report: Report) -> bytes:
    return report if isinstance(report, bytes) else canonical_json(report).encode()


def _next(due: float, interval_s: float, now: float) -> float:
    """The next due time, on the beat of the first one; beats that were missed are left out."""
    return due + interval_s * max(1, int((now - due) // interval_s) + 1)
