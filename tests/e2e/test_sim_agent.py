"""Agents of simulated brokers on a real Kafka, with a small decision maker in the balancer's
place."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from lb_stream.agent import Agent, AgentConfig, AgentError, HookConfig, connection
from lb_stream.contracts.decisions import Decision, Ownership, example_decision
from lb_stream.contracts.reports import Ack, Goodbye, Heartbeat, ModularLoadReport
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, SimCluster, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.support.killing import kill_kafka
from tests.support.webhook import webhook

pytestmark = pytest.mark.e2e

A, B, C = "broker-1:8080", "broker-2:8080", "broker-3:8080"


@dataclass
class Stage:
    """Topics, a model of three brokers, and the decision maker's producer."""

    kafka: EmbeddedKafka
    topics: TopicSettings
    cluster: SimCluster
    maker: KafkaProducer

    def agent(self, **changes: object) -> Agent:
        settings = {"report_interval_s": 60.0, "heartbeat_interval_s": 60.0} | changes
        config = AgentConfig(
            self.kafka.bootstrap,
            "eu-1",
            self.topics.reports,
            self.topics.decisions,
            self.topics.ownership,
            **settings,
        )
        return Agent(config, [SimBroker(self.cluster, name) for name in self.cluster.brokers])

    def bundle_of(self, broker: str) -> str:
        return min(self.cluster.owned(broker))

    def decide(
        self,
        kind: str,
        bundle: str,
        source: str | None,
        destination: str | None,
        *,
        abort: bool = False,
        **changes: object,
    ) -> Decision:
        """Publish one decision in a transaction of its own, as the balancer does."""
        fields = {
            "cluster": "eu-1",
            "kind": kind,
            "bundle": bundle,
            "source": source,
            "destination": destination,
        }
        fields |= {
            "decision_id": f"eu-1:{time.monotonic_ns()}:0",
            "expires_ms": wall_clock_ms() + 60_000,
            **changes,
        }
        decision = example_decision(**fields)
        self.maker.begin_transaction()
        self.maker.send(
            self.topics.decisions, key=f"eu-1/{bundle}".encode(), value=decision.to_json().encode()
        )
        if abort:
            self.maker.flush()
            self.maker.abort_transaction()
        else:
            self.maker.commit_transaction()
        return decision

    def records(self) -> list[tuple[str, str, dict, int]]:
        """All of the reports topic: (broker, kind, JSON object, partition), each partition in
        order."""
        with KafkaConsumer(
            bootstrap_servers=self.kafka.bootstrap, enable_auto_commit=False
        ) as consumer:
            partitions = [
                TopicPartition(self.topics.reports, number)
                for number in consumer.partitions_for_topic(self.topics.reports)
            ]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            consumer.seek_to_beginning(*partitions)
            found = []
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                for records in consumer.poll(timeout_ms=200).values():
                    for record in records:
                        kind = dict(record.headers)["kind"].decode()
                        cluster, _, broker = record.key.decode().partition("/")
                        assert cluster == "eu-1"
                        found.append((broker, kind, json.loads(record.value), record.partition))
            return found

    def of(self, broker: str, *kinds: str) -> list[tuple[str, dict]]:
        return [
            (kind, value)
            for name, kind, value, _ in self.records()
            if name == broker and kind in kinds
        ]

    def acks(self, broker: str) -> list[Ack]:
        return [Ack.model_validate(value) for _, value in self.of(broker, "ack")]


def until(condition: Callable[[], object], within_s: float = 15.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


@pytest.fixture
def stage(kafka: EmbeddedKafka, topic_names: TopicSettings) -> Iterator[Stage]:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    with KafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=topic_names.decisions
    ) as maker:
        maker.init_transactions()
        yield Stage(
            kafka, topic_names, build_cluster(3, 12, "hot_spot", start_ms=wall_clock_ms()), maker
        )


