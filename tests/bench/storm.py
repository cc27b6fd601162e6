"""`python -m tests.bench.storm`: what a storm of one cluster and made-up clusters cost the others.

A calm cluster loses a bundle now and then; the delay is the time from the report that lacks it to
the decision that assigns it. Beside it a cluster of twenty brokers, fifty bundles each, sends first
a report and a heartbeat of each broker every five seconds, then a hundred times as many. Then
clusters that don't exist send one report each, and are forgotten. The last line is one JSON object:
medians in ms, memory of the job's processes in MiB. `--unlimited`: without limits of admission.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from lb_stream.contracts.decisions import read_decision
from lb_stream.contracts.reads import is_reads
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.bench.stream.fleet import Fleet, Shape
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.killing import processes
from tests.support.topics import topics_named

BEAT = json.dumps({"sent_ms": 0}).encode()
HEARTBEAT = [("kind", b"heartbeat")]
BUNDLES = [f"calm/n/0x{at:08x}_0x{at + 0x10000000:08x}" for at in range(0, 0x60000000, 0x10000000)]
BROKERS = ("b1:8080", "b2:8080")
EXPIRES_MS = 60_000
UNLIMITED = {
    "admission.records_per_second": 0,
    "admission.clusters": 0,
    "admission.unconfirmed_clusters": 0,
}


def report(bundles: list[str]) -> bytes:
    """A modular report of a broker with these bundles."""
    fields = {
        "cpu": {"usage": 20.0, "limit": 100.0},
        "lastStats": {name: {"msgRateIn": 5.0} for name in bundles},
        "lastUpdate": time.time_ns() // 1_000_000,
        "loadReportType": "LocalBrokerData",
    }
    return json.dumps(fields).encode()


class Storm(threading.Thread):
    """Sends the wild cluster's records, `times` as many as usual, until it is ended."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.times, self.sent, self.ends = 1, 0, False
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
        self._topic = topic
        fleet = Fleet(Shape(1, 20, 50), prefix="wild")
        self._records = [record for _ in range(20) for record in fleet.generation()]

    def run(self) -> None:
        """Send ten times a second."""
        at, due = 0, 0.0
        while not self.ends:
            due += self.times * 20 / 5 / 10
            while due >= 1:
                due -= 1
                key, value = self._records[at % len(self._records)]
                self._producer.send(self._topic, key=key, value=value)
                self._producer.send(self._topic, key=key, value=BEAT, headers=HEARTBEAT)
                at, self.sent = at + 1, self.sent + 2
            time.sleep(0.1)


class Calm:
    """The calm cluster: its brokers, and who has which bundle."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._topic = pipeline.topics.reports
        self._producer = KafkaProducer(bootstrap_servers=pipeline.bootstrap)
        self._decisions = KafkaConsumer(
            pipeline.topics.decisions,
            bootstrap_servers=pipeline.bootstrap,
            auto_offset_reset="earliest",
        )
        self.owned = {broker: BUNDLES[at::2] for at, broker in enumerate(BROKERS)}
        for broker in BROKERS:
            self._send(broker)

    def _send(self, broker: str) -> None:
        key = f"calm/{broker}".encode()
        self._producer.send(self._topic, key=key, value=report(self.owned[broker]))
        self._producer.flush()

    def delay_ms(self, timeout_s: float = 120) -> float:
        """Lose a bundle, and wait until it is assigned; its new broker reports it."""
        broker = max(BROKERS, key=lambda name: len(self.owned[name]))
        lost = self.owned[broker].pop()
        self._send(broker)
        begin = time.monotonic()
        while time.monotonic() - begin < timeout_s:
            for records in self._decisions.poll(timeout_ms=100).values():
                for record in records:
                    if is_reads(record.headers):
                        continue
                    decision = read_decision(record.value)
                    if decision.bundle != lost or decision.kind != "assign":
                        continue
                    delay = 1_000 * (time.monotonic() - begin)
                    destination = str(decision.destination)
                    self.owned[destination].append(lost)
                    self._send(destination)
                    time.sleep(1.5)
                    return delay
        raise TimeoutError(f"{lost} got no broker")

    def delays(self, count: int) -> list[float]:
        """Several delays."""
        return [round(self.delay_ms()) for _ in range(count)]


def memory_mib(job: int) -> int:
    """Resident memory of the job's Python processes."""
    found = 0
    for pid in processes(job):
        status = Path(f"/proc/{pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        facts = dict(line.split(":", 1) for line in lines)
        if facts.get("Name", "").strip().startswith("python"):
            found += int(facts["VmRSS"].split()[0]) // 1024
    return found


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Measure one job."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka") as kafka:
        limits = UNLIMITED if given.unlimited else {}
        settings = {
            "balancer.dry_run": False,
            "balancer.shedding_enabled": False,
            "admission.unconfirmed_cluster_ms": EXPIRES_MS,
            **limits,
        }
        pipeline = Pipeline(
            kafka.bootstrap,
            topics_named("storm"),
            Path(folder) / "job",
            settings,
            short_lived=False,
        )
        pipeline.folder.mkdir()
        pipeline.create_topics(reports=4)
        storm = Storm(kafka.bootstrap, pipeline.topics.reports)
        storm.start()
        with pipeline.running() as job:
            calm = Calm(pipeline)
            wait_until(lambda: pipeline.table("rounds").num_rows > 0, "the first round", 120)
            calm.delays(5)

            def note(name: str) -> None:
                found[name] = calm.delays(given.runs)
                found[f"{name}_memory"] = memory_mib(job.pid)
                print(name, found[name], found[f"{name}_memory"], storm.sent, flush=True)

            for turn in ("1", "2"):
                storm.times = 1
                note(f"calm_{turn}")
                storm.times = 100
                time.sleep(3)
                note(f"storm_{turn}")
            storm.times = 1
            time.sleep(3)
            if given.clusters:
                note("before")
                producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)
                for at in range(given.clusters):
                    key = f"fake-{at:05d}/b:8080".encode()
                    producer.send(pipeline.topics.reports, key=key, value=report(BUNDLES[:1]))
                producer.flush()
                time.sleep(5)
                note("made_up")
                time.sleep(EXPIRES_MS / 1_000)
                note("expired")
            storm.ends = True
    medians = {
        name: statistics.median(value) for name, value in found.items() if isinstance(value, list)
    }
    calm_ms = statistics.median(found["calm_1"] + found["calm_2"])
    storm_ms = statistics.median(found["storm_1"] + found["storm_2"])
    return medians | {
        "memory": {name: value for name, value in found.items() if name.endswith("_memory")},
        "storm_ratio": round(storm_ms / calm_ms, 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.storm", description=__doc__)
    parser.add_argument("--unlimited", action="store_true", help="without limits of admission")
    parser.add_argument("--runs", type=int, default=10, help="delays in each state (10)")
    parser.add_argument("--clusters", type=int, default=10_000, help="made-up clusters (10,000)")
    print(json.dumps(measure(parser.parse_args())))
