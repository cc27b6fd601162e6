"""What LeastMoves learns of cpu: costs, speeds of kinds, slow brokers, background."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from lb_stream.core.least_moves.cpu import (
    LATE_MS,
    CpuModel,
    CpuReports,
    learn_cpu,
    model_cpu,
)
from lb_stream.core.least_moves.explanations import describe_unlike_brokers
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import Floats

EVERY_MS = 30_000
BYTE_COST, BYTES = 0.002, 250.0
"""The cost of a byte in messages; bytes in a message."""


@dataclass
class Reporters:
    """Brokers of one kind that report every half a minute; each has its load, slope and base."""

    count: int = 10
    load: float = 0.5
    noise: float = 0.0
    random: Generator = field(default_factory=lambda: default_rng(7))
    memory: LeastMovesMemory = field(default_factory=LeastMovesMemory)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.names = [f"b{at:02}" for at in range(self.count)]
        self.kinds = ["small"] * self.count
        self.loads = np.full(self.count, self.load)
        self.slope, self.base = np.ones(self.count), np.zeros(self.count)
        self.warming = np.zeros(self.count, np.bool_)
        self.usage: Floats | None = None  # in place of what follows from the load

    def report(self, times: int = 1) -> CpuModel:
        """Send reports, and return what has been learned."""
        for _ in range(times):
            self.now_ms += EVERY_MS
            true = self.slope * self.loads + self.base
            carried = self.loads / np.maximum(true, 1.0)
            drawn = 1.0 + self.noise * self.random.standard_normal(self.count)
            usage = true * drawn if self.usage is None else self.usage
            rate = 100_000.0 * carried / (1.0 + BYTE_COST * BYTES)
            reports = CpuReports(
                self.names,
                self.kinds,
                rate,
                rate * BYTES,
                np.minimum(usage, 1.0),
                self.warming,
                np.ones(self.count, np.bool_),
            )
            self.memory = learn_cpu(self.memory, reports, self.now_ms)
        return self.model

    @property
    def units(self) -> float:
        """Messages/s, bytes included, that use all of the cpu of a broker as its kind."""
        rate = 100_000.0 / (1.0 + BYTE_COST * BYTES)
        return rate * (1.0 + self.memory.byte_cost * BYTES)

    @property
    def model(self) -> CpuModel:
        """What is known of the brokers."""
        return model_cpu(self.memory, self.names, self.kinds)


def kinds_learned(slow: float = 1.0, rounds: int = 40) -> CpuModel:
    """What reports of six brokers of two kinds show, whose mixes of messages and bytes differ."""
    random, memory = default_rng(7), LeastMovesMemory()
    names, kinds = [f"b{at}" for at in range(6)], ["small"] * 3 + ["large"] * 3
    speeds = np.array([1_000.0, 1_000.0 * slow, 1_000.0] + [2_000.0] * 3)
    mix = random.uniform(50, 800, 6)  # bytes in a message
    for at in range(rounds):
        rate = random.uniform(100, 400, 6)
        usage = rate * (1 + BYTE_COST * mix) / speeds * (1 + 0.01 * random.standard_normal(6))
        reports = CpuReports(
            names, kinds, rate, rate * mix, usage, np.zeros(6, np.bool_), np.ones(6, np.bool_)
        )
        memory = learn_cpu(memory, reports, at * EVERY_MS)
    assert memory.byte_cost == pytest.approx(BYTE_COST, rel=0.15)
    assert json.loads(json.dumps(memory.to_dict())) == memory.to_dict()
    assert LeastMovesMemory.read(memory.to_dict()) == memory
    return model_cpu(memory, [*names, "new", "other"], [*kinds, "large", "unheard-of"])


def test_costs_of_messages_and_bytes_and_the_speed_of_each_kind_are_found() -> None:
    capacity = kinds_learned().capacity
    assert capacity[:6] == pytest.approx([1_000] * 3 + [2_000] * 3, rel=0.03)
    assert capacity[6] == pytest.approx(2_000, rel=0.03), "a new broker is as its kind"
    assert capacity[7] == pytest.approx(1_500, rel=0.03), "an unknown kind is a typical one"
    assert model_cpu(LeastMovesMemory(), ["new"], ["small"]).capacity.tolist() == [1.0]


@pytest.mark.parametrize(("carried", "capacity"), [(1_000.0, 1_000.0), (100.0, 250.0)])
def test_a_full_broker_of_a_new_kind_is_as_fast_as_what_it_carries_if_that_is_more(
    carried: float, capacity: float
) -> None:
    """Another process uses three quarters of the cpu of the only other broker that reports it."""
    memory, names, kinds = LeastMovesMemory(), ["busy", "full"], ["small", "new"]
    rate, none = np.array([100.0, carried]), np.zeros(2, np.bool_)
    for at in range(3):
        reports = CpuReports(
            names, kinds, rate, rate * BYTES, np.array([0.4, 1.0]), none, np.ones(2, np.bool_)
        )
        memory = learn_cpu(memory, reports, at * EVERY_MS)
    speed = model_cpu(memory, names, kinds).speed / (1.0 + memory.byte_cost * BYTES)
    assert speed == pytest.approx([250.0, capacity])


def test_a_broker_that_is_a_little_slower_than_its_kind_is_known_once_that_lasts() -> None:
    assert kinds_learned(slow=0.82, rounds=60).capacity[1] == pytest.approx(820, rel=0.05)
    few = kinds_learned(slow=0.82, rounds=10).capacity
    assert few[1] == few[0] == few[2]


def test_a_broker_with_full_cpu_shows_at_once_what_it_can_carry() -> None:
    brokers = Reporters(noise=0.02)
    brokers.report(20)
    brokers.slope[3] = 4.0
    model = brokers.report()
    assert model.capacity[3] == pytest.approx(model.capacity[0] / 4, rel=0.05)
    assert model.slowed.nonzero()[0].tolist() == [3]


@pytest.mark.parametrize("slope", [1.5, 1.9])
def test_a_slow_broker_is_known_after_two_reports_and_forgotten_after_two(slope: float) -> None:
    brokers = Reporters(noise=0.02)
    brokers.report(20)
    brokers.slope[3] = slope
    assert not brokers.report().own.any(), "one report may be an accident"
    model = brokers.report()
    assert model.own.nonzero()[0].tolist() == [3]
    assert model.expected(model.speed * 0.5)[3] == pytest.approx(0.5 * slope, rel=0.1)
    brokers.report(4)
    brokers.slope[3] = 1.0
    assert brokers.report().own[3]
    assert not brokers.report().own.any()
    assert brokers.model.capacity[3] == brokers.model.capacity[0]


@pytest.mark.parametrize(("slope", "base"), [(1.8, 0.0), (1.0, 0.4)])
def test_other_loads_show_whether_a_broker_is_slow_or_its_host_is_busy(
    slope: float, base: float
) -> None:
    brokers = Reporters(noise=0.02)
    brokers.report(20)
    brokers.slope[3], brokers.base[3] = slope, base
    first = brokers.report(2)
    assert 1.0 < first.slope[3] < 1.8 and 0.0 < first.base[3] < 0.4, "it may be either"
    brokers.loads[3] = 0.25
    model = brokers.report(LATE_MS // EVERY_MS + 12)
    assert model.slope[3] == pytest.approx(slope, abs=0.2)
    assert model.base[3] == pytest.approx(base, abs=0.07)


def test_background_that_ends_is_forgotten_whatever_the_load_was() -> None:
    brokers = Reporters(noise=0.02)
    brokers.report(20)
    brokers.base[3] = 0.4
    brokers.report(2)
    brokers.loads[3] = 0.2
    brokers.report(20)
    brokers.base[3] = 0.0
    assert not brokers.report(2).own.any()


def test_half_of_the_hosts_are_busy_from_the_first_report_on() -> None:
    brokers = Reporters(noise=0.02, load=0.38)
    brokers.base[::2] = 0.33
    model = brokers.report(2)
    assert model.own.nonzero()[0].tolist() == [0, 2, 4, 6, 8]
    assert model.capacity[1] == pytest.approx(brokers.units, rel=0.03), "others show their kind"


def test_noise_of_reports_is_no_jump() -> None:
    brokers = Reporters(count=20, noise=0.18)
    assert not any(brokers.report().own.any() for _ in range(200))


def test_a_low_usage_that_was_measured_once_and_is_reported_often_is_no_jump() -> None:
    """Pulsar's brokers measure usage once a minute, and report it with each change of load."""
    brokers = Reporters(count=3, load=0.05)
    brokers.report(5)
    brokers.usage = np.array([0.05, 0.05, 0.17])
    for load in (0.05, 0.051, 0.049, 0.052):
        brokers.loads[2] = load
        assert not brokers.report().own.any()
    brokers.usage = np.array([0.05, 0.05, 0.18])
    assert brokers.report().own.tolist() == [False, False, True], "two measurements are a jump"


