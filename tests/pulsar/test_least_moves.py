"""LeastMoves and ThresholdShedder with the same traffic and the same events on a real Pulsar cluster. `make test-pulsar`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.local.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.test_real_cluster import SCRIPTS, TOPICS, agents, crowd_onto_the_first_broker, max_over_mean, missing, rows
from tests.pulsar.testbed import Bed, started_bed
from tests.support.topics import topics_by

pytestmark = [pytest.mark.long, pytest.mark.e2e]

OWN_CPU = Path("/sys/fs/cgroup/cpuacct/tasks")
BUNDLES, HOT_RATE, RATE, HOT = 32, 60.0, 12.0, 6
SETTLES_S, LOOKS = 150, 15
"""Brokers measure their cpu once a minute: ThresholdShedder needs two of them."""
SETTINGS = {
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    "shedding_interval_ms": 10_000,
    "shedding_grace_period_ms": 60_000,
    "history_ratio": 0.5,
    "min_throughput_mb": 0.001,
    "split_enabled": "false",
    "least_moves_patience_ms": 20_000,
    "least_moves_dwell_ms": 60_000,
    "stream.max_offsets_per_trigger": 0,
}


class Settled(NamedTuple):
    """How a cluster stands some minutes after an event."""

    event: str
    max_over_mean: float
    unloads: int


def rates(first_hot: int) -> dict[str, float]:
    """Messages/s of each topic."""
    hot = {TOPICS[(first_hot + number) % len(TOPICS)] for number in range(HOT)}
    return {topic: HOT_RATE if topic in hot else RATE for topic in TOPICS}


def settled(bed: Bed, pipeline: Pipeline, event: str, before: int) -> Settled:
    """Wait, then look at the brokers' message rates for half a minute."""
    time.sleep(SETTLES_S)
    looks = []
    for _ in range(LOOKS):
        looks.append(max_over_mean(bed))
        time.sleep(2)
    return Settled(event, median(looks), unloads(pipeline) - before)


def unloads(pipeline: Pipeline) -> int:
    return sum(row["kind"] in ("unload", "transfer") for row in rows(pipeline, "decisions"))


def played(strategy: str, kafka: EmbeddedKafka, topics: TopicSettings, folder: Path, tell: Callable[[str], None]) -> list[Settled]:
    """The events of one strategy's run."""
    folder.mkdir()
    pipeline = Pipeline(kafka.bootstrap, topics, folder, {**SETTINGS, "shedding_strategy": strategy})
    pipeline.create_topics()
    found: list[Settled] = []

    def note(event: str) -> None:
        found.append(settled(bed, pipeline, event, sum(one.unloads for one in found)))
        cpus = ", ".join(f"{report['cpu']['usage'] / report['cpu']['limit']:.0%}" for report in bed.reports().values())
        tell(f"{strategy}: {event}: max/mean {found[-1].max_over_mean:.2f} after {found[-1].unloads} unloads, cpu {cpus}")

    with started_bed(SCRIPTS, folder / "pulsar", environment={"USE_CGROUPS": "auto", "CPU_PERCENT": "40"}) as bed, ExitStack() as traffic:
        bed.create_namespace(BUNDLES)
        traffic.enter_context(bed.traffic(rates(0)))
        wait_until(lambda: sum(report["numTopics"] for report in bed.reports().values()) >= len(TOPICS), "traffic in the reports", 90)
        crowd_onto_the_first_broker(bed)
        with pipeline.running(), agents(bed, pipeline):
            note("all is at one broker")
            traffic.close()
            with bed.traffic(rates(len(TOPICS) // 2)):
                note("other topics are the hot ones")
                bed.kill(3)
                time.sleep(60)
                bed.run("start-broker", "3")
                note("a broker has died and come back")
    return found


def test_brokers_are_evener_with_least_moves_than_with_threshold_shedder_after_each_event(
    kafka: EmbeddedKafka, unique_topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := missing():
        pytest.skip(reason)
    if not os.access(OWN_CPU, os.W_OK):
        pytest.skip(f"{OWN_CPU} can't be written: each broker would report the whole machine's cpu, and ThresholdShedder goes by that")

    def tell(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    threshold, least = (
        played(strategy, kafka, topics_by(unique_topic), tmp_path / strategy, tell) for strategy in ("ThresholdShedder", "LeastMoves")
    )
    with capsys.disabled():
        print("\n| event | ThresholdShedder: max/mean, unloads | LeastMoves: max/mean, unloads |\n| --- | --- | --- |")
        for one, other in zip(threshold, least, strict=True):
            print(f"| {one.event} | {one.max_over_mean:.2f}, {one.unloads} | {other.max_over_mean:.2f}, {other.unloads} |")
    for one, other in zip(threshold, least, strict=True):
        assert other.max_over_mean < one.max_over_mean, other.event
        assert other.unloads <= one.unloads or not one.unloads, f"{other.event}: more unloads than where ThresholdShedder acts, too"
