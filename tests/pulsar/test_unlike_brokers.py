"""LeastMoves and Pulsar's own shedder when brokers of a real cluster become unlike: one is slowed,
one shares its processor with something else, one is fresh. `make test-pulsar`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar import processors
from tests.pulsar.real_cluster import (
    SCRIPTS,
    agents,
    bring,
    looked_up,
    missing,
    reported_owners,
    rows,
)
from tests.pulsar.testbed import BASE_PORT, Bed, started_bed
from tests.support.topics import topics_by

pytestmark = [pytest.mark.long, pytest.mark.e2e]

TOPICS = [f"t{number:02d}" for number in range(72)]
HOT, HOT_RATE, RATE, SIZE, BUNDLES = 18, 100.0, 20.0, 1024, 96
RATES = {topic: HOT_RATE if at < HOT else RATE for at, topic in enumerate(TOPICS)}
CPU_PERCENT, SLOWED_PERCENT, BURNT_PERCENT = 15.0, 6.0, 7.5
"""Each broker's share of one core: a third of all traffic takes some 40 % of it."""
FRESH_S, STEADY_S, EVENT_S, AFTER_S, LOOK_S = 125, 20, 300, 150, 10
"""Brokers measure their processor once a minute, and Pulsar's shedder makes a pass each minute."""
ASKED_S = 5
"""How often agents ask brokers: with so little processor each question costs some."""
WARM_S = 60
"""For so long a cold broker may be full as it gets its first bundles: their code is compiled."""
FULL, STOPPED = 0.95, 0.01
PULSARS_OWN, LEAST_MOVES = "Pulsar's own shedder", "LeastMoves"
COUNTED = {"memory_weight": 0, "direct_memory_weight": 0}
SETTINGS = {
    "shedding_strategy": LEAST_MOVES,
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    "split_enabled": "false",
    "least_moves_min_dwell_ms": 60_000,
    "stream.max_offsets_per_trigger": 0,
    **COUNTED,
}
REPORTING = {**COUNTED, "report_max_interval_ms": 60_000}
BED_SETTINGS = {
    "statsUpdateFrequencyInSecs": "10",
    "loadBalancerMemoryResourceWeight": "0",
    "loadBalancerDirectMemoryResourceWeight": "0",
}


def a_follower(bed: Bed) -> int:
    """Return the number of a broker that does not lead: the leader's own speed is not tested."""
    return 3 if bed.leader() == 2 else 2


@contextmanager
def slowed(bed: Bed) -> Iterator[None]:
    """A broker has 40 % of its processor."""
    number = a_follower(bed)
    processors.limit(bed, number, SLOWED_PERCENT)
    try:
        yield
    finally:
        processors.limit(bed, number, CPU_PERCENT)


def beside_a_burner(bed: Bed) -> AbstractContextManager[None]:
    """Something else takes half of a broker's processor."""
    return processors.burning(bed, a_follower(bed), BURNT_PERCENT)


@contextmanager
def joined(bed: Bed) -> Iterator[None]:
    """A fourth broker, whose JVM is cold."""
    bed.run("start-broker", "4")
    try:
        yield
    finally:
        bed.run("stop-broker", "4")


Event = Callable[[Bed], AbstractContextManager[None]]
BACK = "a broker is slowed to 40 percent and back"
EVENTS: dict[str, Event] = {
    BACK: slowed,
    "a burner runs beside a broker": beside_a_burner,
    "a fresh broker joins": joined,
}


@dataclass
class Watch:
    """Looks at a cluster every LOOK_S."""

    bed: Bed
    owners: dict[str, str]
    moves: int = 0
    usages: list[dict[int, float]] = field(default_factory=list)
    rates: list[dict[str, float]] = field(default_factory=list)
    _used: dict[int, processors.Used] = field(default_factory=dict)

    def look(self, seconds: float) -> None:
        """Look for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(LOOK_S)
            self._look_once()

    def _look_once(self) -> None:
        used = {}
        for number in range(1, self.bed.brokers + 1):
            try:
                used[number] = processors.Used.read(self.bed, number)
            except FileNotFoundError:  # it has not been started yet
                continue
        self.usages.append(
            {
                number: now.usage_since(self._used[number])
                for number, now in used.items()
                if number in self._used
            }
        )
        self._used = used
        reports = self.bed.reports()
        self.rates.append({name: report["msgRateIn"] for name, report in reports.items()})
        owners = reported_owners(self.bed)
        self.moves += sum(
            1 for bundle, owner in owners.items() if self.owners.setdefault(bundle, owner) != owner
        )
        self.owners |= owners

    def ends(self, last: int) -> tuple[float, float]:
        """Return the medians of the fullest and least full broker's usage in the last looks."""
        running = [
            [usage for usage in usages.values() if usage > STOPPED]
            for usages in self.usages[-last:]
            if usages
        ]
        return median(map(max, running)), median(map(min, running))

    def busiest(self, last: int) -> float:
        """Return the messages/s of the busiest broker ÷ the mean: the median of the last looks."""
        return median(
            max(rates.values()) * len(rates) / max(sum(rates.values()), 1.0)
            for rates in self.rates[-last:]
        )

    def accepted(self) -> float:
        """Return the least part of the traffic that was accepted, by minutes."""
        sums = [sum(rates.values()) for rates in self.rates]
        minutes = [median(sums[at : at + 6]) for at in range(0, len(sums) - 5, 6)]
        return min(minutes) / sum(RATES.values())

    def full_s(self) -> int:
        """Return for how long a broker was full."""
        full = sum(max(usage.values(), default=0.0) >= FULL for usage in self.usages)
        return full * LOOK_S


