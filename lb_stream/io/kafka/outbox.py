"""Publishing: decisions, ownership records and the watermark of one batch in one fenced Kafka
transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from lb_stream.access.roles import watermark_group
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import CommandResult
from lb_stream.contracts.decisions import SCHEMA_VERSION
from lb_stream.contracts.settings import Settings, TopicSettings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.rights import REFUSALS, build_denial, find_denial
from lb_stream.stream.ports import FatalError, Logged
from lb_stream.stream.task.crash import crash_point


class Fenced(FatalError):
    """Another job publishes under this pipeline's transactional id now."""


class KafkaUnavailable(RuntimeError):
    """Kafka doesn't answer.

    Once it does, the job begins anew as after a restart: what has been logged is published then.
    """


FENCED = (ProducerFencedError.__name__, InvalidProducerEpochError.__name__)

STALLED_S = 30
"""Without a step forward in a transaction.

The client's own waits have no end: after a broker's crash it may wait for what never comes.
"""

MAX_IN_FLIGHT = 20_000
"""Records that the client has and Kafka may not have.

It gives up what has waited in it for two minutes, and sets itself no limit.
"""

MAX_TEXT_CHARACTERS = 10_000
"""Characters of an answer that are published.

It may quote what a command said, at any length, and a record that is too large for Kafka would keep
back its batch for ever.
"""


class Outbox:
    """The only writer of `lb-decisions`, `lb-ownership` and `lb-command-results`.

    First `fence`, then `read_watermark`, then the rest. The watermark (number in the log of the last
    published batch, plus one) is a committed offset of the group `<pipeline>-watermark`, moved by
    the same transaction.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._pipeline, self._topics = (
            settings,
            settings.stream.pipeline_id,
            settings.topics,
        )
        self._group = watermark_group(settings.stream.pipeline_id)
        self._steps = 0
        self._mark = TopicPartition(settings.topics.decisions, 0)
        self._client = client_options(settings)
        self._producer = KafkaProducer(
            **self._client,
            transactional_id=settings.stream.pipeline_id,
            acks="all",
            linger_ms=0,
            reconnect_backoff_max_ms=1_000,  # the client's own 30 s would outlast most absences
            compression_type="zstd",
            max_request_size=10 * 1024 * 1024,
            # brokers' default maximum: a cluster's first ownership records are one for each bundle
            transaction_timeout_ms=900_000,
        )

    def fence(self) -> None:
        """Shut out whoever published before under this pipeline's transactional id; what it had
        begun is aborted."""
        self._producer.init_transactions()

    def read_watermark(self, default: int, fenced: bool = True) -> None:
        """Read how far the log has been published.

        `default` counts when Kafka has no watermark: before the first batch, or forgotten after a
        long stop. Before `fence` (`fenced` false) it may be one batch behind.
        """
        # read_committed makes the client wait for a watermark whose transaction is open: nobody but
        # `fence` ends a dead job's
        isolation = "read_committed" if fenced else "read_uncommitted"
        consumer = KafkaConsumer(
            **self._client,
            group_id=self._group,
            enable_auto_commit=False,
            isolation_level=isolation,
        )
        try:
            found = consumer.committed(self._mark)
        finally:
            consumer.close()
        self.watermark = default if found is None or found < 0 else found

    def publish(self, logged: Logged) -> None:
        """Publish a batch, once.

        A batch that is empty or already published has its transaction too: it shows whether this
        job is fenced.

        Raises Fenced when another job has started, AccessDenied when a right is missing, and
        KafkaUnavailable when it isn't known whether the batch is published: then this outbox can't
        be used any more.
        """
        records = _records(logged, self._topics) if logged.log_seq >= self.watermark else ()
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
            # The client's thread may have met it first: then it is named in the text of another
            # error only.
            if any(name in f"{type(error).__name__} {error}" for name in FENCED):
                raise Fenced(
                    f"another job of the pipeline {self._pipeline!r} has started and publishes "
                    "now: this one stops "
                    "(a job beside it needs a stream.pipeline_id, tables and a checkpoint of its "
                    "own)"
                ) from error
            if (refused := find_denial(self._settings, str(error))) is not None:
                raise refused from error
            raise KafkaUnavailable(f"Kafka did not take the batch ({error})") from error
        self.watermark = watermark

    def _transact(
        self,
        records: Iterable[tuple[str, str, str | None, list[tuple[str, bytes]]]],
        watermark: int,
    ) -> None:
        self._producer.begin_transaction()
        try:
            sent: deque[Any] = deque()
            for record in records:  # a fleet's first ownership records may be a million
                sent.append(self._send(*record))
                if len(sent) > MAX_IN_FLIGHT:
                    sent.popleft().get()
            self._producer.send_offsets_to_transaction(
                {self._mark: OffsetAndMetadata(watermark, "", -1)}, self._group
            )
            for future in sent:
                future.get()
                self._steps += 1
            crash_point("in_transaction")
            self._producer.commit_transaction()
        except Exception:
            with suppress(
                Exception
            ):  # a fenced producer can't even abort; what happened first is what matters
                self._producer.abort_transaction()
            raise

    def catch_up(self, since: Callable[[int], Iterable[Logged]]) -> int:
        """Publish what an earlier run has logged and not published any more.

        Returns how many batches that were.
        """
        missed = list(since(self.watermark))
        for logged in missed:
            self.publish(logged)
        return len(missed)

    def close(self) -> None:
        """Release the connections."""
        self._producer.close(timeout=5)

    def _send(
        self, topic: str, key: str, value: str | None, headers: list[tuple[str, bytes]]
    ) -> Any:
        self._steps += 1
        return self._producer.send(
            topic,
            key=key.encode(),
            value=None if value is None else value.encode(),
            headers=headers,
        )


def _wait_while_progressing(
    call: Callable[[], None], steps: Callable[[], int], seconds: float
) -> None:
    """Wait for a call for as long as it moves on; its thread is left behind when it hasn't made a
    step for so many seconds.

    Raises TimeoutError then, else what the call raises.
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
    logged: Logged, topics: TopicSettings
) -> Iterable[tuple[str, str, str | None, list[tuple[str, bytes]]]]:
    """(topic, key, value, headers) of all that a batch publishes.

    Decisions of a dry run stay in the log.
    """
    rows = logged.rounds.select(["cluster", "now_ms"]).to_pylist()
    for row, results, decisions, ownership in zip(
        rows,
        logged.entries("results"),
        logged.entries("decisions"),
        logged.entries("ownership"),
        strict=True,
    ):
        for answer in results:
            said = {
                name: answer[name] for name in ("id", "kind", "outcome", "rule", "decision_ids")
            }
            result = CommandResult(
                **said,
                text=answer["text"][:MAX_TEXT_CHARACTERS],
                cluster=row["cluster"],
                at_ms=row["now_ms"],
            )
            yield topics.results, result.id, result.to_json(), []
        for decision in decisions:
            if decision["dry_run"]:
                continue
            headers = [
                ("decision_id", decision["decision_id"].encode()),
                ("epoch", str(decision["epoch"]).encode()),
                ("schema", str(SCHEMA_VERSION).encode()),
            ]
            yield (
                topics.decisions,
                f"{decision['cluster']}/{decision['bundle']}",
                canonical_json(decision),
                headers,
            )
        for record in ownership:
            known = record["state"] != "Init"
            value = (
                canonical_json(record | {"watermark": logged.log_seq}) if known else None
            )  # empty: compaction removes the key
            yield topics.ownership, f"{record['cluster']}/{record['bundle']}", value, []
