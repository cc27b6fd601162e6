"""A split's whole life, and a broker's death, on a real Kafka with real tables: records, decisions
and brokers agree at every step."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.settings import TopicSettings
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import parse_bundle
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, SimCluster, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.pipeline import Pipeline, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

CLUSTER = "eu-1"
SETTINGS = {
    "dry_run": "false",
    "shedding_enabled": "false",
    "heartbeat_timeout_ms": 10_000,
    "tombstone_delay_ms": 5_000,
    "bundle_retention_ms": 5_000,
    "stream.tick_interval_ms": 500,
}


@dataclass
class Scene:
    """A job, a model of four brokers, and an agent for each of them: a process of its own, as far
    as the job can see."""

    run: Pipeline
    cluster: SimCluster
    agents: dict[str, Agent] = field(default_factory=dict)

    def speak(self, *brokers: str) -> None:
        """Their agents begin, anew if need be."""
        topics = self.run.topics
        for name in brokers:
            config = AgentConfig(
                self.run.bootstrap,
                CLUSTER,
                topics.reports,
                topics.decisions,
                topics.ownership,
                report_interval_s=1.0,
                heartbeat_interval_s=1.0,
            )
            self.agents[name] = Agent(config, [SimBroker(self.cluster, name)])
            self.agents[name].start()

    def fall_silent(self, *brokers: str) -> None:
        """Without a goodbye."""
        for name in brokers:
            self.agents.pop(name).stop()

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.run.table(table).to_pylist()

    def records(self) -> dict[str, dict[str, Any]]:
        """Bundle → its record in the table."""
        return {row["bundle"]: row for row in self.rows("ownership")}

    def owned(self) -> bool:
        """Every bundle of the model has one owner, and the table says so."""
        owners, records = self.cluster.owners(), self.records()
        return all(
            owner is not None
            and name in records
            and (records[name]["state"], records[name]["owner"]) == ("Owned", owner)
            for name, owner in owners.items()
        )

    def alarms(self) -> set[int]:
        """Numbers of the rounds that did nothing because so many brokers had gone."""
        return {row["seq"] for row in self.rows("refusals") if row["rule"] == "mass_disappearance"}

    def history(self, bundle: str) -> list[dict[str, Any]]:
        """All records of a bundle, in order."""
        rounds = sorted(self.rows("rounds"), key=lambda row: row["log_seq"])
        return [
            one for row in rounds for one in json.loads(row["ownership"]) if one["bundle"] == bundle
        ]

    def on_topic(self) -> dict[str, dict[str, Any] | None]:
        """Bundle → the last value on the compacted topic; None: an empty one."""
        found: dict[str, dict[str, Any] | None] = {}
        with KafkaConsumer(
            bootstrap_servers=self.run.bootstrap,
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            topic = self.run.topics.ownership
            partitions = [
                TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)
            ]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            consumer.seek_to_beginning(*partitions)
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                for records in consumer.poll(timeout_ms=200).values():
                    for record in records:
                        found[record.key.decode().removeprefix(f"{CLUSTER}/")] = (
                            json.loads(record.value) if record.value else None
                        )
        return found


@contextmanager
def playing(
    kafka: EmbeddedKafka, topics: TopicSettings, folder: Path, **changes: Any
) -> Iterator[Scene]:
    run = Pipeline(kafka.bootstrap, topics, folder, SETTINGS | changes)
    run.create_topics(reports=2, decisions=2, ownership=2)
    scene = Scene(run, build_cluster(4, 8, "steady", start_ms=wall_clock_ms()))
    with run.running():
        scene.speak(*scene.cluster.brokers)
        try:
            wait_until(scene.owned, "the first records")
            yield scene
        finally:
            scene.fall_silent(*list(scene.agents))


def test_a_split_from_its_trigger_to_the_parents_tombstone(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    with playing(kafka, topic_names, tmp_path) as scene:
        cluster = scene.cluster
        owner = "broker-1:8080"
        parent = min(cluster.owned(owner))
        cluster.model.topics[cluster.row(parent)] = 1_200
        wait_until(lambda: parent not in cluster.bundles, "its agent to split the bundle")
        wait_until(scene.owned, "the children to have owners")
        wait_until(lambda: scene.on_topic().get(parent, {}) is None, "the parent's empty record")
        wait_until(lambda: parent not in scene.records(), "the parent's row to go")
        wait_until(
            lambda: parent not in {row["bundle"] for row in scene.rows("bundle_averages")},
            "the parent's averages to go",
        )

        namespace, lower, upper = parse_bundle(parent)
        children = [name for name in cluster.bundles if parse_bundle(name).namespace == namespace]
        inside = [
            name
            for name in children
            if lower <= parse_bundle(name).lower and parse_bundle(name).upper <= upper
        ]
        assert len(inside) == 2
        (split,) = [decision for decision in scene.run.decisions() if decision.kind == "split"]
        assert (split.bundle, split.source, sorted(split.children)) == (
            parent,
            owner,
            sorted(inside),
        )
        states = [(one["state"], one["version"], one["force"]) for one in scene.history(parent)]
        assert states[-3:] == [("Splitting", 2, False), ("Deleted", 3, False), ("Init", 3, False)]
        assert [scene.history(child)[0]["version"] for child in inside] == [1, 1]
        unloaded = {
            decision.bundle for decision in scene.run.decisions() if decision.rule == "split_child"
        }
        stayed = {
            name
            for row in scene.rows("refusals")
            if row["rule"] == "placement_keeps_owner"
            for name in row["subjects"]
        }
        assert unloaded | stayed >= set(inside), (
            "each child was placed anew, or placement wanted it where it is"
        )
        alike(scene)


def alike(scene: Scene) -> None:
    """At one watermark topic and table say the same."""
    told = {name: record for name, record in scene.on_topic().items() if record is not None}
    table = scene.records()
    fields = (
        "state",
        "owner",
        "source",
        "destination",
        "version",
        "force",
        "epoch",
        "decision_id",
        "since_ms",
    )
    assert {name: [record[one] for one in fields] for name, record in told.items()} == {
        name: [row[one] for one in fields] for name, row in table.items()
    }
    assert {name: record["watermark"] for name, record in told.items()} == {
        name: row["log_seq"] for name, row in table.items()
    }


def test_a_dead_brokers_bundles_have_new_owners_in_the_round_of_its_death_and_a_mass_disappearance_moves_nothing(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    with playing(kafka, topic_names, tmp_path) as scene:
        dead, *others = scene.cluster.brokers
        orphans = set(scene.cluster.owned(dead))
        scene.fall_silent(dead)
        scene.cluster.model.take_down(scene.cluster.broker_row(dead))  # its process is gone
        wait_until(scene.owned, "new owners")
        rounds = sorted(scene.rows("rounds"), key=lambda row: row["log_seq"])
        death = next(row for row in rounds if dead in Memory.from_json(row["memory"]).dead)
        assigned = [
            (one["bundle"], one["destination"])
            for one in json.loads(death["decisions"])
            if one["kind"] == "assign"
        ]
        assert {bundle for bundle, _ in assigned} == orphans and len(assigned) == len(orphans)
        assert {broker for _, broker in assigned} <= set(others)
        taken = [one for one in json.loads(death["ownership"]) if one["bundle"] in orphans]
        assert [(one["state"], one["source"], one["force"]) for one in taken] == [
            ("Assigning", dead, True)
        ] * len(orphans)
        alike(scene)

        owners = scene.cluster.owners()
        decided = len(scene.rows("decisions"))
        scene.fall_silent(*others[:2])
        wait_until(lambda: len(scene.alarms()) >= 2, "the alarm, again and again")
        assert scene.cluster.owners() == owners and len(scene.rows("decisions")) == decided
        scene.speak(
            *others[:2], dead
        )  # one after another: whoever is the only silent one meanwhile may be taken for dead
        last_alarm = max(scene.alarms())
        wait_until(
            lambda: max(row["seq"] for row in scene.rows("broker_loads")) > last_alarm + 3,
            "work to go on",
        )
        wait_until(scene.owned, "every bundle to have one owner")
