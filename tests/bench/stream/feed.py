"""One job's topics: what goes in, what comes out, and when."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import NamedTuple

from kafka import KafkaConsumer, TopicPartition

from lb_stream.access.signing_keys import Signer
from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.contracts.commands import Tick
from lb_stream.contracts.decisions import Decision, read_decision
from lb_stream.contracts.reads import is_reads
from lb_stream.io.kafka.signing import SigningProducer
from lb_stream.io.kafka.topics import create_topics, topic_specs
from tests.support.topics import topics_named

Offsets = dict[int, int]
"""Partition of the reports topic → first offset after what is there."""

LONGEST_WAIT_S = 60


class ReportRecord(NamedTuple):
    """A record of the reports topic."""

    key: bytes
    value: bytes
    kind: str = "report"


class Feed:
    """Writes reports as agents do, reads decisions as agents do."""

    def __init__(
        self, bootstrap: str, name: str, partitions: int, signer: Signer | None = None
    ) -> None:
        """`signer`: signs the reports."""
        self.bootstrap, self.name, self._partitions = bootstrap, name, partitions
        self.topics = topics_named(name)
        create_topics(bootstrap, topic_specs(self.topics, reports=partitions))
        self._producer = SigningProducer(
            signer,
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type="zstd",
            max_request_size=LARGEST_RECORD_BYTES,
        )
        # 10 ms: the broker answers a waiting reader of committed records as soon as a transaction
        # is over, or after this long.
        self._consumer = KafkaConsumer(
            self.topics.decisions,
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=10,
        )
        self._ticks = itertools.count(1)

    def send(self, records: Sequence[tuple[bytes, bytes] | ReportRecord]) -> float:
        """Append reports; the seconds that it took."""
        begin = time.perf_counter()
        sent = [
            self._producer.send(
                self.topics.reports,
                key=record.key,
                value=record.value,
                headers=[("kind", record.kind.encode())],
            )
            for record in (ReportRecord(*given) for given in records)
        ]
        for future in sent:
            future.get(timeout=LONGEST_WAIT_S)
        return time.perf_counter() - begin

    def append(self, record: tuple[bytes, bytes]) -> int:
        """Append one report; when the broker had it, ms since the epoch."""
        key, value = record
        return int(
            self._producer.send(self.topics.reports, key=key, value=value)
            .get(timeout=LONGEST_WAIT_S)
            .timestamp
        )

    def tick(self) -> None:
        """Append one tick to the commands topic."""
        tick = Tick(id=f"tick:bench:{next(self._ticks)}", sent_ms=time.time_ns() // 1_000_000)
        self._producer.send(self.topics.commands, key=b"", value=tick.to_json().encode()).get(
            timeout=LONGEST_WAIT_S
        )

    def ends(self) -> Offsets:
        """Where the reports topic ends now."""
        places = [TopicPartition(self.topics.reports, number) for number in range(self._partitions)]
        return {
            place.partition: offset for place, offset in self._consumer.end_offsets(places).items()
        }

    def first_decisions(self) -> tuple[list[Decision], int]:
        """Wait for decisions; with them, when they could be read, ms since the epoch.

        Raises TimeoutError.
        """
        end = time.monotonic() + LONGEST_WAIT_S
        while time.monotonic() < end:
            found = self._poll(1_000)
            if found:
                return found
        raise TimeoutError(
            f"no decision on {self.topics.decisions} within {LONGEST_WAIT_S} s of a hot broker's "
            "report"
        )

    def decisions(self, patience_ms: int = 300) -> list[Decision]:
        """All decisions that are there and have not been read yet."""
        found: list[Decision] = []
        while more := self._poll(patience_ms):
            found += more[0]
        return found

    def _poll(self, timeout_ms: int) -> tuple[list[Decision], int] | None:
        batches = self._consumer.poll(timeout_ms=timeout_ms)
        now_ms = time.time_ns() // 1_000_000
        found = [
            read_decision(record.value)
            for records in batches.values()
            for record in records
            if not is_reads(record.headers)
        ]
        return (found, now_ms) if found else None

    def close(self) -> None:
        """Release the connections."""
        self._producer.close(timeout=5)
        self._consumer.close()
