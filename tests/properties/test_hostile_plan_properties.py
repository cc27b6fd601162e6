"""In the closed loop, whatever brokers report: LeastMoves raises no true usage, fails in no round,
gives no figure that is no ratio, and decides the same twice.

Limits are 0, negative, missing, tiny, absurdly high; usages exceed them or are missing; counts of
topics are 0 or absurd. A broker may be slow, from the start or later, another one busy with what
isn't its own. What reports hide or misstate doesn't bind: a network whose limit isn't stated truly
is wide, a broker whose cpu isn't known is as fast as the others. What binds and isn't reported no
balancer can know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lb_stream.core.model.blocks import Batch
from lb_stream.core.model.topic_shares import TopicShares, pack_shares, packed_at_ms
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.sim.model import ClusterModel
from lb_stream.sim.scenario.scenario import (
    Event,
    Floats,
    MoveTimes,
    Scenario,
    ScenarioBrokers,
    ScenarioBundles,
    ScenarioPolicies,
    ScenarioSplits,
    ScenarioTopics,
)
from lb_stream.sim.simulation import read_policy
from lb_stream.sim.simulation.reports import ReportTables, SimulatedReporter
from lb_stream.sim.simulation.runner import SimulatedBalancer, Simulation

Resource = Literal["cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out"]
TICKS, TICK_S, LATER_S = 48, 10.0, 240.0
REACTION_S = 40.0
"""A broker reports every 30 s; what was decided before that arrives is done seconds later."""
TOLERANCE = 1.05
"""The cost of a bundle's messages and bytes is learned from reports, and no better known."""
NO_RATIO = 10.0
FIGURES = ("saw", "limit", "average", "expected_after")
"""Figures of an explanation that are in its unit."""
SPLITS = ScenarioSplits(
    split_s=2.0,
    detailed_bundles=10,
    max_rate=30e3,
    max_bytes_per_s=100e6,
    difference=0.1,
)
POLICY = read_policy("LeastMoves")
CPU_MSGS_PER_S, CPU_BYTES_PER_S = 320e3, 320e6
WIDE, NARROW = 1.25e9, 62.5e6  # bytes/s
MIB = 2.0**20

Lying = Callable[[float, float], float | None]
# What a report states in place of a figure; a function of (true usage, true limit).
LIMITS: dict[str, Lying] = {
    "as it is": lambda _usage, limit: limit,
    "zero": lambda _usage, _limit: 0.0,
    "negative": lambda _usage, _limit: -1.0,
    "missing": lambda _usage, _limit: None,
    "tiny": lambda _usage, limit: 1e-6 * limit,
    "a tenth of the usage": lambda usage, _limit: 0.1 * usage,
    "absurd": lambda _usage, _limit: 1e18,
}
USAGES: dict[str, Lying] = {
    "as it is": lambda usage, _limit: usage,
    "zero": lambda _usage, _limit: 0.0,
    "missing": lambda _usage, _limit: None,
    "negative": lambda _usage, _limit: -1.0,
    "a hundredth": lambda _usage, limit: 0.01 * limit,
    "absurd": lambda _usage, _limit: 1e18,
}
SHARES: dict[str, Callable[[Floats], Floats | None]] = {
    "missing": lambda _share: None,
    "another's": lambda share: share[::-1].copy(),
    "equal": np.ones_like,
    "all in one topic": lambda share: np.where(np.arange(len(share)) == 0, 1.0, 0.0),
}
"""What a report states in place of topics' shares."""
SEEN_CPU = 0.05
UNKNOWN_CPU = ("zero", "missing", "negative", "a hundredth")


@dataclass(frozen=True)
class Lie:
    """What a broker's reports state in place of one resource's usage and limit."""

    broker: int
    resource: Resource
    usage: str
    limit: str


