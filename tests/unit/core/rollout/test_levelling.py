"""The last broker gets its share by few heavy bundles."""

from __future__ import annotations

import numpy as np

from lb_stream.core.rollout.levelling import NEAR, level_out
from lb_stream.core.rollout.loads import Loads
from tests.unit.core.rollout.clusters import a_cluster


def levelled(
    loads: Loads,
    held: tuple[int, ...] = (),
    again: tuple[int, ...] = (),
    intake: int = 100,
    trigger: float = NEAR,
) -> list[tuple[int, int]]:
    movable = np.ones(len(loads.view.bundles), np.bool_)
    movable[list(held)] = False
    intake_left = np.full(len(loads.view.brokers), intake)
    twice = np.zeros(len(movable), np.bool_)
    twice[list(again)] = True
    moves = level_out(loads, loads.view.active, movable, twice, intake_left, trigger)
    return [(move.bundle, move.destination) for move in moves]


def test_an_empty_broker_is_filled_by_the_fewest_bundles() -> None:
    loads = a_cluster({"a": [0.15, 0.1, 0.1, 0.05, 0.05], "b": [0.15, 0.1, 0.1, 0.1], "c": []})
    assert levelled(loads) == [(0, 2), (5, 2)]
    assert np.allclose(loads.usage, 0.3)


def test_a_bundle_that_is_held_stays_and_lighter_ones_move() -> None:
    loads = a_cluster({"a": [0.15, 0.1, 0.1, 0.05, 0.05], "b": [0.15, 0.15], "c": [0.15]})
    assert levelled(loads, held=(0,)) == [(1, 2), (3, 2)]


def test_brokers_that_are_nearly_level_are_left_alone() -> None:
    loads = a_cluster({"a": [0.26, 0.25], "b": [0.25, 0.25], "c": [0.25, 0.25]})
    assert levelled(loads) == []


def test_no_destination_is_filled_beyond_its_share() -> None:
    loads = a_cluster({"a": [0.4, 0.4], "b": [0.3, 0.1]})
    assert levelled(loads) == []


def test_a_broker_takes_as_many_at_once_as_may_be_on_their_way_to_it() -> None:
    loads = a_cluster({"a": [0.1] * 6, "b": []})
    assert len(levelled(loads, intake=2)) == 2


def test_what_has_moved_twice_moves_rather_than_another_if_that_is_no_more() -> None:
    loads = a_cluster({"a": [0.15, 0.1, 0.149, 0.05], "b": [0.15, 0.15], "c": []})
    assert levelled(loads, again=(2,))[:1] == [(2, 2)]
    loads = a_cluster({"a": [0.15, 0.1, 0.149, 0.05], "b": [0.15, 0.15], "c": []})
    assert levelled(loads, again=(3,))[:1] == [(0, 2)]
