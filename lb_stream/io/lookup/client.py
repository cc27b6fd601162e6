"""A library for clients that finds the broker of a topic, from the compacted topic `lb-ownership`.

    with Lookup(LookupConfig("kafka-1:9092")) as lookup:
        found = lookup.find("persistent://shop/orders/new", "eu-1")
        print(found.broker)

A lookup takes microseconds, because all records are in memory. If no broker serves the topic, a
command requests an owner.
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
from typing import TYPE_CHECKING, Self

import msgspec
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from lb_stream.access.refusals import AGAIN_S, AccessRefusal, RefusalLog
from lb_stream.access.roles import rights_of
from lb_stream.contracts.base import LONGEST_NAMESPACE
from lb_stream.contracts.commands import LONGEST_TOPIC, CommandOutcome
from lb_stream.contracts.decisions import OwnershipState
from lb_stream.core.model.topics import (
    full_topic_name,
    is_scalable,
    namespace_of_topic,
    topic_hash,
)
from lb_stream.core.ownership.lookup import Route, Routes
from lb_stream.io.kafka.clients import kafka_python_options
from lb_stream.io.kafka.preflight import require_rights
from lb_stream.io.kafka.signing import RecordCheck, SignedRecord, SigningProducer
from lb_stream.operations.assign import Assign

if TYPE_CHECKING:
    from lb_stream.access.signing_keys import Signer

log = logging.getLogger(__name__)

POLL_MS = 50
CHECK_S = 0.25
"""How often Kafka is asked where the topic ends: an answer is older by at most this time."""
ASK_AGAIN_S = 5.0
"""After this time the same owner is requested again."""
MOST_REQUESTS = 10_000
"""Requests that are remembered, each with its result."""
REMEMBERED_S = 60.0
"""How long a request is remembered."""
LONGEST_TEXT = 500
"""Characters of a result's text that are remembered."""
LIMITED = "too many owners are being requested: ask again in a moment"
CONNECT_MS = 10_000
RETRY_S = 1.0
"""Pause after an error of Kafka's."""


class LookupFailed(RuntimeError):
    """A lookup can't be answered.

    The text says why, and what to do. `code`: the exit code of a server that can't start.
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class StaleLookup(LookupFailed):
    """The topic was last read to its end longer ago than `max_age_s` allows."""


@dataclass(frozen=True, slots=True)
class LookupConfig:
    """Where the topics are, and how old an answer may be.

    `commands_topic` None: owners are not requested. `max_age_s`: how old the last complete reading
    of the topic may be. `asks_per_s`: the most requests in a second for known bundles, and the most
    for namespaces that no record names; neither kind delays the other. `client_options`: as the
    job's setting `kafka.options` (security_protocol, sasl_mechanism, ssl_cafile, …). `signer`:
    signs requests; `sender`: its name. `ownership`: checks the signatures of ownership records;
    `job`: the name of their signer.
    """

    bootstrap_servers: str
    ownership_topic: str = "lb-ownership"
    commands_topic: str | None = "lb-commands"
    results_topic: str = "lb-command-results"
    max_age_s: float = 10.0
    asks_per_s: float = 20.0
    client_options: Mapping[str, object] = field(default_factory=dict)
    signer: Signer | None = None
    sender: str = ""
    ownership: RecordCheck | None = None
    job: str = "job:lb-stream"


@dataclass(frozen=True, slots=True)
class OwnerRequest:
    """A request for an owner: the command's id, and its result once there is one.

    `id` None: no command was sent; `text` says why.
    """

    id: str | None
    outcome: CommandOutcome | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The answer to one lookup.

    `broker` None: no broker serves the topic yet. `hash`: of the topic's name, which falls into the
    bundle's range. `age_ms`: how long ago the topic `lb-ownership` was read to its end.
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
    """The fields of an ownership record that a lookup needs (contracts.decisions.Ownership)."""

    state: OwnershipState
    owner: str | None = None
    destination: str | None = None
    version: int = 1
    since_ms: int = 0


class _Result(msgspec.Struct):
    """The fields of a command's result that a lookup needs (contracts.commands.CommandResult)."""

    id: str
    outcome: CommandOutcome
    text: str