@dataclass(frozen=True)
class Hostile:
    """A cluster and how its brokers report. Its first broker is slow, its last one busy."""

    brokers: int
    bundles: list[tuple[float, bool, int]]  # size, whether its messages are large, owner
    usage: float  # mean
    speed: float = 1.0  # of the first broker
    later: bool = False  # it becomes slow later
    background: float = 0.0  # at the last broker
    narrow: bool = False  # the second broker's network
    noisy: bool = False
    topics: int | None = None  # that reports say of each bundle; None: as it is
    parts: int = 0  # topics of each bundle, at which it can be split; 0: it can't
    shares: str = "as they are"  # what reports say of these topics' shares
    lies: tuple[Lie, ...] = ()

    @property
    def is_slow_seen(self) -> bool:
        """Whether the slow broker's own cpu tells: an idle broker's speed is not known."""
        size = np.array([size for size, _, _ in self.bundles])
        own = size[[owner == 0 for _, _, owner in self.bundles]].sum()
        return bool(own * self.usage * self.brokers >= SEEN_CPU * max(size.sum(), 1e-9))

    @property
    def changes_s(self) -> float | None:
        """When a broker becomes slow; None: never, or from the start."""
        return LATER_S if self.later and self.speed < 1 else None


@st.composite
def clusters(draw: st.DrawFn) -> Hostile:
    """Few brokers with few bundles, placed anywhere."""
    brokers = draw(st.integers(3, 6))
    bundle = st.tuples(
        st.sampled_from([1.0, 2.0, 3.0, 5.0, 0.0, 1e-4, 12.0]),
        st.booleans(),
        st.integers(0, brokers - 1),
    )
    found = Hostile(
        brokers,
        draw(st.lists(bundle, min_size=brokers, max_size=8 * brokers)),
        usage=draw(st.sampled_from([0.15, 0.3, 0.5, 0.7])),
        speed=draw(st.sampled_from([1.0, 1.0, 0.7, 0.5, 0.3, 0.2])),
        later=draw(st.booleans()),
        background=draw(st.sampled_from([0.0, 0.0, 0.3])),
        narrow=draw(st.booleans()),
        noisy=draw(st.booleans()),
        topics=draw(st.sampled_from([None, None, 0, 1, 10_000])),
        parts=draw(st.sampled_from([0, 1, 4, 30])),
        shares=draw(st.sampled_from(["as they are", *SHARES])),
    )
    if not found.is_slow_seen:
        found = replace(found, speed=1.0)
    lies = draw(st.lists(lies_at(brokers), max_size=2 * brokers))
    # What binds is reported as it is: the slow and the busy broker's cpu, the narrow network.
    true_cpu = {0} if found.speed < 1 else set()
    true_cpu |= {brokers - 1} if found.background > 0 else set()
    true_network = {1} if found.narrow else set()
    kept = [
        lie
        for lie in lies
        if lie.broker not in (true_cpu if lie.resource == "cpu" else true_network)
    ]
    return replace(found, lies=tuple(kept))


def lies_at(brokers: int) -> st.SearchStrategy[Lie]:
    networks = st.builds(
        Lie,
        st.integers(0, brokers - 1),
        st.sampled_from(["bandwidth_in", "bandwidth_out", "memory", "direct_memory"]),
        st.sampled_from(list(USAGES)),
        st.sampled_from(list(LIMITS)),
    )
    cpus = st.builds(
        Lie,
        st.integers(0, brokers - 1),
        st.just("cpu"),
        st.sampled_from(UNKNOWN_CPU),
        st.sampled_from(["as it is", "zero", "missing", "negative"]),
    )
    return networks | cpus


