"""Bundles whose ranges overlap, found among all: as a comparison of every two finds them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.overlaps import find_overlaps
from tests.properties.strategies import Shards
from tests.support.build import Report

WEIGHTS = {"cpu": 1.0}
BOUNDS = [
    0,
    0x9,
    0xA,
    0x0FFFFFFF,
    0x40000000,
    0x7FFFFFFF,
    0x80000000,
    0xA0000000,
    0xFFFFFFFE,
    0xFFFFFFFF,
]

bundles = st.builds(
    lambda namespace, bounds: f"{namespace}/0x{min(bounds):08x}_0x{max(bounds):08x}",
    st.sampled_from(["t/m", "t/n", "t/nn", "t/n/o", "tt/n"]),
    st.sets(st.sampled_from(BOUNDS), min_size=2, max_size=2),
)
owned = st.dictionaries(bundles, st.sampled_from(["a:1", "b:1"]), max_size=12)


def view_with(owners: Mapping[str, str]) -> ClusterView:
    """Both brokers' whole reports of one moment."""
    reports = [
        Report(
            broker,
            1_000,
            {name: BundleStats() for name, owner in owners.items() if owner == broker},
            offset=offset,
        )
        for offset, broker in enumerate(("a:1", "b:1"))
    ]
    shards = Shards.empty(1, FoldConfig(10, 1000))
    shards.take(reports)
    return view_of("c", shards.shards, 1_000, WEIGHTS)


def overlap(one: str, other: str) -> bool:
    (namespace, lower, upper), (another, low, high) = parse_bundle(one), parse_bundle(other)
    return one != other and namespace == another and lower < high and low < upper


def holds(whole: str, part: str) -> bool:
    (_, lower, upper), (_, low, high) = parse_bundle(whole), parse_bundle(part)
    return lower <= low and high <= upper


@given(owned)
def test_overlaps_are_those_of_every_two_bundles(owners: dict[str, str]) -> None:
    view = view_with(owners)
    found = find_overlaps(view)
    for row, name in enumerate(view.bundles.names.to_pylist()):
        others = [other for other in owners if overlap(name, other)]
        assert found.reshaping[row] == bool(others)
        assert found.moving[row] == any(not holds(other, name) for other in others), (
            "one inside another may move"
        )
        assert (row in found.beside) == bool(others)
        assert not others or view.bundles.name(found.beside[row]) in others
