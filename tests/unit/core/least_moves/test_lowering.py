"""What a plan does where no moves bring brokers near their even load."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lb_stream import ask
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.recorded import Round
from tests.support.closed_loop import played
from tests.support.small_scenario import small_scenario
from tests.unit.core.least_moves.plans import AT_ONCE, a_name, a_plan, a_view

SETTINGS = LeastMovesConfig()
Owned = dict[str, dict[str, float]]


def of_rates(rates: dict[str, list[float]], namespace: str = "t/n") -> Owned:
    """Broker → bundle → thousandths of the broker's cpu."""
    return {
        broker: {
            a_name(100 * number + row, namespace): rate for row, rate in enumerate(rates[broker])
        }
        for number, broker in enumerate(rates)
    }


def after(owned: Owned, made: Round) -> Owned:
    """Return the bundles of each broker once the round's moves are done."""
    now = {broker: dict(bundles) for broker, bundles in owned.items()}
    for decision in made.decisions:
        assert decision.source is not None and decision.destination is not None
        now[decision.destination][decision.bundle] = now[decision.source].pop(decision.bundle)
    return now


def usages(owned: Owned) -> list[float]:
    """Return the usages of the brokers, the highest first."""
    return sorted((round(sum(own.values()), 6) for own in owned.values()), reverse=True)


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ({"a": [200] * 4, "b": [200] * 2, "c": [200] * 2, "d": [200] * 2}, [600, 600, 400, 400]),
        ({"a": [150] * 5, "b": [150] * 2, "c": [150] * 2, "d": [150] * 2}, [450, 450, 450, 300]),
        ({"a": [240] * 3, "b": [230] * 3, "c": [250], "d": [240]}, [480, 480, 480, 460]),
        ({"a": [310, 300], "b": [190], "c": [180]}, [370, 310, 300]),
    ],
)
def test_a_move_that_lowers_the_highest_usage_is_made_though_it_fills_its_destination_beyond_even(
    rates: dict[str, list[float]], best: list[float]
) -> None:
    owned = of_rates(rates)
    made = ask(a_view(owned), **AT_ONCE)
    even = after(owned, made)
    assert usages(even) == best
    for decision in made.decisions:
        assert decision.explain.expected_after is not None
        assert decision.explain.expected_after * 1000 == pytest.approx(
            sum(even[str(decision.source)].values())
        )
    again = ask(replace(a_view(even), now_ms=10_000_000), **AT_ONCE)
    assert not again.decisions, "what is as low as it can be stays"
    assert {refusal.rule for refusal in again.refusals} <= {"no_room"}


def test_no_single_move_is_left_that_would_lower_the_highest_usage_clearly() -> None:
    fall = 1 - SETTINGS.least_moves_acceptable_ratio / SETTINGS.least_moves_trigger_ratio
    out_of_reach = 0
    for seed in range(40):
        chance = np.random.default_rng(seed)
        brokers, count = int(chance.integers(2, 5)), int(chance.integers(4, 9))
        owner, load = chance.integers(0, brokers, count), chance.uniform(20, 160, count)
        owned = of_rates({f"b{row}": load[owner == row].round().tolist() for row in range(brokers)})
        made = ask(a_view(owned), **AT_ONCE)
        even = after(owned, made)
        highest = max(even, key=lambda broker: sum(even[broker].values()))
        moved = {decision.bundle for decision in made.decisions}
        out_of_reach += bool(moved) and "no_room" in {refused.rule for refused in made.refusals}
        bar = sum(even[highest].values()) * (1 - fall)
        mean = sum(map(sum, (own.values() for own in even.values()))) / brokers
        largest = max(load.round())
        if bar / (1 - fall) <= SETTINGS.least_moves_trigger_ratio * max(mean, largest):
            continue
        for bundle, broker in product(set(even[highest]) - moved, set(even) - {highest}):
            rest = sum(even[highest].values()) - even[highest][bundle]
            assert max(rest, sum(even[broker].values()) + even[highest][bundle]) >= bar - 1e-6, (
                seed,
                bundle,
                broker,
            )
    assert out_of_reach > 5, "hardly any of these clusters says anything"


def test_noise_is_no_gain() -> None:
    owned = of_rates({"a": [200] * 4, "b": [200] * 2, "c": [200] * 2, "d": [200] * 2})
    sure = {**AT_ONCE, "least_moves_min_standard_errors": 0.5}
    assert ask(a_view(owned), **sure).decisions
    unsure = {**AT_ONCE, "least_moves_min_standard_errors": 2.0}
    made = ask(a_view(owned), **unsure)
    assert not made.decisions, "a sample is off by 30 %, and 200 of 800 are no more than that"
    assert {refusal.rule for refusal in made.refusals} == {"no_room"}


