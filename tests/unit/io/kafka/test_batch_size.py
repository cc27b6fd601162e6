"""A batch has as many records as fit into memory."""

import logging

import pytest
from kafka import KafkaProducer

from lb_stream.contracts.settings import KafkaSettings, Settings, StreamSettings, TopicSettings
from lb_stream.io.kafka import batch_size
from lb_stream.io.kafka.batch_size import (
    BATCH_BYTES,
    LOOKED_AT,
    limit_batch_size,
    measure_largest_record,
)
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka


@pytest.mark.parametrize(
    ("largest", "most", "read"),
    [
        pytest.param(0, 5_000, 5_000, id="nothing there yet"),
        pytest.param(200_000, 5_000, 5_000, id="reports of a thousand bundles"),
        pytest.param(
            2_500_000, 5_000, BATCH_BYTES // 2_500_000, id="reports of ten thousand bundles"
        ),
        pytest.param(2_500_000, 100, 100, id="fewer are wanted"),
        pytest.param(2_500_000, 0, 0, id="no limit is wanted"),
        pytest.param(2 * BATCH_BYTES, 5_000, 1, id="one is more than enough"),
    ],
)
def test_large_reports_make_batches_of_fewer_records(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    largest: int,
    most: int,
    read: int,
) -> None:
    monkeypatch.setattr(batch_size, "measure_largest_record", lambda _: largest)
    with caplog.at_level(logging.INFO):
        found = limit_batch_size(
            Settings(stream=StreamSettings(max_offsets_per_trigger=most, pipeline_id="mine"))
        )
    assert (found.stream.max_offsets_per_trigger, found.stream.pipeline_id) == (read, "mine")
    assert (f"a batch reads {read} records" in caplog.text) == (read < most)


@pytest.mark.jvm
@pytest.mark.e2e
def test_the_newest_records_of_all_partitions_and_of_the_commands_are_looked_at(
    kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names, reports=2))
    topics = TopicSettings(reports=topic_names.reports, commands=topic_names.commands)
    settings = Settings(kafka=KafkaSettings(bootstrap_servers=kafka.bootstrap), topics=topics)
    assert measure_largest_record(settings) == 0
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, max_request_size=10 << 20)

    def send(partition: int, size: int) -> None:
        producer.send(topic_names.reports, b"x" * size, partition=partition)

    send(0, 4_000_000)
    for _ in range(LOOKED_AT - 1):
        send(0, 100)
    producer.flush()
    assert 4_000_000 < measure_largest_record(settings) < 4_000_100
    send(0, 100)
    send(1, 3_000_000)
    producer.flush()
    assert 3_000_000 < measure_largest_record(settings) < 3_000_100, (
        "the larger one is not among the newest any more"
    )
    producer.send(topic_names.commands, b"x" * 5_000_000, partition=0)
    producer.flush()
    assert 5_000_000 < measure_largest_record(settings) < 5_000_100
    producer.close()
