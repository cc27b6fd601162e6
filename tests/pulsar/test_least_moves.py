"""LeastMoves and ThresholdShedder from the same owners, with the same traffic and events, on a real
Pulsar cluster. `make test-pulsar`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.network_load import FRESH_S, REPORTING, SETTINGS, shared_out, usages
from tests.pulsar.real_cluster import (
    SCRIPTS,
    agents,
    bring,
    looked_up,
    max_over_mean,
    missing,
    rows,
)
from tests.pulsar.releases import RELEASE
from tests.pulsar.testbed import BASE_PORT, BROKERS, Bed, started_bed
from tests.support import nics
from tests.support.topics import topics_by

pytestmark = [pytest.mark.long, pytest.mark.e2e]

TOPICS = [f"t{number:02d}" for number in range(72)]
BUNDLES, HOT_RATE, RATE, HOT, SIZE = 96, 20.0, 4.0, 18, 1024
HOT_AT_FIRST = 12
"""So many of the topics that become hot are at the first broker."""
NIC_GBPS = 0.0028
"""What each broker says is its network's speed: an even load is 60 % of it, so that two of the
three can carry all."""
EVEN, SKEWED = (1.0, 1.0, 1.0), (2.5, 1.0, 1.0)
STEADY_S, AWAY_S, SETTLES_S, MEASURED_S, LOOKS, LOOK_S = 60, 60, 240, 15, 15, 2
"""Brokers measure their bandwidth once a minute, and ThresholdShedder makes a pass each minute:
four of each."""
SENT = HOT * HOT_RATE + (len(TOPICS) - HOT) * RATE


class Settled(NamedTuple):
    """How a cluster stands some minutes after an event."""

    max_over_mean: float
    unloads: int  # since the job began
    highest: float  # usage of a broker in these minutes
    last: float  # of the fullest broker at the end


class Traffic:
    """What producers send: one process of them at a time."""

    def __init__(self, bed: Bed, stack: ExitStack) -> None:
        self.bed, self.stack = bed, stack.enter_context(ExitStack())

    def become(self, hot: Sequence[str]) -> None:
        """From now on these topics are the hot ones."""
        self.stack.close()
        self.stack.enter_context(self.bed.traffic(rates(hot), SIZE))


def rates(hot: Sequence[str]) -> dict[str, float]:
    """Messages/s of each topic."""
    return {topic: HOT_RATE if topic in hot else RATE for topic in TOPICS}


def unloads(pipeline: Pipeline) -> int:
    """Not those that were refused, as when the destination didn't answer: their bundles stayed."""
    refused = {
        row["decision_id"] for row in rows(pipeline, "outcomes") if row["outcome"] == "refused"
    }
    return sum(
        row["kind"] in ("unload", "transfer") and row["decision_id"] not in refused
        for row in rows(pipeline, "decisions")
    )


def settled(bed: Bed, pipeline: Pipeline) -> Settled:
    """Wait, then look at the brokers' message rates for half a minute."""
    highest, end = 0.0, time.monotonic() + SETTLES_S
    while time.monotonic() < end:
        time.sleep(MEASURED_S)
        highest = max(highest, *usages(bed))
    looks, sent = list[float](), list[float]()
    for _ in range(LOOKS):
        reports = bed.reports()
        assert len(reports) == BROKERS, f"only {sorted(reports)} answer"
        looks.append(max_over_mean(bed))
        sent.append(sum(report["msgRateIn"] for report in reports.values()))
        time.sleep(LOOK_S)
    assert abs(median(sent) / SENT - 1) < 0.05, f"{median(sent)} messages/s, not {SENT}"
    return Settled(median(looks), unloads(pipeline), highest, max(usages(bed)))


class Event(NamedTuple):
    """What happens to a cluster whose load was shared out by these weights while the first topics
    were hot: None is nothing more."""

    name: str
    weights: tuple[float, ...]
    happens: Callable[[Bed, Traffic, Mapping[str, str]], None] | None


def others_become_hot(bed: Bed, traffic: Traffic, at: Mapping[str, str]) -> None:
    """`at`: topic → broker."""
    others = TOPICS[HOT:]
    first = [topic for topic in others if at[topic] == bed.names[0]][:HOT_AT_FIRST]
    elsewhere = [topic for topic in others if at[topic] != bed.names[0]][: HOT - HOT_AT_FIRST]
    assert len(first) == HOT_AT_FIRST and len(first + elsewhere) == HOT
    traffic.become(first + elsewhere)