def test_a_broker_that_nothing_relieves_is_no_reason_to_move_others_bundles() -> None:
    owned = of_rates({"a": [230, 230], "b": [92] * 4 + [7, 7], "c": [300], "d": [300]})
    assert sum(owned["b"].values()) > SETTINGS.least_moves_acceptable_ratio * 360.5
    made = ask(a_view(owned), **AT_ONCE)
    assert not made.decisions and {refused.rule for refused in made.refusals} == {"no_room"}


def test_load_that_may_not_move_is_no_reason_to_leave_the_rest_uneven() -> None:
    owned = {
        "a": {a_name(row, "t/stays"): 90.0 for row in range(8)},
        **of_rates({"b": [60] * 8, "c": [20]}),
    }
    made = ask(a_view(owned), shedding_excluded_namespaces=["t/stays"], **AT_ONCE)
    even = after(owned, made)
    assert usages(even) == [720, 260, 240]
    (fixed,) = (refusal for refusal in made.refusals if refusal.broker == "a")
    assert (fixed.rule, fixed.greatest) == ("fixed_load", pytest.approx(0.72))
    assert fixed.limit == pytest.approx(1.08 * 0.25)


def test_what_can_move_leaves_a_broker_that_what_stays_fills_and_nothing_goes_there() -> None:
    owned = {
        "a": {a_name(0, "t/stays"): 600.0, a_name(901): 60.0, a_name(902): 40.0},
        **of_rates({"b": [50] * 8, "c": [50] * 3, "d": [50] * 2}),
    }
    made = ask(a_view(owned), shedding_excluded_namespaces=["t/stays"], **AT_ONCE)
    even = after(owned, made)
    assert usages(even)[0] == 600 and usages(even)[1] <= 300
    for decision in made.decisions:
        if decision.source == "a":
            assert decision.explain.saw == pytest.approx(0.7), "usages count what can't move"
            assert decision.explain.expected_after == pytest.approx(0.6)


def test_idle_bundles_stay_and_so_does_what_gains_next_to_nothing() -> None:
    idle = {a_name(900 + row): 1e-6 for row in range(20)}
    little = {a_name(950 + row): 0.1 for row in range(4)}
    owned = of_rates({"a": [420, 400], "b": [200, 150], "c": [210, 120]})
    owned["a"] |= idle | little
    made = ask(a_view(owned), **AT_ONCE)
    assert not {decision.bundle for decision in made.decisions} & {*idle, *little}
    assert all((decision.explain.gain or 0) > 1e-3 for decision in made.decisions)


@pytest.mark.parametrize(("min_gain", "moved"), [(0.001, 0), (0.0001, 5), (0.0, 25)])
def test_a_bundle_that_takes_less_than_the_least_gain_from_its_source_stays(
    min_gain: float, moved: int
) -> None:
    demand = np.array([[0.6], [0.6], *[[1e-6]] * 20, *[[5e-4]] * 5])
    plan = replace(a_plan(demand, [0] * len(demand), 2, limit=0.55), min_gain=min_gain)
    plan.relieve(0, np.arange(len(demand)))
    assert len(plan.moves) == moved


def test_brokers_that_are_nearly_idle_are_even_enough() -> None:
    owned = of_rates({"a": [3] * 10, "b": [3], "c": []})
    made = ask(a_view(owned), **AT_ONCE, least_moves_min_target_ratio=0.03)
    assert not made.decisions and not made.refusals
    made = ask(a_view(owned), **AT_ONCE, least_moves_min_target_ratio=0.02)
    assert usages(after(owned, made))[0] in (18, 21), "no lower than it is worth"
    assert usages(after(owned, ask(a_view(owned), **AT_ONCE)))[0] < 13


@pytest.mark.parametrize("narrow", [1, 3])
def test_brokers_with_narrow_networks_are_relieved_as_far_as_the_others_cpus_allow(
    narrow: int,
) -> None:
    """A bundle is 6 % of a narrow network and 0.4 % of a wide one, and 2 % of any cpu."""
    owners = [broker for broker in range(4) for _ in range(11)]
    made = small_scenario(
        owners, brokers=4, ticks=60, capacities=[50_000.0] * 4, loads=[1_000.0] * len(owners)
    )
    speed = np.array([1.5e9] * (4 - narrow) + [1e8] * narrow)
    loads = made.loads.copy()
    loads[2], loads[3] = 6e6, 0.0
    brokers = replace(made.brokers, bandwidth_in_bytes_per_s=speed)
    moves, _ = played(replace(made, brokers=brokers, loads=loads))
    count = np.bincount(owners)
    for move in moves:
        count[int(move["source"][1])] -= 1
        count[int(move["destination"][1])] += 1
    usage = [max(count[row] * 6e6 / speed[row], count[row] / 50) for row in range(4)]

    wide = 4 - narrow
    least = min(
        max(0.06 * -(-(len(owners) - n) // narrow), 0.02 * -(-n // wide)) for n in range(45)
    )
    assert max(usage) <= 1.1 * least, (count, usage, least)
    assert len(moves) <= len(owners) - 11 * wide - int(least / 0.06) * narrow + 2