def test_a_move_is_acknowledged_by_both_brokers_and_each_report_that_shows_it_comes_after(
    stage: Stage,
) -> None:
    bundle, agent = stage.bundle_of(A), stage.agent()
    agent.start()
    unload = stage.decide("unload", bundle, A, B)
    until(lambda: not stage.cluster.owns(A, bundle))
    assert stage.cluster.owners()[bundle] is None, "nobody serves it until it is assigned"
    assign = stage.decide("assign", bundle, None, B)
    until(lambda: stage.cluster.owns(B, bundle))
    agent.stop()
    (_, first), (kind, ack), (_, second) = stage.of(A, "report", "ack")
    assert kind == "ack" and (ack["decision_id"], ack["outcome"]) == (
        unload.decision_id,
        "released",
    )
    assert (
        bundle in first["bundles"]
        and bundle not in second["bundles"]
        and second["lastBundleLosses"] == [bundle]
    )
    (_, first), (kind, ack), (_, second) = stage.of(B, "report", "ack")
    assert kind == "ack" and (ack["decision_id"], ack["outcome"]) == (
        assign.decision_id,
        "acquired",
    )
    assert (
        bundle not in first["bundles"]
        and bundle in second["bundles"]
        and second["lastBundleGains"] == [bundle]
    )
    assert stage.of(C, "report", "ack")[0][0] == "report" and len(stage.of(C, "report", "ack")) == 1


def test_several_decisions_read_together_make_one_report_after_all_their_acknowledgements(
    stage: Stage,
) -> None:
    bundles = stage.cluster.owned(A)
    decisions = [stage.decide("unload", bundle, A, B) for bundle in bundles]
    agent = stage.agent(start="earliest")
    agent.start()
    until(lambda: not stage.cluster.owned(A))
    agent.stop()
    told = stage.of(A, "report", "ack")
    assert {value["decision_id"] for kind, value in told if kind == "ack"} == {
        decision.decision_id for decision in decisions
    }
    assert told[-1][0] == "report" and told[-1][1]["bundles"] == []
    left = [set(value["bundles"]) for kind, value in told if kind == "report"]
    released = 0
    for kind, value in told:  # no report shows a release before it was acknowledged
        released += kind == "ack"
        assert kind == "ack" or len(value["bundles"]) >= len(bundles) - released
    assert len(left) <= len(bundles)


def test_an_aborted_decision_is_never_obeyed(stage: Stage) -> None:
    first, second = stage.cluster.owned(A)[:2]
    agent = stage.agent()
    agent.start()
    stage.decide("unload", first, A, B, abort=True)
    stage.decide("unload", second, A, B)
    until(lambda: not stage.cluster.owns(A, second))
    agent.stop()
    assert stage.cluster.owns(A, first) and len(stage.acks(A)) == 1


def test_a_hook_vetoes_a_move_and_another_one_is_told_of_a_confirmed_one(stage: Stage) -> None:
    vetoed, moved = stage.cluster.owned(A)[:2]
    with webhook() as server:
        server.reply = lambda call: (
            200,
            json.dumps(
                {"allow": call.fields["bundle"] != vetoed, "reason": "a release is on"}
            ).encode(),
        )
        agent = stage.agent(
            hooks=HookConfig(server.url("/before"), server.url("/after"), timeout_s=30.0)
        )
        agent.start()
        refused, released = (stage.decide("unload", bundle, A, B) for bundle in (vetoed, moved))
        until(lambda: len(stage.acks(A)) == 2)
        record = Ownership(
            cluster="eu-1",
            bundle=moved,
            state="Owned",
            owner=B,
            version=released.expected_version + 2,
        )
        stage.maker.begin_transaction()
        stage.maker.send(
            stage.topics.ownership, key=f"eu-1/{moved}".encode(), value=record.to_json().encode()
        )
        stage.maker.commit_transaction()
        *asked, told = server.wait_for(3)
        agent.stop()
    assert {(call.path, call.fields["decision_id"]) for call in asked} == {
        ("/before", one.decision_id) for one in (refused, released)
    }
    assert (told.path, told.fields["decision_id"], told.fields["owner"]) == (
        "/after",
        released.decision_id,
        B,
    )
    assert {ack.decision_id: (ack.outcome, ack.reason) for ack in stage.acks(A)} == {
        refused.decision_id: ("refused", "vetoed by the hook: a release is on"),
        released.decision_id: ("released", ""),
    }
    assert stage.cluster.owns(A, vetoed) and not stage.cluster.owns(A, moved)


def test_what_must_not_be_done_is_refused_with_the_reason_and_changes_nothing(stage: Stage) -> None:
    owners, bundle, agent = stage.cluster.owners(), stage.bundle_of(A), stage.agent()
    agent.start()
    stage.decide("unload", stage.bundle_of(B), A, C, epoch=5)
    stage.decide("unload", bundle, A, B, epoch=5, expires_ms=1)
    until(lambda: len(stage.acks(A)) == 2)
    stage.decide("unload", bundle, A, B, epoch=4)
    until(lambda: len(stage.acks(A)) == 3)
    agent.stop()
    acks = stage.acks(A)
    assert {ack.outcome for ack in acks} == {"refused"} and stage.cluster.owners() == owners
    reasons = " / ".join(ack.reason for ack in acks)
    assert all(
        part in reasons
        for part in ("is not served here", "expired", "epoch 4 is over: 5 has begun")
    )


