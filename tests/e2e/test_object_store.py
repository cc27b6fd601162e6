"""Tables and checkpoint in a bucket: the job is killed (kill -9), goes on, and has decided and told
each thing once."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.checkpoint import is_finished, last_batch
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.kit.fetch_jars import fetch_jars
from tests.e2e import backlog
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.s3_server import Request, s3_server
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long, pytest.mark.kills]

ROUNDS = 16
"""More than the batches after which the state store writes a snapshot beside its changes."""
KILLED_AFTER = (1, 6)
"""Batches that have been finished when the job is killed."""
LONGEST_S = 900
TOPICS: TopicSettings = topics_named("object-store")


@dataclass
class Run:
    """A job that was killed as often, and what it has asked of the bucket."""

    pipeline: Pipeline
    requests: list[Request]
    logged: list[str]
    """The decisions in the log, by their ids."""


def finished(pipeline: Pipeline) -> int:
    """How many batches Spark has written down as done."""
    last = last_batch(pipeline.checkpoint)
    return 0 if last is None else last + is_finished(pipeline.checkpoint, last)


@pytest.fixture(scope="module")
def run(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[Run]:
    """The backlog, read by a job that is killed in between."""
    chance = random.Random(seed)
    fetch_jars(extras=["s3"])
    with s3_server() as server:
        settings = backlog.SETTINGS | server.settings("lb")
        pipeline = Pipeline(
            kafka.bootstrap, TOPICS, tmp_path_factory.mktemp("object-store"), settings
        )
        pipeline.create_topics(reports=backlog.PARTITIONS)
        pipeline.send(backlog.records(ROUNDS))
        for batches in KILLED_AFTER:
            with pipeline.running("--once") as job:
                wait_until(
                    lambda least=batches: finished(pipeline) >= least or job.poll() is not None,
                    "batches in the bucket",
                    LONGEST_S,
                )
                time.sleep(chance.uniform(0, 1))
                assert job.poll() is None, pipeline.log()[-4000:]
                pipeline.kill(job)
        pipeline.run_once(LONGEST_S)
        logged = [
            one["decision_id"]
            for text in pipeline.table("rounds")["decisions"].to_pylist()
            for one in json.loads(text)
        ]
        yield Run(pipeline, server.requests(), logged)


def test_every_round_is_decided_once_although_the_job_was_killed(run: Run) -> None:
    rounds = run.pipeline.table("rounds").sort_by("log_seq")
    assert Counter(
        zip(rounds["batch_id"].to_pylist(), rounds["cluster"].to_pylist(), strict=True)
    ) == {(batch, cluster): 1 for batch in range(ROUNDS) for cluster in backlog.CLUSTERS}
    assert sorted(set(rounds["epoch"].to_pylist())) == list(range(1, len(KILLED_AFTER) + 2)), (
        "each start leads in an epoch of its own"
    )
    assert finished(run.pipeline) == ROUNDS


def test_a_decision_is_in_topic_log_and_table_and_nowhere_twice(run: Run) -> None:
    published = [
        json.loads(record.value)["decision_id"]
        for record in committed(run.pipeline.bootstrap, TOPICS.decisions)
    ]
    projected = run.pipeline.table("decisions")["decision_id"].to_pylist()
    assert len(set(run.logged)) == len(run.logged) > ROUNDS
    assert sorted(published) == sorted(projected) == sorted(run.logged)


def test_nothing_is_kept_beside_the_bucket_or_moved_within_it(run: Run) -> None:
    assert [path.name for path in Path(run.pipeline.folder).iterdir()] == ["job.log"]
    kinds = Counter(request.kind for request in run.requests)
    assert "PUT-COPY" not in kinds and kinds["PUT"] > 10 * ROUNDS
    state = [
        request.key
        for request in run.requests
        if request.kind == "PUT" and "/state/" in request.key
    ]
    assert any(key.endswith(".changelog") for key in state)
