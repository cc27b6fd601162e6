"""What holds of merge advice whatever a cluster looks like: pairs of neighbours, apart from each
other, small together, few enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.names import namespace_of, parse_bundle
from lb_stream.core.model.topics import Ring
from lb_stream.core.model.view import ClusterView, Rates
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.merging import MergeLook, disjoint, find_merge_advice
from tests.support.build import Report, batch_of

HOUR_MS = 3_600_000
LIMITS = SplittingConfig(
    bundle_max_topics=20,
    bundle_max_sessions=30,
    bundle_max_msgs_per_s=100,
    namespace_default_bundles=2,
)

loads = st.tuples(
    st.sampled_from([0, 1, 4, 5, 9, 10, 30]),
    st.sampled_from([0, 1, 7, 8, 40]),
    st.sampled_from([0, 1, 24, 25, 300]),
)
"""Topics, sessions, messages/s."""
bounds = st.sets(st.sampled_from(range(1, 12)), max_size=11).map(
    lambda cuts: [0, *(0x10000000 * cut for cut in sorted(cuts)), 0xFFFFFFFF]
)


@st.composite
def clusters(draw: st.DrawFn) -> list[ClusterView]:
    """The same bundles at three times, half an hour apart: loads change."""
    names = [
        name
        for at in range(draw(st.integers(1, 3)))
        for name in Ring.from_boundaries(f"t/n{at}", draw(bounds)).names
    ]
    reports = [Report("a", HOUR_MS, dict.fromkeys(names)), Report("b", HOUR_MS, offset=HOUR_MS + 1)]
    view = view_of(
        "c",
        [fold(Shard.empty(), batch_of(reports), HOUR_MS, FoldConfig())[0]],
        HOUR_MS,
        {"cpu": 1.0},
    )
    owner = np.array([draw(st.integers(0, 1)) for _ in names], np.int32)
    views = []
    for now_ms in (10 * HOUR_MS, 10 * HOUR_MS + HOUR_MS // 2, 11 * HOUR_MS):
        topics, sessions, rate = np.array([draw(loads) for _ in names]).T
        zero = np.zeros(len(names))
        columns = {
            "topics": topics,
            "sessions": sessions,
            "long": Rates(zero, zero, rate.astype(np.float64), zero),
        }
        bundles = replace(
            view.bundles, owner=owner, reported_ms=np.full(len(names), now_ms), **columns
        )
        views.append(replace(view, now_ms=now_ms, bundles=bundles))
    return views


def looks(views: list[ClusterView]) -> list[MergeLook]:
    found = [MergeLook()]
    for view in views:
        found.append(
            find_merge_advice(
                view, np.ones(len(view.bundles), np.bool_), {}, found[-1].pairs, LIMITS
            )
        )
    return found[1:]


@given(clusters())
def test_pairs_are_small_neighbours_that_do_not_overlap_and_every_namespace_keeps_enough(
    views: list[ClusterView],
) -> None:
    before = Counter(map(namespace_of, views[0].bundles.names.to_pylist()))
    for view, found in zip(views, looks(views), strict=True):
        bundles, used = (
            view.bundles,
            [name for low, one in found.pairs.items() for name in (low, one.neighbour)],
        )
        assert len(used) == len(set(used))
        assert all(
            before[namespace] - gone >= 2
            for namespace, gone in Counter(map(namespace_of, found.pairs)).items()
        )
        for low, one in found.pairs.items():
            first, second = parse_bundle(low), parse_bundle(one.neighbour)
            assert (first.namespace, first.upper) == (second.namespace, second.lower)
            rows = bundles.rows_of([low, one.neighbour])
            assert bundles.owner[rows[0]] == bundles.owner[rows[1]] >= 0
            sums = (
                bundles.topics[rows].sum(),
                bundles.sessions[rows].sum(),
                bundles.long.rate[rows].sum(),
            )
            assert all(2 * total < limit for total, limit in zip(sums, (20, 30, 100), strict=True))


@given(clusters())
def test_what_has_been_told_is_what_is_remembered_as_told_and_was_found_in_every_look(
    views: list[ClusterView],
) -> None:
    """So whoever follows what is told has what holds."""
    told: dict[str, str] = {}
    every = looks(views)
    for found in every:
        for one in found.advice:
            if not one.owner:
                assert told.pop(one.bundle) == one.neighbour
            else:
                told[one.bundle] = one.neighbour
        assert told == {low: one.neighbour for low, one in found.pairs.items() if one.advised_ms}
    assert all(low in one.pairs for low in told for one in every)
    assert looks(views) == every


@given(st.lists(st.tuples(st.integers(1, 2), st.booleans()), max_size=30))
def test_pairs_are_taken_as_one_would_who_goes_through_them_in_order(
    steps: list[tuple[int, bool]],
) -> None:
    low = np.cumsum([step for step, _ in steps], dtype=np.int64)
    known = np.zeros(len(low), np.bool_)
    for at, (_, wanted) in enumerate(steps):
        known[at] = wanted and not (at and known[at - 1] and low[at] == low[at - 1] + 1)
    used = {row for first in low[known].tolist() for row in (first, first + 1)}
    taken = set(np.flatnonzero(known).tolist())
    for at, first in enumerate(low.tolist()):
        if at not in taken and not used & {first, first + 1}:
            used |= {first, first + 1}
            taken.add(at)
    assert disjoint(low, low + 1, known).tolist() == sorted(taken)
