"""`lbctl agent pulsar` as users start it, on a real Kafka, beside brokers that answer as Pulsar's
do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import wait_until
from tests.pulsar.fake_cluster import FakeCluster, fake_cluster

PROJECT = Path(__file__).parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.loop]

FAR_MS = 4_000_000_000_000


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


def records(kafka: EmbeddedKafka, topic: str) -> list[tuple[str, str, bytes]]:
    """(key, kind, value) of all that is there."""
    with KafkaConsumer(bootstrap_servers=kafka.bootstrap, enable_auto_commit=False) as consumer:
        partitions = [
            TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)
        ]
        consumer.assign(partitions)
        ends, found = consumer.end_offsets(partitions), []
        consumer.seek_to_beginning(*partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for some in consumer.poll(timeout_ms=200).values():
                found += [
                    (record.key.decode(), dict(record.headers)["kind"].decode(), record.value)
                    for record in some
                ]
        return found


def test_the_agents_report_obey_tell_what_they_did_and_end_when_asked_to(
    kafka: EmbeddedKafka, topic_names: TopicSettings, cluster: FakeCluster
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    urls = [part for name in cluster.names for part in ("--admin-url", f"http://{name}")]
    command = [
        sys.executable,
        "-c",
        "from lb_stream.cli.main import main; main()",
        "agent",
        "pulsar",
        *urls,
        "--cluster",
        "eu-1",
        "--json",
    ]
    command += [
        "--kafka",
        kafka.bootstrap,
        "--report-interval",
        "0.5",
        "--heartbeat-interval",
        "0.5",
    ]
    command += [
        part
        for name in ("reports", "decisions", "ownership")
        for part in ("--set", f"topics.{name}={getattr(topic_names, name)}")
    ]
    keys = [f"eu-1/{name}" for name in cluster.names]
    report = cluster.adapter(1).report()
    process = subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(
            lambda: {key for key, _, _ in records(kafka, topic_names.reports)} == set(keys),
            "reports of all brokers",
            30,
        )
        decision = example_decision(
            source=cluster.names[0],
            destination=cluster.names[1],
            bundle=cluster.bundle(0),
            expires_ms=FAR_MS,
            expected_owner=cluster.names[0],
        )
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
        producer.send(topic_names.decisions, key=b"eu-1/x", value=decision.to_json().encode())
        producer.close()
        wait_until(
            lambda: any(kind == "ack" for _, kind, _ in records(kafka, topic_names.reports)),
            "an acknowledgement",
            30,
        )
        cluster.stop(2)
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert cluster.owners[cluster.ranges[0]] == 1
    (line,) = [json.loads(line) for line in out.splitlines()]
    assert (line["broker"], line["action"], line["bundle"]) == (
        cluster.names[0],
        "release",
        cluster.bundle(0),
    )
    sent = records(kafka, topic_names.reports)
    (ack,) = [json.loads(value) for key, kind, value in sent if kind == "ack" and key == keys[0]]
    assert (ack["decision_id"], ack["outcome"]) == (decision.decision_id, "released")
    assert (keys[1], "report", report) in sent  # byte for byte
    assert {kind for _, kind, _ in sent} == {
        "report",
        "heartbeat",
        "ack",
    }  # no goodbye: the brokers go on
