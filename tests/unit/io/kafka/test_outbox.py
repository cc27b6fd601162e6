"""What a batch publishes. No JVM, no Kafka needed."""

import json
from unittest.mock import Mock

import pyarrow as pa
import pytest
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    ProducerFencedError,
)

from lb_stream.contracts.reads import Reads
from lb_stream.contracts.settings import Settings, TopicSettings
from lb_stream.contracts.tables import ROUNDS
from lb_stream.io.kafka import outbox
from lb_stream.io.kafka.outbox import (
    MAX_TEXT_CHARACTERS,
    Fenced,
    KafkaUnavailable,
    Outbox,
    _records,
)
from lb_stream.stream.ports import Logged

RECORD = outbox._Record("lb-ownership", "a/b", "{}", [])
HIDDEN = "at least one previous transactional or idempotent request has failed with errors"


def test_an_answer_that_quotes_an_endless_command_fits_into_kafka() -> None:
    answer = {
        "id": "1",
        "kind": "unload",
        "outcome": "refused",
        "text": "no " + "x" * 20_000_000,
        "rule": None,
        "decision_ids": [],
    }
    row = {name: None for name in ROUNDS.schema.names} | {
        "cluster": "eu",
        "now_ms": 5,
        "results": json.dumps([answer]),
    }
    # What only the audit says is published to nobody.
    row["results"] = json.dumps([answer, answer | {"id": ""}])
    logged = Logged(
        3, pa.Table.from_pylist([row | {"decisions": "[]", "ownership": "[]"}], ROUNDS.schema)
    )
    ((topic, key, value, headers),) = _records(logged, TopicSettings())
    assert (topic, key, headers) == ("lb-command-results", "1", [])
    assert len(json.loads(value or "")["text"]) == MAX_TEXT_CHARACTERS


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProducerFencedError(), Fenced),
        (InvalidProducerEpochError(), Fenced),
        (KafkaError(HIDDEN, ProducerFencedError()), Fenced),
        (KafkaError(f"{HIDDEN}: {InvalidProducerEpochError()}"), Fenced),
        (KafkaError(HIDDEN, NotLeaderForPartitionError()), KafkaUnavailable),
    ],
)
def test_a_fenced_job_stops_however_the_client_reports_it(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError, expected: type[Exception]
) -> None:
    """Two jobs that each took it for an absence of Kafka's would begin anew, and fence each other,
    for ever."""
    producer = Mock()
    producer.send_offsets_to_transaction.side_effect = error
    monkeypatch.setattr(outbox, "SigningProducer", lambda *_, **__: producer)
    publishing = Outbox(Settings())
    publishing.watermark = 0
    with pytest.raises(expected):
        publishing.publish(Logged(0, ROUNDS.schema.empty_table()))


def test_what_the_job_reads_is_in_the_batchs_transaction_though_that_is_published_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Mock()
    monkeypatch.setattr(outbox, "SigningProducer", lambda *_, **__: producer)
    publishing = Outbox(Settings())
    publishing.watermark = 1
    reads = Reads(cluster="eu", forms=["json", "columns"], checkpoint="c", sent_ms=1)
    publishing.publish(Logged(0, ROUNDS.schema.empty_table()), [reads])
    names = [call[0] for call in producer.method_calls if "offsets" not in call[0]]
    assert names == ["begin_transaction", "send", "commit_transaction"]
    sent = producer.send.call_args
    assert sent.args == ("lb-decisions",) and sent.kwargs["key"] == b"eu/"
    assert sent.kwargs["headers"] == [("kind", b"reads")]
    assert Reads.model_validate_json(sent.kwargs["value"]) == reads


def test_a_million_records_do_not_wait_in_the_client_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, waiting, most = Mock(), set[int](), 0

    def send(*_: object, **__: object) -> Mock:
        nonlocal most
        number = producer.send.call_count
        waiting.add(number)
        most = max(most, len(waiting))
        return Mock(get=lambda: waiting.remove(number))

    producer.send.side_effect = send
    monkeypatch.setattr(outbox, "SigningProducer", lambda *_, **__: producer)
    monkeypatch.setattr(outbox, "MAX_IN_FLIGHT", 10)
    monkeypatch.setattr(outbox, "_records", lambda *_: [RECORD] * 100)
    publishing = Outbox(Settings())
    publishing.watermark = 0
    publishing.publish(Logged(0, ROUNDS.schema.empty_table()))
    assert producer.send.call_count == 100 and most == 11
    assert not waiting, "each is waited for before the transaction ends"
    producer.commit_transaction.assert_called_once()


def test_the_end_of_a_failed_transaction_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever closes the outbox after a failure begins anew: an error would end the job instead."""
    producer = Mock(close=Mock(side_effect=KafkaTimeoutError()))
    monkeypatch.setattr(outbox, "SigningProducer", lambda *_, **__: producer)
    Outbox(Settings()).close()
    producer.close.assert_called_once_with(timeout=0)
