"""An upgrade from the last release: its tables, checkpoint, topics and agents go on.

One job has two clusters: agents of the last release in one, of a version to come in the other. The
job of the last release is killed while bundles move, and this version's goes on in its place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, KafkaProducer

from lb_stream.agent import Agent, AgentConfig
from lb_stream.agent.producer import RecoveringProducer
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.local.jars import default_folder
from lb_stream.io.tables.formats import FORMAT, FORMAT_KEY
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.last_release import check_out_last_release
from tests.support.newer_records import FUTURE, HEADERS, with_unknown_fields

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.kills]

OLDER, NEWER = "older-agents", "newer-agents"
CLUSTERS = (OLDER, NEWER)
BROKERS, BUNDLES = 4, 48
FIRST, SECOND = "broker-1:8080", "broker-2:8080"
SETTINGS = {
    "dry_run": "false",
    "shedding_enabled": "false",
    "split_enabled": "false",
    # Few enough that the job is killed while a broker is drained.
    "max_moves_in_flight": 3,
    "stream.tick_interval_ms": 500,
}
SUBMIT = (
    "import json, sys; from lb_stream.job.submit import submit_command; "
    "print(json.dumps(submit_command(sys.argv[1:], driver_memory='1g', short_lived=True)))"
)


def environment_of(code: Path) -> dict[str, str]:
    """Return this environment with another release's code."""
    return {
        **os.environ,
        "PYTHONPATH": str(code),
        # Spark's workers are started by `python -m`, and would take the code of this folder.
        "PYTHONSAFEPATH": "1",
        "LB_JARS_DIR": str(default_folder().resolve()),
    }


@dataclass
class ReleasedPipeline(Pipeline):
    """A pipeline whose job is of the last release."""

    code: Path = Path()

    def command(self, *extra: str) -> tuple[list[str], dict[str, str]]:
        """Return the command line that the last release makes of the same arguments."""
        ours, _ = super().command(*extra)
        program = next(at for at, part in enumerate(ours) if part.endswith("balance.py"))
        command = (sys.executable, "-c", SUBMIT, *ours[program + 1 :])
        environment = environment_of(self.code)
        made = subprocess.run(
            command, cwd=self.code, env=environment, capture_output=True, text=True, check=True
        )
        line, theirs = json.loads(made.stdout)
        assert any(part.startswith(str(self.code)) for part in line)
        return line, theirs


@contextmanager
def agents_of_the_last_release(run: Pipeline, code: Path) -> Iterator[None]:
    """Simulated brokers, by the last release's `lbctl sim`."""
    settings = {f"topics.{key}": name for key, name in run.topics.model_dump().items()}
    settings["kafka.bootstrap_servers"] = run.bootstrap
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    numbers = ("--brokers", str(BROKERS), "--bundles", str(BUNDLES), "--workload", "steady")
    program = "from lb_stream.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "sim", "--cluster", OLDER, *numbers, "--quiet", *options],
        cwd=run.folder,
        env=environment_of(code),
    )
    try:
        yield
        assert process.poll() is None, "the agents of the last release have ended"
    finally:
        process.kill()
        process.wait()