def test_a_transfer_is_released_by_its_source(stage: Stage) -> None:
    bundle, agent = stage.bundle_of(A), stage.agent()
    agent.start()
    stage.decide("transfer", bundle, A, B)
    until(lambda: not stage.cluster.owns(A, bundle))
    agent.stop()
    assert [ack.outcome for ack in stage.acks(A)] == ["released"]


def test_a_decision_that_comes_twice_is_done_once(stage: Stage) -> None:
    bundle, other = stage.cluster.owned(A)[:2]
    agent = stage.agent()
    agent.start()
    stage.decide("unload", bundle, A, B, decision_id="eu-1:1:0")
    until(lambda: not stage.cluster.owns(A, bundle))
    stage.cluster.acquire(A, bundle)
    stage.decide("unload", bundle, A, B, decision_id="eu-1:1:0")
    stage.decide("unload", other, A, B, decision_id="eu-1:1:1")
    until(lambda: not stage.cluster.owns(A, other))
    agent.stop()
    assert stage.cluster.owns(A, bundle)
    assert sorted(ack.decision_id for ack in stage.acks(A)) == ["eu-1:1:0", "eu-1:1:1"]


def test_decisions_of_another_cluster_and_records_that_are_none_are_passed_over(
    stage: Stage,
) -> None:
    bundle, other = stage.cluster.owned(A)[:2]
    agent = stage.agent()
    agent.start()
    stage.decide("unload", bundle, A, B, cluster="eu-2", epoch=99)
    stage.maker.begin_transaction()
    stage.maker.send(stage.topics.decisions, key=b"eu-1/x", value=b"{not json")
    stage.maker.send(stage.topics.decisions, key=b"eu-1/x", value=None)
    stage.maker.commit_transaction()
    stage.decide("unload", other, A, B, epoch=1)
    until(lambda: not stage.cluster.owns(A, other))
    agent.stop()
    assert agent.failure is None and stage.cluster.owns(A, bundle)


def test_a_broker_that_fails_says_so_and_the_others_go_on(stage: Stage) -> None:
    class Broken(SimBroker):
        def release(self, bundle: str) -> None:
            raise OSError("disk full")

    agent = stage.agent()
    agent.adapters[A] = Broken(stage.cluster, A)
    agent.start()
    failing, working = (
        stage.decide("unload", stage.bundle_of(A), A, B),
        stage.decide("unload", stage.bundle_of(B), B, C),
    )
    until(lambda: stage.acks(A) and stage.acks(B))
    agent.stop()
    (ack,) = stage.acks(A)
    assert (ack.decision_id, ack.outcome, ack.reason) == (
        failing.decision_id,
        "failed",
        "OSError: disk full",
    )
    assert [(ack.decision_id, ack.outcome) for ack in stage.acks(B)] == [
        (working.decision_id, "released")
    ]


def test_reports_and_heartbeats_come_at_their_intervals_and_a_goodbye_at_the_end(
    stage: Stage,
) -> None:
    agent = stage.agent(report_interval_s=0.2, heartbeat_interval_s=0.5)
    agent.start()
    time.sleep(1.6)
    agent.stop(goodbye=True)
    assert not agent.running
    records = stage.records()
    for broker in (A, B, C):
        mine = [(kind, value) for name, kind, value, _ in records if name == broker]
        kinds = [kind for kind, _ in mine]
        assert {"report", "heartbeat"} == set(kinds[:-1]) and kinds[-1] == "goodbye"
        assert 5 <= kinds.count("report") <= 10 and 3 <= kinds.count("heartbeat") <= 5
        models = {"report": ModularLoadReport, "heartbeat": Heartbeat, "goodbye": Goodbye}
        assert all(models[kind].model_validate_json(json.dumps(value)) for kind, value in mine)
        assert len({partition for name, _, _, partition in records if name == broker}) == 1, (
            "one key, one order"
        )