def build_scenario(hostile: Hostile) -> Scenario:
    brokers, count = hostile.brokers, len(hostile.bundles)
    size, wide, owner = (np.array(column) for column in zip(*hostile.bundles, strict=True))
    message, fan_out = np.where(wide, 8192.0, 512.0), np.where(wide, 3.0, 1.0)
    unit = np.stack([np.ones(count), fan_out, message, fan_out * message])
    cost = (unit[0] + unit[1]) / CPU_MSGS_PER_S + (unit[2] + unit[3]) / CPU_BYTES_PER_S
    loads = unit * size / cost * (hostile.usage * brokers / max(size.sum(), 1e-9))
    ones = np.ones(brokers)
    bandwidth = np.full(brokers, WIDE)
    bandwidth[1] = NARROW if hostile.narrow else WIDE
    events: tuple[Event, ...] = ()
    if hostile.speed < 1:
        events = (Event(LATER_S if hostile.later else 0.0, 0, "slow", hostile.speed),)
    return Scenario(
        name="hostile",
        why="",
        tick_s=TICK_S,
        ticks=TICKS,
        load_step_ticks=TICKS,
        noise_step_ticks=3,
        noise_unit=0.005,
        report_interval_s=30.0,
        report_delay_s=1.0,
        move=MoveTimes(2.0, 3.0, 2.0),
        judge_from_s=0.0,
        settled_from_s=TICKS / 2 * TICK_S,
        brokers=ScenarioBrokers(
            names=tuple(f"broker-{row + 1}:8080" for row in range(brokers)),
            up=np.ones(brokers, np.bool_),
            cpu_msgs_per_s=CPU_MSGS_PER_S * ones,
            cpu_bytes_per_s=CPU_BYTES_PER_S * ones,
            bandwidth_in_bytes_per_s=bandwidth,
            bandwidth_out_bytes_per_s=bandwidth,
            memory_bytes=8192 * MIB * ones,
            memory_base_bytes=512 * MIB * ones,
            direct_memory_bytes=8192 * MIB * ones,
            direct_memory_base_bytes=128 * MIB * ones,
            report_phase_s=np.arange(brokers, dtype=np.float64) % 3 * TICK_S,
            cpu_base=np.append(np.zeros(brokers - 1), hostile.background),
        ),
        bundles=ScenarioBundles(
            tuple(f"t/n{row}/0x00000000_0xffffffff" for row in range(count)),
            owner.astype(np.int64),
            *(times * np.ones(count, np.int64) for times in (hostile.parts or 5, 10, 15, 1 << 20)),
        ),
        events=events,
        faults=(),
        policies=ScenarioPolicies(),
        loads=loads[:, :, np.newaxis].astype(np.float32),
        noise=_noise(count, 6) if hostile.noisy else None,
        broker_noise=_noise(brokers, 4) if hostile.noisy else None,
        format=2,
        topics=_topics(count, hostile.parts) if hostile.parts else None,
        splits=SPLITS if hostile.parts else None,
    )


