"""`python -m tests.bench.kafka_return`: Kafka is killed (kill -9) and started again at once; how long
until the next decision can be read.

A job and six simulated brokers run beside an embedded Kafka. Each run kills Kafka at some moment of
a batch and starts it again. As soon as Kafka answers, an unload is ordered. Seconds are since then:
until the job's clock has ticked (`clock`), until each broker has sent something (`brokers`), until
the unload's decision can be read with read_committed (`decision`), and until the bundle has its new
owner (`arrived`). `away` is the time from the kill until Kafka answers, `anew` how often the stream
had to begin anew. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from lb_stream.contracts.commands import Tick
from lb_stream.contracts.decisions import Ownership, read_decision
from lb_stream.contracts.reads import is_reads
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.clients import kafka_python_options
from lb_stream.io.leadership.topic import parse_leadership_record
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.standbys import Stage, new_pipeline, staged
from tests.support.killing import kill_kafka
from tests.support.topics import topics_named

PARTS = ("clock", "brokers", "decision", "arrived")
FIGURES = ("away", *PARTS)
LONGEST_S = 300.0
LONGEST_PAUSE_S = 4.0
"""Between a move's end and the next kill."""


@dataclass
class Follower:
    """Reads all topics, and notes when each part of a return was first seen."""

    consumer: KafkaConsumer
    topics: TopicSettings
    command: str = ""
    answered: float = 0.0
    seen: dict[str, float] = field(default_factory=dict)
    brokers: set[bytes] = field(default_factory=set)
    moving: set[str] = field(default_factory=set)
    refused: bool = False

    def poll(self, brokers: int) -> None:
        """Read what is new. `brokers`: how many there are."""
        for records in self.consumer.poll(timeout_ms=50).values():
            for record in records:
                if self.answered and record.timestamp >= self.answered * 1_000:
                    self._note(record, brokers)

    def _note(self, record: Any, brokers: int) -> None:
        now = time.time() - self.answered
        appended = record.timestamp / 1_000 - self.answered
        if record.topic == self.topics.reports:
            self.brokers.add(record.key)
            if len(self.brokers) == brokers:
                self.seen.setdefault("brokers", appended)
        elif record.topic == self.topics.commands:
            if isinstance(parse_leadership_record(record.value), Tick):
                self.seen.setdefault("clock", appended)
        elif record.topic == self.topics.decisions:
            if is_reads(record.headers):
                return
            decision = read_decision(record.value)
            self.seen.setdefault("decision", now)
            self.moving.add(decision.bundle)
        elif record.topic == self.topics.results:
            result = json.loads(record.value)
            self.refused |= result["id"] == self.command and result["outcome"] == "refused"
        elif record.value:
            ownership = Ownership.model_validate_json(record.value)
            if ownership.state == "Owned" and ownership.bundle in self.moving:
                self.seen.setdefault("arrived", now)

    def begin(self) -> None:
        """Forget what was seen: the next kill comes."""
        self.answered, self.refused = 0.0, False
        self.seen, self.brokers, self.moving = {}, set(), set()


def follow(stage: Stage) -> Follower:
    """Return a follower of all topics from now on."""
    topics = stage.first.topics
    consumer = KafkaConsumer(
        bootstrap_servers=stage.first.bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        fetch_max_wait_ms=10,
        # No back-off of its own may lengthen what it measures.
        **kafka_python_options({"reconnect_backoff_max_ms": 50}),
    )
    consumer.assign(
        [
            TopicPartition(topic, number)
            for topic in (
                topics.reports,
                topics.commands,
                topics.results,
                topics.decisions,
                topics.ownership,
            )
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
    )
    consumer.seek_to_end()
    for place in consumer.assignment():
        consumer.position(place)
    return Follower(consumer, topics)


def measure(stage: Stage, kafka: EmbeddedKafka, follower: Follower) -> dict[str, float]:
    """Kill Kafka and start it again; the parts of the time until all is as before, s."""
    begun_anew = stage.jobs[0].log().count("begins anew")
    follower.begin()
    killed = time.time()
    kill_kafka(kafka)
    kafka.start(timeout_s=LONGEST_S)
    follower.answered = time.time()
    follower.command = stage.unload()
    while not follower.seen.keys() >= set(PARTS):
        assert time.time() - follower.answered < LONGEST_S, stage.jobs[0].log()[-3000:]
        assert stage.jobs[0].lives, stage.jobs[0].log()[-3000:]
        follower.poll(len(stage.cluster.brokers))
        if follower.refused:
            follower.refused, follower.command = False, stage.unload()
    figures = {"away": follower.answered - killed} | follower.seen
    anew = stage.jobs[0].log().count("begins anew") - begun_anew
    return {name: round(figures[name], 2) for name in FIGURES} | {"anew": anew}


def run(
    stage: Stage, kafka: EmbeddedKafka, runs: int, chance: random.Random
) -> list[dict[str, Any]]:
    """Kill Kafka as often, beside a job that has decided something before."""
    job = stage.start()
    stage.await_leader(job)
    found: list[dict[str, Any]] = []
    follower = follow(stage)
    follower.answered, until = time.time(), time.monotonic() + LONGEST_S
    while "arrived" not in follower.seen:
        assert time.monotonic() < until, job.log()[-3000:]
        # The job refuses what it is asked before it knows the cluster.
        stage.unload()
        for _ in range(40):
            follower.poll(len(stage.cluster.brokers))
    for number in range(runs):
        until = time.monotonic() + chance.uniform(1, LONGEST_PAUSE_S)
        while time.monotonic() < until:
            follower.poll(len(stage.cluster.brokers))
        found.append(measure(stage, kafka, follower))
        print(f"{number + 1}: {found[-1]}", file=sys.stderr, flush=True)
    follower.consumer.close()
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.kafka_return", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=10, help="how often Kafka is killed (10)")
    parser.add_argument("--seed", type=int, default=1, help="of the pauses before the kills (1)")
    parser.add_argument(
        "--folder", type=Path, help="a new folder for Kafka's data, tables and logs, to be kept"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = given.folder or Path(temporary)
        kafka = EmbeddedKafka(folder / "kafka")
        kafka.start(timeout_s=LONGEST_S)
        stack.callback(kafka.stop)
        pipeline = new_pipeline(kafka.bootstrap, topics_named("return"), folder / "jobs")
        stage = stack.enter_context(staged(kafka.bootstrap, pipeline))
        found = run(stage, kafka, given.runs, random.Random(given.seed))
    print(json.dumps(summary(found)))
    return 0


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median and the worst of each figure."""
    figures: dict[str, Any] = {
        name: {
            "median": round(statistics.median(run[name] for run in found), 2),
            "worst": max(run[name] for run in found),
        }
        for name in FIGURES
    }
    anew = sum(run["anew"] for run in found)
    return {"cores": os.cpu_count(), "runs": len(found), "begun_anew": anew} | figures


if __name__ == "__main__":
    sys.exit(main())
