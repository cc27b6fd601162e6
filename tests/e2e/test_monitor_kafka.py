"""`lbctl monitor --classic` against a real Kafka broker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.support.classic_screens import MODULAR, OURS, SEVEN, SIMPLE, THREE
from tests.support.lbctl_runner import lbctl

pytestmark = pytest.mark.e2e


def send(kafka: EmbeddedKafka, topic: str, *given: tuple[tuple[str, str], Any, bytes]) -> None:
    with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        for key, value, kind in given:
            data = b"" if value is None else json.dumps(value).encode()
            producer.send(topic, key="/".join(key).encode(), value=data, headers=[("kind", kind)])


def test_the_documented_tables_come_from_the_topic(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    given = [
        "--set",
        f"kafka.bootstrap_servers={kafka.bootstrap}",
        "--set",
        f"topics.reports={topic_names.reports}",
    ]
    empty = lbctl("monitor", "--classic", "--once", *given, cwd=tmp_path)
    assert empty.code == 0 and "no broker has reported" in empty.err
    send(
        kafka,
        topic_names.reports,
        (SEVEN, MODULAR | {"numTopics": 1}, b"report"),
        (SEVEN, {"sent_ms": 1}, b"heartbeat"),
        (SEVEN, MODULAR, b"report"),
        (THREE, SIMPLE, b"report"),
        (("us-1", "u-1:1"), MODULAR, b"report"),
        (("eu-1", "left:1"), MODULAR, b"report"),
        (("eu-1", "left:1"), {}, b"goodbye"),
    )
    result = lbctl("monitor", "--classic", "--once", "--cluster", "eu-1", *given, cwd=tmp_path)
    lines = result.out.splitlines()
    assert (result.code, lines[: len(OURS["simple"]) + 1]) == (
        0,
        ["Load Report for broker-3.eu.example:8080:", *OURS["simple"]],
    )
    assert [line for line in lines if line.startswith("Broker Data")] == [
        "Broker Data for broker-7.eu.example:8080:"
    ]
    assert [line.split("|")[2].strip() for line in lines[-4:-1]] == [THREE[1], SEVEN[1], "TOTAL"]


def test_it_goes_on_with_every_change_until_ctrl_c(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    send(kafka, topic_names.reports, (SEVEN, MODULAR, b"report"))
    given = [f"kafka.bootstrap_servers={kafka.bootstrap}", f"topics.reports={topic_names.reports}"]
    command = [
        sys.executable,
        "-u",
        "-c",
        "from lb_stream.cli.main import main; main()",
        "monitor",
        "--classic",
    ]
    command += [part for one in given for part in ("--set", one)]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    try:
        seen = [process.stdout.readline().rstrip("\n") for _ in range(len(OURS["modular"]) + 1 + 5)]
        assert seen[0] == "Broker Data for broker-7.eu.example:8080:" and seen[-2].startswith(
            "||TOTAL"
        )
        send(kafka, topic_names.reports, (SEVEN, MODULAR | {"numTopics": 77}, b"report"))
        more = [process.stdout.readline().rstrip("\n") for _ in range(len(OURS["modular"]) + 1)]
        assert more[0] == seen[0] and more[5].split("|")[3].strip() == "77"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()
