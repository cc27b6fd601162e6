"""Publishes a batch: decisions, ownership records, results and the watermark in one transaction.

The transaction is fenced: Kafka refuses it once another job of the pipeline has started.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from threading import Thread
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from lb_stream.access.roles import watermark_group
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import CommandResult
from lb_stream.contracts.decisions import SCHEMA_VERSION
from lb_stream.contracts.reads import READS, Reads
from lb_stream.contracts.settings import Settings, TopicSettings
from lb_stream.contracts.trace_ids import TRACEPARENT, published_span
from lb_stream.io.kafka.clients import close_producer
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.rights import REFUSALS, build_denial, find_denial
from lb_stream.io.kafka.signing import SigningProducer
from lb_stream.io.telemetry.move_ids import find_move_ids
from lb_stream.io.telemetry.port import NO_TELEMETRY, Telemetry
from lb_stream.settings.signing import load_signer
from lb_stream.stream.ports import FatalError, Logged
from lb_stream.stream.task.crash import crash_point


class Fenced(FatalError):
    """Another job publishes under this pipeline's transactional id now."""


class KafkaUnavailable(RuntimeError):
    """Kafka doesn't answer.

    Once it does, the job begins anew as after a restart, and publishes what has been logged.
    """


FENCED = (ProducerFencedError.__name__, InvalidProducerEpochError.__name__)
"""Names of the errors by which kafka-python says that another producer has started."""
STALLED_S = 30
"""How long a transaction may make no progress.

The client's own waits have no end: after a broker's crash it may wait for an answer that never
comes.
"""
MAX_IN_FLIGHT = 20_000
"""Records that are sent and that Kafka has not confirmed.

The client sets itself no limit, and gives up what has waited in it for two minutes.
"""
MAX_TEXT_CHARACTERS = 10_000
"""Characters of a result's text that are published.

The text may quote a command of any length. A record that is too large for Kafka would keep its
batch from being published for ever.
"""
MAX_REQUEST_BYTES = 10 * 1024 * 1024


class _Record(NamedTuple):
    """A record to be published. `value` None: compaction removes the key."""

    topic: str
    key: str
    value: str | None
    headers: list[tuple[str, bytes]]


class Outbox:
    """The only writer of `lb-decisions`, `lb-ownership` and `lb-command-results`.

    Call `fence` first, then `read_watermark`, then the other methods. The watermark is the number
    in the log of the last batch that is published, plus one. It is a committed offset of the group
    `<pipeline>-watermark`, and each batch's transaction moves it.
    """

    def __init__(self, settings: Settings, telemetry: Telemetry = NO_TELEMETRY) -> None:
        self._settings, self._topics = settings, settings.topics
        self._telemetry = telemetry
        self._pipeline = settings.stream.pipeline_id
        self._group = watermark_group(self._pipeline)
        self._place = TopicPartition(settings.topics.decisions, 0)
        self._steps = 0
        self._client = client_options(settings)
        self._producer = SigningProducer(
            load_signer(settings.security),
            **self._client,
            transactional_id=self._pipeline,
            acks="all",
            linger_ms=0,
            compression_type="zstd",
            max_request_size=MAX_REQUEST_BYTES,
            # Brokers' default maximum. A cluster's first batch has an ownership record of each of
            # its bundles.
            transaction_timeout_ms=900_000,
        )

    def fence(self) -> None:
        """Shut out earlier jobs of this pipeline, and abort their transaction."""
        self._producer.init_transactions()

    def read_watermark(self, default: int, fenced: bool = True) -> None:
        """Read from Kafka how far the log has been published.

        `default` counts when Kafka has no watermark: before the first batch, or when it was
        forgotten during a long stop. `fenced`: `fence` has been called; before that the watermark
        may be one batch behind.
        """
        # With read_committed the client waits while the watermark's transaction is open, and only
        # `fence` ends a dead job's transaction.
        isolation = "read_committed" if fenced else "read_uncommitted"
        consumer = KafkaConsumer(
            **self._client,
            group_id=self._group,
            enable_auto_commit=False,
            isolation_level=isolation,
        )
        try:
            found = consumer.committed(self._place)
        finally:
            consumer.close()
        self.watermark = default if found is None or found < 0 else found

    def publish(self, logged: Logged, reads: Sequence[Reads] = ()) -> None:
        """Publish a batch, once, and in any case what the job reads.

        A batch that is empty or already published has its transaction, too: it shows whether this
        job is fenced.

        Raises Fenced when another job has started, and AccessDenied when a right is missing. Raises
        KafkaUnavailable when it isn't known whether the batch is published: then this outbox can't
        be used any more.
        """
        is_new = logged.log_seq >= self.watermark
        records = chain(
            _records(logged, self._topics, self._telemetry) if is_new else (),
            _reads_records(reads, self._topics.decisions),
        )
        watermark = max(self.watermark, logged.log_seq + 1)
        try:
            _wait_while_progressing(
                lambda: self._transact(records, watermark), lambda: self._steps, STALLED_S
            )
        except TimeoutError as error:
            raise KafkaUnavailable(f"Kafka has not answered for {STALLED_S} s") from error
        except REFUSALS as error:
            raise build_denial(self._settings, error) from error
        except KafkaError as error:
            raise self._explain(error) from error
        self.watermark = watermark

    def _explain(self, error: KafkaError) -> Exception:
        """Return the error that the job ends or begins anew with.

        The client's thread may have met the cause first: then only the text of `error` names it.
        """
        if any(name in f"{type(error).__name__} {error}" for name in FENCED):
            return Fenced(
                f"another job of the pipeline {self._pipeline!r} has started and publishes now: "
                "this one stops. To run a job beside it, give it a stream.pipeline_id, "
                "stream.tables and a stream.checkpoint of its own"
            )
        return find_denial(self._settings, str(error)) or KafkaUnavailable(
            f"Kafka did not take the batch ({error})"
        )

    def _transact(self, records: Iterable[_Record], watermark: int) -> None:
        self._producer.begin_transaction()
        try:
            # A fleet's first ownership records may be a million.
            sent: deque[Any] = deque()
            for record in records:
                sent.append(self._send(record))
                if len(sent) > MAX_IN_FLIGHT:
                    sent.popleft().get()
            self._producer.send_offsets_to_transaction(
                {self._place: OffsetAndMetadata(watermark, "", -1)}, self._group
            )
            for future in sent:
                future.get()
                self._steps += 1
            crash_point("in_transaction")
            self._producer.commit_transaction()
        except Exception:
            # A fenced producer can't even abort; the first error is the one that matters.
            with suppress(Exception):
                self._producer.abort_transaction()
            raise

    def _send(self, record: _Record) -> Any:
        """Send a record, and return kafka-python's future."""
        self._steps += 1
        return self._producer.send(
            record.topic,
            key=record.key.encode(),
            value=None if record.value is None else record.value.encode(),
            headers=record.headers,
        )

    def catch_up(self, since: Callable[[int], Iterable[Logged]]) -> int:
        """Publish what an earlier run has logged and not published.

        `since`: gives the logged batches from a number on. Returns how many there were.
        """
        missed = list(since(self.watermark))
        for logged in missed:
            self.publish(logged)
        return len(missed)

    def close(self) -> None:
        """Release the connections.

        Each batch has been published or has failed: what a failed one has left is dropped.
        """
        close_producer(self._producer, 0)


