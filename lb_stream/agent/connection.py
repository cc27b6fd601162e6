"""An agent's connection to Kafka: decisions and ownership records in, its brokers' records out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from lb_stream.access.refusals import REFUSED, AccessRefusal, RefusalLog
from lb_stream.access.roles import rights_of
from lb_stream.agent.clock import wall_clock_ms
from lb_stream.agent.config import AgentConfig, AgentError
from lb_stream.agent.producer import RecoveringProducer
from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.io.kafka.clients import kafka_python_options
from lb_stream.io.kafka.preflight import require_rights
from lb_stream.io.kafka.signing import SignedRecord, SigningProducer

log = logging.getLogger(__name__)

POLL_MS = 50
"""How long one poll waits for records; between polls the loop looks at its timers."""
CONNECT_MS = 10_000
"""How long a start waits for Kafka before it fails."""
CLOSE_S = 10.0
"""How long a stop waits for records that Kafka has not acknowledged yet."""
CATCH_UP_S = 60.0
"""How long the reading of the last signed records may take at the start."""
DELIVERY_MS = 20_000
"""How long a record may wait for Kafka. An older report may name bundles that have moved since."""


Headers = Sequence[tuple[str, bytes]]
"""Headers of a record: name and value."""


class WrittenRecord(Protocol):
    """Where an acknowledged record is (kafka-python's RecordMetadata)."""

    @property
    def timestamp(self) -> int:
        """When Kafka appended the record, ms since the epoch."""
        ...


class SendFuture(Protocol):
    """The result of a sending, to come (kafka-python's FutureRecordMetadata)."""

    def add_callback(self, call: Callable[[WrittenRecord], object]) -> object:
        """Call this once the record is acknowledged."""
        ...

    def add_errback(self, call: Callable[[Exception], object]) -> object:
        """Call this once the record is lost."""
        ...


class Connection:
    """A consumer and a producer of kafka-python, from `open` to `close`."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self._refusals = RefusalLog(config.bootstrap_servers, config.client_options)
        self._check = config.check_decisions()
        self.producer: RecoveringProducer | None = None
        self.consumer: KafkaConsumer | None = None

    def open(self) -> None:
        """Check the agent's rights and connect. Raises AgentError."""
        config = self.config
        given = kafka_python_options(config.client_options)
        common = {
            "bootstrap_servers": config.bootstrap_servers,
            "bootstrap_timeout_ms": CONNECT_MS,
            **given,
        }
        try:
            self._require_topics()
            self.consumer = KafkaConsumer(
                isolation_level="read_committed", enable_auto_commit=False, **common
            )
            self._take_position(self.consumer)
            # Idempotent: one key's records stay in order and come once, however often the client
            # has to send them again.
            self.producer = RecoveringProducer(
                lambda: SigningProducer(
                    self.config.signer,
                    enable_idempotence=True,
                    compression_type="zstd",
                    max_request_size=LARGEST_RECORD_BYTES,
                    **{
                        "delivery_timeout_ms": DELIVERY_MS,
                        "request_timeout_ms": DELIVERY_MS // 2,
                        **common,
                    },
                ),
                self._refusals.note,
            )
        except AccessRefusal as refusal:
            self.close()
            raise AgentError(str(refusal), refusal.code) from refusal
        except KafkaError as error:
            self.close()
            raise AgentError(
                f"no Kafka at {self.config.bootstrap_servers} ({error}): start it, or give its "
                "address"
            ) from error
        except AgentError:
            self.close()
            raise

    def _require_topics(self) -> None:
        config = self.config
        topics = {
            "reports": config.reports_topic,
            "decisions": config.decisions_topic,
            "ownership": config.ownership_topic,
        }
        rights = rights_of(
            "agent", {resource: name for resource, name in topics.items() if name is not None}
        )
        if absent := require_rights(config.bootstrap_servers, config.client_options, rights):
            raise AgentError(f"topic {absent[0]} does not exist: create it (`lbctl topics create`)")

    def _take_position(self, consumer: KafkaConsumer) -> None:
        """Seek to where reading begins, before the first report is sent.

        No decision that follows from that report may be missed.
        """
        config = self.config
        partitions: dict[str, list[TopicPartition]] = {}
        for topic in filter(None, (config.decisions_topic, config.ownership_topic)):
            partitions[topic] = [
                TopicPartition(topic, number)
                for number in sorted(consumer.partitions_for_topic(topic) or ())
            ]
        decisions = partitions[config.decisions_topic]
        ownership = partitions.get(config.ownership_topic or "", [])
        consumer.assign([*decisions, *ownership])
        if self._check is not None:
            self._read_signed(consumer, [*decisions, *ownership], 2 * self._check.window_ms)
        if ownership:  # only later records can make a decision out of date
            consumer.seek_to_end(*ownership)
        if config.start == "latest":
            consumer.seek_to_end(*decisions)
        else:
            consumer.seek_to_beginning(*decisions)
        if isinstance(config.start, Mapping):
            for number, offset in config.start.items():
                consumer.seek(TopicPartition(config.decisions_topic, number), offset)
        for partition in (*decisions, *ownership):
            consumer.position(partition)

    def _read_signed(
        self, consumer: KafkaConsumer, places: list[TopicPartition], back_ms: int
    ) -> None:
        """Read the last records without obeying them, so that copies of them are known later."""
        since_ms = wall_clock_ms() - back_ms
        ends = consumer.end_offsets(places)
        begins = consumer.offsets_for_times(dict.fromkeys(places, since_ms))
        for place in places:
            found = begins.get(place)
            consumer.seek(place, ends[place] if found is None else found.offset)
        until = time.monotonic() + CATCH_UP_S
        while any(consumer.position(place) < end for place, end in ends.items()):
            if time.monotonic() > until:
                raise KafkaTimeoutError("the last decisions can't be read")
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                for record in records:
                    self._accepts(record)

    def recover(self) -> None:
        """Replace a producer that has lost a record. One thread calls this, often."""
        assert self.producer is not None
        self.producer.recover()

    def poll(self) -> list[SignedRecord]:
        """Return the records that have come since the last poll, after a short wait.

        While Kafka refuses to read it returns none. The refusal is logged once, and reading is
        tried again.
        """
        assert self.consumer is not None
        if self._refusals.is_waiting("Read"):
            time.sleep(POLL_MS / 1000)
            return []
        try:
            polled = self.consumer.poll(timeout_ms=POLL_MS)
        except REFUSED as error:
            self._refusals.note(error, "Read")
            return []
        found = [record for records in polled.values() for record in records]
        return [record for record in found if self._accepts(record)]

    def _accepts(self, record: SignedRecord) -> bool:
        """Return whether a record counts: one of this cluster that the job has signed."""
        if self._check is None:
            return True
        prefix = f"{self.config.cluster}/".encode()
        is_own = (record.key or b"").startswith(prefix)
        return is_own and self._check.accepts(record, self.config.job)

    def send(self, broker: str, value: str | bytes, kind: str, headers: Headers = ()) -> SendFuture:
        """Send a record of a broker to the reports topic; return its future. Raises KafkaError.

        All records of one broker have one key, so they stay in order. `headers`: beside its kind.
        """
        assert self.producer is not None
        key = f"{self.config.cluster}/{broker}".encode()
        data = value if isinstance(value, bytes) else value.encode()
        return self.producer.send(
            self.config.reports_topic,
            key=key,
            value=data,
            headers=[("kind", kind.encode()), *headers],
        )

    def close(self) -> None:
        """Send the records that still wait, and disconnect."""
        producer, self.producer = self.producer, None
        consumer, self.consumer = self.consumer, None
        try:
            if producer is not None:
                producer.close(timeout=CLOSE_S)
        except KafkaError as error:
            log.warning(
                "the last records of cluster %s did not reach Kafka: %s", self.config.cluster, error
            )
        if consumer is not None:
            consumer.close()