def share_out(bed: Bed) -> None:
    """Give the first three brokers the same load, with a whole core for each meanwhile."""
    for number in range(1, 4):
        processors.limit(bed, number, 100)
    wait_until(
        lambda: None not in looked_up(bed, 1, TOPICS).values(), "all topics to have an owner", 120
    )
    loads, given = defaultdict[str, float](float), dict.fromkeys(bed.names[:3], 0.0)
    for topic, rate in RATES.items():
        loads[bed.bundle_of(topic)] += rate
    owners = dict[str, str]()
    for bundle in sorted(loads, key=lambda bundle: (-loads[bundle], bundle)):
        owners[bundle] = min(given, key=given.__getitem__)
        given[owners[bundle]] += loads[bundle]
    bring(bed, owners, TOPICS)
    for number in range(1, 4):
        processors.limit(bed, number, CPU_PERCENT)


@dataclass(frozen=True)
class Seen:
    """How a cluster stood while brokers were unlike."""

    fullest: float  # usage of the fullest broker at the event's end
    least_full: float
    busiest: float  # messages/s of the broker that had most, ÷ the mean
    full_s: int  # how long a broker was full meanwhile
    moves: int
    accepted: float  # the least part of the traffic that was accepted, by minutes
    after: str = ""  # AFTER_S after its end

    def __str__(self) -> str:
        return (
            f"brokers from {self.least_full:.0%} to {self.fullest:.0%}, messages/s of the busiest "
            f"÷ the mean {self.busiest:.3f} after {EVENT_S} s, {self.full_s} s full, "
            f"{self.accepted:.0%} accepted at least, {self.moves} moves{self.after}"
        )


def played(bed: Bed, event: str, balancing: ExitStack) -> Seen:
    """An event, from an even cluster. `balancing` has begun; it ends here."""
    with balancing:
        watch = Watch(bed, reported_owners(bed))
        watch.look(STEADY_S)
        with EVENTS[event](bed):
            watch = Watch(bed, reported_owners(bed))
            watch.look(EVENT_S)
        text = ""
        if event == BACK:
            after = Watch(bed, reported_owners(bed))
            after.look(AFTER_S)
            text = "; {} s after its end {:.0%} to {:.0%}, {:.3f}, {} moves".format(
                AFTER_S, *reversed(after.ends(6)), after.busiest(6), after.moves
            )
        return Seen(
            *watch.ends(6), watch.busiest(6), watch.full_s(), watch.moves, watch.accepted(), text
        )


def wait_for(moment: float) -> None:
    """Wait until then, by the monotonic clock."""
    time.sleep(max(moment - time.monotonic(), 0.0))


def pulsars_own(bed: Bed, fresh: float) -> ExitStack:
    """Let the cluster's leader shed by itself, once brokers report `fresh` figures."""
    wait_for(fresh)
    stack = ExitStack()
    key = "brokers/configuration/loadBalancerSheddingEnabled"
    bed.post(f"{key}/true")
    stack.callback(bed.post, f"{key}/false")
    return stack


def least_moves(bed: Bed, pipeline: Pipeline, fresh: float) -> ExitStack:
    """Let a job balance that has not seen the cluster before, and wait for `fresh` figures."""
    stack = ExitStack()
    pipeline.create_topics()
    stack.enter_context(pipeline.running())
    stack.enter_context(agents(bed, pipeline, ASKED_S, **REPORTING))
    wait_until(lambda: bool(rows(pipeline, "broker_loads")), "the job's first batch", 600)
    wait_for(fresh)
    return stack


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """A cluster in which each broker has, and reports, a processor of its own."""
    if reason := missing() or processors.missing():
        pytest.skip(reason)
    environment = {"USE_CGROUPS": "auto", "CPU_PERCENT": str(round(CPU_PERCENT))}
    folder = tmp_path / "pulsar"
    with (
        processors.favoured(BASE_PORT),
        started_bed(
            SCRIPTS, folder, settings=BED_SETTINGS, environment=environment, brokers=4
        ) as started,
    ):
        started.run("stop-broker", "4")
        started.create_namespace(BUNDLES)
        yield started


@pytest.mark.parametrize("event", sorted(EVENTS), ids=lambda event: event.replace(" ", "-"))
def test_least_moves_relieves_a_broker_that_has_become_unlike_the_others(
    event: str,
    bed: Bed,
    kafka: EmbeddedKafka,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipeline = Pipeline(kafka.bootstrap, topics_by(unique_topic), tmp_path / "job", SETTINGS)
    pipeline.folder.mkdir()
    found = dict[str, Seen]()
    with bed.traffic(RATES, SIZE):
        for name, begin in (
            (PULSARS_OWN, lambda fresh: pulsars_own(bed, fresh)),
            (LEAST_MOVES, lambda fresh: least_moves(bed, pipeline, fresh)),
        ):
            share_out(bed)
            found[name] = played(bed, event, begin(time.monotonic() + FRESH_S))
            with capsys.disabled():
                print(f"\n{event}: {name}: {found[name]}", flush=True)
    # Agents' questions take some processor, and Pulsar's own shedder has none: gaps are compared.
    least, own = found[LEAST_MOVES], found[PULSARS_OWN]
    assert least.fullest - least.least_full <= own.fullest - own.least_full + 0.05
    assert least.full_s <= own.full_s + WARM_S
