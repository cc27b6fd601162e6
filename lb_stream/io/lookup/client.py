"""Which broker serves a topic: a library for clients, kept up to date by the compacted topic
`lb-ownership`.

    with Lookup(LookupConfig("kafka-1:9092")) as lookup:
        found = lookup.find("persistent://shop/orders/new", "eu-1")
        print(found.broker)

A look takes microseconds, as all records are in memory. For what nobody serves an owner is asked
for, with a command.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from lb_stream.access.refusals import AGAIN_S, AccessRefusal, RefusalLog
from lb_stream.access.roles import rights_of
from lb_stream.contracts.base import LONGEST_NAMESPACE
from lb_stream.contracts.commands import LONGEST_TOPIC, CommandOutcome
from lb_stream.contracts.decisions import OwnershipState
from lb_stream.core.model.topics import full_topic_name, namespace_of_topic, topic_hash
from lb_stream.core.ownership.lookup import Route, Routes
from lb_stream.io.kafka.clients import kafka_python_options
from lb_stream.io.kafka.preflight import require_rights
from lb_stream.operations.assign import Assign

log = logging.getLogger(__name__)

POLL_MS = 50
CHECK_S = 0.25
"""How often the end of the topic is asked for: an answer is at most that much older than what Kafka
had."""
ASK_AGAIN_S = 5.0
MOST_ASKED = 10_000
"""Bundles and namespaces of which it is remembered that, and with what outcome, an owner was asked
for."""
REMEMBERED_S = 60.0
"""How long that is remembered."""
LONGEST_TEXT = 500
"""Characters of an answer of the balancer that are remembered."""
LIMITED = "too many owners are being asked for: ask again in a moment"
CONNECT_MS = 10_000


class LookupFailed(RuntimeError):
    """A lookup can't be answered.

    The text says why and what to do; `code` is the exit code of a server that can't start for it.
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class StaleLookup(LookupFailed):
    """The end of the topic has not been seen for longer than was allowed."""


@dataclass(frozen=True, slots=True)
class LookupConfig:
    """Where the topics are, and how old an answer may be.

    `commands_topic` None: nothing is asked for. `max_age_s`: how long ago all records that Kafka
    had must have been read, else nothing is answered. `asks_per_s`: commands in a second at most
    about known bundles, and as many about namespaces that no record names: whoever asks for these,
    however often, doesn't keep the others waiting. `client_options`: as `kafka.options` among the
    job's settings (security_protocol, sasl_mechanism, ssl_cafile, ...).
    """

    bootstrap_servers: str
    ownership_topic: str = "lb-ownership"
    commands_topic: str | None = "lb-commands"
    results_topic: str = "lb-command-results"
    max_age_s: float = 10.0
    asks_per_s: float = 20.0
    client_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnerRequest:
    """An owner was asked for: the command's id and, once the balancer has answered, what it said.

    `id` None: not yet, for `text`.
    """

    id: str | None
    outcome: CommandOutcome | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The answer to one lookup.

    `broker` None: nobody serves the topic yet. `age_ms`: how long ago this was known to be the last
    word.
    """

    cluster: str
    topic: str
    hash: int
    bundle: str | None
    state: OwnershipState | None
    broker: str | None
    version: int | None
    since_ms: int | None
    age_ms: int
    owner_request: OwnerRequest | None = None


class _Record(msgspec.Struct):
    """What a lookup needs of an ownership record (contracts.decisions.Ownership)."""

    state: OwnershipState
    owner: str | None = None
    destination: str | None = None
    version: int = 1
    since_ms: int = 0


class _Result(msgspec.Struct):
    """What it needs of a command's result (contracts.commands.CommandResult)."""

    id: str
    outcome: CommandOutcome
    text: str


