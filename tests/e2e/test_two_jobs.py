"""Two jobs where one belongs: on one checkpoint, or under one transactional id.

One wins, the other says why; nothing is doubled.
"""

import json
import random
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e import backlog
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import LONGEST_RUN_S, Pipeline, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

SETTINGS = backlog.SETTINGS | {"stream.tick_interval_ms": 200, "stream.max_offsets_per_trigger": 60}
ROUNDS = 10


@pytest.fixture
def first(kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path) -> Pipeline:
    """The topics, and the job that was there first; not started yet."""
    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path / "first", SETTINGS)
    pipeline.folder.mkdir()
    pipeline.create_topics(reports=1)
    pipeline.send(backlog.records(ROUNDS))
    return pipeline


def beside(first: Pipeline, **changed: str) -> Pipeline:
    """A second job with a log file of its own; what isn't changed is the first one's."""
    second = replace(first, folder=first.folder.parent / "second")
    second.folder.mkdir()
    own = {"tables": first.folder / "tables", "checkpoint": first.folder / "checkpoint"} | changed
    second.settings = {**SETTINGS, **{f"stream.{name}": value for name, value in own.items()}}
    return second


def has_read(pipeline: Pipeline, reports: int) -> bool:
    """Whether the averages hold as many reports of each broker.

    (Bundles move about: all of them together.)
    """
    total = sum(row["long_samples"] for row in pipeline.table("bundle_averages").to_pylist())
    return total >= expected_samples(reports)


def expected_samples(reports: int) -> int:
    """Samples of all bundles in the first rounds of the backlog."""
    values = [json.loads(value) for _, value, _ in backlog.records(reports)]
    return sum(len(value["lastStats"]) for value in values)


def ids(pipeline: Pipeline) -> list[str]:
    """Of all decisions in the log."""
    texts = pipeline.table("rounds").to_pydict().get("decisions", [])
    return [entry["decision_id"] for text in texts for entry in json.loads(text)]


def assert_decisions_are_published_once(first: Pipeline) -> None:
    """Each decision of the log is on the topic once, and in its table once."""
    logged = Counter(ids(first))
    assert logged and max(logged.values()) == 1
    assert (
        Counter(
            json.loads(record.value)["decision_id"]
            for record in committed(first.bootstrap, first.topics.decisions)
        )
        == logged
    )
    assert Counter(first.table("decisions")["decision_id"].to_pylist()) == logged


def assert_nothing_is_doubled(first: Pipeline) -> None:
    """Each decision was published once, each report counted once."""
    assert_decisions_are_published_once(first)
    total = sum(row["long_samples"] for row in first.table("bundle_averages").to_pylist())
    assert total == expected_samples(ROUNDS * 2)


def is_told(message: str) -> bool:
    """Whether a job says that another one is there."""
    return any(
        words in message
        for words in (
            "another job of the pipeline",
            "another job reads with the checkpoint",
            "is run already by",
        )
    )


def ends(job: "subprocess.Popen[bytes]", pipeline: Pipeline) -> str:
    """Wait for a job to end with 1. Returns its last message."""
    assert job.wait(timeout=LONGEST_RUN_S) == 1, pipeline.log()[-3000:]
    return pipeline.message()


def finishes(job: "subprocess.Popen[bytes]", pipeline: Pipeline, first: Pipeline) -> None:
    """Send the second half of the backlog: the job that is left reads it, and ends when it is asked
    to."""
    first.send(backlog.records(2 * ROUNDS)[ROUNDS * backlog.RECORDS_A_ROUND :])
    wait_until(
        lambda: has_read(first, 2 * ROUNDS) or job.poll() is not None,
        "the second half of the backlog",
    )
    assert job.poll() is None, pipeline.log()[-3000:]
    job.terminate()
    assert job.wait(timeout=60) in (0, 143)


def test_a_second_job_is_refused_before_spark_starts_and_a_standby_waits_for_the_first_ones_end(
    first: Pipeline,
) -> None:
    second = beside(first)
    with first.running() as old:
        wait_until(
            lambda: has_read(first, ROUNDS) or old.poll() is not None,
            "the first half of the backlog",
        )
        with second.running() as refused:
            assert (
                "is run already by process" in ends(refused, second)
                and "epoch 1" in second.message()
            )
            assert "epoch 2" not in second.log() and old.poll() is None
        with second.running("--take-over") as new:
            assert "another job of the pipeline" in ends(old, first)
            finishes(new, second, first)
        assert "it is shut out of publishing now and ends with its next batch" in second.log()
    assert_nothing_is_doubled(first)


@pytest.mark.kills
def test_after_a_kill_the_next_start_is_not_refused(first: Pipeline, seed: int) -> None:
    with first.running() as old:
        wait_until(
            lambda: has_read(first, ROUNDS) or old.poll() is not None,
            "the first half of the backlog",
        )
        time.sleep(random.Random(seed).uniform(0, 3))
        first.kill(old)
    with first.running() as new:
        finishes(new, first, first)
    assert_nothing_is_doubled(first)


def test_of_two_jobs_that_start_at_once_on_one_checkpoint_one_is_left(first: Pipeline) -> None:
    second = beside(first)
    with first.running() as one, second.running() as other:
        wait_until(
            lambda: one.poll() is not None or other.poll() is not None, "one of the jobs to stop"
        )
        (loser, its), (winner, own) = sorted(
            ((one, first), (other, second)), key=lambda job: job[0].poll() is None
        )
        assert is_told(ends(loser, its))
        finishes(winner, own, first)
    assert_nothing_is_doubled(first)


def test_a_job_with_other_tables_under_the_same_id_stops_and_leaves_the_first_one_alone(
    first: Pipeline,
) -> None:
    second = beside(
        first,
        tables=str(first.folder / "other-tables"),
        checkpoint=str(first.folder / "other-checkpoint"),
    )
    with first.running() as old:
        wait_until(
            lambda: has_read(first, ROUNDS) or old.poll() is not None,
            "the first half of the backlog",
        )
        with second.running() as new:
            assert "is run already by process" in ends(new, second)
        finishes(old, first, first)
    assert_nothing_is_doubled(first)


def test_a_job_with_another_checkpoint_takes_over_where_the_log_ends(first: Pipeline) -> None:
    second = beside(first, checkpoint=str(first.folder / "other-checkpoint"))
    with first.running() as old:
        wait_until(
            lambda: has_read(first, ROUNDS) or old.poll() is not None,
            "the first half of the backlog",
        )
        with second.running("--take-over") as new:
            assert is_told(ends(old, first))
            first.send(backlog.records(2 * ROUNDS)[ROUNDS * backlog.RECORDS_A_ROUND :])
            decided = len(ids(first))
            wait_until(
                lambda: len(ids(first)) > decided or new.poll() is not None,
                "decisions of the second job",
            )
            assert new.poll() is None, second.log()[-3000:]
            new.terminate()
            assert new.wait(timeout=60) in (0, 143)
    assert_decisions_are_published_once(first)
