"""The embedded broker and the topics, for real: start, use, kill -9, restart, stop."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import TopicMismatch, TopicSpec, create_topics, topic_specs
from lb_stream.io.local import processes
from lb_stream.kit.embedded_kafka import EmbeddedKafka, KafkaAlreadyRunning, KafkaError
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording

pytestmark = pytest.mark.e2e


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """A broker that the test may kill."""
    broker = EmbeddedKafka(tmp_path / "kafka")
    broker.start()
    yield broker
    broker.stop()


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, max_request_size=LARGEST_RECORD_BYTES, acks="all"
    )
    for value in values:
        producer.send(topic, value)
    producer.close()


def consume(bootstrap: str, topic: str, count: int, within_s: float = 20) -> list[bytes]:
    with_data = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=LARGEST_RECORD_BYTES,
    )
    with_data.assign(
        [TopicPartition(topic, number) for number in with_data.partitions_for_topic(topic) or ()]
    )
    values: list[bytes] = []
    deadline = time.monotonic() + within_s
    while len(values) < count and time.monotonic() < deadline:
        values += [
            record.value
            for records in with_data.poll(timeout_ms=200).values()
            for record in records
        ]
    with_data.close()
    return values


def alter(kafka: EmbeddedKafka, topic: str, setting: str, value: str) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource, ConfigResourceType

    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as client:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {setting: value})])


def test_topics_are_made_once_and_fit_ever_after(
    kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    specs = topic_specs(topic_names)
    assert create_topics(kafka.bootstrap, specs) == [spec.name for spec in specs]
    assert create_topics(kafka.bootstrap, specs) == []


def test_an_unfit_topic_is_refused_before_any_is_made(
    kafka: EmbeddedKafka, unique_topic: Callable[..., str]
) -> None:
    unfit, missing = TopicSpec(unique_topic("unfit"), 1), TopicSpec(unique_topic("missing"), 1)
    create_topics(kafka.bootstrap, [unfit])
    alter(kafka, unfit.name, "message.timestamp.type", "CreateTime")
    with pytest.raises(TopicMismatch) as error:
        create_topics(kafka.bootstrap, [missing, unfit])
    check_wording(error.value)
    alter(kafka, unfit.name, "message.timestamp.type", "LogAppendTime")
    assert create_topics(kafka.bootstrap, [missing, unfit]) == [missing.name]


def test_topics_are_listed_with_what_is_wrong(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    missing, unfit, *fit = topic_specs(topic_names)
    create_topics(kafka.bootstrap, [unfit, *fit])
    alter(kafka, unfit.name, "message.timestamp.type", "CreateTime")
    names = [f"topics.{name}={topic}" for name, topic in topic_names.model_dump().items()]
    given = [f"kafka.bootstrap_servers={kafka.bootstrap}", *names]
    words = ["topics", "list", *(part for setting in given for part in ("--set", setting))]
    rows = lbctl(*words, "--json", cwd=tmp_path).objects
    assert [(row["topic"], row["state"], row["wrong"]) for row in rows] == [
        (missing.name, "missing", []),
        (unfit.name, "wrong", ["message.timestamp.type"]),
        *((spec.name, "ok", []) for spec in fit),
    ]
    assert [row["partitions"] for row in rows] == [
        None,
        *(spec.partitions for spec in (unfit, *fit)),
    ]
    check_wording(lbctl(*words, cwd=tmp_path).err)


def test_a_command_topic_with_two_partitions_is_refused(
    kafka: EmbeddedKafka, unique_topic: Callable[..., str]
) -> None:
    name = unique_topic()
    create_topics(kafka.bootstrap, [TopicSpec(name, 2)])
    with pytest.raises(TopicMismatch) as error:
        create_topics(kafka.bootstrap, [TopicSpec(name, 1, exact_partitions=True)])
    check_wording(error.value)


def test_records_arrive_with_append_time_and_up_to_ten_megabytes(
    kafka: EmbeddedKafka, unique_topic: Callable[..., str]
) -> None:
    topic = unique_topic()
    create_topics(kafka.bootstrap, [TopicSpec(topic, 1)])
    large = os.urandom(LARGEST_RECORD_BYTES - 1024)
    produce(kafka.bootstrap, topic, b"small", large)
    assert consume(kafka.bootstrap, topic, 2) == [b"small", large]
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5_000,
    )
    assert next(consumer).timestamp_type == 1  # 1 is LogAppendTime
    consumer.close()


def test_a_misspelt_topic_is_not_made(
    kafka: EmbeddedKafka, unique_topic: Callable[..., str]
) -> None:
    from kafka import KafkaAdminClient

    topic = unique_topic()
    consumer = KafkaConsumer(topic, bootstrap_servers=kafka.bootstrap)
    consumer.poll(timeout_ms=300)
    consumer.close()
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as client:
        assert topic not in client.list_topics()


def test_a_second_start_on_the_same_folder_is_refused_with_the_address(
    own_kafka: EmbeddedKafka,
) -> None:
    with pytest.raises(KafkaAlreadyRunning) as caught:
        EmbeddedKafka(own_kafka.data_dir).start()
    assert caught.value.bootstrap == own_kafka.bootstrap and own_kafka.bootstrap in str(
        caught.value
    )


def test_kill_9_and_restart_keep_the_data_and_the_address(own_kafka: EmbeddedKafka) -> None:
    create_topics(own_kafka.bootstrap, [TopicSpec("kept", 2)])
    produce(own_kafka.bootstrap, "kept", b"before")
    address, pid = own_kafka.bootstrap, own_kafka.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: own_kafka.pid is None)
    assert own_kafka.start() == address and own_kafka.pid != pid
    produce(address, "kept", b"after")
    assert sorted(consume(address, "kept", 2)) == [b"after", b"before"]


def test_restart_on_another_port_keeps_the_data(own_kafka: EmbeddedKafka) -> None:
    create_topics(own_kafka.bootstrap, [TopicSpec("kept", 1)])
    produce(own_kafka.bootstrap, "kept", b"before")
    old = int(own_kafka.bootstrap.split(":")[1])
    own_kafka.stop()
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", old))
        squatter.listen()
        address = own_kafka.start()
    assert address != f"127.0.0.1:{old}" and consume(address, "kept", 1) == [b"before"]


def test_another_process_finds_and_stops_it(own_kafka: EmbeddedKafka) -> None:
    broker = EmbeddedKafka.find_running(own_kafka.data_dir)
    assert broker is not None
    program = (
        "import sys, pathlib, lb_stream.kit.embedded_kafka as k; "
        "print(k.EmbeddedKafka(pathlib.Path(sys.argv[1])).stop())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(own_kafka.data_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.strip() == "True"
    assert processes.start_mark(broker.pid) is None and own_kafka.pid is None


def test_stop_leaves_no_process_and_frees_the_port(own_kafka: EmbeddedKafka) -> None:
    broker = EmbeddedKafka.find_running(own_kafka.data_dir)
    assert broker is not None and own_kafka.stop() is True and own_kafka.stop() is False
    assert not os.path.exists(f"/proc/{broker.pid}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", broker.port))


def test_a_start_that_fails_shows_the_end_of_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    broker = EmbeddedKafka(tmp_path, heap="nonsense")
    with pytest.raises(KafkaError) as error:
        broker.start()
    check_wording(error.value)
    assert broker.pid is None


def wait_until(condition: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
