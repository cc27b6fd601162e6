"""A rolling restart of three brokers of a real Pulsar cluster under load: with Pulsar's own balancer,
and as a rollout. `make test-pulsar`."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, count, pairwise
from pathlib import Path

import pytest

from lb_stream.core.model.topics import topic_hash
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar import processors
from tests.pulsar.network_load import shared_out
from tests.pulsar.real_cluster import SCRIPTS, agents, bring, missing, order, reported_owners, rows
from tests.pulsar.testbed import (
    BASE_PORT,
    BROKERS,
    NAMESPACE,
    PATIENCE_S,
    Bed,
    started_bed,
)
from tests.support.topics import topics_by

pytestmark = [pytest.mark.long, pytest.mark.e2e]

BUNDLES, TOPICS_EACH, SENT, SIZE = 26, 2, 1500.0, 256
HEAVIEST = 3.0
"""The heaviest bundle has so many times the load of the lightest one."""
CPU_PERCENT = 100
"""Each broker's share of one core."""
FRESH_S, AFTER_S, LOOK_S = 75, 120, 1.0
"""Brokers measure their processor once a minute, and Pulsar's shedder makes a pass each minute."""
ASKED_S, STATS_S = 2, 3
NEXT_S, BACK_S, END_S = 300, 300, 300
COUNTED = {"memory_weight": 0, "direct_memory_weight": 0}
SETTINGS = {
    "shedding_strategy": "LeastMoves",
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    "split_enabled": "false",
    "stream.max_offsets_per_trigger": 0,
    **COUNTED,
}
REPORTING = {**COUNTED, "report_max_interval_ms": 60_000}
BED_SETTINGS = {
    "statsUpdateFrequencyInSecs": str(STATS_S),
    "loadBalancerMemoryResourceWeight": "0",
    "loadBalancerDirectMemoryResourceWeight": "0",
}
MORE_MOVES, MOST_STALLS, LONGEST_S, HIGHEST, NEAR = 0.1, 1 / 3, 5.0, 1.7, 0.1
"""What a rollout must reach: moves a bundle beyond the least, stalls ÷ those with Pulsar's own
balancer, the longest stall, busiest ÷ mean, and how far the last broker is from its share."""


@dataclass
class Load:
    """What producers send."""

    topics: dict[str, float]  # messages/s
    bundles: dict[str, float]  # messages/s

    @staticmethod
    def of(bed: Bed) -> Load:
        """Return two topics in each bundle, and loads between one and HEAVIEST."""
        edges = [int(edge, 16) for edge in bed.boundaries()]
        by_bundle = defaultdict[int, list[str]](list)
        for number in count():
            topic = f"t{number:03d}"
            place = topic_hash(f"persistent://{NAMESPACE}/{topic}")
            at = max(at for at, edge in enumerate(edges[:-1]) if place >= edge)
            if len(by_bundle[at]) < TOPICS_EACH:
                by_bundle[at].append(topic)
            if len(by_bundle) == BUNDLES and all(
                len(topics) == TOPICS_EACH for topics in by_bundle.values()
            ):
                break
        weights = [1 + (HEAVIEST - 1) * at / (BUNDLES - 1) for at in range(BUNDLES)]
        random.Random(1).shuffle(weights)
        unit = SENT / sum(weights)
        names = [f"{NAMESPACE}/0x{lower:08x}_0x{upper:08x}" for lower, upper in pairwise(edges)]
        bundles = {name: weight * unit for name, weight in zip(names, weights, strict=True)}
        topics = {
            topic: weights[at] * unit / TOPICS_EACH for at in by_bundle for topic in by_bundle[at]
        }
        return Load(topics, bundles)


