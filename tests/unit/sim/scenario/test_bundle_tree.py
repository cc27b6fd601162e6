"""Bundles are cut where the format says, and children have the parts of their topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from lb_stream.sim.scenario.bundle_tree import BundleTree
from lb_stream.sim.scenario.scenario import ScenarioSplits
from tests.support.format_2 import TOPICS, WIDTH, format_2_scenario

LOADS = np.array([[300.0], [500.0], [3000.0], [5000.0]])
LIMITS = ScenarioSplits(2.0, 10, 450.0, 1e9, 0.1)


def tree(topics: Mapping[int, float] = TOPICS, limits: ScenarioSplits = LIMITS) -> BundleTree:
    return BundleTree(replace(format_2_scenario([0], topics=topics), splits=limits))


CASES: dict[str, tuple[str, Mapping[int, float], Sequence[int], Sequence[int]]] = {
    "the middle of the range": ("range_equally_divide", TOPICS, [], [WIDTH // 2]),
    "whatever topics there are": ("range_equally_divide", {5: 1.0}, [], [WIDTH // 2]),
    "between the middle topics": ("topic_count_equally_divide", TOPICS, [], [0x280]),
    "one topic has no middle": ("topic_count_equally_divide", {5: 1.0}, [], []),
    "two neighbours": ("topic_count_equally_divide", {0: 1.0, 1: 1.0}, [], []),
    "given positions": ("specified_positions_divide", TOPICS, [0x300, 1, 0x300], [1, 0x300]),
    "none of them inside": ("specified_positions_divide", TOPICS, [0, WIDTH, WIDTH + 1], []),
    "one topic, given": ("specified_positions_divide", {5: 1.0}, [9], []),
    "pieces within the limit": (
        "flow_or_qps_equally_divide",  # 300, 100, 100, 300 messages/s
        TOPICS,
        [],
        [0x280 + 1],
    ),
    "topics without load don't count": (
        "flow_or_qps_equally_divide",  # 400, 400
        {0x100: 4.0, 0x150: 0.0, 0x200: 4.0},
        [],
        [0x180 + 1],
    ),
    "one hot topic alone": ("flow_or_qps_equally_divide", {5: 1.0, 9: 0.0}, [], []),
    "a topic above the limit": (
        "flow_or_qps_equally_divide",  # 50, 700, 50
        {0: 1.0, 10: 14.0, 20: 1.0},
        [],
        [6, 16],
    ),
}


@pytest.mark.parametrize(("algorithm", "topics", "given", "positions"), CASES.values(), ids=CASES)
def test_a_bundle_is_cut_where_the_format_says(
    algorithm: str, topics: Mapping[int, float], given: Sequence[int], positions: Sequence[int]
) -> None:
    assert tree(topics).find_positions(0, algorithm, given, LOADS) == positions


def test_a_bundle_within_the_limits_and_their_difference_is_not_cut_by_flow() -> None:
    for most, positions in ((800 / 1.1 + 1, []), (800 / 1.1 - 1, [0x380 + 1])):
        limits = replace(LIMITS, max_rate=most)
        found = tree(limits=limits).find_positions(0, "flow_or_qps_equally_divide", [], LOADS)
        assert found == positions
    bytes_only = replace(LIMITS, max_rate=1e9, max_bytes_per_s=4500.0)
    assert tree(limits=bytes_only).find_positions(0, "flow_or_qps_equally_divide", [], LOADS) == [
        0x280 + 1
    ]


def test_children_have_their_topics_parts_and_are_split_on() -> None:
    grown = tree()
    first, second = grown.split(0, [0x200])
    third, fourth, fifth = grown.split(second, [0x250, 0x400])
    assert grown.names[1:] == [
        "acme/shop/0x00000000_0x00000200",
        "acme/shop/0x00000200_0x10000000",
        "acme/shop/0x00000200_0x00000250",
        "acme/shop/0x00000250_0x00000400",
        "acme/shop/0x00000400_0x10000000",
    ]
    rows = [first, second, third, fourth, fifth]
    assert grown.part[rows].tolist() == [0.375, 0.625, 0.125, 0.125, 0.375]
    assert grown.topics[rows].tolist() == [1, 3, 1, 1, 1]
    assert grown.root.tolist() == [0] * 6
    assert grown.of_roots(LOADS)[0].tolist() == [300 * part for part in grown.part]
    assert grown.spread_by_topics(np.array([6])).tolist() == [6, 1.5, 4.5, 1.5, 1.5, 1.5]
    assert [at.tolist() for at, _ in map(grown.topics_of, rows)] == [
        [0x100],
        [0x200, 0x300, 0x400],
        [0x200],
        [0x300],
        [0x400],
    ]


def test_topics_of_one_hash_stay_together() -> None:
    scenario = format_2_scenario([0])
    assert scenario.topics is not None
    same = replace(scenario.topics, hash=np.array([0x100, 0x200, 0x200, 0x300]))
    grown = BundleTree(replace(scenario, topics=same, splits=replace(LIMITS, max_rate=350.0)))
    assert grown.find_positions(0, "flow_or_qps_equally_divide", [], LOADS) == [0x181, 0x281]
    assert grown.find_positions(0, "topic_count_equally_divide", [], LOADS) == [0x200]
    first, second = grown.split(0, [0x200])
    assert grown.topics[[first, second]].tolist() == [1, 3]


def test_a_scenario_without_topics_can_not_be_split() -> None:
    whole = BundleTree(format_2_scenario([0, 1], topics=None))
    assert whole.find_positions(0, "range_equally_divide", [], np.ones((4, 2))) == []


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        tree().find_positions(0, "halves", [], LOADS)