@pytest.mark.parametrize(("before", "after"), [(0.8, 0.4), (0.2, 0.6)])
def test_usage_that_follows_a_change_of_load_a_minute_late_is_no_jump(
    before: float, after: float
) -> None:
    brokers = Reporters(noise=0.02)
    brokers.loads[3] = before
    brokers.report(20)
    late = brokers.slope * brokers.loads + brokers.base
    brokers.loads[3] = after
    brokers.usage = late
    assert not brokers.report(3).own.any()
    brokers.usage = None
    assert not brokers.report(10).own.any()


def test_a_broker_that_warms_up_is_as_its_kind_and_nothing_is_learned_from_it() -> None:
    brokers = Reporters(noise=0.02)
    brokers.loads[3], brokers.base[3] = 0.02, 0.6
    brokers.warming[3] = True
    assert not brokers.report(6).own.any()
    brokers.base[3], brokers.warming[3] = 0.0, False
    model = brokers.report(6)
    assert not model.own.any()
    assert model.capacity[3] == model.capacity[0]


def test_what_a_process_does_without_traffic_says_nothing_about_its_speed() -> None:
    brokers = Reporters(count=3, load=0.45)
    brokers.loads[2], brokers.base[:] = 0.01, 0.12
    capacity = brokers.report(60).capacity
    assert capacity[2] == pytest.approx(capacity[0], rel=0.01)