@dataclass(slots=True)
class Bucket:
    """A token bucket: lets a number of requests through in a second, and as many at once after a
    pause."""

    per_s: float
    left: float = 0.0
    at_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Whether one more may pass now."""
        most = max(self.per_s, 1.0)
        self.left = (
            most if self.at_s is None else min(most, self.left + (now_s - self.at_s) * self.per_s)
        )
        self.at_s = now_s
        passes = self.left >= 1.0
        self.left -= passes
        return passes


class Lookup:
    """Follows the ownership topic in a thread of its own.

    Every method may be called from any thread.
    """

    def __init__(self, config: LookupConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds that only grow."""
        self.config, self._clock = config, clock
        self._routes = Routes()
        self._lock = threading.Lock()
        self._read_at: float | None = (
            None  # when Kafka was asked for the end of the topic that has been read up to
        )
        self._asked: OrderedDict[tuple[str, str], tuple[float, OwnerRequest]] = OrderedDict()
        self._askers: dict[str, tuple[str, str]] = {}  # a command's id → what it asked for
        self._buckets = {known: Bucket(config.asks_per_s) for known in (True, False)}
        self._stop = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lb-lookup", daemon=True)
        self._refusals = RefusalLog(config.bootstrap_servers, config.client_options)
        self._consumer: Any = None  # KafkaConsumer, from the start on
        self._followed: list[TopicPartition] = []
        self._producer: KafkaProducer | None = None
        self._sender = f"lookup@{socket.gethostname()}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout_s: float = 60.0) -> None:
        """Connect and read all records.

        Raises LookupFailed when there is no Kafka or no such topic, or reading takes longer.
        """
        self._connect()
        self._thread.start()
        if not self._caught_up.wait(timeout_s):
            self.stop()
            raise LookupFailed(
                f"{self.config.ownership_topic} could not be read to its end within {timeout_s:g} "
                "s: try again"
            )

    def stop(self) -> None:
        """Follow no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        for client in (self._consumer, self._producer):
            if client is not None:
                client.close()

    @property
    def age_ms(self) -> int | None:
        """How long ago everything that Kafka had was known to be read, ms; None: never yet."""
        read_at = self._read_at
        return None if read_at is None else int((self._clock() - read_at) * 1_000)

    def known(self) -> tuple[list[str], int]:
        """The clusters that have records, and how many bundles they have."""
        with self._lock:
            return self._routes.clusters, len(self._routes)

    def find(self, topic: str, cluster: str | None = None) -> LookupResult:
        """Who serves a topic.

        `cluster` may be left out where the records are of one. Asks for an owner where there is
        none.

        Raises ValueError for what is no topic name or no cluster's, or when the cluster must be
        named, and Stale.
        """
        age_ms = self.age_ms
        if age_ms is None or age_ms > self.config.max_age_s * 1_000:
            since, config = (
                "never" if age_ms is None else f"{age_ms / 1_000:.0f} s ago",
                self.config,
            )
            raise StaleLookup(
                f"{config.ownership_topic} was last read to its end {since}: does Kafka at "
                f"{config.bootstrap_servers} answer?"
            )
        if len(topic) > LONGEST_TOPIC:
            raise ValueError(
                f"a topic's name of {len(topic)} characters: expected {LONGEST_TOPIC} at most"
            )
        full, namespace, hashed = (
            full_topic_name(topic),
            namespace_of_topic(topic),
            topic_hash(topic),
        )
        if len(namespace) > LONGEST_NAMESPACE:
            raise ValueError(
                f"a namespace's name of {len(namespace)} characters: expected {LONGEST_NAMESPACE} "
                "at most"
            )
        with self._lock:
            cluster = self._cluster(cluster)
            route = self._routes.find(cluster, namespace, hashed)
        asked = (
            self._ask(cluster, namespace, full, route) if route is None or route.unowned else None
        )
        if route is None:
            return LookupResult(cluster, full, hashed, None, None, None, None, None, age_ms, asked)
        return LookupResult(
            cluster,
            full,
            hashed,
            route.bundle,
            route.state,
            route.broker,
            route.version,
            route.since_ms,
            age_ms,
            asked,
        )

    def _cluster(self, named: str | None) -> str:
        known = self._routes.clusters
        if named in known or (named is None and len(known) == 1):
            return named or known[0]
        raise ValueError(
            f"cluster = {named or ''}: expected one of "
            f"{', '.join(known) or 'those with bundles, and there are none yet'}"
        )

    def _ask(
        self, cluster: str, namespace: str, topic: str, route: Route | None
    ) -> OwnerRequest | None:
        """Ask for an owner, unless that was done a moment ago: of a bundle, or of the topic's,
        where its namespace isn't known."""
        if self._producer is None or self.config.commands_topic is None:
            return None
        about, asked = (
            (cluster, namespace if route is None else route.bundle),
            OwnerRequest(f"lookup-{uuid.uuid4()}"),
        )
        command = Assign(  # before anything is remembered
            id=str(asked.id),
            namespace=namespace,
            topic=topic if route is None else None,
            bundle=None if route is None else route.bundle.rpartition("/")[2],
            by=self._sender,
            sent_ms=time.time_ns() // 1_000_000,
        )
        with self._lock:
            now = self._clock()
            self._forget(now)
            at, before = self._asked.get(about, (now - ASK_AGAIN_S, None))
            if before is not None and now - at < ASK_AGAIN_S:
                return before
            if not self._buckets[route is not None].take(now):
                return before or OwnerRequest(None, text=LIMITED)
            if before is not None:
                del self._askers[str(before.id)], self._asked[about]
                asked = replace(
                    asked, outcome=before.outcome, text=before.text
                )  # until the new answer
            self._asked[about], self._askers[command.id] = (now, asked), about
        try:
            sent = self._producer.send(
                self.config.commands_topic, key=cluster.encode(), value=command.to_json().encode()
            )
            sent.add_errback(lambda error: self._refusals.note(error, "Write"))
        except KafkaError as error:
            log.warning("an owner of %s could not be asked for: %s", about[1], error)
        return asked

    def _forget(self, now: float) -> None:
        """What was asked for long ago, and the oldest of too much; the order is that of the
        times."""
        while self._asked:
            about, (at, oldest) = next(iter(self._asked.items()))
            if now - at < REMEMBERED_S and len(self._asked) < MOST_ASKED:
                return
            del self._asked[about], self._askers[str(oldest.id)]

    # --- following the topics ---

    def _connect(self) -> None:
        config = self.config
        given = kafka_python_options(config.client_options)
        common = {
            "bootstrap_servers": config.bootstrap_servers.split(","),
            "bootstrap_timeout_ms": CONNECT_MS,
            **given,
        }
        try:
            self._require_topics()
            self._consumer = KafkaConsumer(
                isolation_level="read_committed", enable_auto_commit=False, **common
            )
            followed, answers = self._partitions(config.ownership_topic), list[TopicPartition]()
            if config.commands_topic is not None:
                answers = self._partitions(config.results_topic)
                # Idempotent producers of kafka-python may stand still after an absence of Kafka's;
                # a command that comes twice does no harm.
                self._producer = KafkaProducer(
                    linger_ms=0, max_block_ms=1_000, enable_idempotence=False, acks="all", **common
                )
            self._consumer.assign([*followed, *answers])
            self._consumer.seek_to_beginning(*followed)
            if answers:
                self._consumer.seek_to_end(*answers)
            self._followed = followed
        except (AccessRefusal, KafkaError, LookupFailed) as error:
            self.stop()
            if isinstance(error, AccessRefusal):
                raise LookupFailed(str(error), error.code) from error
            if isinstance(error, KafkaError):
                raise LookupFailed(
                    f"no Kafka at {config.bootstrap_servers} ({error}): start it, or give its "
                    "address"
                ) from error
            raise

    def _require_topics(self) -> None:
        config = self.config
        asking = (
            {}
            if config.commands_topic is None
            else {"commands": config.commands_topic, "results": config.results_topic}
        )
        rights = rights_of("lookup", {"ownership": config.ownership_topic, **asking})
        if absent := require_rights(config.bootstrap_servers, config.client_options, rights):
            raise LookupFailed(
                f"topic {absent[0]} does not exist: create it (`lbctl topics create`)"
            )

    def _partitions(self, topic: str) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for number in sorted(self._consumer.partitions_for_topic(topic) or ())
        ]

    def _run(self) -> None:
        consumer = self._consumer
        check_at, asked_at, ends = 0.0, 0.0, dict[TopicPartition, int]()
        while not self._stop.is_set():
            try:
                if self._clock() >= check_at:
                    asked_at, ends = self._clock(), consumer.end_offsets(self._followed)
                    check_at = asked_at + CHECK_S
                polled = consumer.poll(timeout_ms=POLL_MS)
                for partition, records in polled.items():
                    take = (
                        self._take
                        if partition.topic == self.config.ownership_topic
                        else self._take_answer
                    )
                    with self._lock:
                        for record in records:
                            take(record)
                if ends and all(
                    consumer.position(partition) >= end for partition, end in ends.items()
                ):
                    self._read_at = asked_at
                    self._caught_up.set()
                    ends = {}
            except KafkaError as error:
                if self._refusals.note(error, "Read"):
                    self._stop.wait(AGAIN_S)
                    continue
                log.warning("the ownership topic can't be followed: %s; trying on", error)
                self._stop.wait(1.0)

    def _take(self, record: Any) -> None:
        cluster, _, bundle = (record.key or b"").decode(errors="replace").partition("/")
        try:
            unit = msgspec.json.decode(record.value, type=_Record) if record.value else None
            route = (
                None
                if unit is None
                else Route.from_record(
                    bundle, unit.state, unit.owner, unit.destination, unit.version, unit.since_ms
                )
            )
            self._routes.take(cluster, bundle, route)
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("a record of %s is no ownership record: %s", record.topic, error)

    def _take_answer(self, record: Any) -> None:
        about = self._askers.get((record.key or b"").decode(errors="replace"))
        if about is None:
            return
        try:
            said = msgspec.json.decode(record.value, type=_Result)
        except msgspec.DecodeError as error:
            log.warning("a record of %s is no command's result: %s", record.topic, error)
            return
        at, asked = self._asked[about]
        self._asked[about] = at, replace(asked, outcome=said.outcome, text=said.text[:LONGEST_TEXT])
