"""Lookups against a real Kafka broker: the library, its HTTP server as a process of its own, and
what is asked of the balancer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from lb_stream.contracts.commands import CommandResult
from lb_stream.contracts.decisions import Ownership
from lb_stream.contracts.settings import TopicSettings
from lb_stream.core.model.topics import Ring
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.lookup.client import (
    ASK_AGAIN_S,
    Lookup,
    LookupConfig,
    LookupFailed,
    LookupResult,
    StaleLookup,
)
from lb_stream.io.lookup.server import serve_lookups
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.operations.assign import Assign

pytestmark = pytest.mark.e2e

TOPIC = "persistent://shop/orders/new"
RING = Ring.new("shop/orders", 4)
MINE = RING.bundle_of(TOPIC)


class Clock:
    """A clock that can be set forward, beside the real one."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def publish(kafka: EmbeddedKafka, topic_names: TopicSettings) -> Iterator[Callable[..., None]]:
    """Writes one ownership record, as the job does, in a transaction; None is a tombstone."""
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=topic_names.ownership, acks="all"
    )
    producer.init_transactions()

    def write(bundle: str, record: dict[str, Any] | None, cluster: str = "eu") -> None:
        value = (
            None
            if record is None
            else Ownership(cluster=cluster, bundle=bundle, **record).to_json().encode()
        )
        producer.begin_transaction()
        producer.send(topic_names.ownership, key=f"{cluster}/{bundle}".encode(), value=value)
        producer.commit_transaction()

    yield write
    producer.close()


@pytest.fixture
def config(kafka: EmbeddedKafka, topic_names: TopicSettings) -> LookupConfig:
    """Leads to this test's own topics."""
    names = topic_names
    return LookupConfig(kafka.bootstrap, names.ownership, names.commands, names.results)


