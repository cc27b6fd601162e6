"""A batch has a bounded number of records, commands among them, and few of them don't wait for the
end of a flood."""

import json
from collections import Counter
from pathlib import Path

import pytest
from kafka import KafkaProducer

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.checkpoint import first_offsets, last_batch, planned_offsets
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.store import Store
from tests.e2e.pipeline import Pipeline, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

HEARTBEAT = [("kind", b"heartbeat")]


def report(broker: str) -> tuple[bytes, bytes, None]:
    fields = {
        "cpu": {"usage": 5.0, "limit": 100.0},
        "lastUpdate": 1,
        "loadReportType": "LocalBrokerData",
    }
    return f"eu/{broker}".encode(), json.dumps(fields).encode(), None


def test_commands_are_read_in_batches_of_bounded_size_and_each_is_answered(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    pipeline = Pipeline(
        kafka.bootstrap, topic_names, tmp_path, {"stream.max_offsets_per_trigger": 20}
    )
    pipeline.create_topics(reports=1)
    pipeline.send([report("b1:8080")])
    pipeline.run_once()
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for number in range(50):
        command = {
            "kind": "pause-cluster" if number % 2 else "resume-cluster",
            "id": f"c{number}",
            "by": "test",
        }
        producer.send(topic_names.commands, key=b"eu", value=json.dumps(command).encode())
    producer.close()
    pipeline.run_once()
    answers = pipeline.table("commands").to_pylist()
    assert sorted(row["id"] for row in answers) == sorted(f"c{number}" for number in range(50))
    assert {row["outcome"] for row in answers} == {"done"}
    assert sorted(Counter(row["log_seq"] for row in answers).values()) == [10, 20, 20]


def test_few_records_do_not_wait_for_the_end_of_a_flood(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    """Spark reads one of the thousand in each batch, so on no machine are they through before their
    wait is noticed."""
    limit, few, flood = 100, 1_000, 100_000
    pipeline = Pipeline(
        kafka.bootstrap, topic_names, tmp_path, {"stream.max_offsets_per_trigger": limit}
    )
    pipeline.create_topics(reports=2)
    pipeline.send([report("b1:8080"), report("b2:8080")])
    checkpoint, flooded, quiet = (
        Store.at(tmp_path / "checkpoint"),
        (topic_names.reports, 0),
        (topic_names.reports, 1),
    )
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)

    def shared() -> bool:
        """Whether the last batch has an equal share of both: half of it, but for the few ticks of
        the commands topic that it reads too."""
        batch = last_batch(checkpoint)
        assert batch is not None
        begin, end = first_offsets(checkpoint, batch), planned_offsets(checkpoint, batch)
        return all(
            0.45 * limit <= end[place] - begin[place] <= limit / 2 for place in (flooded, quiet)
        )

    with pipeline.running() as job:
        wait_until(
            lambda: pipeline.table("rounds").num_rows > 0 or job.poll() is not None,
            "the first round",
        )
        for number in range(flood):
            producer.send(
                topic_names.reports, key=b"eu/b1:8080", value=b"{}", headers=HEARTBEAT, partition=0
            )
            if number * few % flood == 0:
                producer.send(
                    topic_names.reports,
                    key=b"eu/b2:8080",
                    value=b"{}",
                    headers=HEARTBEAT,
                    partition=1,
                )
        producer.close()
        wait_until(
            lambda: shared() or job.poll() is not None, "a batch that the two partitions share"
        )
        assert job.poll() is None, pipeline.log()[-4000:]
        assert planned_offsets(checkpoint, last_batch(checkpoint))[flooded] < flood
    assert "few records have waited for 15 s behind many" in pipeline.log()