def _topics(count: int, parts: int) -> ScenarioTopics:
    """Topics of bundles of the whole ring: the first ones carry most of each."""
    hashes = np.tile(np.arange(parts) * (1 << 32) // parts, count)
    share = np.tile(1.0 / np.arange(1, parts + 1), count)
    return ScenarioTopics(np.repeat(np.arange(count), parts), hashes, share.astype(np.float32))


def _noise(count: int, deviation: int) -> np.ndarray:
    """Noise in units of half a per cent, the same each time."""
    draws = np.random.default_rng(1).standard_normal((count, TICKS // 3))
    return np.rint(deviation * draws).astype(np.int8)


class LyingReporter:
    """Changes what brokers report."""

    def __init__(self, reporter: SimulatedReporter, hostile: Hostile) -> None:
        self.reporter, self.hostile = reporter, hostile

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reporter, name)

    def make(self, brokers: list[int], t_s: float, late_s: Mapping[int, float]) -> ReportTables:
        made = self.reporter.make(brokers, t_s, late_s)
        reports, samples = made.reports, made.samples
        for resource in dict.fromkeys(lie.resource for lie in self.hostile.lies):
            names = f"{resource}_usage", f"{resource}_limit"
            true = [reports[name].to_pylist() for name in names]
            stated = [list(column) for column in true]
            for lie in self.hostile.lies:
                if lie.resource != resource or lie.broker not in brokers:
                    continue
                row = brokers.index(lie.broker)
                figures = true[0][row], true[1][row]
                stated[0][row] = USAGES[lie.usage](*figures)
                stated[1][row] = LIMITS[lie.limit](*figures)
            for name, column in zip(names, stated, strict=True):
                at = reports.schema.get_field_index(name)
                reports = reports.set_column(at, name, pa.array(column, pa.float64()))
        if self.hostile.topics is not None:
            at = samples.schema.get_field_index("topics")
            topics = pa.array([self.hostile.topics] * len(samples), pa.int64())
            samples = samples.set_column(at, samples.schema.field("topics"), topics)
        if self.hostile.shares != "as they are":
            at = samples.schema.get_field_index("topic_shares")
            change = SHARES[self.hostile.shares]
            packed = [_lie_about_topics(own, change) for own in samples[at].to_pylist()]
            field = samples.schema.field(at)
            samples = samples.set_column(at, field, pa.array(packed, pa.binary()))
        return ReportTables(reports, samples)


def _lie_about_topics(packed: bytes | None, lie: Callable[[Floats], Floats | None]) -> bytes | None:
    if packed is None:
        return None
    hashes, share = TopicShares.from_packed(np.zeros(1, np.int64), [packed]).of(0)
    stated = lie(share)
    return None if stated is None else pack_shares(int(packed_at_ms([packed])[0]), hashes, stated)


class Recording(SimulatedBalancer):
    """A balancer that keeps its rounds."""

    def __init__(self, balancer: SimulatedBalancer) -> None:
        self.__dict__ |= balancer.__dict__
        self.rounds: list[Round] = []

    def decide(self, batch: Batch, inbox: Inbox, now_ms: int) -> Round:
        made = super().decide(batch, inbox, now_ms)
        self.rounds.append(made)
        return made


def _bundles(text: str) -> list[tuple[float, bool, int]]:
    """Read bundles: of each the size, Large or Small messages, and the owner, as 12L0."""
    return [(float(word[:-2]), word[-2] == "L", int(word[-1])) for word in text.split()]


# Clusters on which an earlier version raised a usage or gave a figure that was no ratio.
SLOW_FROM_THE_START = Hostile(
    3, [(2.0, True, 1), (2.0, True, 0), (1.0, False, 0)], usage=0.15, speed=0.3, narrow=True
)
IDLE_CPUS = Hostile(
    5,
    [(1.0, False, 3), (12.0, False, 3), (2.0, True, 0), (12.0, True, 2), (12.0, True, 0)],
    usage=0.15,
    speed=0.3,
    later=True,
    narrow=True,
    noisy=True,
    topics=0,
    lies=(
        Lie(4, "cpu", "zero", "zero"),
        Lie(3, "cpu", "a hundredth", "missing"),
        Lie(3, "bandwidth_in", "zero", "negative"),
        Lie(2, "direct_memory", "as it is", "tiny"),
    ),
)
ABSURD_MEMORY = Hostile(
    5,
    [(3.0, False, 3), (1.0, False, 4), (3.0, True, 2), (3.0, True, 0), (12.0, False, 1)],
    usage=0.3,
    lies=(Lie(2, "direct_memory", "absurd", "tiny"), Lie(1, "cpu", "missing", "missing")),
)
# The busy broker carries next to nothing, and is the only one of its kind by what it states.
UNLIKE_MESSAGES = Hostile(
    4,
    [(1.0, True, 2), (1.0, True, 2), (1e-4, False, 0), (2.0, False, 3), (5.0, True, 1)],
    usage=0.3,
    noisy=True,
)
BUSY_BUT_IDLE = Hostile(
    5,
    [
        (12.0, False, 1),
        (1.0, False, 2),
        (1e-4, False, 4),
        (1e-4, True, 3),
        (2.0, True, 3),
        (1e-4, False, 1),
        (0.0, False, 4),
    ],
    usage=0.5,
    background=0.3,
    noisy=True,
    parts=4,
    lies=(
        Lie(2, "cpu", "a hundredth", "as it is"),
        Lie(2, "direct_memory", "as it is", "negative"),
        Lie(4, "bandwidth_in", "as it is", "tiny"),
        Lie(4, "bandwidth_out", "a hundredth", "zero"),
    ),
)

# Two brokers look nearly full, one of them a slow one, and no cost of bytes explains all usages.
SLOW_IN_DOUBT = Hostile(
    6,
    _bundles(
        "1L0 1S0 1S3 1L1 1L0 12S4 3L0 1S1 3S2 1S4 12S3 2S2 1S0 1S5 1S4 1L0 1L0 2S1 1S0 12S3 1L0 1S5 "
        "1L4 2S5 12L2 1L4 1S3 1S0 0.0001L0 1L4 5S3 3S1 3S2 12L0 5L2 1S0 1S0 12L5"
    ),
    usage=0.7,
    speed=0.5,
    noisy=True,
)

# Apart from the busy broker, only a full one reports its cpu: it is the only one of its kind.
FULL_AND_ALONE = Hostile(
    5,
    _bundles("1L3 12S2 1L4 2S2 0.0001S4 3S1 5S3 0.0001L0"),
    usage=0.5,
    background=0.3,
    parts=4,
    shares="equal",
    lies=(
        Lie(0, "bandwidth_in", "absurd", "absurd"),
        Lie(1, "cpu", "negative", "zero"),
        Lie(2, "bandwidth_out", "negative", "negative"),
        Lie(3, "cpu", "zero", "negative"),
    ),
)


@dataclass
class Outcome:
    """What came of a cluster, tick after tick: max true usage with the policy and without."""

    lines: Sequence[Mapping[str, object]]
    rounds: list[Round]
    t_s: Floats
    usage: Floats
    unmoved: Floats


def play(hostile: Hostile) -> Outcome:
    scenario = build_scenario(hostile)
    simulation = Simulation(scenario, POLICY)
    simulation.reporter = LyingReporter(simulation.reporter, hostile)  # type: ignore[assignment]
    balancer = simulation.balancer = Recording(simulation.balancer)
    unmoved = ClusterModel(scenario)
    found: list[list[float]] = []
    for tick in range(TICKS):
        t_s = tick * TICK_S
        simulation.run(t_s, lambda _share: None)
        unmoved.factor = simulation.model.factor
        usages = simulation.model.usage(t_s).max(), unmoved.usage(t_s).max()
        found.append([t_s, *map(float, usages)])
    t_s, usage, without = np.array(found).T
    return Outcome(simulation.lines, balancer.rounds, t_s, usage, without)


def allowed(outcome: Outcome, changes_s: float | None) -> Floats:
    """Return what no tick's max usage may exceed: that of doing nothing from the start on.

    After a change it is that of doing nothing more from then on.
    """
    limit = outcome.unmoved.copy()
    if changes_s is not None:
        after = outcome.t_s >= changes_s
        reacting = after & (outcome.t_s <= changes_s + REACTION_S)
        limit[after] = np.maximum(limit[after], outcome.usage[reacting].max())
    return limit


def faults_of(hostile: Hostile) -> list[str]:
    """Play a cluster; return what is wrong with it, each fault in a line."""
    outcome = play(hostile)
    limit = TOLERANCE * allowed(outcome, hostile.changes_s)
    found = [
        f"max usage {usage:.3f} at {t_s:g} s, where {most:.3f} is allowed"
        for t_s, usage, most in zip(outcome.t_s, outcome.usage, limit, strict=True)
        if usage > most
    ][:1]
    for made in outcome.rounds:
        for decision in made.decisions:
            explain = decision.explain
            figures = {name: getattr(explain, name) for name in FIGURES}
            found += [
                f"{decision.rule} of {decision.bundle}: {name} = {value:g}"
                for name, value in figures.items()
                if explain.unit == "ratio" and value is not None and abs(value) > NO_RATIO
            ]
        for refusal in made.refusals:
            values = (refusal.limit, refusal.least, refusal.greatest)
            found += [
                f"refusal {refusal.rule} of {refusal.broker}: {value:g}"
                for value in values
                if refusal.unit == "ratio" and value is not None and abs(value) > NO_RATIO
            ]
    return found


@example(SLOW_FROM_THE_START)
@example(IDLE_CPUS)
@example(ABSURD_MEMORY)
@example(BUSY_BUT_IDLE)
@example(UNLIKE_MESSAGES)
@example(SLOW_IN_DOUBT)
@example(FULL_AND_ALONE)
@given(clusters())
def test_no_plan_raises_the_max_of_true_usages_or_gives_a_figure_that_is_no_ratio(
    hostile: Hostile,
) -> None:
    assert faults_of(hostile) == []


@settings(max_examples=max(3, settings().max_examples // 3))
@given(clusters())
def test_the_same_reports_give_the_same_bytes(hostile: Hostile) -> None:
    first, second = (
        [
            [decision.to_json() for decision in made.decisions]
            + [refusal.to_dict() for refusal in made.refusals]
            for made in play(hostile).rounds
        ]
        for _ in range(2)
    )
    assert first == second
