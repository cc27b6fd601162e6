"""`lbctl` against a real Kafka broker: topics, load reports out of files, decisions as they
come."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.support.lbctl_runner import Result, lbctl

pytestmark = pytest.mark.e2e

ODD = (
    b'{"webServiceUrl" : "http://b-1:8080",  "msgRateIn":1.50, "a":"\\u00e9\xc3\xa9", "big": '
    b'1e3,\t"lastUpdate": 70}'
)
IN_PROCESS = [sys.executable, "-c", "from lb_stream.cli.main import main; main()"]


def settings(kafka: EmbeddedKafka, names: TopicSettings) -> list[str]:
    """The arguments that lead lbctl to this broker and these topics."""
    given = {"kafka.bootstrap_servers": kafka.bootstrap} | {
        f"topics.{name}": topic for name, topic in names
    }
    return [part for name, value in given.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture
def ctl(kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path) -> Callable[..., Result]:
    """Calls lbctl with this test's own topics, which exist."""
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    return lambda *arguments, **more: lbctl(
        *arguments, *settings(kafka, topic_names), cwd=tmp_path, **more
    )


def records(kafka: EmbeddedKafka, topic: str) -> list[Any]:
    """All that is on a topic, in order of arrival."""
    with KafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1_000,
    ) as consumer:
        return sorted(
            consumer, key=lambda record: (record.timestamp, record.partition, record.offset)
        )


# --- topics ---


