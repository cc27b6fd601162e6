"""Bundles go to brokers that stay, up to the level of all; few heavy ones move once more."""

from __future__ import annotations

import numpy as np

from lb_stream.core.rollout.destinations import Emptying
from lb_stream.core.rollout.loads import Loads
from tests.unit.core.rollout.clusters import a_cluster


def emptied(loads: Loads, stays: list[bool], intake: int = 100) -> tuple[list[int], set[int]]:
    """Empty the first broker. Returns the destination of each of its bundles, and who moves again.

    A bundle without a destination has -1.
    """
    others = np.arange(len(stays)) > 0
    there = np.array(stays)
    intake_left = np.full(len(stays), intake)
    levels = loads.levels(others)
    emptying = Emptying(loads, 0, others & there, others & ~there, levels, intake_left)
    mine = np.flatnonzero(loads.view.bundles.owner == 0)
    ordered, again = emptying.order(mine)
    found = np.full(len(mine), -1)
    for bundle in ordered.tolist():
        chosen = emptying.choose(bundle, bundle in again)
        if chosen is not None:
            emptying.take(bundle, chosen.broker)
            found[bundle] = chosen.broker
    return found.tolist(), again


def test_bundles_go_to_a_broker_that_stays_though_others_are_as_empty() -> None:
    loads = a_cluster({"a": [0.2, 0.1], "b": [], "c": [0.1, 0.1, 0.1]})
    assert emptied(loads, [False, True, False]) == ([1, 1], set())


def test_without_a_broker_that_stays_all_others_are_filled_evenly() -> None:
    loads = a_cluster({"a": [0.1, 0.1, 0.1, 0.1], "b": [0.2], "c": [0.2]})
    found, _ = emptied(loads, [False, False, False])
    assert sorted(found) == [1, 1, 2, 2]


def test_what_the_brokers_that_stay_have_no_room_for_is_one_bundle_and_not_several() -> None:
    # b has room for 0.4; the lightest three would be left over, and one of 0.1 is as much.
    loads = a_cluster({"a": [0.2, 0.1, 0.1, 0.04, 0.03, 0.03], "b": [], "c": [0.3]})
    found, again = emptied(loads, [False, True, False])
    assert len(again) == 1
    assert [found[bundle] for bundle in again] == [2]
    assert found.count(1) == 5
    assert np.allclose(loads.usage[1:], 0.4)


def test_no_broker_takes_more_bundles_than_may_be_on_their_way_to_it() -> None:
    loads = a_cluster({"a": [0.1, 0.1, 0.1], "b": [], "c": [0.1]})
    assert emptied(loads, [False, True, False], intake=1)[0].count(-1) == 1


def test_a_broker_that_is_faster_gets_more() -> None:
    loads = a_cluster({"a": [0.1] * 9, "b": [], "c": []}, capacity=[1.0, 2.0, 1.0])
    found, _ = emptied(loads, [False, True, True])
    assert (found.count(1), found.count(2)) == (6, 3)
