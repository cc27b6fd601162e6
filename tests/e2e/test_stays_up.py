"""Troubles that pass, one after another, under load: the job mends each within itself, and its
process never ends.

Python workers and the daemon that forks them are killed, or stand still until Spark loses patience;
Kafka is killed and started again. `make test-long` does this for an hour: LB_SOAK_MINUTES sets how
long, five minutes where it isn't set.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lb_stream.job.process import end_session
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.hostile import UNTIMED
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline, wait_until
from tests.e2e.under_load import STEP_S, Load, Play, decided, logged
from tests.support.killing import kill_kafka, kill_worker, workers
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long, pytest.mark.kills]

MINUTES = float(os.environ.get("LB_SOAK_MINUTES", "5"))
STANDSTILL_S = 20.0
"""Longer than Spark waits for a Python worker to connect back."""
SETTINGS = UNTIMED | dict.fromkeys(
    ("unloading_timeout_ms", "heartbeat_timeout_ms", "silent_after_ms"), 3_600_000
)


def stand_still(job: int) -> None:
    """Every Python worker, and their daemon, for longer than Spark waits."""
    wait_until(
        lambda: bool(workers(job)), "a Python worker: Spark ends those that are idle", STEP_S
    )
    stopped = workers(job)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(STANDSTILL_S)


def restart(broker: EmbeddedKafka) -> None:
    """Kafka, after some seconds without it."""
    kill_kafka(broker)
    time.sleep(5)
    broker.start(timeout_s=STEP_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """A Kafka of our own, as it will be killed."""
    started = EmbeddedKafka(tmp_path / "kafka")
    started.start(timeout_s=STEP_S)
    yield started
    started.stop()


def test_what_passes_never_ends_the_job(
    broker: EmbeddedKafka, tmp_path: Path, seed: int, count: Callable[[str], None]
) -> None:
    chance, done = random.Random(seed), Counter[str]()
    pipeline = Pipeline(broker.bootstrap, topics_named("stays-up"), tmp_path / "job", SETTINGS)
    pipeline.folder.mkdir()
    pipeline.create_topics(reports=2, decisions=1, ownership=1)
    with pipeline.running() as job, Load(broker.bootstrap, pipeline.topics.reports):

        def lives() -> None:
            assert job.poll() is None, pipeline.log()[-4000:]

        troubles: dict[str, Callable[[], Any]] = {
            "a Python worker killed": lambda: wait_until(
                lambda: kill_worker(job.pid, chance), "a Python worker to kill", STEP_S
            ),
            "all Python workers standing still": lambda: stand_still(job.pid),
            "Kafka killed": lambda: restart(broker),
        }
        with Play(pipeline, lives).agents() as play:
            play.get_ready()
            over = time.monotonic() + 60 * MINUTES
            while time.monotonic() < over or len(done) < len(troubles):
                name = tuple(troubles)[done.total() % len(troubles)]
                troubles[name]()
                done[name] += 1
                play.a_move()
                print(
                    f"{time.strftime('%H:%M:%S')} {name}: the next move after {play.delays_ms[-1]} "
                    "ms",
                    flush=True,
                )
        lives()
        end_session(job.pid, job.poll, grace_s=STEP_S)
        assert job.wait() == 0, pipeline.log()[-4000:]
    leaders = pipeline.table("leaders")
    assert len(set(leaders["pid"].to_pylist())) == 1, "one process from the beginning to the end"
    epochs = [
        json.loads(record.value)["epoch"]
        for record in committed(pipeline.bootstrap, pipeline.topics.decisions)
    ]
    assert epochs == sorted(epochs) and len(set(leaders["epoch"].to_pylist())) == leaders.num_rows
    topic = decided(pipeline)
    assert (
        topic == logged(pipeline) == Counter(pipeline.table("decisions")["decision_id"].to_pylist())
    )
    assert max(topic.values()) == 1
    begun = f"begun anew {leaders.num_rows - 1} times, slowest move {max(play.delays_ms)} ms"
    count(f"stays up: {dict(done)}, {begun}, {topic.total()} decisions, each once")
