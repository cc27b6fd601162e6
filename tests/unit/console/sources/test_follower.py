"""The console publishes what is committed, with a real Kafka broker."""

from __future__ import annotations

import queue
import time
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaProducer

from lb_stream.console.sources.live import TopicFollower
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka

PATIENCE_S = 120.0


@pytest.mark.e2e
def test_a_committed_decision_is_published_and_an_aborted_one_is_not(
    kafka: EmbeddedKafka, topic_names: TopicSettings, count: Any
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    published: queue.Queue[dict[str, Any]] = queue.Queue()
    follower = TopicFollower(
        {"bootstrap_servers": kafka.bootstrap},
        topic_names.decisions,
        topic_names.results,
        published.put,
    )
    follower.start()
    with closing(
        KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic_names.decisions)
    ) as producer:
        producer.init_transactions()
        number, end, took_s = 0, time.monotonic() + PATIENCE_S, 0.0
        while (
            published.empty() and time.monotonic() < end
        ):  # it hears from the topics' ends on, as soon as it has found them
            for committed in (False, True):
                number += 1
                decision = example_decision(decision_id=f"eu-1:{number}:{int(committed)}")
                producer.begin_transaction()
                producer.send(
                    topic_names.decisions, key=b"eu-1/b", value=decision.to_json().encode()
                )
                producer.commit_transaction() if committed else producer.abort_transaction()
            begin = time.monotonic()
            while published.empty() and time.monotonic() < begin + 2:
                time.sleep(0.01)
            took_s = time.monotonic() - begin
    follower.stop()
    ids = [published.get_nowait()["id"] for _ in range(published.qsize())]
    assert ids and all(name.endswith(":1") for name in ids)
    count(f"the console heard of a decision {took_s:.2f} s after it was committed")
