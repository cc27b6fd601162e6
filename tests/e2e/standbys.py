"""Several jobs of one pipeline that lead and stand by in turns, beside simulated brokers."""

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.commands import Tick
from lb_stream.contracts.decisions import Decision, read_decision
from lb_stream.contracts.reads import is_reads
from lb_stream.io.leadership.succession import ReceivedRecord
from lb_stream.io.leadership.topic import parse_leadership_record
from lb_stream.job.process import end_session
from lb_stream.operations.unload import UnloadBundles
from lb_stream.sim import SimBroker, SimCluster, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.pipeline import Pipeline, wait_until

CLUSTER = "eu-1"
SETTINGS = {"dry_run": "false", "stream.metrics_address": "", "stream.failover_after_ms": 3_000}
LONGEST_S = 1_800.0


@dataclass
class Job:
    """One job of the pipeline, with a folder for its log."""

    pipeline: Pipeline
    process: "subprocess.Popen[bytes]"

    def log(self) -> str:
        """All that it has printed."""
        return self.pipeline.log()

    @property
    def instance(self) -> str:
        """Its name among the others, once it has said so."""
        found = re.search(r"standing by for the pipeline .* as (\S+)", self.log())
        assert found is not None, self.log()[-3000:]
        return found[1]

    @property
    def is_warm(self) -> bool:
        """Whether it could take over at once."""
        return "warm after" in self.log()

    @property
    def lives(self) -> bool:
        """Whether its process does."""
        return self.process.poll() is None

    @property
    def leads(self) -> int:
        """How often it has begun to lead."""
        return self.log().count("leads the pipeline")

    @property
    def stands_by(self) -> int:
        """How often it has begun to stand by."""
        return self.log().count("standing by for the pipeline")

    def stop(self) -> None:
        """Ask it to end, as lbctl does."""
        end_session(self.process.pid, self.process.poll, 60)
        self.process.wait()

    def signal(self, number: int) -> None:
        """To its JVM and its driver."""
        os.killpg(self.process.pid, number)

    def said_at(self, words: str) -> float | None:
        """When it said something last, s since the epoch."""
        lines = [line for line in self.log().splitlines() if words in line]
        return (
            datetime.strptime(lines[-1][:23], "%Y-%m-%d %H:%M:%S,%f").timestamp() if lines else None
        )


