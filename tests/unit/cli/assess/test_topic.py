"""`lbctl assess kafka`: a topic's reports become a recording and a page, with a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim.brokers import SimBroker, wall_clock_ms
from lb_stream.sim.cluster import SimCluster
from lb_stream.sim.reports import ReportForm
from lb_stream.sim.workload import small_scenario
from tests.support.assessed_cluster import UNEVEN, minutes
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording

Assess = Callable[..., Result]


@pytest.fixture
def assess(kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path) -> Assess:
    """Calls `lbctl assess kafka` for the topic of this test."""
    create_topics(kafka.bootstrap, topic_specs(topic_names))

    def run(*arguments: str) -> Result:
        where = ["--bootstrap", kafka.bootstrap, "--topic", topic_names.reports]
        return lbctl("assess", "kafka", *where, *arguments, cwd=tmp_path)

    return run


def send(kafka: EmbeddedKafka, topic: str, *records: tuple[str, bytes, str]) -> None:
    """Send records: key, value, kind."""
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for key, value, kind in records:
            producer.send(topic, key=key.encode(), value=value, headers=[("kind", kind.encode())])
        producer.flush()


def reports(cluster: str, count: int = 2, **changed: Any) -> list[tuple[str, bytes, str]]:
    lines = [json.loads(line) for line in minutes(UNEVEN, count, **changed)]
    return [
        (f"{cluster}/{line['broker']}", json.dumps(line["report"]).encode(), "report")
        for line in lines
    ]


@pytest.mark.e2e
def test_a_topics_reports_become_a_recording_and_a_page(
    kafka: EmbeddedKafka, topic_names: TopicSettings, assess: Assess, tmp_path: Path
) -> None:
    others = [("eu-1/a:8080", b"{}", "heartbeat"), ("eu-1/c:8080", b"no report", "report")]
    send(kafka, topic_names.reports, *reports("eu-1"), *reports("us", 1), *others)
    done = assess("--cluster", "eu-1")
    assert (done.code, done.out.splitlines()[0][:7]) == (0, "Uneven:"), done.err
    assert "left out: 1 records that are no load report" in done.err
    text = (tmp_path / "assessment.html").read_text()
    assert f"from the topic {topic_names.reports} at {kafka.bootstrap}" in text
    recorded = (tmp_path / "assessment.jsonl").read_text().splitlines()
    assert len(recorded) == 6
    again = lbctl(
        "assess", "--reports", "assessment.jsonl", "--cluster", "eu-1", "--json", cwd=tmp_path
    )
    assert again.objects[0]["verdict"] == done.out.splitlines()[0]
    # the topic holds what it held, and no consumer group is known
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        assert not [group for group in admin.list_groups() if topic_names.reports in str(group)]


@pytest.mark.e2e
def test_a_topic_without_reports_of_the_cluster_is_one_line(
    kafka: EmbeddedKafka, topic_names: TopicSettings, assess: Assess, tmp_path: Path
) -> None:
    earlier = tmp_path / "assessment.jsonl"
    earlier.write_text("kept")
    empty = assess("--cluster", "eu-1")
    send(kafka, topic_names.reports, *reports("us", 1), ("eu-2/a:1", b"{", "report"))
    other, wrong = assess("--cluster", "eu-1"), assess("--cluster", "eu-2")
    late = assess("--cluster", "us", "--minutes", "0.001")
    absent = assess("--topic", "no-such-topic", "--cluster", "us")
    for done in (empty, other, wrong, late, absent):
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert "give --from-beginning" in empty.err and "give --from-beginning" in late.err
    assert "it has those of eu-2, us: give --cluster" in other.err
    assert ", offset 1: value = {" in wrong.err
    check_wording(absent.err)
    assert earlier.read_text() == "kept" and not earlier.with_name("assessment.jsonl.part").exists()
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        assert "no-such-topic" not in admin.list_topics()


@pytest.mark.e2e
@pytest.mark.parametrize("form", ["simple", "extensible"])
def test_reports_of_all_managers_are_read_from_the_beginning(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    assess: Assess,
    form: ReportForm,
) -> None:
    cluster = SimCluster(small_scenario(brokers=3, bundles=24), wall_clock_ms())
    records = []
    for number in range(3):
        broker = SimBroker(cluster, f"broker-{number + 1}:8080", form)
        made = broker.report()
        for value in made if isinstance(made, list) else [made]:
            records.append((f"eu-1/{broker.name}", json.dumps(value).encode(), "report"))
    send(kafka, topic_names.reports, *records)
    done = assess("--cluster", "eu-1", "--from-beginning", "--json")
    assert done.code == 0, done.err
    (found,) = done.objects
    assert (found["observed"]["brokers"], found["observed"]["bundles"]) == (3, 24)
