"""A real cluster is upgraded broker by broker under our balancer, by the steps of docs/pulsar.md; the
first broker is also taken back. `make test-pulsar`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.real_cluster import (
    SCRIPTS,
    agent_log,
    agents,
    looked_up,
    missing,
    order,
    owners,
    rows,
    unload,
)
from tests.pulsar.releases import RELEASE, Release
from tests.pulsar.testbed import BROKERS, PATIENCE_S, PROJECT, Bed, started_bed

pytestmark = [pytest.mark.long, pytest.mark.e2e]

OLDER = Release("4.0.7")
TOPICS = [f"t{number:02d}" for number in range(12)]
SETTINGS = {
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    "shedding_enabled": "false",
    "split_enabled": "false",
    "stream.max_offsets_per_trigger": 0,
}


def test_each_broker_is_empty_when_it_stops_while_a_cluster_is_upgraded_or_taken_back(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if reason := missing():
        pytest.skip(reason)
    if RELEASE.version == OLDER.version:
        pytest.skip(f"{OLDER.version} is where the upgrade begins")
    if not RELEASE.class_path(PROJECT / ".make").exists():
        pytest.skip(f"no class path of Pulsar {RELEASE.version}: start a cluster of it first")
    begun = time.monotonic()

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"{time.monotonic() - begun:6.1f} s  upgrade: {text}", flush=True)

    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    pipeline.create_topics()
    with started_bed(SCRIPTS, tmp_path / "pulsar", release=OLDER) as bed:
        bed.create_namespace(8)

        def agree() -> bool:
            """Whether our table has the owners that Pulsar's lookups have."""
            ours, truth = owners(pipeline), looked_up(bed, 1, TOPICS)
            return None not in truth.values() and all(
                ours.get(bundle) == owner for bundle, owner in truth.items()
            )

        with bed.traffic(dict.fromkeys(TOPICS, 10.0)), pipeline.running(), agents(bed, pipeline):
            wait_until(agree, "our table to say what lookups say", PATIENCE_S)
            leader = bed.leader()
            assert leader is not None
            followers = [number for number in range(1, BROKERS + 1) if number != leader]
            first, *others = [*followers, leader]
            change(bed, pipeline, first, RELEASE, tell)
            change(bed, pipeline, first, OLDER, tell)
            for number in (first, *others):
                change(bed, pipeline, number, RELEASE, tell)
            wait_until(agree, "our table to say what lookups say", PATIENCE_S)
            assert {bed.version(number) for number in range(1, BROKERS + 1)} == {RELEASE.version}


def change(
    bed: Bed, pipeline: Pipeline, number: int, release: Release, tell: Callable[[str], None]
) -> None:
    """Drain a broker, start it as another release, end the drain, and move a bundle to it."""
    name, asked = bed.names[number - 1], number % BROKERS + 1
    wait_until(
        lambda: {row["broker"] for row in rows(pipeline, "broker_loads")} >= set(bed.names),
        "a load of each broker",
        PATIENCE_S,
    )
    timeout = ("--timeout", str(PATIENCE_S))
    drained = order(pipeline, "brokers", "drain", name, *timeout)
    assert drained.code == 0, (drained, agent_log(pipeline))
    assert name not in looked_up(bed, asked, TOPICS).values(), "it still serves topics"
    tell(f"{name} is empty: {drained.out.strip()}")
    bed.restart_as(number, release)
    assert bed.version(number) == release.version
    wait_until(lambda: bed.leader(asked) is not None, "a leader", PATIENCE_S)
    undrained = order(pipeline, "brokers", "undrain", name, *timeout)
    assert undrained.code == 0, (undrained, agent_log(pipeline))
    wait_until(lambda: is_alive(pipeline, name), f"{name} to count as alive", PATIENCE_S)
    topic = next(topic for topic in TOPICS if bed.owner_of(topic, asked) not in (None, name))
    moved = unload(pipeline, bed.bundle_of(topic, asked), name, *timeout)
    assert moved.code == 0, (moved, agent_log(pipeline))
    assert bed.owner_of(topic, asked) == name
    tell(f"{name} runs {release.version}: {moved.out.strip()}")


def is_alive(pipeline: Pipeline, broker: str) -> bool:
    """Whether the last round counted the broker as running."""
    loads = [row for row in rows(pipeline, "broker_loads") if row["broker"] == broker]
    return bool(loads) and max(loads, key=lambda row: row["seq"])["alive"]