def soon(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """What is seen once it is as wanted, within seconds."""
    end = time.monotonic() + 10
    while not wanted(seen := look()):
        assert time.monotonic() < end, seen
        time.sleep(0.02)
    return seen


def asked(kafka: EmbeddedKafka, names: TopicSettings) -> list[tuple[str, Assign]]:
    """All commands on the topic, with their keys."""
    with KafkaConsumer(
        names.commands,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1_000,
    ) as them:
        return [(record.key.decode(), Assign.model_validate_json(record.value)) for record in them]


def get(url: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON object of one GET."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_lookup_follows_a_bundle_from_broker_to_broker(
    config: LookupConfig, publish: Callable[..., None]
) -> None:
    publish(MINE, {"state": "Owned", "owner": "a:8080", "since_ms": 5})
    with Lookup(config) as lookup:
        found = lookup.find("shop/orders/new")
        assert (found.cluster, found.topic, found.bundle) == ("eu", TOPIC, MINE)
        assert (found.broker, found.state, found.version, found.since_ms, found.owner_request) == (
            "a:8080",
            "Owned",
            1,
            5,
            None,
        )
        assert 0 <= found.age_ms <= 10_000
        publish(
            MINE, {"state": "Releasing", "source": "a:8080", "destination": "b:8080", "version": 2}
        )
        moving = soon(lambda: lookup.find(TOPIC, "eu"), lambda found: found.state == "Releasing")
        assert (moving.broker, moving.owner_request) == ("b:8080", None)
        publish(MINE, None)
        gone: LookupResult = soon(
            lambda: lookup.find(TOPIC, "eu"), lambda found: found.state is None
        )
        assert (gone.bundle, gone.broker) == (None, None)


def test_what_nobody_serves_is_asked_for_once_in_a_while_and_the_answer_is_told(
    config: LookupConfig,
    publish: Callable[..., None],
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
) -> None:
    publish(MINE, {"state": "Free", "source": "a:8080"})
    clock = Clock()
    with (
        Lookup(config, clock) as lookup,
        KafkaProducer(bootstrap_servers=kafka.bootstrap) as balancer,
    ):
        first = lookup.find(TOPIC).owner_request
        assert first is not None
        assert lookup.find(TOPIC).owner_request == first
        other = lookup.find("persistent://shop/nowhere/x").owner_request
        assert other is not None
        said = CommandResult(
            id=other.id,
            cluster="eu",
            kind="assign",
            outcome="refused",
            text="no such namespace",
            at_ms=1,
        )
        balancer.send(topic_names.results, key=said.id.encode(), value=said.to_json().encode())
        told = soon(
            lambda: lookup.find("persistent://shop/nowhere/x").owner_request,
            lambda asked: asked.outcome is not None,
        )
        assert (told.id, told.outcome, told.text) == (other.id, "refused", "no such namespace")
        server = serve_lookups("127.0.0.1:0", lookup)
        assert get(f"{server.url}/lookup?topic=shop/nowhere/x")[0] == 404
        assert get(f"{server.url}/lookup?topic={TOPIC}")[0] == 202
        server.stop()
        clock.ahead_s += ASK_AGAIN_S
        soon(lambda: lookup.age_ms, lambda age_ms: age_ms is not None and age_ms < 1_000)
        again = lookup.find("persistent://shop/nowhere/x").owner_request
        assert again is not None
        assert again.id != other.id
        assert again.text == "no such namespace"
    commands = asked(kafka, topic_names)
    assert [key for key, _ in commands] == ["eu", "eu", "eu"]
    assert [(one.namespace, one.bundle, one.topic) for _, one in commands] == [
        ("shop/orders", MINE.rpartition("/")[2], None),
        ("shop/nowhere", None, "persistent://shop/nowhere/x"),
        ("shop/nowhere", None, "persistent://shop/nowhere/x"),
    ]


def test_which_cluster_must_be_said_where_there_are_two_and_must_be_one_of_them(
    config: LookupConfig, publish: Callable[..., None]
) -> None:
    with Lookup(config) as lookup:
        with pytest.raises(ValueError, match="no cluster has bundles yet"):
            lookup.find(TOPIC)
        publish(MINE, {"state": "Owned", "owner": "a:8080"})
        publish(MINE, {"state": "Owned", "owner": "z:8080"}, cluster="us")
        soon(lookup.known_clusters, lambda known: known == (["eu", "us"], 2))
        assert lookup.find(TOPIC, "us").broker == "z:8080"
        for wrong in (None, "asia"):
            with pytest.raises(ValueError, match=r"cluster = (asia)?: expected one of eu, us"):
                lookup.find(TOPIC, wrong)


def test_an_answer_that_may_be_out_of_date_is_not_given(
    config: LookupConfig, publish: Callable[..., None]
) -> None:
    publish(MINE, {"state": "Owned", "owner": "a:8080"})
    lookup, clock = Lookup(config), Clock()
    with pytest.raises(StaleLookup, match="was last read to its end never"):
        lookup.find(TOPIC)
    with Lookup(config, clock) as lookup:
        server = serve_lookups("127.0.0.1:0", lookup)
        assert get(f"{server.url}/health")[0] == 200
        lookup._stop.set()  # from here on nothing is read
        lookup._thread.join()
        clock.ahead_s += 60
        with pytest.raises(StaleLookup, match=r"was last read to its end 6\d s ago"):
            lookup.find(TOPIC)
        assert get(f"{server.url}/lookup?topic=shop/orders/new")[0] == 503
        assert get(f"{server.url}/health")[0] == 503
        server.stop()


def test_a_topic_that_is_not_there_is_named(config: LookupConfig) -> None:
    with pytest.raises(
        LookupFailed, match=f"topic {config.ownership_topic} does not exist: create it"
    ):
        Lookup(config).start()


def test_clients_are_answered_over_http_by_a_server_of_its_own(
    config: LookupConfig, publish: Callable[..., None], topic_names: TopicSettings
) -> None:
    publish(MINE, {"state": "Owned", "owner": "a:8080"})
    given = [f"kafka.bootstrap_servers={config.bootstrap_servers}"]
    given += [f"topics.{name}={topic}" for name, topic in topic_names]
    call = [
        sys.executable,
        "-c",
        "from lb_stream.cli.main import main; main()",
        "lookup-server",
        "--address",
        "127.0.0.1:0",
        "--json",
    ]
    server = subprocess.Popen(
        call + [part for one in given for part in ("--set", one)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        status, found = get(f"{url}/lookup?topic={TOPIC}")
        assert (status, found["broker"], found["bundle"], found["cluster"]) == (
            200,
            "a:8080",
            MINE,
            "eu",
        )
        assert get(f"{url}/lookup?topic=shop/orders/new&cluster=eu")[1]["topic"] == TOPIC
        status, unknown = get(f"{url}/lookup?topic=shop/nowhere/x")
        assert (status, unknown["broker"], unknown["owner_request"]["outcome"]) == (202, None, None)
        status, health = get(f"{url}/health")
        assert (status, health["clusters"], health["bundles"], health["max_age_ms"]) == (
            200,
            ["eu"],
            1,
            10_000,
        )
        assert 0 <= health["age_ms"] <= 10_000
        for path, code, words in (
            ("/", 404, "expected /lookup"),
            ("/lookup", 400, "expected topic=TOPIC"),
            ("/lookup?topic=a/b/c&who=x", 400, "expected topic=TOPIC"),
            ("/lookup?topic=http://x", 400, "not a topic name"),
            ("/lookup?topic=shop/orders/new&cluster=us", 400, "expected one of eu"),
        ):
            status, said = get(url + path)
            assert (status, words in said["error"]) == (code, True), said
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=15) == 0