def test_topics_are_made_once_and_then_found_fit(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    given = settings(kafka, topic_names)
    missing = lbctl("topics", "check", "--json", *given, cwd=tmp_path)
    names = [spec.name for spec in topic_specs(topic_names)]
    assert (missing.code, missing.objects[0]["missing"]) == (1, names)
    assert "run `lbctl topics create`" in lbctl("topics", "check", *given, cwd=tmp_path).err
    assert lbctl("topics", "create", "--json", *given, cwd=tmp_path).objects[0]["created"] == names
    assert lbctl("topics", "create", "--json", *given, cwd=tmp_path).objects[0] == {
        "bootstrap_servers": kafka.bootstrap,
        "created": [],
        "existed": names,
    }
    assert lbctl("topics", "check", *given, cwd=tmp_path).code == 0


def test_an_unfit_topic_is_exit_code_2_with_the_command_that_mends_it(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as client:
        client.create_topics(
            {
                topic_names.reports: {
                    "num_partitions": 1,
                    "configs": {"message.timestamp.type": "CreateTime"},
                }
            }
        )
        client.wait_for_topics([topic_names.reports])
    given = settings(kafka, topic_names)
    for verb in ("create", "check"):
        result = lbctl("topics", verb, *given, cwd=tmp_path)
        assert (result.code, result.out) == (2, "")
        assert (
            f"topic {topic_names.reports}: message.timestamp.type is CreateTime, must be "
            "LogAppendTime" in result.err
        )
        assert "--alter --add-config message.timestamp.type=LogAppendTime" in result.err
    machine = lbctl("topics", "check", "--json", *given, cwd=tmp_path)
    assert machine.code == 2
    assert machine.objects[0]["wrong"][0]["setting"] == "message.timestamp.type"


# --- reports send ---


def test_captured_and_plain_reports_arrive_byte_for_byte(
    ctl: Callable[..., Result], kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    lines = [
        b'{"capturedAtMs": 1, "broker": "b-9:1", "report": ' + ODD + b"}",
        b'{"capturedAtMs": 2, "path": "/loadbalance/leader", "data": {"brokerId": "b-9:1"}}',
        b'{"capturedAtMs": 3, "path": "/loadbalance/brokers/b-8:1", "data": ' + ODD + b"}",
        b"no JSON",
        ODD,
        b"",
        b'{"cpu": {}}',
    ]
    (tmp_path / "reports.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    result = ctl("reports", "send", "reports.jsonl.gz", "--cluster", "eu-1", "--json")
    assert result.code == 1
    told = result.objects[0]
    assert (
        told["sent"],
        told["brokers"],
        told["skipped"],
        [one["line"] for one in told["failed"]],
    ) == (3, 3, 2, [4, 7])
    arrived = records(kafka, topic_names.reports)
    assert {record.key for record in arrived} == {b"eu-1/b-9:1", b"eu-1/b-8:1", b"eu-1/b-1:8080"}
    assert {record.value for record in arrived} == {ODD}
    assert {tuple(record.headers) for record in arrived} == {(("kind", b"report"),)}


def test_lines_that_cannot_be_sent_are_named_and_the_rest_goes_on(
    ctl: Callable[..., Result], kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    huge = b'{"name": "b-2:1", "x": "' + b"x" * 11_000_000 + b'"}'
    result = ctl(
        "reports", "send", "-", "--broker", "b-3:1", stdin=b"\n".join([b"[]", huge, b'{"cpu": {}}'])
    )
    assert result.code == 1
    assert result.err.startswith(
        "line 1: not a JSON object: Expected `object`, got `array`\nline 2: "
    )
    assert "The message is" in result.err
    assert result.out.startswith(
        f"sent 1 reports of 1 brokers to {topic_names.reports} at {kafka.bootstrap}"
    )
    assert [record.key for record in records(kafka, topic_names.reports)] == [b"default/b-3:1"]


def test_a_damaged_archive_is_sent_as_far_as_it_can_be_read(
    ctl: Callable[..., Result], tmp_path: Path
) -> None:
    plain = b"".join(
        b'{"name": "b-%d:1", "x": "%s"}\n' % (number, os.urandom(500).hex().encode())
        for number in range(200)
    )
    packed = gzip.compress(plain)
    (tmp_path / "half.gz").write_bytes(packed[: len(packed) // 2])
    result = ctl("reports", "send", "half.gz", "--json")
    told = result.objects[0]
    assert result.code == 1
    assert 50 < told["sent"] < 150
    assert told["failed"] == [
        {
            "line": told["sent"] + 1,
            "why": "the rest of the file can't be read: Compressed file ended before the "
            "end-of-stream marker was reached",
        }
    ]


@pytest.mark.parametrize("pace", [1, 10])
def test_a_pace_keeps_the_reports_distances_in_time(
    ctl: Callable[..., Result], kafka: EmbeddedKafka, topic_names: TopicSettings, pace: int
) -> None:
    distance_ms = 400 * pace
    lines = [
        json.dumps(
            {
                "capturedAtMs": 1_000_000 + number * distance_ms,
                "broker": f"b-{number}:1",
                "report": {},
            }
        )
        for number in range(4)
    ]
    assert (
        ctl("reports", "send", "-", "--pace", str(pace), stdin="\n".join(lines).encode()).code == 0
    )
    times = [record.timestamp for record in records(kafka, topic_names.reports)]
    assert [record.key for record in records(kafka, topic_names.reports)] == [
        f"default/b-{number}:1".encode() for number in range(4)
    ]
    assert times == sorted(times)
    assert (
        400 < times[3] - times[1] < 7_000
        # 800 on an idle machine; the first record may wait for the connection; without the pace 8
        # 000
    )


def test_an_interrupted_sending_says_how_far_it_came(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    lines = [
        json.dumps({"capturedAtMs": 1 + number * 600_000, "broker": "b:1", "report": {}})
        for number in range(2)
    ]
    (tmp_path / "slow.jsonl").write_text("\n".join(lines))
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    command = [
        *IN_PROCESS,
        "reports",
        "send",
        str(tmp_path / "slow.jsonl"),
        "--pace",
        "1",
        "--json",
        *settings(kafka, topic_names),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while not records(kafka, topic_names.reports) and time.monotonic() < deadline:
            pass
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out)["sent"] == 1


def test_without_a_pace_reports_go_as_fast_as_they_can(ctl: Callable[..., Result]) -> None:
    lines = [
        json.dumps({"capturedAtMs": number * 60_000, "broker": "b:1", "report": {}})
        for number in range(100)
    ]
    assert (
        ctl("reports", "send", "-", "--json", stdin="\n".join(lines).encode()).objects[0]["seconds"]
        < 10
    )


def test_a_topic_that_does_not_exist_is_said_before_anything_is_sent(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    for command in (("reports", "send", "-"), ("decisions", "--follow")):
        result = lbctl(
            *command, *settings(kafka, topic_names), cwd=tmp_path, stdin=b'{"name": "b:1"}\n'
        )
        assert (result.code, result.out) == (1, "")
        assert "run `lbctl topics create`" in result.err


# --- decisions --follow ---


def publish(
    kafka: EmbeddedKafka, topic: str, *batches: list[Decision], abort: bool = False
) -> None:
    """One transaction for each batch, as the job does it."""
    with KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for batch in batches:
            producer.begin_transaction()
            for decision in batch:
                producer.send(
                    topic,
                    key=f"{decision.cluster}/{decision.bundle}".encode(),
                    value=decision.to_json().encode(),
                )
            if abort:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def made(seq: int, cluster: str = "eu-1") -> Decision:
    return example_decision(
        cluster=cluster,
        decision_id=f"{cluster}:{seq}:0",
        seq=seq,
        bundle=f"a/b/0x{seq:08x}_0xffffffff",
    )


@contextmanager
def following(
    kafka: EmbeddedKafka, names: TopicSettings, *arguments: str
) -> Iterator["subprocess.Popen[str]"]:
    command = [*IN_PROCESS, "decisions", "--follow", *arguments, *settings(kafka, names)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def next_ids(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline())["decision_id"] for _ in range(count)]


def test_following_shows_the_past_ones_asked_for_then_each_new_one_and_never_an_aborted_one(
    kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names, decisions=2))
    for seq in (1, 2, 3, 4):  # apart in time, so that their order is known across partitions
        publish(kafka, topic_names.decisions, [made(seq)])
        time.sleep(0.01)
    publish(kafka, topic_names.decisions, [made(5)], abort=True)
    with following(kafka, topic_names, "--json", "--last", "2") as process:
        assert next_ids(process, 2) == ["eu-1:3:0", "eu-1:4:0"]
        publish(kafka, topic_names.decisions, [made(6)], abort=True)
        publish(kafka, topic_names.decisions, [made(7)])
        assert next_ids(process, 1) == ["eu-1:7:0"]


def test_following_one_cluster_is_deaf_to_others_and_passes_over_what_is_no_decision(
    kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names, decisions=1))
    with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        producer.send(topic_names.decisions, key=b"eu-1/x", value=b"no decision")
        producer.send(topic_names.decisions, key=b"eu-1/x", value=None)
    publish(kafka, topic_names.decisions, [made(1), made(1, "eu-10"), made(2)])
    with following(kafka, topic_names, "--json", "--cluster", "eu-1") as process:
        assert next_ids(process, 2) == ["eu-1:1:0", "eu-1:2:0"]


def test_the_readmes_broker_reports_obeys_and_reports_again(
    kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    page = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text()
    (program,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "KafkaConsumer" in block
    )
    own = {
        "lb-load-reports": topic_names.reports,
        "lb-decisions": topic_names.decisions,
        "127.0.0.1:9092": kafka.bootstrap,
    }
    for name, value in own.items():
        program = program.replace(name, value)
    bundle, broker = "shop/orders/0x00000000_0x80000000", "broker-1:8080"
    unload = example_decision(
        cluster="shop-cluster", kind="unload", bundle=bundle, source=broker, expected_owner=broker
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            sent = KafkaConsumer(
                topic_names.reports, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest"
            )
            (first,) = sent.poll(30_000, max_records=1).values()
            assert bundle in json.loads(first[0].value)["bundles"]
            said: list[tuple[str, Any]] = []
            while len(said) < 2:  # it hears only what comes after it has begun to listen
                publish(kafka, topic_names.decisions, [unload])
                told = [record for batch in sent.poll(1_000).values() for record in batch]
                said += [
                    (dict(record.headers)["kind"].decode(), json.loads(record.value))
                    for record in told
                ]
                assert process.poll() is None
        finally:
            process.terminate()
    assert said[0] == ("ack", {"decision_id": unload.decision_id, "outcome": "released"})
    assert said[1][0] == "report" and said[1][1]["bundles"] == ["shop/orders/0x80000000_0xffffffff"]


# --- the embedded broker ---


def test_the_embedded_broker_is_started_found_used_and_stopped(tmp_path: Path) -> None:
    started = lbctl("kafka", "start", cwd=tmp_path)
    try:
        assert started.code == 0
        bootstrap = started.out.strip()
        assert f"export LB_KAFKA__BOOTSTRAP_SERVERS={bootstrap}" in started.err
        again = lbctl("kafka", "start", "--json", cwd=tmp_path)
        assert (again.code, again.objects[0]["bootstrap_servers"], again.objects[0]["started"]) == (
            0,
            bootstrap,
            False,
        )
        assert lbctl("kafka", "status", cwd=tmp_path).out.strip() == bootstrap
        made_topics = lbctl("topics", "create", "--json", cwd=tmp_path)
        assert made_topics.objects[0]["bootstrap_servers"] == bootstrap
        assert f"using the broker in .lb/kafka at {bootstrap}" in made_topics.err
    finally:
        stopped = lbctl("kafka", "stop", "--json", cwd=tmp_path)
    assert stopped.objects == [{"stopped": True, "data": ".lb/kafka"}]
    assert lbctl("kafka", "status", cwd=tmp_path).code == 1
