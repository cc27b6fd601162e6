"""LeastMoves in a closed loop: reports, rounds, agents and physics of small scenarios."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import MoveTimes, ScenarioPolicies
from lb_stream.sim.simulation.runner import Simulation
from tests.support.closed_loop import LEAST_MOVES, played
from tests.support.small_scenario import event, small_scenario


def test_all_load_at_one_broker_is_spread_by_as_many_moves_as_that_takes() -> None:
    moves, measures = played(small_scenario([0] * 9))
    assert len(moves) == 6 and {move["rule"] for move in moves} == {"above_even"}
    assert measures["max_over_bound_median"] == 1.0 and measures["undone"] == 0


def test_it_balances_under_the_extensible_manager_too() -> None:
    moves, measures = played(small_scenario([0] * 9), load_manager="extensible")
    assert [move["rule"] for move in moves] == ["above_even"] * 6 and measures[
        "max_over_bound_median"
    ] == 1.0


def test_what_is_even_stays_and_so_does_what_no_move_makes_better() -> None:
    assert played(small_scenario([0, 0, 0, 1, 1, 1, 2, 2, 2]))[0] == []
    assert played(small_scenario([0, 1, 2], loads=[500.0, 100.0, 100.0]))[0] == [], (
        "a bundle as large as that is alone already"
    )
    assert played(small_scenario([0, 0, 1, 1, 2], loads=[300.0] * 5))[0] == []


def test_a_fast_broker_carries_more() -> None:
    scenario = small_scenario(
        [at % 3 for at in range(36)],
        ticks=120,
        capacities=[1_000.0, 1_000.0, 4_000.0],
        loads=[50.0] * 36,
    )
    wide = replace(
        scenario.brokers, bandwidth_in_bytes_per_s=np.array([1e12, 1e12, 4e12])
    )  # the limits that it reports tell it apart
    moves, measures = played(replace(scenario, brokers=wide))
    assert len(moves) == 12 and {move["destination"] for move in moves} == {"b2:8080"}
    assert measures["max_over_bound_median"] < 1.05


def test_full_brokers_among_full_brokers_keep_what_they_have() -> None:
    assert played(small_scenario([0] * 12 + [1] * 11 + [2] * 11))[0] == []


def test_a_budget_is_kept_and_what_is_missing_comes_from_others() -> None:
    names = ["acme/a"] * 6 + ["acme/b"] * 6
    scenario = small_scenario(
        [0] * 12,
        loads=[60.0] * 12,
        namespaces=names,
        policies=ScenarioPolicies(budgets={"acme/a": 3}),
    )
    moves, measures = played(scenario)
    assert measures["budget_breaches"] == 0 and measures["max_over_bound_median"] == 1.0
    assert len(moves) == 8 and sum(move["bundle"].startswith("acme/a") for move in moves) <= 3


def test_brokers_that_restart_in_turn_are_left_alone_until_all_have() -> None:
    down_and_up = [
        event(300.0 + 180 * at + 90 * up, at, ("leave", "up")[up])
        for at in range(3)
        for up in range(2)
    ]
    moves, measures = played(
        small_scenario(
            [at % 3 for at in range(18)], ticks=150, loads=[60.0] * 18, events=tuple(down_and_up)
        )
    )
    assert measures["moves"] <= 6, "one broker's worth, after the wave"
    assert all(move["t"] > 840 for move in moves)
    assert measures["max_over_bound_median"] < 1.05


def test_what_a_limit_has_put_off_is_moved_in_the_next_pass() -> None:
    scenario = small_scenario([0] * 24, loads=[90.0] * 6 + [20.0] * 18)
    at_once, (moves, measures) = played(scenario)[0], played(scenario, max_moves_in_flight=2)
    assert len(moves) <= len(at_once) and {move["bundle"] for move in moves} <= {
        one["bundle"] for one in at_once
    }
    assert measures["max_over_bound_median"] < 1.07


def test_what_a_round_gives_owners_counts_before_it_plans_the_rest() -> None:
    """The first moves are released, and about to get their new owners, when room for the others is
    looked for."""
    scenario = small_scenario([0] * 24 + [1] * 24, brokers=8, loads=[20.0] * 48)
    moves, measures = played(scenario, max_moves_in_flight=20)
    assert len(moves) == len(played(scenario)[0]) == 36 and measures["max_over_bound_median"] == 1.0


def test_a_new_broker_is_filled_step_by_step() -> None:
    scenario = small_scenario([at % 2 for at in range(36)], loads=[50.0] * 36)
    moves, measures = played(scenario, least_moves_max_moves_into_broker=3)
    at_once = Counter(move["t"] for move in moves)
    assert len(moves) == len(played(scenario)[0]) == 12 and max(at_once.values()) == 3
    assert measures["max_over_bound_median"] < 1.05


@pytest.mark.parametrize("manager", ["modular", "extensible"])
@pytest.mark.parametrize(
    ("release_s", "acquire_s", "reconnect_s"), [(2.0, 3.0, 1.0), (4.0, 17.0, 5.0)]
)
def test_what_it_learns_of_moves_is_what_the_simulator_measures(
    manager: str, release_s: float, acquire_s: float, reconnect_s: float
) -> None:
    scenario = replace(small_scenario([0] * 9), move=MoveTimes(release_s, acquire_s, reconnect_s))
    settings = {
        **LEAST_MOVES.settings,
        "load_manager": manager,
        "least_moves_reconnect_ms": int(reconnect_s * 1_000),
    }
    game = Simulation(scenario, replace(LEAST_MOVES, settings=settings))
    game.run(scenario.end_s, lambda _part: None)
    measures = measure_figures(scenario, game.lines)
    learned = LeastMovesMemory.read(game.balancer.memory.strategies["LeastMoves"]).unserved_ms
    assert learned is not None and measures["moves"] == 6
    assert learned / 1_000 == pytest.approx(
        measures["unserved_move_s"] / measures["moves"], rel=0.06
    )
    clients = int((scenario.bundles.producers + scenario.bundles.consumers)[0])
    expected = measures["moves"] * clients * (learned / 1_000 + reconnect_s)
    assert measures["client_seconds_lost"] == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize(
    "told", [{"least_moves_payback_ms": 30_000}, {"namespace.acme/heavy.disruption_weight": 20}]
)
def test_an_operator_whose_clients_bear_moves_badly_sees_fewer_and_better_ones(
    told: dict[str, Any],
) -> None:
    """Two light bundles are most of what is too much at the first broker; a dozen small ones have
    nearly all clients."""
    scenario = small_scenario(
        [0] * 14,
        loads=[100.0] * 2 + [12.0] * 12,
        namespaces=["acme/light"] * 2 + ["acme/heavy"] * 12,
    )
    scenario = replace(
        scenario, bundles=replace(scenario.bundles, consumers=np.array([10] * 2 + [1_000] * 12))
    )
    (moves, measures), (fewer, better) = played(scenario), played(scenario, **told)
    assert len(fewer) == 2 < len(moves) and {one["bundle"].split("/0x")[0] for one in fewer} == {
        "acme/light"
    }
    assert better["client_seconds_lost"] < 0.05 * measures["client_seconds_lost"]
    assert measures["max_over_bound_median"] < 1.06 and better["max_over_bound_median"] < 1.3, (
        "it was 3 without any move"
    )


@pytest.mark.parametrize("factor", [0.5, 0.2])
def test_a_broker_that_becomes_slow_is_relieved_at_once_and_given_nothing(factor: float) -> None:
    scenario = small_scenario(
        [at % 4 for at in range(64)],
        brokers=4,
        ticks=90,
        loads=[35.0] * 64,
        events=(event(300.0, 0, "slow", factor),),
        judge_from_s=300.0,
    )
    moves, measures = played(scenario)
    assert {move["source"] for move in moves} == {"b0:8080"}
    assert all(move["destination"] != "b0:8080" for move in moves)
    assert measures["max_over_bound_median"] < 1.1
    assert measures["time_to_balance_s"] <= 60 and measures["overload_s_100"] <= 30


def test_a_broker_that_was_slow_takes_bundles_again_when_load_moves() -> None:
    scenario = small_scenario(
        [at % 4 for at in range(64)],
        brokers=4,
        ticks=150,
        loads=[35.0] * 64,
        events=(event(300.0, 0, "slow", 0.3), event(600.0, 0, "slow", 1.0)),
        judge_from_s=300.0,
        settled_from_s=1200.0,
    )
    moves, measures = played(scenario)
    back = [move for move in moves if move["destination"] == "b0:8080"]
    assert back and all(600.0 < move["t"] < 900.0 for move in back)
    assert measures["max_over_bound_median"] < 1.1
