"""The whole loop through a secured broker, a user for each role: brokers report, the job decides, agents obey, others look on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from kafka import KafkaConsumer, TopicPartition

from lb_stream.access.clients import kafka_python
from lb_stream.access.roles import Right, Role
from lb_stream.agent import Agent
from tests.e2e.pipeline import Pipeline
from tests.e2e.secure.roles_at_work import CLUSTER, PIPELINE, Users
from tests.support.secure_kafka import Acls, SecureKafka

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.long]

LONGEST_S = 900
SETTINGS = {
    "dry_run": "false",
    "shedding_interval_ms": 0,
    "shedding_grace_period_ms": 0,
    "history_ratio": 0,
    "min_throughput_mb": 0,
    "stream.metrics_address": "",
    "stream.pipeline_id": PIPELINE,
}
LBCTL = [sys.executable, "-c", "from lb_stream.cli.main import main; main()"]


class Loop:
    """The job and the agents of one run, and what followers see."""

    def __init__(self, users: Users) -> None:
        self.users = users
        self.pipeline = Pipeline(users.bootstrap, users.topics, users.folder, SETTINGS)

    @contextmanager
    def job(self) -> Iterator["subprocess.Popen[bytes]"]:
        """The started job, which gives its login in a file."""
        with self.pipeline.running("--config", str(self.users.file("job"))) as job:
            yield job

    def until(self, condition: Callable[[], object], what: str, job: "subprocess.Popen[bytes] | None" = None) -> None:
        """Wait for something to come about while the job runs."""
        end = time.monotonic() + LONGEST_S
        while not condition():
            assert job is None or job.poll() is None, f"the job has ended before {what}: {self.pipeline.log()[-3000:]}"
            assert time.monotonic() < end, f"waited {LONGEST_S} s for {what}; {self.pipeline.log()[-2000:]}"
            time.sleep(0.2)

    def followed(self, topic: str) -> list[Any]:
        """All that a follower can read of a topic."""
        options = kafka_python(self.users.options["follower"])
        consumer = KafkaConsumer(bootstrap_servers=self.users.bootstrap, isolation_level="read_committed", **options)
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends, found = consumer.end_offsets(partitions), []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            found += [record for records in consumer.poll(timeout_ms=200).values() for record in records]
        consumer.close()
        return found

    def decisions(self) -> list[dict[str, Any]]:
        """Those on the topic, in the order in which they were made."""
        found = [json.loads(record.value) for record in self.followed(self.users.topics.decisions)]
        return sorted(found, key=lambda decision: (decision["seq"], decision["decision_id"]))

    def moves(self) -> int:
        """How many moves have come to their end: reports have confirmed the assignment."""
        return sum(row["outcome"] == "confirmed" for row in self.pipeline.table("outcomes").to_pylist())

    def assert_all_is_told_once(self) -> int:
        """Decisions on the topic = in the log = in their table, none twice, epochs rise. Returns how many there are."""
        on_topic = self.decisions()
        logged = Counter(
            entry["decision_id"] for text in self.pipeline.table("rounds")["decisions"].to_pylist() for entry in json.loads(text)
        )
        assert logged and max(logged.values()) == 1
        assert Counter(decision["decision_id"] for decision in on_topic) == logged
        assert Counter(self.pipeline.table("decisions")["decision_id"].to_pylist()) == logged
        epochs = [decision["epoch"] for decision in on_topic]
        assert epochs == sorted(epochs)
        leaders = sorted(self.pipeline.table("leaders").to_pylist(), key=lambda leader: leader["since_ms"])
        assert [leader["epoch"] for leader in leaders] == list(range(1, len(leaders) + 1))
        return len(on_topic)


@contextmanager
def lookup_server(users: Users) -> Iterator[str]:
    """The address of a started server."""
    command = [*LBCTL, "lookup-server", "--json", "--address", "127.0.0.1:0", "--config", str(users.file("lookup"))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=users.folder)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["url"]
    finally:
        server.terminate()
        server.wait()


def answer_of(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return dict(json.load(answer))


@pytest.fixture(params=["scram", "mtls"])
def users(request: pytest.FixtureRequest, secured: SecureKafka, acls: Acls, tmp_path: Path) -> Iterator[Users]:
    """A user for each role, who has its rights; there are no topics yet."""
    made = Users.of(secured, request.param, tmp_path / request.param, f"loop-{request.param}")
    for role in get_args(Role):
        acls.allow(made.principal(role), *made.rights(role))
    yield made
    for role in get_args(Role):
        acls.take(made.principal(role), *made.rights(role))


def obeyed(agent: Agent, loop: Loop, job: "subprocess.Popen[bytes]", moves: int) -> None:
    loop.until(lambda: loop.moves() >= moves, f"{moves} confirmed decisions", job)
    assert agent.running and agent.failure is None


def test_the_loop_runs_with_the_least_rights_and_ends_when_one_is_taken(users: Users, acls: Acls, last_words: dict[str, Any]) -> None:
    loop, way = Loop(users), users.folder.name
    assert users.lbctl("create", "topics", "create").code == 0
    agent = users.agent()
    agent.start()
    try:
        with loop.job() as job:
            obeyed(agent, loop, job, 2)
            os.killpg(job.pid, signal.SIGKILL)  # its heir has the next epoch
        with loop.job() as job:
            obeyed(agent, loop, job, loop.moves() + 2)
            paused = users.lbctl("operator", "clusters", "pause", CLUSTER, "--timeout", "300")
            assert (paused.code, paused.out.partition(":")[0]) == (0, "done"), paused
            assert users.lbctl("operator", "status", "--json").objects[0]["facts"]["job"]["running"]
            with lookup_server(users) as url:
                bundle = next(iter(agent.adapters.values())).report()["bundles"][0]
                topic = f"persistent://{bundle.rpartition('/')[0]}/any"
                loop.until(lambda: answer_of(f"{url}/lookup?topic={topic}")["broker"] in agent.adapters, "an answer with a broker", job)
            right = Right("Read", "topic", users.topics.reports)
            acls.take(users.principal("job"), right)
            assert job.wait(timeout=LONGEST_S) == 1, loop.pipeline.log()[-3000:]
        line = rf"Kafka at {users.bootstrap} refuses {users.principal('job')}: missing {right}\. .*"
        assert re.fullmatch(line, loop.pipeline.message()), loop.pipeline.log()[-3000:]
        assert loop.followed(users.topics.ownership)
        last_words[way] = {"decisions": loop.assert_all_is_told_once(), "confirmed": loop.moves(), "epochs": 2}
    finally:
        agent.stop()