@dataclass
class Watch:
    """Looks at the owners of bundles every LOOK_S, in a thread of its own.

    Brokers' statistics are STATS_S old at most.
    """

    bed: Bed
    load: Load
    begun_s: float = field(default_factory=time.time)
    moves: int = 0
    peak: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)  # of the mean, now
    owners: dict[str, str] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """Look while the block runs."""
        self._look_once()
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(60)

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._look_once()

    def _look_once(self) -> None:
        loads = dict.fromkeys(self.bed.names, 0.0)
        for bundle, owner in reported_owners(self.bed).items():
            if bundle not in self.load.bundles:
                continue
            loads[owner] += self.load.bundles[bundle]
            self.moves += self.owners.setdefault(bundle, owner) != owner
            self.owners[bundle] = owner
        mean = SENT / len(loads)
        self.shares = {name: load / mean for name, load in loads.items()}
        self.peak = max(self.peak, *self.shares.values())

    def stalls(self) -> list[float]:
        """Return the seconds of each topic's stalls that have ended since this began."""
        lines = map(json.loads, self.bed.stalls.read_text().splitlines())
        return [line["took_s"] for line in lines if line["at_s"] >= self.begun_s]


@dataclass(frozen=True)
class Seen:
    """What clients and brokers saw of a rolling restart."""

    moves: float  # a bundle
    least: float  # moves a bundle: no rollout makes fewer
    stalls: float  # topic-seconds of stalls over half a second
    longest_s: float
    peak: float  # load of the busiest broker ÷ the mean of the three
    last: float  # load of the last broker ÷ the mean, AFTER_S after it was back
    took_s: float  # until the last broker was back

    def __str__(self) -> str:
        return (
            f"{self.moves:.2f} moves a bundle, {self.stalls:.0f} topic-seconds of stalls, the "
            f"longest {self.longest_s:.1f} s, busiest ÷ mean {self.peak:.2f} at most, the last "
            f"broker's share {self.last:.2f} of the mean {AFTER_S} s after it was back; "
            f"{self.took_s:.0f} s"
        )


Say = Callable[[str], None]


