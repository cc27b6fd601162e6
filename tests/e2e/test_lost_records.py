"""Kafka has deleted what comes next: the job says which records, stops, and goes on behind them
when it is told to."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import LONGEST_RUN_S, Pipeline, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

SETTINGS = {"stream.tick_interval_ms": 0, "stream.max_offsets_per_trigger": 10}
BUNDLE = "acme/orders/0x00000000_0xffffffff"


def reports(first: int, count: int, padding: int = 0) -> list[tuple[bytes, bytes, None]]:
    """Reports no. `first` and following of one broker. `padding`: bytes that nobody reads."""
    stats = [
        {BUNDLE: {"msgRateIn": 1.0 * number, "topics": 1}} for number in range(first, first + count)
    ]
    common = {"loadReportType": "LocalBrokerData", "padding": "x" * padding}
    values = [
        {"lastUpdate": first + at, "lastStats": one, **common} for at, one in enumerate(stats)
    ]
    return [(b"eu/b1:8080", json.dumps(value).encode(), None) for value in values]


def delete_before(pipeline: Pipeline, offset: int) -> None:
    """What retention does, at once."""
    admin = KafkaAdminClient(bootstrap_servers=pipeline.bootstrap)
    admin.delete_records({TopicPartition(pipeline.topics.reports, 0): offset})
    admin.close()


def fails(pipeline: Pipeline, *extra: str) -> str:
    """Run the job, which must end with 1. Returns its last message."""
    with pipeline.running("--once", *extra) as job:
        assert job.wait(timeout=LONGEST_RUN_S) == 1
    return pipeline.message()


def samples(pipeline: Pipeline) -> int:
    """How many reports have gone into the bundle's average."""
    (row,) = pipeline.table("bundle_averages").to_pylist()
    number: int = row["long_samples"]
    return number


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path) -> Pipeline:
    """A job that has read ten reports, with ten more there of which Kafka has deleted four."""
    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    pipeline.create_topics(reports=1)
    pipeline.send(reports(1, 10))
    pipeline.run_once()
    pipeline.send(reports(11, 10))
    delete_before(pipeline, 14)
    return pipeline


def test_a_job_that_has_missed_records_says_which_and_goes_on_behind_them_when_told_to(
    pipeline: Pipeline,
) -> None:
    message = fails(pipeline)
    assert f"topic {pipeline.topics.reports}, partition 0: offsets 10 to 13, 4 records" in message
    assert "--set stream.lost_records=skip" in message
    assert samples(pipeline) == 10
    pipeline.settings = SETTINGS | {"stream.lost_records": "skip"}
    pipeline.run_once()
    assert samples(pipeline) == 16
    assert "offsets 10 to 13, 4 records" in pipeline.log().rpartition("WARNING")[2]


def test_a_new_checkpoint_misses_them_no_more_silently(pipeline: Pipeline) -> None:
    settings = SETTINGS | {"stream.checkpoint": pipeline.folder / "another-checkpoint"}
    pipeline.settings = settings
    assert "offsets 10 to 13, 4 records" in fails(pipeline)
    pipeline.settings = settings | {"stream.lost_records": "skip"}
    pipeline.run_once()
    assert samples(pipeline) == 6
    assert sorted(pipeline.table("rounds")["log_seq"].to_pylist()) == list(
        range(len(pipeline.table("rounds")))
    )


def test_topics_that_were_made_anew_are_told_from_deleted_records(
    pipeline: Pipeline, unique_topic: Callable[..., str]
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=pipeline.bootstrap)
    admin.delete_topics([pipeline.topics.reports])
    wait_until(
        lambda: pipeline.topics.reports not in admin.list_topics(), "the topic's end", timeout_s=30
    )
    admin.close()
    pipeline.create_topics(reports=1)
    pipeline.send(reports(31, 3))
    message = fails(pipeline)
    assert (
        f"topic {pipeline.topics.reports}, partition 0: offset 10 comes next, and it ends at 3"
        in message
    )
    assert "--set stream.checkpoint=FOLDER" in message
    pipeline.settings = SETTINGS | {
        "stream.checkpoint": pipeline.folder / "another-checkpoint",
        "stream.lost_records": "skip",
    }
    pipeline.run_once()
    assert samples(pipeline) == 3


def test_records_that_are_deleted_under_a_running_job_end_it_with_the_same_message(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    pipeline = Pipeline(
        kafka.bootstrap, topic_names, tmp_path, SETTINGS | {"stream.max_offsets_per_trigger": 20}
    )
    pipeline.create_topics(reports=1)
    pipeline.send(
        reports(1, 600, padding=100_000)
    )  # Spark's client fetches 10 MB ahead, and has those even when they are deleted
    with pipeline.running() as job:
        wait_until(
            lambda: pipeline.table("rounds").num_rows > 1 or job.poll() is not None,
            "rounds in the log",
        )
        delete_before(pipeline, 590)
        assert job.wait(timeout=LONGEST_RUN_S) == 1
    message = pipeline.message()
    assert (
        f"topic {pipeline.topics.reports}, partition 0: offsets " in message
        and " to 589, " in message
    )
    assert "--set stream.lost_records=skip" in message
