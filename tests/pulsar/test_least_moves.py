"""LeastMoves and ThresholdShedder with the same traffic and the same events on a real Pulsar cluster. `make test-pulsar`."""

from __future__ import annotations

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
from tests.pulsar.testbed import BASE_PORT, BROKERS, Bed, started_bed
from tests.support import nics
from tests.support.topics import topics_by

pytestmark = [pytest.mark.long, pytest.mark.e2e]

BUNDLES, HOT_RATE, RATE, HOT, SIZE = 32, 30.0, 6.0, 6, 1024
NIC_GBPS = 0.003
"""What each broker says is its network's speed: all of the traffic is 85 % of it, an even load 28 %."""
SETTLES_S, MEASURED_S, LOOKS, LOOK_S = 240, 15, 15, 2
"""Brokers measure their bandwidth once a minute, and ThresholdShedder makes a pass each minute: four of each."""
SETTINGS = {
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    "cpu_weight": 0,  # each broker reports the whole machine's
    "shedding_interval_ms": 60_000,
    "shedding_grace_period_ms": 60_000,
    "history_ratio": 0.5,
    "min_throughput_mb": 0.001,
    "split_enabled": "false",
    "least_moves_patience_ms": 20_000,
    "least_moves_dwell_ms": 60_000,
    "stream.max_offsets_per_trigger": 0,
}
REPORTING = {"cpu_weight": SETTINGS["cpu_weight"], "report_max_interval_ms": 60_000}
"""Agents report usage without cpu, as the job sees it, and once a minute in any case: as often as Pulsar measures bandwidth."""


class Settled(NamedTuple):
    """How a cluster stands some minutes after an event."""

    event: str
    max_over_mean: float
    unloads: int
    highest: float  # usage of a broker since the event
    last: float  # of the fullest broker at the end


def rates(hot: list[str]) -> dict[str, float]:
    """Messages/s of each topic."""
    return {topic: HOT_RATE if topic in hot else RATE for topic in TOPICS}


def next_hot(bed: Bed, hot: list[str]) -> list[str]:
    """Other topics than those, as many of them as can be at the first broker."""
    others = [topic for topic in TOPICS if topic not in hot]
    return sorted(others, key=lambda topic: bed.owner_of(topic) != bed.names[0])[:HOT]


def usages(bed: Bed) -> list[float]:
    """The part of its bandwidth that each broker says clients' messages take."""
    return [report["bandwidthIn"]["usage"] / report["bandwidthIn"]["limit"] for report in bed.reports().values()]


def settled(bed: Bed, pipeline: Pipeline, event: str, before: int) -> Settled:
    """Wait, then look at the brokers' message rates for half a minute."""
    highest, end = 0.0, time.monotonic() + SETTLES_S
    while time.monotonic() < end:
        time.sleep(MEASURED_S)
        highest = max(highest, *usages(bed))
    looks = list[float]()
    for _ in range(LOOKS):
        looks.append(max_over_mean(bed))
        time.sleep(LOOK_S)
    return Settled(event, median(looks), unloads(pipeline) - before, highest, max(usages(bed)))


def unloads(pipeline: Pipeline) -> int:
    """Not those that were refused, as when the destination didn't answer: their bundles stayed."""
    refused = {row["decision_id"] for row in rows(pipeline, "outcomes") if row["outcome"] == "refused"}
    return sum(row["kind"] in ("unload", "transfer") and row["decision_id"] not in refused for row in rows(pipeline, "decisions"))


def played(strategy: str, kafka: EmbeddedKafka, topics: TopicSettings, folder: Path, tell: Callable[[str], None]) -> list[Settled]:
    """The events of one strategy's run."""
    folder.mkdir()
    pipeline = Pipeline(kafka.bootstrap, topics, folder, {**SETTINGS, "shedding_strategy": strategy})
    pipeline.create_topics()
    found: list[Settled] = []

    def note(event: str) -> None:
        found.append(one := settled(bed, pipeline, event, sum(one.unloads for one in found)))
        now = ", ".join(f"{usage:.0%}" for usage in usages(bed))
        tell(
            f"{strategy}: {event}: max/mean {one.max_over_mean:.2f} after {one.unloads} unloads, usage {one.highest:.0%} at most, now {now}"
        )

    with ExitStack() as stack:
        environment = stack.enter_context(
            nics.cards(folder / "cards", {number: BASE_PORT + 100 + number for number in range(1, BROKERS + 1)})
        )
        settings = {"loadBalancerOverrideBrokerNicSpeedGbps": str(NIC_GBPS), "statsUpdateFrequencyInSecs": "10"}
        bed = stack.enter_context(started_bed(SCRIPTS, folder / "pulsar", settings=settings, environment=environment))
        bed.create_namespace(BUNDLES)
        hot = TOPICS[:HOT]
        with bed.traffic(rates(hot), SIZE):
            wait_until(lambda: sum(report["numTopics"] for report in bed.reports().values()) >= len(TOPICS), "traffic in the reports", 90)
            crowd_onto_the_first_broker(bed)
            wait_until(lambda: max(usages(bed)) > 0.75 and sorted(usages(bed))[-2] < 0.03, "brokers to have measured that", 150)
            stack.enter_context(pipeline.running())
            stack.enter_context(agents(bed, pipeline, **REPORTING))
            wait_until(lambda: bool(rows(pipeline, "broker_loads")), "the job's first batch", 600)
            note("all is at one broker")
            hot = next_hot(bed, hot)
        with bed.traffic(rates(hot), SIZE):
            note("other topics are the hot ones")
            bed.kill(3)
            time.sleep(60)
            bed.run("start-broker", "3")
            note("a broker has died and come back")
    return found


def test_brokers_are_evener_with_least_moves_than_with_threshold_shedder_after_each_event(
    kafka: EmbeddedKafka, unique_topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := missing() or nics.missing():
        pytest.skip(reason)

    def tell(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    threshold, least = (
        played(strategy, kafka, topics_by(unique_topic), tmp_path / strategy, tell) for strategy in ("ThresholdShedder", "LeastMoves")
    )
    tell("\n| event | ThresholdShedder: max/mean, usage, unloads | LeastMoves: max/mean, usage, unloads |\n| --- | --- | --- |")
    for one, other in zip(threshold, least, strict=True):
        cells = (f"{run.max_over_mean:.2f}, {run.highest:.0%} → {run.last:.0%}, {run.unloads}" for run in (one, other))
        tell(f"| {one.event} | {' | '.join(cells)} |")
    for one, other in zip(threshold, least, strict=True):
        assert one.unloads, f"{one.event}: ThresholdShedder does nothing, so there is nothing to compare with"
        assert other.max_over_mean <= one.max_over_mean, other.event
    assert least[0].unloads <= threshold[0].unloads, "more unloads than ThresholdShedder's from the same start"