def watched(bed: Bed, load: Load, restart_all: Callable[[Watch], str], say: Say) -> Seen:
    """Restart all brokers; `restart_all` returns the last one's name when that is back."""
    with Watch(bed, load).running() as watch:
        say(f"before: {describe(watch)}")
        least = least_moves(load, watch.owners)
        begun = time.monotonic()
        last = restart_all(watch)
        took_s = time.monotonic() - begun
        for _ in range(AFTER_S // 10):
            time.sleep(10)
            say(f"after: {describe(watch)}")
        share = watch.shares[last]
    stalls = watch.stalls()
    return Seen(
        watch.moves / BUNDLES,
        least / BUNDLES,
        sum(stalls),
        max(stalls, default=0.0),
        watch.peak,
        share,
        took_s,
    )


def least_moves(load: Load, owners: Mapping[str, str]) -> int:
    """Return the fewest moves of a rolling restart in which each broker is emptied first.

    Each bundle leaves its broker. Those of the first broker go to brokers that are emptied later,
    so they move again. And each bundle that the last one has at the end has come to it by a move
    more: at least so many of the heaviest as make NEAR of its share.
    """
    first = min(Counter(owners.values()).values())
    heaviest = accumulate(sorted(load.bundles.values(), reverse=True))
    needed = SENT / BROKERS * (1 - NEAR)
    filling = next(number for number, rate in enumerate(heaviest, 1) if rate >= needed)
    return len(load.bundles) + first + filling


def describe(watch: Watch) -> str:
    shares = " ".join(f"{share:.2f}" for share in watch.shares.values())
    return f"{shares}, {watch.moves} moves, {sum(watch.stalls()):.0f} s of stalls"


def restart(bed: Bed, number: int, watch: Watch, say: Say) -> None:
    """Stop a broker and start it, as its users do; return when it is ready."""
    begun = time.monotonic()
    bed.run("stop-broker", str(number))
    stopped = time.monotonic()
    bed.run("start-broker", str(number))
    say(
        f"broker {number} stopped in {stopped - begun:.0f} s, ready after "
        f"{time.monotonic() - stopped:.0f} s: {describe(watch)}"
    )


def is_set(bed: Bed, path: str) -> bool:
    """Set it; return whether the first broker has answered."""
    try:
        bed.post(path)
    except OSError:
        return False
    return True


def with_pulsars_own(bed: Bed, load: Load, say: Say) -> Seen:
    """Stop and start one after the other, while the cluster's leader balances."""
    key = "brokers/configuration/loadBalancerSheddingEnabled"
    bed.post(f"{key}/true")

    def restart_all(watch: Watch) -> str:
        for number in range(1, BROKERS + 1):
            restart(bed, number, watch, say)
        return bed.names[-1]

    try:
        return watched(bed, load, restart_all, say)
    finally:
        wait_until(lambda: is_set(bed, f"{key}/false"), "an answer of the first broker", PATIENCE_S)


def with_a_rollout(bed: Bed, load: Load, pipeline: Pipeline, say: Say) -> Seen:
    """Start a rollout; restart each broker once it is empty."""

    def restart_all(watch: Watch) -> str:
        started = order(pipeline, "rollout", "start")
        assert started.code == 0, started.err
        last = ""
        while True:
            found = order(pipeline, "rollout", "next", "--wait", "--timeout", str(NEXT_S))
            say(f"next: {found.out.strip()} ({found.code}): {describe(watch)}")
            if found.code == 3:
                return last
            assert found.code == 0, found.err
            last = found.out.strip()
            restart(bed, bed.names.index(last) + 1, watch, say)
            back = order(pipeline, "rollout", "back", last, "--wait", "--timeout", str(BACK_S))
            say(f"back: {back.out.strip()} ({back.code}): {describe(watch)}")
            assert back.code == 0, back.err
            if set(bed.names) == restarted(pipeline):
                return last

    return watched(bed, load, restart_all, say)


def restarted(pipeline: Pipeline) -> set[str]:
    """Return the brokers that the rollout has done."""
    return {row["broker"] for row in rows(pipeline, "rollouts") if row["phase"] == "done"}


@pytest.fixture(params=["modular", "extensible"])
def bed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A cluster in which each broker has, and reports, a processor of its own."""
    if reason := missing() or processors.missing():
        pytest.skip(reason)
    environment = {"USE_CGROUPS": "auto", "CPU_PERCENT": str(CPU_PERCENT)}
    folder = tmp_path / "pulsar"
    with (
        processors.favoured(BASE_PORT),
        started_bed(
            SCRIPTS, folder, request.param, settings=BED_SETTINGS, environment=environment
        ) as started,
    ):
        started.create_namespace(BUNDLES)
        yield started


def share_out(bed: Bed, load: Load) -> None:
    """Give all brokers the same load, with a whole core for each meanwhile."""
    for number in range(1, BROKERS + 1):
        processors.limit(bed, number, 100)
    wait_until(
        lambda: all(bed.owner_of(topic) for topic in load.topics), "all topics to have an owner"
    )
    bring(bed, shared_out(load.bundles, dict.fromkeys(bed.names, 1.0)), list(load.topics))
    for number in range(1, BROKERS + 1):
        processors.limit(bed, number, CPU_PERCENT)
    time.sleep(FRESH_S)


def test_a_rollout_restarts_all_brokers_with_fewer_stalls_than_pulsars_own_balancer(
    bed: Bed,
    kafka: EmbeddedKafka,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings: Mapping[str, object] = {**SETTINGS, "load_manager": bed.manager}
    pipeline = Pipeline(kafka.bootstrap, topics_by(unique_topic), tmp_path / "job", settings)
    pipeline.folder.mkdir()

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{time.strftime('%H:%M:%S')} {bed.manager}: {text}", end="", flush=True)

    load = Load.of(bed)
    with bed.traffic(load.topics, SIZE) as producers:
        processors.favour_like_brokers(bed, producers.pid)
        share_out(bed, load)
        own = with_pulsars_own(bed, load, say)
        say(f"Pulsar's own balancer: {own}")
        with ExitStack() as stack:
            pipeline.create_topics()
            stack.enter_context(pipeline.running())
            stack.enter_context(agents(bed, pipeline, ASKED_S, **REPORTING))
            wait_until(lambda: bool(rows(pipeline, "broker_loads")), "the job's first batch", 600)
            share_out(bed, load)
            rolled = with_a_rollout(bed, load, pipeline, say)
        say(f"a rollout: {rolled}; {rolled.least:.2f} moves a bundle at least")
    assert rolled.moves <= rolled.least + MORE_MOVES
    assert rolled.stalls <= own.stalls * MOST_STALLS and rolled.longest_s <= LONGEST_S
    assert rolled.peak <= HIGHEST
    assert abs(rolled.last - 1) <= NEAR