@dataclass(slots=True)
class Bucket:
    """A token bucket: allows `per_s` requests in a second, and as many at once after a pause.

    `left`: tokens at the time `at_s`; None: it has not been used.
    """

    per_s: float
    left: float = 0.0
    at_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Return whether a request is allowed now, and take its token."""
        most = max(self.per_s, 1.0)
        if self.at_s is None:
            self.left = most
        else:
            self.left = min(most, self.left + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s
        allowed = self.left >= 1.0
        self.left -= allowed
        return allowed


_Subject = tuple[str, str]
"""A cluster, and the bundle or namespace for which an owner is requested."""


class Lookup:
    """Follows the ownership topic in a thread of its own, and answers lookups.

    Every method may be called from any thread.
    """

    def __init__(self, config: LookupConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: gives seconds that only grow."""
        self.config, self._clock = config, clock
        self._routes = Routes()
        self._lock = threading.Lock()
        # When Kafka was asked for the end of the topic that has been read last.
        self._read_at: float | None = None
        # The requests, each with its time, oldest first; and command id → what it is about.
        self._requests: OrderedDict[_Subject, tuple[float, OwnerRequest]] = OrderedDict()
        self._subjects: dict[str, _Subject] = {}
        # One for known bundles, one for unknown namespaces.
        self._buckets = {is_known: Bucket(config.asks_per_s) for is_known in (True, False)}
        self._stop = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lb-lookup", daemon=True)
        self._refusals = RefusalLog(config.bootstrap_servers, config.client_options)
        self._consumer: KafkaConsumer | None = None
        self._followed: list[TopicPartition] = []
        self._producer: SigningProducer | None = None
        self._sender = config.sender or f"lookup@{socket.gethostname()}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout_s: float = 60.0) -> None:
        """Connect and read all records.

        Raises LookupFailed if no Kafka answers, a topic doesn't exist, or reading takes longer than
        `timeout_s`.
        """
        self._connect()
        self._thread.start()
        if not self._caught_up.wait(timeout_s):
            self.stop()
            raise LookupFailed(
                f"the topic {self.config.ownership_topic} was not read to its end within "
                f"{timeout_s:g} s: try again"
            )

    def stop(self) -> None:
        """Stop following the topic, and release the connections."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        for client in (self._consumer, self._producer):
            if client is not None:
                client.close()

    @property
    def age_ms(self) -> int | None:
        """Return how long ago the topic was read to its end, ms; None if it never was."""
        read_at = self._read_at
        return None if read_at is None else int((self._clock() - read_at) * 1_000)

    def known_clusters(self) -> tuple[list[str], int]:
        """Return the clusters that have records, and the number of their bundles."""
        with self._lock:
            return self._routes.clusters, len(self._routes)

    def find(self, topic: str, cluster: str | None = None) -> LookupResult:
        """Find the broker that serves a topic; request an owner if none does.

        `cluster` may be None if there is only one. Raises ValueError for a text that is no topic's
        name, a scalable topic, an unknown cluster, or a cluster that must be named; StaleLookup if
        the records are too old.
        """
        # The records must be recent.
        config, age_ms = self.config, self.age_ms
        if age_ms is None or age_ms > config.max_age_s * 1_000:
            last_read = "never" if age_ms is None else f"{age_ms / 1_000:.0f} s ago"
            raise StaleLookup(
                f"the topic {config.ownership_topic} was last read to its end {last_read}: does "
                f"Kafka at {config.bootstrap_servers} answer?"
            )

        # The topic must have a name that a command may have, too.
        if len(topic) > LONGEST_TOPIC:
            raise ValueError(
                f"topic = a name of {len(topic)} characters: expected {LONGEST_TOPIC} at most"
            )
        full_name, namespace = full_topic_name(topic), namespace_of_topic(topic)
        if is_scalable(full_name):
            raise ValueError(
                f"topic = {full_name}: a scalable topic is in no bundle, its segments are: look up "
                "segment://<tenant>/<namespace>/<topic>/<first hash>-<last hash>-<id>, or have the "
                "server ask Pulsar for the segments (lbctl lookup-server --admin-url)"
            )
        hashed = topic_hash(topic)
        if len(namespace) > LONGEST_NAMESPACE:
            raise ValueError(
                f"topic = a name whose namespace has {len(namespace)} characters: expected "
                f"{LONGEST_NAMESPACE} at most"
            )

        # The bundle whose range has the topic's hash, and its broker.
        cluster = self.require_cluster(cluster)
        with self._lock:
            route = self._routes.find(cluster, namespace, hashed)
        request = None
        if route is None or route.unowned:
            request = self._request_owner(cluster, namespace, full_name, route)
        if route is None:
            return LookupResult(
                cluster, full_name, hashed, None, None, None, None, None, age_ms, request
            )
        return LookupResult(
            cluster,
            full_name,
            hashed,
            route.bundle,
            route.state,
            route.broker,
            route.version,
            route.since_ms,
            age_ms,
            request,
        )

    def require_cluster(self, named: str | None) -> str:
        """Return the cluster that is named, or the only one. Raises ValueError."""
        with self._lock:
            known = self._routes.clusters
        if named in known or (named is None and len(known) == 1):
            return named or known[0]
        if not known:
            raise ValueError(
                f"cluster = {named or ''}: no cluster has bundles yet: ask again later"
            )
        raise ValueError(f"cluster = {named or ''}: expected one of {', '.join(known)}")

    def _request_owner(
        self, cluster: str, namespace: str, topic: str, route: Route | None
    ) -> OwnerRequest | None:
        """Request an owner of a bundle, or of the topic's bundle if its namespace is unknown.

        Returns the earlier request if it is younger than ASK_AGAIN_S; None if owners are not
        requested.
        """
        if self._producer is None or self.config.commands_topic is None:
            return None

        # Build the command first: a name that no command may have must not be remembered.
        command_id = f"lookup-{uuid.uuid4()}"
        command = Assign(
            id=command_id,
            namespace=namespace,
            topic=topic if route is None else None,
            bundle=None if route is None else route.bundle.rpartition("/")[2],
            by=self._sender,
            sent_ms=time.time_ns() // 1_000_000,
        )
        subject = (cluster, namespace if route is None else route.bundle)
        request = OwnerRequest(command_id)
        with self._lock:
            now = self._clock()
            self._forget_old_requests(now)
            sent_at, before = self._requests.get(subject, (now - ASK_AGAIN_S, None))
            if before is not None and now - sent_at < ASK_AGAIN_S:
                return before
            if not self._buckets[route is not None].take(now):
                return before or OwnerRequest(None, text=LIMITED)
            if before is not None:
                # The last result stands until the new one comes.
                del self._subjects[str(before.id)], self._requests[subject]
                request = replace(request, outcome=before.outcome, text=before.text)
            self._requests[subject], self._subjects[command_id] = (now, request), subject
        try:
            value = command.to_json().encode()
            sent = self._producer.send(
                self.config.commands_topic, key=cluster.encode(), value=value
            )
            sent.add_errback(lambda error: self._refusals.note(error, "Write"))
        except KafkaError as error:
            log.warning("an owner of %s could not be requested: %s", subject[1], error)
        return request

    def _forget_old_requests(self, now: float) -> None:
        """Forget requests that are too old, and the oldest of too many."""
        while self._requests:
            subject, (sent_at, oldest) = next(iter(self._requests.items()))
            if now - sent_at < REMEMBERED_S and len(self._requests) < MOST_REQUESTS:
                return
            del self._requests[subject], self._subjects[str(oldest.id)]

    # --- following the topics ---

    def _connect(self) -> None:
        """Make the clients, and begin to read. Raises LookupFailed."""
        config = self.config
        try:
            self._require_topics()
            self._make_clients()
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

    def _make_clients(self) -> None:
        config = self.config
        common = {
            "bootstrap_servers": config.bootstrap_servers.split(","),
            "bootstrap_timeout_ms": CONNECT_MS,
            **kafka_python_options(config.client_options),
        }
        consumer = KafkaConsumer(
            isolation_level="read_committed", enable_auto_commit=False, **common
        )
        self._consumer = consumer
        self._followed = _partitions(consumer, config.ownership_topic)
        results: list[TopicPartition] = []
        if config.commands_topic is not None:
            results = _partitions(consumer, config.results_topic)
            # Idempotent producers of kafka-python may stand still after Kafka was away; a command
            # that comes twice does no harm.
            self._producer = SigningProducer(
                config.signer,
                linger_ms=0,
                max_block_ms=1_000,
                enable_idempotence=False,
                acks="all",
                **common,
            )
        consumer.assign([*self._followed, *results])
        consumer.seek_to_beginning(*self._followed)
        if results:
            consumer.seek_to_end(*results)

    def _require_topics(self) -> None:
        """Require that the topics exist and that their rights are there. Raises LookupFailed."""
        config = self.config
        names = {"ownership": config.ownership_topic}
        if config.commands_topic is not None:
            names |= {"commands": config.commands_topic, "results": config.results_topic}
        rights = rights_of("lookup", names)
        if absent := require_rights(config.bootstrap_servers, config.client_options, rights):
            raise LookupFailed(
                f"the topic {absent[0]} does not exist: create it with `lbctl topics create`"
            )

    def _run(self) -> None:
        """Read both topics until stopped, and note when the ownership topic was read to its end."""
        consumer = self._consumer
        assert consumer is not None
        check_at, asked_at = 0.0, 0.0
        ends: dict[TopicPartition, int] = {}
        while not self._stop.is_set():
            try:
                if self._clock() >= check_at:
                    asked_at, ends = self._clock(), consumer.end_offsets(self._followed)
                    check_at = asked_at + CHECK_S
                for partition, records in consumer.poll(timeout_ms=POLL_MS).items():
                    is_ownership = partition.topic == self.config.ownership_topic
                    take = self._take_ownership if is_ownership else self._take_result
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
                log.warning("the ownership topic can't be read: %s; trying again", error)
                self._stop.wait(RETRY_S)

    def _take_ownership(self, record: SignedRecord) -> None:
        check = self.config.ownership
        if check is not None and not check.accepts(record, self.config.job):
            return
        cluster, _, bundle = (record.key or b"").decode(errors="replace").partition("/")
        try:
            route = None
            if record.value:
                unit = msgspec.json.decode(record.value, type=_Record)
                route = Route.from_record(
                    bundle, unit.state, unit.owner, unit.destination, unit.version, unit.since_ms
                )
            self._routes.take(cluster, bundle, route)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            log.warning("a record of %s is no ownership record: %s", record.topic, error)

    def _take_result(self, record: SignedRecord) -> None:
        subject = self._subjects.get((record.key or b"").decode(errors="replace"))
        if subject is None:
            return
        try:
            result = msgspec.json.decode(record.value or b"", type=_Result)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            log.warning("a record of %s is no command's result: %s", record.topic, error)
            return
        sent_at, request = self._requests[subject]
        text = result.text[:LONGEST_TEXT]
        self._requests[subject] = sent_at, replace(request, outcome=result.outcome, text=text)


def _partitions(consumer: KafkaConsumer, topic: str) -> list[TopicPartition]:
    numbers = sorted(consumer.partitions_for_topic(topic) or ())
    return [TopicPartition(topic, number) for number in numbers]
