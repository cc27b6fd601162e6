"""Merge advice: which neighbours could be one, and for how long they must have been small."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Mergeable
from lb_stream.core.model.topics import Ring
from lb_stream.core.model.view import ClusterView
from lb_stream.core.splitting.config import MIB, SplittingConfig
from lb_stream.core.splitting.merging import MAX_PAIRS, MergeLook, disjoint, find_merge_advice
from tests.support.build import Report, batch_of

HOUR_MS, DAY_MS, START_MS = 3_600_000, 86_400_000, 100_000_000
EIGHT = Ring.new("t/n", 8).names
SMALL = BundleStats(
    topics=2, producer_count=1, consumer_count=1, msg_rate_in=1.0, msg_throughput_in=1_000.0
)
PAIRS = [(EIGHT[at], EIGHT[at + 1]) for at in (0, 2, 4, 6)]


def cluster(
    owned: Mapping[str, Mapping[str, BundleStats]], now_ms: int, **columns: Any
) -> ClusterView:
    """Brokers that have just reported.

    `columns` of the bundles: others than reports would give, from the start on unless said.
    """
    reports = [
        Report(broker, now_ms, bundles, offset=place)
        for place, (broker, bundles) in enumerate(owned.items())
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), now_ms, FoldConfig())
    view = view_of("c", [shard], now_ms, {"cpu": 1.0})
    columns = {"owner_since_ms": np.zeros(len(view.bundles), np.int64)} | columns
    return replace(view, bundles=replace(view.bundles, **columns))


def of_one(
    names: Sequence[str] = EIGHT, stats: BundleStats = SMALL
) -> dict[str, dict[str, BundleStats]]:
    """Broker a has them all."""
    return {"a": dict.fromkeys(names, stats), "b": {}}


def look(
    view: ClusterView,
    watched: Mapping[str, Mergeable] | None = None,
    least: Mapping[str, int] | None = None,
    **settings: Any,
):
    """One look at a cluster of which nothing is under way."""
    config = SplittingConfig(**{"namespace_default_bundles": 1} | settings)
    return find_merge_advice(
        view, ~view.bundles.system & ~view.bundles.in_flight, least or {}, watched or {}, config
    )


def advised(found: MergeLook) -> list[tuple[str, str]]:
    return [(one.bundle, one.neighbour) for one in found.advice if one.owner]


def an_hour_later(
    owned: Mapping[str, Mapping[str, BundleStats]],
    least: Mapping[str, int] | None = None,
    **settings: Any,
) -> MergeLook:
    """The second of two looks that find the same."""
    first = look(cluster(owned, START_MS), None, least, **settings)
    assert first.advice == ()
    return look(cluster(owned, START_MS + HOUR_MS), first.pairs, least, **settings)


def test_two_neighbours_that_were_small_for_an_hour_are_advised_with_what_they_carry_together() -> (
    None
):
    found = an_hour_later(of_one())
    assert advised(found) == PAIRS
    one = found.advice[0]
    assert one.to_dict() == {
        "namespace": "t/n",
        "bundle": EIGHT[0],
        "neighbour": EIGHT[1],
        "owner": "a",
        "since_ms": START_MS,
        "topics_ratio": 4 / 1000,
        "sessions_ratio": 4 / 1000,
        "rate_ratio": 2 / 30_000,
        "bandwidth_ratio": 2_000 / (100 * MIB),
    }


def test_less_than_an_hour_is_not_enough() -> None:
    first = look(cluster(of_one(), START_MS))
    second = look(cluster(of_one(), START_MS + HOUR_MS - 1), first.pairs)
    assert (second.advice, second.pairs) == ((), first.pairs)
    assert advised(look(cluster(of_one(), START_MS + HOUR_MS), second.pairs)) == PAIRS


@pytest.mark.parametrize("owners", ["abababab", "abbaabba"])
def test_neighbours_of_different_brokers_are_not_advised(owners: str) -> None:
    owned: dict[str, dict[str, BundleStats]] = {"a": {}, "b": {}}
    for name, owner in zip(EIGHT, owners, strict=True):
        owned[owner][name] = SMALL
    found = advised(an_hour_later(owned))
    assert all(owners[EIGHT.index(low)] == owners[EIGHT.index(high)] for low, high in found)
    assert len(found) == (0 if owners == "abababab" else 3)


def test_bundles_with_a_gap_between_them_are_not_advised_nor_those_of_two_namespaces() -> None:
    apart = [*EIGHT[::2], Ring.new("t/a", 2).names[0], Ring.new("t/aa", 2).names[1]]
    assert an_hour_later(of_one(apart)).pairs == {}


def test_a_bundle_that_nobody_has_between_two_is_no_bridge() -> None:
    view = cluster(of_one(EIGHT[:3]), START_MS, owner=np.array([0, -1, 0], np.int32))
    assert look(view).pairs == {}


@pytest.mark.parametrize(
    ("below", "at"),
    [
        (BundleStats(topics=249), BundleStats(topics=250)),
        (
            BundleStats(topics=1, producer_count=200, consumer_count=49),
            BundleStats(topics=1, producer_count=200, consumer_count=50),
        ),
        (
            BundleStats(topics=1, msg_rate_out=7_499.0),
            BundleStats(topics=1, msg_rate_in=7_000.0, msg_rate_out=500.0),
        ),
        (
            BundleStats(topics=1, msg_throughput_in=24.9 * MIB),
            BundleStats(topics=1, msg_throughput_out=25.0 * MIB),
        ),
    ],
    ids=["topics", "sessions", "rate", "bandwidth"],
)
def test_what_comes_to_half_of_one_limit_is_not_advised(
    below: BundleStats, at: BundleStats
) -> None:
    assert advised(an_hour_later(of_one(stats=below))) == PAIRS
    assert an_hour_later(of_one(stats=at)).pairs == {}


def test_rates_are_those_of_the_long_average() -> None:
    view = cluster(of_one(), START_MS)
    busy = replace(view.bundles.long, rate_in=np.full(8, 8_000.0))
    assert (
        look(view).pairs and not look(replace(view, bundles=replace(view.bundles, long=busy))).pairs
    )


def test_where_sessions_have_no_limit_they_hold_nothing_up() -> None:
    many = BundleStats(topics=1, producer_count=5_000)
    found = an_hour_later(of_one(stats=many), bundle_max_sessions=0)
    assert advised(found) == PAIRS
    assert found.advice[0].sessions_ratio is None


@pytest.mark.parametrize("limits", [{"bundle_max_topics": 0}, {"bundle_max_bandwidth_mb": 2048}])
def test_where_every_bundle_is_above_a_limit_nothing_is_advised(limits: dict[str, int]) -> None:
    assert look(cluster(of_one(), START_MS), **limits).pairs == {}


def test_a_pair_that_was_large_for_one_look_begins_anew() -> None:
    first = look(cluster(of_one(), START_MS))
    large = of_one() | {"a": dict.fromkeys(EIGHT, SMALL) | {EIGHT[0]: BundleStats(topics=800)}}
    second = look(cluster(large, START_MS + HOUR_MS // 2), first.pairs)
    assert EIGHT[0] not in second.pairs and EIGHT[2] in second.pairs
    third = look(cluster(of_one(), START_MS + HOUR_MS), second.pairs)
    assert advised(third) == PAIRS[1:]
    assert third.pairs[EIGHT[0]] == Mergeable(EIGHT[1], START_MS + HOUR_MS, 0)


@pytest.mark.parametrize("moved", [0, 1])
def test_a_bundle_that_has_come_to_its_owner_within_the_hour_is_not_advised(moved: int) -> None:
    """By a move, or as the child of a split."""
    first = look(cluster(of_one(), START_MS))
    since = np.zeros(8, np.int64)
    since[moved] = START_MS + 1
    now_ms = START_MS + HOUR_MS
    second = look(cluster(of_one(), now_ms, owner_since_ms=since), first.pairs)
    assert advised(second) == PAIRS[1:]
    assert second.pairs[EIGHT[0]] == first.pairs[EIGHT[0]]
    assert (
        advised(look(cluster(of_one(), now_ms + 1, owner_since_ms=since), second.pairs))
        == PAIRS[:1]
    )


def test_a_namespace_keeps_its_default_number_of_bundles() -> None:
    assert advised(an_hour_later(of_one(), namespace_default_bundles=4)) == PAIRS
    assert advised(an_hour_later(of_one(), namespace_default_bundles=6)) == PAIRS[:2]
    assert an_hour_later(of_one(), namespace_default_bundles=8).pairs == {}


def test_a_namespace_keeps_the_number_of_bundles_that_an_operator_gave_it() -> None:
    two = of_one([*EIGHT, *Ring.new("t/o", 4).names])
    assert [low for low, _ in advised(an_hour_later(two, {"t/n": 7}))] == [
        EIGHT[0],
        *Ring.new("t/o", 4).names[::2],
    ]


def test_a_bundle_that_waits_for_an_owner_counts_among_its_namespaces() -> None:
    owner = np.array([0] * 6 + [-1] * 2, np.int32)
    found = look(cluster(of_one(), START_MS, owner=owner), namespace_default_bundles=5)
    assert list(found.pairs) == [EIGHT[0], EIGHT[2], EIGHT[4]]


@pytest.mark.parametrize("namespace", ["pulsar/system", "pulsar/c/a:8080", "sla-monitor/c/a:8080"])
def test_namespaces_of_the_system_are_left_alone(namespace: str) -> None:
    assert look(cluster(of_one(Ring.new(namespace, 8).names), START_MS)).pairs == {}


def test_bundles_that_something_is_under_way_with_are_left_alone() -> None:
    moving = np.zeros(8, np.bool_)
    moving[1] = True
    assert list(look(cluster(of_one(), START_MS, in_flight=moving)).pairs) == [
        EIGHT[2],
        EIGHT[4],
        EIGHT[6],
    ]


def test_bundles_that_no_report_has_named_for_an_hour_are_left_alone() -> None:
    reported = np.full(8, START_MS)
    reported[0] = START_MS - HOUR_MS - 1
    assert list(look(cluster(of_one(), START_MS, reported_ms=reported)).pairs) == [
        EIGHT[1],
        EIGHT[3],
        EIGHT[5],
    ]


def test_a_pair_that_is_watched_stays_one_when_its_neighbours_become_small() -> None:
    first = look(
        cluster(
            of_one() | {"a": dict.fromkeys(EIGHT, SMALL) | {EIGHT[0]: BundleStats(topics=800)}},
            START_MS,
        )
    )
    assert list(first.pairs) == [EIGHT[1], EIGHT[3], EIGHT[5]]
    assert list(look(cluster(of_one(), START_MS + 1), first.pairs).pairs) == [
        EIGHT[1],
        EIGHT[3],
        EIGHT[5],
    ]


def test_advice_is_told_anew_every_day_and_withdrawn_when_it_holds_no_more() -> None:
    found, advised_ms = an_hour_later(of_one()), START_MS + HOUR_MS
    quiet = look(cluster(of_one(), advised_ms + DAY_MS - 1), found.pairs)
    assert (quiet.advice, quiet.pairs) == ((), found.pairs)
    again = look(cluster(of_one(), advised_ms + DAY_MS), quiet.pairs)
    assert again.advice == found.advice
    large = of_one() | {"a": dict.fromkeys(EIGHT, SMALL) | {EIGHT[0]: BundleStats(topics=800)}}
    gone = look(cluster(large, advised_ms + DAY_MS + 1), again.pairs)
    assert [(one.bundle, one.neighbour, one.owner) for one in gone.advice] == [(*PAIRS[0], "")]
    assert EIGHT[0] not in gone.pairs


def test_so_many_pairs_are_watched_and_no_more_and_known_ones_stay() -> None:
    many = [name for at in range(5) for name in Ring.new(f"t/n{at}", 128).names]
    last = Mergeable(many[-1], 7, START_MS)
    owned = of_one(many)
    owned["a"] |= dict.fromkeys(many[:100], BundleStats(topics=5))
    found = look(
        cluster(owned, START_MS), {many[0]: Mergeable(many[1], 7, START_MS), many[-2]: last}
    )
    assert len(found.pairs) == MAX_PAIRS < 320
    assert (found.pairs[many[0]].since_ms, found.pairs[many[-2]]) == (7, last)
    assert list(found.pairs)[1:-1] == many[100 : 100 + 2 * (MAX_PAIRS - 2) : 2], (
        "the smallest first"
    )


def test_of_a_chain_every_other_pair_is_taken_around_those_that_are_known() -> None:
    low = np.array([0, 1, 2, 3, 4, 5, 8, 9])
    known = np.array([0, 0, 0, 1, 0, 0, 0, 0], np.bool_)
    assert disjoint(low, low + 1, known).tolist() == [0, 3, 5, 6]
    nothing = np.zeros(0, np.int64)
    assert disjoint(nothing, nothing, np.zeros(0, np.bool_)).tolist() == []


def test_an_empty_cluster_has_no_pairs() -> None:
    assert look(cluster({"a": {}}, START_MS), {"gone": Mergeable("too", 1, 0)}).pairs == {}
