"""The whole loop where everything must be signed: forgeries and copies change nothing, a key is
rotated and one is revoked while the job runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.settings import SecuritySettings, TopicSettings
from lb_stream.io.kafka.signing import check_decisions
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.settings.signing import load_signer
from lb_stream.sim import SimBroker, SimCluster, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.operator import CLUSTER, Operator
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.lbctl_runner import lbctl

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

JOB = "job:signed"
VICTIM = "broker-1:8080"


@dataclass
class Keys:
    """A folder with keys and the file of signers, made by `lbctl keys`."""

    folder: Path

    @property
    def signers(self) -> Path:
        return self.folder / "signers"

    def ctl(self, *arguments: str) -> list[dict[str, str]]:
        option = ("--set", f"security.signers={self.signers}")
        result = lbctl("keys", *arguments, *option, "--json", cwd=self.folder)
        assert result.code == 0, result
        return result.objects

    def new(self, name: str, file: str) -> str:
        """Make a key in a file; return its id."""
        return self.ctl("new", name, "--out", file)[0]["key"]

    def security(self, file: str | None) -> SecuritySettings:
        """The settings of a program whose key is in a file."""
        return SecuritySettings(
            signers=str(self.signers),
            private_key=f"file:{self.folder / file}" if file else "",
            commands="signed",
            reports="signed",
            decisions="signed",
        )

    def options(self, file: str | None) -> dict[str, str]:
        """The same as settings of lbctl."""
        given = self.security(file).model_dump(exclude_defaults=True)
        return {f"security.{name}": value for name, value in given.items()}


@contextmanager
def agent_of(keys: Keys, file: str, run: Pipeline, cluster: SimCluster) -> Iterator[Agent]:
    """An agent of all brokers whose records one key signs."""
    security = keys.security(file)
    config = AgentConfig(
        run.bootstrap,
        CLUSTER,
        run.topics.reports,
        run.topics.decisions,
        run.topics.ownership,
        1.0,
        heartbeat_interval_s=2.0,
        signer=load_signer(security),
        check_decisions=partial(check_decisions, security),
        job=JOB,
    )
    agent = Agent(config, [SimBroker(cluster, broker) for broker in cluster.brokers])
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()


class Mallory:
    """Somebody who may write to all topics, and read them, and has no key."""

    def __init__(self, run: Pipeline) -> None:
        self._run, self._topics = run, run.topics
        self._producer = KafkaProducer(bootstrap_servers=run.bootstrap)

    def forge(self) -> None:
        """Speak for a broker, for an operator, for the job."""
        key = f"{CLUSTER}/{VICTIM}".encode()
        for kind, value in (
            ("goodbye", {"sent_ms": 1}),
            ("ack", {"decision_id": f"{CLUSTER}:1:0", "broker": VICTIM, "outcome": "confirmed"}),
            ("report", {"lastStats": {}, "loadReportType": "LocalBrokerData"}),
        ):
            self._send(
                self._topics.reports, key, json.dumps(value).encode(), [("kind", kind.encode())]
            )
        self._send(self._topics.reports, key, b"", [])
        for number, by in enumerate(("alice", JOB, f"{CLUSTER}/{VICTIM}")):
            drain = {"id": f"forged-{number}", "kind": "drain-broker", "broker": VICTIM, "by": by}
            self._send(self._topics.commands, CLUSTER.encode(), json.dumps(drain).encode(), [])
        hand_over = {"id": "h", "kind": "hand-over", "pipeline": "signed", "by": "alice"}
        self._send(self._topics.commands, b"", json.dumps(hand_over).encode(), [])

    def copy(self, topic: str, kinds: tuple[str, ...] = ()) -> int:
        """Send the topic's records again as they are; return how many."""
        with closing(KafkaConsumer(bootstrap_servers=self._run.bootstrap)) as consumer:
            places = [TopicPartition(topic, number) for number in (0, 1)]
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends = consumer.end_offsets(places)
            read = []
            # Transactions end with records that no consumer gets.
            while any(consumer.position(place) < end for place, end in ends.items()):
                for polled in consumer.poll(timeout_ms=500).values():
                    read += polled
        records = [
            record
            for record in read
            if not kinds or dict(record.headers).get("kind", b"").decode() in kinds
        ]
        for record in records:
            self._send(topic, record.key, record.value, record.headers)
        return len(records)

    def _send(self, topic: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        self._producer.send(topic, key=key, value=value, headers=headers).get(timeout=30)

    def close(self) -> None:
        self._producer.close()


def test_forgeries_and_copies_change_nothing_and_keys_are_changed_while_the_job_runs(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    keys.new(JOB, "job.pem")
    keys.new(f"{CLUSTER}/*", "agent.pem")
    alices_key = keys.new("alice", "alice.pem")
    settings = {
        "shedding_strategy": "LeastMoves",
        "split_enabled": "false",
        "dry_run": "false",
        "stream.tick_interval_ms": 500,
        **keys.options("job.pem"),
        "stream.pipeline_id": "signed",
    }
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, settings)
    run.create_topics(reports=2, decisions=2, ownership=2)
    cluster = build_cluster(3, 12, "hot_spot", start_ms=wall_clock_ms())
    alice = Signing(run, cluster, keys, "alice.pem")
    mallory = Mallory(run)
    with run.running():
        with agent_of(keys, "agent.pem", run, cluster):
            # The loop works: a hot broker's bundles move, by signed records alone.
            wait_until(lambda: len(moved(run)) > 0, "the first confirmed moves")
            mallory.forge()
            refused = ("forged-0", "forged-1", "forged-2")
            wait_until(lambda: all(alice.answers(one) for one in refused), "answers to forgeries")
            assert {outcome for one in refused for outcome, _ in alice.answers(one)} == {"refused"}
            assert VICTIM in alive(run)
            # Copies of what was signed: neither reports nor decisions nor commands count again.
            calm(run)
            before = cluster.owners()
            copied = mallory.copy(run.topics.decisions)
            assert copied > 0 and mallory.copy(run.topics.reports, ("heartbeat",)) > 0
            time.sleep(5)
            assert cluster.owners() == before
            # The key of the agents is rotated under way.
            keys.ctl("rotate", f"{CLUSTER}/*", "--out", "agent-2.pem", "--overlap", "1h")
        with agent_of(keys, "agent-2.pem", run, cluster):
            assert alice.ctl("brokers", "drain", VICTIM, "--no-wait").code == 0
            wait_until(lambda: not cluster.owned(VICTIM), "the drained broker to be empty")
            # The agent is new, and knows what its predecessor has read.
            calm(run)
            before = cluster.owners()
            assert mallory.copy(run.topics.decisions) > copied
            assert mallory.copy(run.topics.ownership) > 0
            time.sleep(5)
            assert cluster.owners() == before
            # A revoked key commands nothing.
            keys.ctl("revoke", alices_key)
            result = alice.ctl("brokers", "undrain", VICTIM, "--timeout", "60")
            assert result.code == 1 and result.out.startswith("refused"), result
    fields = {row["field"] for row in run.table("rejected_reports").to_pylist()}
    assert {"lb-signature", "lb-signed-us", "lb-key"} <= fields
    mallory.close()


@dataclass
class Signing(Operator):
    """An operator whose commands are signed."""

    keys: Keys
    file: str

    @property
    def options(self) -> list[str]:
        given = self.keys.options(self.file) | {"stream.pipeline_id": "signed"}
        more = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
        return [*super().options, *more]


def moved(run: Pipeline) -> list[dict[str, object]]:
    return [row for row in run.table("outcomes").to_pylist() if row["outcome"] == "confirmed"]


def alive(run: Pipeline) -> set[str]:
    rows = run.table("broker_loads").to_pylist()
    last = max(row["log_seq"] for row in rows)
    return {row["broker"] for row in rows if row["log_seq"] == last and row["alive"]}


def calm(run: Pipeline) -> None:
    """Wait until no decision is pending and none has come for some seconds."""
    count = -1
    while count != (count := len(run.decisions())):
        time.sleep(6)
