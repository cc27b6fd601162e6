"""A thousand commands at once are no batch of a thousand commands."""

import json
from collections import Counter
from pathlib import Path

import pytest
from kafka import KafkaProducer

from lb_stream.io.embedded_kafka import EmbeddedKafka
from lb_stream.io.topics import TopicNames
from tests.e2e.pipeline import Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

AT_A_TIME, COMMANDS = 20, 50


def test_commands_are_read_in_batches_of_bounded_size_and_each_is_answered(
    kafka: EmbeddedKafka, topic_names: TopicNames, tmp_path: Path
) -> None:
    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path, {"stream.max_offsets_per_trigger": AT_A_TIME})
    pipeline.create_topics(reports=1)
    report = {"cpu": {"usage": 5.0, "limit": 100.0}, "lastUpdate": 1, "loadReportType": "LocalBrokerData"}
    pipeline.send([(b"eu/b1:8080", json.dumps(report).encode(), None)])
    pipeline.run_once()
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for number in range(COMMANDS):
        command = {"kind": "pause-cluster" if number % 2 else "resume-cluster", "id": f"c{number}", "by": "test"}
        producer.send(topic_names.commands, key=b"eu", value=json.dumps(command).encode())
    producer.close()
    pipeline.run_once()
    answers = pipeline.table("commands").to_pylist()
    assert sorted(row["id"] for row in answers) == sorted(f"c{number}" for number in range(COMMANDS))
    assert {row["outcome"] for row in answers} == {"done"}
    in_batch = Counter(row["log_seq"] for row in answers)
    assert len(in_batch) == 3 and max(in_batch.values()) <= AT_A_TIME