def the_third_dies_and_returns(bed: Bed, traffic: Traffic, at: Mapping[str, str]) -> None:
    """With kill -9."""
    bed.kill(3)
    time.sleep(AWAY_S)
    bed.run("start-broker", "3")


EVENTS = (
    Event("one broker has two and a half times as much as each of the others", SKEWED, None),
    Event("other topics are the hot ones", EVEN, others_become_hot),
    Event("a broker has died and come back", EVEN, the_third_dies_and_returns),
)


def played(bed: Bed, event: Event, pipeline: Pipeline) -> Settled:
    """An event, and what a job that has not seen the cluster before makes of it."""
    hot = TOPICS[:HOT]
    bundle_of = {topic: bed.bundle_of(topic) for topic in TOPICS}
    loads = defaultdict[str, float](float)
    for topic, rate in rates(hot).items():
        loads[bundle_of[topic]] += rate
    owners = shared_out(loads, dict(zip(bed.names, event.weights, strict=True)))
    shares = [weight / sum(event.weights) for weight in event.weights]

    def measured() -> bool:
        now = usages(bed)
        total = sum(now)
        return (
            len(now) == BROKERS
            and total > 1.5
            and all(abs(one / total - share) < 0.03 for one, share in zip(now, shares, strict=True))
        )

    with ExitStack() as stack:
        traffic = Traffic(bed, stack)
        traffic.become(hot)
        wait_until(
            lambda: None not in looked_up(bed, 1, TOPICS).values(),
            "all topics to have an owner",
            120,
        )
        bring(bed, owners, TOPICS)
        time.sleep(FRESH_S)
        wait_until(measured, "brokers to have measured that", 240)
        assert looked_up(bed, 1, TOPICS) == owners
        job = stack.enter_context(pipeline.running())
        stack.enter_context(agents(bed, pipeline, **REPORTING))
        wait_until(lambda: bool(rows(pipeline, "broker_loads")), "the job's first batch", 600)
        if event.happens:
            time.sleep(STEADY_S)
            event.happens(bed, traffic, {topic: owners[bundle_of[topic]] for topic in TOPICS})
        found = settled(bed, pipeline)
        assert job.poll() is None, pipeline.log()[-4000:]
        return found


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """A cluster for one event alone, so that nothing of the events before is left in it."""
    if reason := missing() or nics.missing():
        pytest.skip(reason)
    java_home = RELEASE.java_home()
    assert java_home is not None
    ports = {number: BASE_PORT + 100 + number for number in range(1, BROKERS + 1)}
    settings = {
        "loadBalancerOverrideBrokerNicSpeedGbps": str(NIC_GBPS),
        "statsUpdateFrequencyInSecs": "10",
    }
    with (
        nics.cards(tmp_path / "cards", ports, java_home) as environment,
        started_bed(
            SCRIPTS, tmp_path / "pulsar", settings=settings, environment=environment
        ) as started,
    ):
        started.create_namespace(BUNDLES)
        yield started


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name.replace(" ", "-"))
def test_brokers_are_evener_with_least_moves_than_with_threshold_shedder_for_no_more_unloads(
    event: Event,
    bed: Bed,
    kafka: EmbeddedKafka,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = dict[str, Settled]()
    for strategy in ("ThresholdShedder", "LeastMoves"):
        folder = tmp_path / strategy
        folder.mkdir()
        pipeline = Pipeline(
            kafka.bootstrap,
            topics_by(unique_topic),
            folder,
            {**SETTINGS, "shedding_strategy": strategy},
        )
        pipeline.create_topics()
        found[strategy] = run = played(bed, event, pipeline)
        with capsys.disabled():
            usage = f"usage at most {run.highest:.0%} and at the end {run.last:.0%}"
            print(
                f"\n{event.name}: {strategy}: max/mean {run.max_over_mean:.3f}, {usage}, "
                f"{run.unloads} unloads",
                flush=True,
            )
    threshold, least = found["ThresholdShedder"], found["LeastMoves"]
    assert threshold.unloads, "ThresholdShedder does nothing, so there is nothing to compare with"
    assert least.unloads <= threshold.unloads
    assert least.max_over_mean < threshold.max_over_mean