@pytest.mark.parametrize(
    ("start", "obeyed"), [("latest", []), ("earliest", [0, 1]), ("offsets", [1])]
)
def test_an_agent_begins_where_it_is_told_to(stage: Stage, start: str, obeyed: list[int]) -> None:
    bundle = stage.bundle_of(A)
    stage.decide("unload", bundle, A, B, decision_id="eu-1:1:0")
    with KafkaConsumer(bootstrap_servers=stage.kafka.bootstrap) as consumer:
        partitions = [
            TopicPartition(stage.topics.decisions, number)
            for number in consumer.partitions_for_topic(stage.topics.decisions)
        ]
        ends = {
            partition.partition: offset
            for partition, offset in consumer.end_offsets(partitions).items()
        }
    stage.decide("unload", bundle, A, B, decision_id="eu-1:1:1")
    agent = stage.agent(start=ends if start == "offsets" else start)
    agent.start()
    stage.decide("unload", stage.bundle_of(B), B, C)
    until(lambda: stage.acks(B))
    agent.stop()
    assert [ack.decision_id for ack in stage.acks(A)] == [f"eu-1:1:{number}" for number in obeyed]


@pytest.mark.kills
def test_an_agent_is_heard_again_after_kafka_was_away_for_longer_than_its_records_wait(
    tmp_path: Path, topic_names: TopicSettings, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(connection, "DELIVERY_MS", 3_000)
    with EmbeddedKafka(tmp_path) as broker:
        create_topics(broker.bootstrap, topic_specs(topic_names))
        names = (topic_names.reports, topic_names.decisions, topic_names.ownership)
        config = AgentConfig(
            broker.bootstrap, "eu-1", *names, report_interval_s=0.02, heartbeat_interval_s=1.0
        )
        cluster = build_cluster(3, 12, "hot_spot", start_ms=wall_clock_ms())
        agent = Agent(config, [SimBroker(cluster, name) for name in cluster.brokers])
        agent.start()
        for _ in range(3):
            kill_kafka(broker)
            time.sleep(chance.uniform(4, 7))  # longer than DELIVERY_MS
            broker.start()
            back_ms = wall_clock_ms()
            with KafkaConsumer(
                topic_names.reports,
                bootstrap_servers=broker.bootstrap,
                auto_offset_reset="earliest",
            ) as consumer:
                heard: set[bytes] = set()

                def all_heard(
                    consumer: KafkaConsumer = consumer,
                    since_ms: int = back_ms + 4_000,
                    heard: set[bytes] = heard,
                ) -> bool:
                    records = [
                        record for some in consumer.poll(timeout_ms=100).values() for record in some
                    ]
                    heard |= {record.key for record in records if record.timestamp > since_ms}
                    return len(heard) == len(cluster.brokers)

                until(all_heard, within_s=40)
        agent.stop()


def test_a_missing_topic_is_told_at_once_with_what_to_do(stage: Stage) -> None:
    for wrong in ({"reports": "no-such-topic"}, {"decisions": "no-such-topic"}):
        topics = TopicSettings(
            **{"reports": stage.topics.reports, "decisions": stage.topics.decisions, **wrong}
        )
        agent = Stage(stage.kafka, topics, stage.cluster, stage.maker).agent()
        with pytest.raises(AgentError, match="topic no-such-topic does not exist: create it"):
            agent.start()


def run_sim(stage: Stage, *arguments: str) -> subprocess.Popen[str]:
    lbctl = str(Path(sys.executable).with_name("lbctl"))
    command = [lbctl, "sim", "--cluster", "eu-1", "--brokers", "3", "--bundles", "12"]
    command += ["--set", f"kafka.bootstrap_servers={stage.kafka.bootstrap}"]
    for name in ("reports", "decisions", "ownership"):
        command += ["--set", f"topics.{name}={getattr(stage.topics, name)}"]
    command += arguments
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_simulated_cluster_runs_until_it_is_told_to_stop(
    stage: Stage, number: signal.Signals
) -> None:
    process = run_sim(stage, "--interval-s", "0.2", "--goodbye")
    until(lambda: stage.of(C, "report"))
    stage.decide("unload", stage.bundle_of(A), A, B)
    until(lambda: stage.acks(A))
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=15)
    assert process.returncode == 0, output
    assert "broker-1:8080 gives up shop/app-01/" in output and "max/mean" in output
    assert {broker for broker, kind, _, _ in stage.records() if kind == "goodbye"} == {A, B, C}


def test_the_simulated_cluster_stops_by_itself_when_its_time_is_up(stage: Stage) -> None:
    process = run_sim(stage, "--minutes", "0.02", "--form", "simple")
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0, output
    assert stage.of(A, "report")[0][1]["loadReportType"] == "LoadReport"


def test_the_simulated_cluster_says_what_is_missing(stage: Stage) -> None:
    process = run_sim(stage, "--set", "topics.decisions=no-such-topic")
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 1 and output.endswith(
        "lbctl: topic no-such-topic does not exist: create it (`lbctl topics create`)\n"
    )
