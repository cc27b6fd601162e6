"""Jobs that stand by, on a real Kafka and Spark: one leads at any time, every decision is made
once, whatever befalls the leader."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.contracts.commands import Claim, Tick
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import wait_until
from tests.e2e.standbys import LONGEST_S, Job, Stage, new_pipeline, staged

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def stage(kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path) -> Iterator[Stage]:
    with staged(
        kafka.bootstrap, new_pipeline(kafka.bootstrap, topic_names, tmp_path / "jobs")
    ) as found:
        yield found


def decides(stage: Stage) -> int:
    """Order an unload and wait for its decision; the epoch of the job that has made it."""
    with stage.reader() as reader:
        reader.drain()
        stage.unload()
        return reader.next()[0].epoch


def until(condition: object, what: str) -> None:
    wait_until(condition, what, LONGEST_S)


def assert_every_decision_is_made_once(stage: Stage) -> None:
    """End the jobs, those that stand by first; then topic, log and table hold the same decisions,
    each once, and epochs rise."""
    living = [job for job in stage.jobs if job.lives]
    leader = stage.leaders()[-1][1]
    for job in sorted(living, key=lambda one: one.instance == leader):
        job.stop()
    first = stage.first
    texts = first.table("rounds").to_pydict()["decisions"]
    logged = Counter(entry["decision_id"] for text in texts for entry in json.loads(text))
    assert logged and max(logged.values()) == 1
    published = [
        json.loads(record.value) for record in committed(first.bootstrap, first.topics.decisions)
    ]
    assert Counter(one["decision_id"] for one in published) == logged
    assert Counter(first.table("decisions")["decision_id"].to_pylist()) == logged
    rounds = sorted(
        zip(
            *(first.table("rounds")[name].to_pylist() for name in ("log_seq", "epoch")), strict=True
        )
    )
    epochs = [epoch for _, epoch in rounds]
    assert epochs == sorted(epochs)


def assert_one_led_at_a_time(stage: Stage) -> None:
    """Once a job has ticked with its epoch, none ticks with an earlier one for longer than it takes
    to notice that it was shut out."""
    led = stage.leaders()
    epochs = [epoch for epoch, _ in led]
    assert epochs == sorted(set(epochs)), "each epoch is one job's"


@pytest.mark.kills
def test_of_two_that_stand_by_one_takes_over_when_the_leader_is_killed(
    stage: Stage, seed: int
) -> None:
    leader = stage.start("--standby")
    stage.await_leader(leader)
    others = [stage.start("--standby") for _ in range(2)]
    for job in others:
        stage.await_warm(job)
    before = decides(stage)
    time.sleep(random.Random(seed).uniform(0, 3))
    leader.signal(signal.SIGKILL)
    assert decides(stage) > before
    assert sorted(job.leads for job in others) == [0, 1], "one leads, the other goes on standing by"
    time.sleep(5)
    assert sorted(job.leads for job in others) == [0, 1] and all(job.lives for job in others)
    claims = [sign for sign in stage.signs() if isinstance(sign.record, Claim)]
    assert 2 <= len(claims) <= 3, "the first one's, and those of the others"
    assert_one_led_at_a_time(stage)
    assert_every_decision_is_made_once(stage)


def lbctl(stage: Stage, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run lbctl with the pipeline's settings."""
    first = stage.first
    settings = {
        "kafka.bootstrap_servers": first.bootstrap,
        "stream.tables": first.folder / "tables",
        "stream.pipeline_id": first.topics.reports[:80],
        "topics.commands": first.topics.commands,
    }
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return subprocess.run(
        [str(Path(sys.executable).with_name("lbctl")), *arguments, *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )


def test_a_paused_leader_stands_by_when_it_wakes_up_and_leads_again_when_it_is_handed_over_to(
    stage: Stage, kafka: EmbeddedKafka
) -> None:
    first = stage.start("--standby")
    stage.await_leader(first)
    second = stage.start("--standby")
    stage.await_warm(second)
    epochs = [decides(stage)]

    first.signal(signal.SIGSTOP)
    epochs.append(decides(stage))
    assert second.leads == 1
    first.signal(signal.SIGCONT)
    until(lambda: first.stands_by == 2 or not first.lives, "the first one to stand by")
    assert first.lives and first.leads == 1
    epochs.append(decides(stage))

    handed = hand_over(stage, first)
    assert handed["pid"] == int(first.instance.rpartition(":")[2])
    epochs.append(decides(stage))
    assert (first.leads, second.leads) == (2, 1)
    until(lambda: second.stands_by == 2, "the second one to stand by")

    away(kafka, 12)
    epochs.append(decides(stage))
    assert (first.leads, second.leads) == (2, 1), "without Kafka nobody concludes anything"
    assert first.lives and second.lives

    assert epochs[0] < epochs[1] == epochs[2] < epochs[3] <= epochs[4]
    assert_one_led_at_a_time(stage)
    assert_every_decision_is_made_once(stage)


def hand_over(stage: Stage, to: Job) -> dict[str, object]:
    """As an operator does it, once the other one is known to stand by."""
    until(
        lambda: to.instance in lbctl(stage, "leader").stderr,
        "the other one to say that it stands by",
    )
    done = lbctl(stage, "leader", "hand-over", "--to", to.instance, "--json")
    assert done.returncode == 0, done.stderr
    last = [sign for sign in stage.signs() if isinstance(sign.record, Tick) and sign.record.ends]
    assert last and isinstance(last[-1].record, Tick) and last[-1].record.to == to.instance
    return dict(json.loads(done.stdout))


def away(kafka: EmbeddedKafka, seconds: float) -> None:
    """Kafka answers nobody for so long."""
    assert kafka.pid is not None
    os.kill(kafka.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(kafka.pid, signal.SIGCONT)
    until(
        lambda: kafka.answers(int(kafka.bootstrap.rpartition(":")[2])),
        "Kafka to name its broker again",
    )