def test_all_brokers_of_a_kind_become_slower_and_so_does_the_kind() -> None:
    brokers = Reporters(noise=0.02, load=0.4)
    brokers.report(20)
    brokers.slope[:] = 1.6
    model = brokers.report(30)
    assert not model.own.any()
    assert model.capacity == pytest.approx(np.full(10, brokers.units / 1.6), rel=0.05)


def test_an_emptied_broker_that_was_slow_counts_as_its_kind_in_the_end() -> None:
    brokers = Reporters(noise=0.02)
    brokers.report(20)
    brokers.slope[3] = 1.9
    brokers.report(2)
    brokers.loads[3] = 1e-6
    assert brokers.report(10).own[3]
    assert not brokers.report(90).own.any()


def test_brokers_that_are_unlike_their_kind_are_named_with_their_figures() -> None:
    brokers = Reporters()
    brokers.report(20)
    assert describe_unlike_brokers(brokers.memory, brokers.names) == []
    brokers.slope[3], brokers.base[5] = 4.0, 0.3
    brokers.report(2)
    slow, busy = describe_unlike_brokers(brokers.memory, brokers.names)
    assert "b03" in slow and "25%" in slow
    assert "b05" in busy and "cpu" in busy


@pytest.mark.parametrize("at_once", [True, False])
def test_messages_of_other_sizes_are_no_sign_of_a_fast_or_slow_broker(at_once: bool) -> None:
    """Each broker has bundles of one kind. Two kinds of messages show what bytes cost."""
    bytes_each = np.array([8192.0, 8192.0, 512.0])
    loads, byte_cost, random = np.array([0.7, 0.3, 0.3]), 0.001, default_rng(3)
    rate = 300_000.0 * loads / (1.0 + byte_cost * bytes_each)
    memory, names = LeastMovesMemory(), ["a", "b", "c"]
    every = np.ones(3, np.bool_)
    for step in range(12):
        usage = loads * (1.0 + 0.02 * random.standard_normal(3))
        reports = CpuReports(names, ["small"] * 3, rate, rate * bytes_each, usage, ~every, every)
        rows = [every] if at_once else list(np.eye(3, dtype=np.bool_))
        for row in rows:
            memory = learn_cpu(memory, reports.take(row), (step + 1) * EVERY_MS)
        model = model_cpu(memory, names, ["small"] * 3)
        expected = model.expected(rate + memory.byte_cost * rate * bytes_each)
        assert not model.own.any()
    assert expected == pytest.approx(loads, rel=0.1)


def test_a_slow_broker_whose_messages_are_as_others_is_not_taken_for_a_cost_of_bytes() -> None:
    bytes_each = np.array([200.0, 250.0, 300.0])
    rate = 100_000.0 * np.full(3, 0.3) / (1.0 + BYTE_COST * bytes_each)
    memory, names = LeastMovesMemory(), ["a", "b", "c"]
    every = np.ones(3, np.bool_)
    for step in range(12):
        usage = np.array([0.3, 0.3, 0.3 if step < 6 else 0.75])
        reports = CpuReports(names, ["small"] * 3, rate, rate * bytes_each, usage, ~every, every)
        memory = learn_cpu(memory, reports, (step + 1) * EVERY_MS)
    assert model_cpu(memory, names, ["small"] * 3).own.tolist() == [False, False, True]