@contextmanager
def agents_to_come(run: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulated brokers whose records have fields and headers that nobody knows yet."""
    send = RecoveringProducer.send

    def send_newer(producer: RecoveringProducer, topic: str, **record: Any) -> object:
        value = json.loads(record["value"])
        record["value"] = json.dumps(with_unknown_fields(value)).encode()
        record["headers"] = [*record.get("headers", ()), *HEADERS]
        return send(producer, topic, **record)

    monkeypatch.setattr(RecoveringProducer, "send", send_newer)
    cluster = build_cluster(BROKERS, BUNDLES, "steady", start_ms=wall_clock_ms())
    topics = (run.topics.reports, run.topics.decisions, run.topics.ownership)
    config = AgentConfig(run.bootstrap, NEWER, *topics, 1.0, heartbeat_interval_s=2.0)
    agent = Agent(config, [SimBroker(cluster, name) for name in cluster.brokers])
    agent.start()
    try:
        yield
    finally:
        agent.stop()


def drain(run: Pipeline, broker: str) -> None:
    """Have a broker of each cluster emptied, as any program sends it."""
    producer = KafkaProducer(bootstrap_servers=run.bootstrap)
    for cluster in CLUSTERS:
        command = {"kind": "drain-broker", "id": f"{cluster}-{broker}", "broker": broker}
        value = json.dumps(command).encode()
        producer.send(run.topics.commands, key=cluster.encode(), value=value)
    producer.flush()
    producer.close()


@dataclass(frozen=True)
class State:
    """What the tables hold."""

    owners: dict[tuple[str, str], dict[str, Any]]
    averages: dict[tuple[str, str], dict[str, Any]]
    outcomes: list[dict[str, Any]]
    rounds: list[dict[str, Any]]

    def owned(self, *empty: str) -> bool:
        """Return whether each bundle has an owner, and these brokers of both clusters have none."""
        return len(self.owners) == 2 * BUNDLES and all(
            row["state"] == "Owned" and row["owner"] not in empty for row in self.owners.values()
        )

    def confirmed(self, cluster: str) -> int:
        """Return how many decisions of a cluster are confirmed."""
        found = [row for row in self.outcomes if row["outcome"] == "confirmed"]
        return sum(row["cluster"] == cluster for row in found)

    def is_settled(self) -> bool:
        """Return whether every decision has an outcome."""
        return len(self.outcomes) == len(self.decided())

    def decided(self) -> list[str]:
        """Return the ids of all decisions in the log."""
        decisions = (each for row in self.rounds for each in json.loads(row["decisions"]))
        return [decision["decision_id"] for decision in decisions]


def state(run: Pipeline) -> State:
    def by_bundle(table: str) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["cluster"], row["bundle"]): row for row in run.table(table).to_pylist()}

    rounds = run.table("rounds").to_pylist()
    return State(
        by_bundle("ownership"),
        by_bundle("bundle_averages"),
        run.table("outcomes").to_pylist(),
        sorted(rounds, key=lambda row: row["log_seq"]),
    )


def kinds_with_unknown_fields(run: Pipeline) -> set[str]:
    """Return the kinds of records on the reports topic that have an unknown field and header."""
    consumer = KafkaConsumer(
        run.topics.reports,
        bootstrap_servers=run.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3000,
    )
    found = set()
    for record in consumer:
        headers = dict(record.headers)
        if FUTURE in json.loads(record.value) and HEADERS[0][0] in headers:
            found.add(headers["kind"].decode())
    consumer.close()
    return found


def has_moves(seen: State) -> bool:
    """Return whether some moves of each cluster are confirmed."""
    return min(map(seen.confirmed, CLUSTERS)) >= 3


def wait_for(
    run: Pipeline, job: subprocess.Popen[bytes], condition: Callable[[State], bool], what: str
) -> None:
    """Wait for the tables to hold something; fail with the job's log when the job has ended."""

    def holds() -> bool:
        assert job.poll() is None, run.log()[-4000:]
        return condition(state(run))

    wait_until(holds, what)


def test_a_job_goes_on_where_the_last_release_was_killed_with_older_and_newer_agents(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = check_out_last_release(tmp_path / "code")
    folder = tmp_path / "run"
    folder.mkdir()
    before = ReleasedPipeline(kafka.bootstrap, topic_names, folder, SETTINGS, code=code)
    after = Pipeline(kafka.bootstrap, topic_names, folder, SETTINGS)
    before.create_topics(reports=2, decisions=2, ownership=2)
    with agents_of_the_last_release(before, code), agents_to_come(before, monkeypatch):
        with before.running() as job:
            wait_for(before, job, State.owned, "the first owners")
            drain(before, FIRST)
            wait_for(before, job, has_moves, "confirmed moves")
            before.kill(job)
        killed = state(before)
        assert not killed.owned(FIRST), "the drain has ended before the kill"
        with after.running() as job:
            # The operator's drain goes on, and another one is taken.
            wait_for(after, job, lambda seen: seen.owned(FIRST), "the drain to go on")
            drain(after, SECOND)
            wait_for(after, job, lambda seen: seen.owned(FIRST, SECOND), "another drain")
            wait_for(after, job, State.is_settled, "all outcomes")
            after.kill(job)
    upgraded = state(after)

    # No decision is lost or doubled, and all came about.
    decided = upgraded.decided()
    assert len(decided) == len(set(decided)) > len(killed.decided()) > 0
    assert decided[: len(killed.decided())] == killed.decided()
    assert sorted(decision.decision_id for decision in after.decisions()) == sorted(decided)
    assert sorted(after.table("decisions")["decision_id"].to_pylist()) == sorted(decided)
    assert sorted(row["decision_id"] for row in upgraded.outcomes) == sorted(decided)
    for cluster in CLUSTERS:
        assert upgraded.confirmed(cluster) >= killed.confirmed(cluster) + 3

    # Each cluster's rounds go on with the next number, under a higher epoch.
    for cluster in CLUSTERS:
        rounds = [row for row in upgraded.rounds if row["cluster"] == cluster and row["seq"]]
        assert [row["seq"] for row in rounds] == list(range(1, len(rounds) + 1))
        epochs = [row["epoch"] for row in rounds]
        assert epochs == sorted(epochs) and len(set(epochs)) == 2

    # Ownership and averages are those of before, and what came since.
    for key, row in killed.owners.items():
        now = upgraded.owners[key]
        assert now["version"] >= row["version"] >= 1
        if row["state"] == "Owned" and row["owner"] not in (FIRST, SECOND):
            same = ("owner", "version", "since_ms")
            assert [now[name] for name in same] == [row[name] for name in same], key
    assert upgraded.averages.keys() == killed.averages.keys()
    for key, row in killed.averages.items():
        assert upgraded.averages[key]["long_samples"] > row["long_samples"] > 0, key

    # What newer agents say beyond what is known has been read, and is no bad input.
    assert kinds_with_unknown_fields(after) >= {"report", "heartbeat", "ack"}
    assert after.table("rejected_reports").to_pylist() == []
    log = DeltaTable((after.tables / "rounds").uri)
    assert log.metadata().configuration[FORMAT_KEY] == str(FORMAT)
