"""What LeastMoves learns from reports: costs, speeds, noise, waves of restarts."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from lb_stream.core.least_moves.cpu import learn_cpu
from lb_stream.core.least_moves.memory import (
    BELIEVED_MS,
    RETURN_MS,
    WAVE_MS,
    AskedSplit,
    LeastMovesMemory,
)
from tests.unit.core.least_moves.cpu_reports import KINDS, NAMES, learned, reports


def test_touching_up_may_make_what_a_plan_leaves_over_of_its_spare_moves() -> None:
    planned = LeastMovesMemory().after_plan(
        moves=42, fewest=40, extra_moves_ratio=0.1, now_ms=5_000
    )
    assert (planned.fine_tune_budget, planned.planned_ms) == (2.0, 5_000)
    going_on = planned.after_plan(moves=1, fewest=1, extra_moves_ratio=0.1, now_ms=8_000)
    assert (going_on.fine_tune_budget, going_on.planned_ms) == (2.0, 8_000), (
        "the rest of the same plan, say"
    )
    assert planned.after_plan(moves=0, fewest=0, extra_moves_ratio=0.1, now_ms=9_000) is planned
    assert (
        planned.after_fine_tuning(1, 9_000).fine_tune_budget == 1.0
        and planned.after_fine_tuning(1, 9_000).planned_ms == 9_000
    )
    assert planned.after_fine_tuning(0, 9_000).planned_ms == 9_000, (
        "it isn't thought about in every round"
    )
    assert LeastMovesMemory.read(json.loads(json.dumps(planned.to_dict()))) == planned


@pytest.mark.parametrize(
    ("moves", "spare", "left"),
    [(1, 0.1, 1.0), (3, 0.1, 2.0), (9, 0.1, 2.0), (60, 0.1, 6.0), (3, 0.0, 0.0)],
)
def test_a_later_plan_leaves_as_many_moves_as_it_makes_up_to_two(
    moves: int, spare: float, left: float
) -> None:
    first = LeastMovesMemory().after_plan(moves=10, fewest=10, extra_moves_ratio=0.0, now_ms=5_000)
    later = first.after_plan(moves=moves, fewest=moves, extra_moves_ratio=spare, now_ms=605_000)
    assert (later.fine_tune_budget, later.plan_ms, later.between_ms) == (left, 605_000, 600_000)
    assert (first.fine_tune_budget, first.plan_ms, first.between_ms) == (0.0, 5_000, 0)
    assert later.after_fine_tuning(1, 950_000).plan_ms == 605_000, "touching up is no plan"
    assert LeastMovesMemory.read(json.loads(json.dumps(later.to_dict()))) == later


@pytest.mark.parametrize(("later_ms", "left"), [(59_000, 0.9), (60_000, 2.0)])
def test_a_plan_within_a_minute_of_another_one_continues_it_and_leaves_no_more_moves(
    later_ms: int, left: float
) -> None:
    first = LeastMovesMemory().after_plan(moves=9, fewest=9, extra_moves_ratio=0.1, now_ms=5_000)
    second = first.after_plan(
        moves=8, fewest=8, extra_moves_ratio=0.1, now_ms=first.plan_ms + later_ms
    )
    assert second.fine_tune_budget == pytest.approx(left)


def test_a_plan_for_children_of_a_split_continues_none() -> None:
    first = LeastMovesMemory(split_times=((2_000, "t/n"),)).after_plan(
        moves=9, fewest=9, extra_moves_ratio=0.1, now_ms=5_000
    )
    second = first.after_plan(moves=3, fewest=3, extra_moves_ratio=0.1, now_ms=8_000)
    assert second.fine_tune_budget == 2.0


def test_noise_is_what_two_reports_of_the_same_bundles_differ_by_and_a_leap_is_none() -> None:
    random, memory = np.random.default_rng(3), LeastMovesMemory()
    names, bundles, alike = [f"b{at}" for at in range(50)], [20] * 50, np.full(50, 20**-0.5)
    for _ in range(30):
        memory = memory.learn_noise(
            names, 1_000 * (1 + 0.05 * 20**-0.5 * random.standard_normal(50)), bundles, alike
        )
    assert memory.noise == pytest.approx(0.05, rel=0.2)
    leapt = memory.learn_noise(names, np.full(50, 3_000.0), bundles, alike)
    assert leapt.noise is not None and leapt.noise < 0.08


def test_direct_memory_of_bytes_that_come_in_is_found() -> None:
    random, memory = np.random.default_rng(5), LeastMovesMemory()
    for _ in range(20):
        came = random.uniform(1e6, 5e6, 8)
        memory = memory.learn_direct(came, 3e8 + 1.5 * came)
    assert memory.direct_slope == pytest.approx(1.5)


def test_the_time_unserved_comes_near_the_median_and_a_hanging_move_changes_little() -> None:
    random, memory = np.random.default_rng(9), LeastMovesMemory()
    for number in range(200):
        times_ms = (random.lognormal(np.log(4_000), 0.3, 3)).astype(int).tolist()
        memory = memory.learn_unserved([*times_ms, 300_000] if number % 5 == 0 else times_ms)
    assert memory.unserved_ms == pytest.approx(4_000, rel=0.15)
    assert memory.learn_unserved([300_000]).unserved_ms == pytest.approx(1.05 * memory.unserved_ms)
    assert LeastMovesMemory().learn_unserved([0]).unserved_ms == 1.0
    assert "unserved_ms" not in LeastMovesMemory().to_dict(), (
        "a cluster that has moved nothing remembers nothing of it"
    )


def seen(*rounds: tuple[int, str]) -> LeastMovesMemory:
    """Rounds: the second, and the brokers alive, a letter each."""
    return reduce(
        lambda memory, one: memory.learn_fleet(list(one[1]), one[0] * 1000),
        rounds,
        LeastMovesMemory(),
    )


def test_brokers_that_restart_one_by_one_are_a_wave_until_none_has_for_longer_than_usual() -> None:
    assert seen((0, "abc"), (100, "bc")).calm_at() == 0, "one that is gone is no wave"
    assert seen((0, "abc"), (100, "bc"), (160, "abc")).calm_at() == (160 + 90) * 1000, (
        "one that is back may be the first of a wave"
    )
    assert seen((0, "abc"), (100, "bc"), (500, "abc")).calm_at() == 500 * 1000 + RETURN_MS, (
        "but not for long"
    )
    assert seen((0, "abc"), (100, "bc"), (190, "abc"), (280, "ac")).calm_at() == (280 + 135) * 1000
    assert seen((0, "abcd"), (100, "ab"), (190, "abcd")).calm_at() == (190 + 135) * 1000
    assert seen((0, "abcd"), (100, "ab")).calm_at() == 0, "what goes at once is no wave"
    late = WAVE_MS // 1000 + 200
    assert (
        seen((0, "abc"), (100, "bc"), (190, "abc"), (280, "ac"), (late + 280, "ac")).calm_at() == 0
    )


def test_a_broker_that_comes_and_goes_all_the_time_is_no_wave() -> None:
    flapping = [(second, "bc" if second // 60 % 2 else "abc") for second in range(0, 240, 10)]
    assert seen(*flapping[:18]).calm_at() > 170_000, "it has restarted once"
    assert seen(*flapping, (240, "abc")).calm_at() == 0
    wave = seen(*flapping, (240, "abc"), (250, "ac"), (310, "abc"), (320, "ab"))
    assert wave.calm_at() == (320 + 90) * 1000, "others' restarts count beside it"


def test_where_the_clock_is_set_back_nothing_waits_for_it_to_come_on_again() -> None:
    memory = seen((86_400, "abc"), (86_460, "bc"), (86_520, "abc")).learn_beyond(
        ["a"], np.array([[1e6, 1e6]]), 86_520_000
    )
    memory = replace(
        memory,
        hot={"a": 86_520_000},
        left={"t/n/0x0_0x1": ("a", 86_520_000)},
        planned_ms=86_520_000,
        plan_ms=86_500_000,
        splits={"t/n/0x0_0x1": AskedSplit(86_520_000, 86_400_000, True, (), (0.5, 0.5), (1.0,))},
        split_times=((86_520_000, "t/n"),),
        expected_ms=86_520_000,
    )
    assert memory.until(86_520_000) is memory
    back = memory.until(60_000)
    (split,) = back.splits.values()
    assert (split.asked_ms, split.since_ms) == (60_000, 60_000)
    assert (back.split_times, back.expected_ms) == (((60_000, "t/n"),), 60_000)
    assert (back.hot, back.left, back.planned_ms, back.plan_ms) == (
        {"a": 60_000},
        {"t/n/0x0_0x1": ("a", 60_000)},
        60_000,
        60_000,
    )
    assert back.calm_at() == 0
    again = replace(back, split_times=()).after_plan(
        moves=3, fewest=3, extra_moves_ratio=0.1, now_ms=90_000
    )
    assert (again.plan_ms, again.between_ms) == (90_000, 30_000)
    assert again.fine_tune_budget == pytest.approx(0.3), "it continues the plan before"
    assert back.learn_beyond(["a"], np.array([[3e6, 1e6]]), 60_000 + BELIEVED_MS).beyond["a"] == (
        2e6,
        1e6,
        60_000 + BELIEVED_MS,
    )


def test_kinds_that_nobody_is_of_any_more_are_forgotten_though_all_brokers_stay() -> None:
    memory = LeastMovesMemory()
    for kinds in (["old", "old"], ["old", "new"], ["new", "new"]):
        memory = learn_cpu(
            memory, reports("ab", kinds, np.array([100.0, 200.0]), np.array([0.3, 0.5])), 0
        ).without_forgotten("ab")
    assert set(memory.kinds) == {"new"}


def test_brokers_that_are_no_more_are_forgotten_and_so_are_their_kinds() -> None:
    memory = (
        learned()
        .learn_noise(NAMES, np.full(6, 9.0), [4] * 6, np.full(6, 0.5))
        .without_forgotten(NAMES[:3])
    )
    assert [set(one) for one in (memory.hosts, memory.last, memory.kind_of, memory.kinds)] == [
        set(NAMES[:3])
    ] * 3 + [{"small"}]
    assert memory.without_forgotten(NAMES) is memory


def test_memory_is_json() -> None:
    memory = learn_cpu(
        seen((0, "abc"), (100, "bc")),
        reports(NAMES, KINDS, np.full(6, 100.0), np.full(6, 0.3)),
        100_000,
    )
    memory = memory.learn_noise(NAMES, np.full(6, 9.0), [4] * 6, np.full(6, 0.5)).learn_direct(
        np.array([1e6, 2e6]), np.array([3e6, 5e6])
    )
    memory = memory.learn_unserved([4_000])
    assert LeastMovesMemory.read(json.loads(json.dumps(memory.to_dict()))) == memory
    assert LeastMovesMemory.read({}) == LeastMovesMemory()


def test_children_that_an_earlier_release_has_found_indivisible_stay_so() -> None:
    logged = {"indivisible": {"t/n/0x2_0x3": 5_000, "t/n/0x0_0x1": 9_000}}
    memory = LeastMovesMemory.read(logged)
    assert memory.indivisible == ("t/n/0x0_0x1", "t/n/0x2_0x3")
    assert LeastMovesMemory.read(json.loads(json.dumps(memory.to_dict()))) == memory


def test_a_search_that_found_no_move_is_repeated_once_loads_differ_or_after_a_while() -> None:
    shares = {"a": 1.4, "b": 0.8}
    memory = LeastMovesMemory().after_search(shares, moves=0, now_ms=1_000)
    assert LeastMovesMemory.read(memory.to_dict()) == memory
    assert memory.was_fruitless({"a": 1.41, "b": 0.8}, 11_000)
    assert not memory.was_fruitless({"a": 1.44, "b": 0.8}, 11_000)
    assert not memory.was_fruitless({"a": 1.4, "b": 0.8, "c": 0.0}, 11_000)
    assert not memory.was_fruitless(shares, 600_000)
    assert not memory.after_search(shares, moves=1, now_ms=2_000).was_fruitless(shares, 3_000)
    assert not LeastMovesMemory().was_fruitless({}, 1_000)
