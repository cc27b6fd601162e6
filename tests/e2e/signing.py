"""What tests of signed records share: keys, agents and operators that sign, and somebody without a
key."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.settings import SecuritySettings
from lb_stream.io.kafka.signing import check_decisions
from lb_stream.settings.signing import load_signer
from lb_stream.sim import SimBroker, SimCluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.operator import CLUSTER, Operator
from tests.e2e.pipeline import Pipeline
from tests.support.lbctl_runner import lbctl

PIPELINE = "signed"
JOB = f"job:{PIPELINE}"
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
        hand_over = {"id": "h", "kind": "hand-over", "pipeline": PIPELINE, "by": "alice"}
        self._send(self._topics.commands, b"", json.dumps(hand_over).encode(), [])

    def claim(self, epoch: int) -> None:
        """Say without a key that another job leads: by a tick and by a claim with a later epoch."""
        for kind, more in (("tick", {}), ("claim", {"forced": True})):
            sign = {"id": f"forged-{kind}", "kind": kind, "pipeline": PIPELINE, "epoch": epoch}
            record = sign | {"host": "elsewhere", "pid": 1, "sent_ms": wall_clock_ms()} | more
            self._send(self._topics.commands, b"", json.dumps(record).encode(), [])

    def copy(self, topic: str, kinds: tuple[str, ...] = ()) -> int:
        """Send the topic's records again as they are; return how many."""
        with closing(KafkaConsumer(bootstrap_servers=self._run.bootstrap)) as consumer:
            numbers = sorted(consumer.partitions_for_topic(topic) or ())
            places = [TopicPartition(topic, number) for number in numbers]
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


@dataclass
class Signing(Operator):
    """An operator whose commands are signed."""

    keys: Keys
    file: str

    @property
    def options(self) -> list[str]:
        given = self.keys.options(self.file) | {"stream.pipeline_id": PIPELINE}
        more = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
        return [*super().options, *more]


def calm(run: Pipeline) -> None:
    """Wait until no decision is pending and none has come for some seconds."""
    count = -1
    while count != (count := len(run.decisions())):
        time.sleep(6)