def _wait_while_progressing(
    call: Callable[[], None], steps: Callable[[], int], seconds: float
) -> None:
    """Run `call` in a thread and wait for its end while `steps` grows.

    Raises what the call raises, and TimeoutError once `steps` has not grown for `seconds`; the
    thread is left behind then.
    """
    done: Future[None] = Future()

    def run() -> None:
        try:
            call()
            done.set_result(None)
        except Exception as error:
            done.set_exception(error)

    Thread(target=run, name="publish", daemon=True).start()
    while True:
        before = steps()
        try:
            return done.result(timeout=seconds)
        except TimeoutError:
            if done.done() or steps() == before:
                raise


def _records(
    logged: Logged, topics: TopicSettings, telemetry: Telemetry = NO_TELEMETRY
) -> Iterator[_Record]:
    """Yield all records that a batch publishes. Decisions of a dry run stay in the log."""
    traced = _traceparents(logged, telemetry) if telemetry.has_traces else {}
    rows = logged.rounds.select(["cluster", "now_ms"]).to_pylist()
    for row, results, decisions, ownership in zip(
        rows,
        logged.entries("results"),
        logged.entries("decisions"),
        logged.entries("ownership"),
        strict=True,
    ):
        for entry in results:
            if not entry["id"]:
                continue  # no command's: for the audit alone
            fields = {name: entry[name] for name in _RESULT_FIELDS}
            result = CommandResult(
                **fields,
                text=entry["text"][:MAX_TEXT_CHARACTERS],
                cluster=row["cluster"],
                at_ms=row["now_ms"],
            )
            yield _Record(topics.results, result.id, result.to_json(), [])
        for decision in decisions:
            if decision["dry_run"]:
                continue
            headers = [
                ("decision_id", decision["decision_id"].encode()),
                ("epoch", str(decision["epoch"]).encode()),
                ("schema", str(SCHEMA_VERSION).encode()),
            ]
            if (parent := traced.get(decision["decision_id"])) is not None:
                headers.append((TRACEPARENT, parent))
            key = f"{decision['cluster']}/{decision['bundle']}"
            yield _Record(topics.decisions, key, canonical_json(decision), headers)
        for record in ownership:
            value = None
            if record["state"] != "Init":
                value = canonical_json(record | {"watermark": logged.log_seq})
            key = f"{record['cluster']}/{record['bundle']}"
            yield _Record(topics.ownership, key, value, [])


def _reads_records(reads: Iterable[Reads], topic: str) -> Iterator[_Record]:
    """Yield the records with what the job reads.

    They are in the transaction: a job that is fenced sends none.
    """
    for record in reads:
        yield _Record(topic, f"{record.cluster}/", record.to_json(), [("kind", READS.encode())])


def _traceparents(logged: Logged, telemetry: Telemetry) -> dict[str, bytes]:
    """Return the header of each decision, by its id; the same batch gives the same bytes."""
    headers: dict[str, bytes] = {}
    memories = logged.rounds["memory"]
    for at, decisions in enumerate(logged.entries("decisions")):
        if not decisions:
            continue
        for decision_id, move_id in find_move_ids(memories[at].as_py(), decisions).items():
            span = published_span(move_id, decision_id)
            sampled = telemetry.is_sampled(span.trace_id)
            headers[decision_id] = replace(span, sampled=sampled).encode()
    return headers


_RESULT_FIELDS = ("id", "kind", "outcome", "rule", "decision_ids")