@dataclass
class Stage:
    """Topics, brokers and jobs. The jobs share tables and checkpoint."""

    first: Pipeline
    cluster: SimCluster
    jobs: list[Job] = field(default_factory=list)

    def start(self, *options: str, **changed: object) -> Job:
        """One more job; `options` as on the command line."""
        folder = self.first.folder / f"job-{len(self.jobs)}"
        folder.mkdir()
        places = {f"stream.{name}": self.first.folder / name for name in ("tables", "checkpoint")}
        settings = {**self.first.settings, **places, **changed}
        pipeline = replace(self.first, folder=folder, settings=settings)
        command, environment = pipeline.command(*options)
        with (folder / "job.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.jobs.append(Job(pipeline, process))
        return self.jobs[-1]

    def end(self) -> None:
        """Kill what still runs."""
        for job in self.jobs:
            if job.lives:
                job.signal(signal.SIGCONT)
                Pipeline.kill(job.process)

    def await_warm(self, job: Job) -> None:
        """Wait until a job could take over at once."""
        wait_until(
            lambda: job.is_warm or not job.lives, "a job that stands by to be warm", LONGEST_S
        )
        assert job.lives, job.log()[-3000:]

    def await_leader(self, job: Job, times: int = 1) -> None:
        """Wait until a job reads, for the so-many-th time."""
        wait_until(
            lambda: job.log().count("continuing after batch") >= times or not job.lives,
            "a job to lead",
            LONGEST_S,
        )
        assert job.lives, job.log()[-3000:]

    def unload(self) -> str:
        """Order an unload of some bundle; the command's id."""
        producer = KafkaProducer(bootstrap_servers=self.first.bootstrap)
        broker = max(self.cluster.brokers, key=lambda name: len(self.cluster.owned(name)))
        namespace, _, bundle = min(self.cluster.owned(broker)).rpartition("/")
        command = UnloadBundles(
            id=str(uuid.uuid4()), namespace=namespace, bundle=bundle, sent_ms=wall_clock_ms()
        )
        producer.send(
            self.first.topics.commands, key=CLUSTER.encode(), value=command.to_json().encode()
        ).get(timeout=30)
        producer.close()
        return command.id

    def signs(self) -> list[ReceivedRecord]:
        """All signs that the jobs have given, in order."""
        place = TopicPartition(self.first.topics.commands, 0)
        with KafkaConsumer(
            bootstrap_servers=self.first.bootstrap, enable_auto_commit=False
        ) as consumer:
            consumer.assign([place])
            (end,) = consumer.end_offsets([place]).values()
            consumer.seek_to_beginning(place)
            found = []
            while consumer.position(place) < end:
                for records in consumer.poll(timeout_ms=500).values():
                    found += [
                        ReceivedRecord(sign, record.timestamp)
                        for record in records
                        if (sign := parse_leadership_record(record.value)) is not None
                    ]
        return found

    def leaders(self) -> list[tuple[int, str]]:
        """Epoch and instance of each tick's sender, in the order in which they came."""
        ticks = [
            (sign.record.epoch, sign.record.instance)
            for sign in self.signs()
            if isinstance(sign.record, Tick) and not sign.record.ends
        ]
        return list(dict.fromkeys(ticks))

    @contextmanager
    def reader(self) -> Iterator["Reader"]:
        """Reads decisions from now on."""
        reader = Reader(self.first)
        try:
            yield reader
        finally:
            reader.close()


class Reader:
    """Reads committed decisions as agents do, from the moment on at which it is made."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=pipeline.bootstrap,
            isolation_level="read_committed",
            enable_auto_commit=False,
            fetch_max_wait_ms=10,
        )
        topic = pipeline.topics.decisions
        self._consumer.assign(
            [
                TopicPartition(topic, number)
                for number in self._consumer.partitions_for_topic(topic) or ()
            ]
        )
        for place, end in self._consumer.end_offsets(self._consumer.assignment()).items():
            self._consumer.seek(place, end)

    def next(self, timeout_s: float = LONGEST_S) -> tuple[Decision, float]:
        """The next one, and when it could be read, s since the epoch."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for records in self._consumer.poll(timeout_ms=500).values():
                for record in records:
                    if not is_reads(record.headers):
                        return read_decision(record.value), time.time()
        raise TimeoutError(f"no decision within {timeout_s:g} s")

    def drain(self) -> None:
        """Skip what is there."""
        while self._consumer.poll(timeout_ms=300):
            pass

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()


@contextmanager
def staged(bootstrap: str, pipeline: Pipeline) -> Iterator[Stage]:
    """Topics, six brokers of ninety-six bundles that report every second, and no job yet."""
    pipeline.folder.mkdir(parents=True, exist_ok=True)
    pipeline.create_topics(reports=1)
    cluster = build_cluster(6, 96, "steady", 1, wall_clock_ms())
    topics = pipeline.topics
    config = AgentConfig(
        bootstrap,
        CLUSTER,
        topics.reports,
        topics.decisions,
        topics.ownership,
        report_interval_s=1.0,
        heartbeat_interval_s=2.0,
    )
    agent = Agent(config, [SimBroker(cluster, name) for name in cluster.brokers])
    stage = Stage(pipeline, cluster)
    agent.start()
    try:
        yield stage
    finally:
        stage.end()
        agent.stop()


def new_pipeline(bootstrap: str, topics: object, folder: Path) -> Pipeline:
    """A pipeline whose jobs have the settings of these tests."""
    return Pipeline(bootstrap, topics, folder, dict(SETTINGS))
