"""Which of two bundles that overlap is doubtful: what reports name now counts more than what they
have left out."""

from dataclasses import replace

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.overlaps import find_overlaps
from tests.support.build import Report, batch_of

PARENT, LOW, HIGH = (
    "t/n/0x00000000_0x80000000",
    "t/n/0x00000000_0x40000000",
    "t/n/0x40000000_0x80000000",
)


def view_after(*reports: tuple[str, int, list[str]], some: bool = False) -> ClusterView:
    """What is known after reports (broker, when, bundles), one in each batch.

    `some`: they name only some of what brokers have.
    """
    shard = Shard.empty()
    for broker, at_ms, names in reports:
        batch = batch_of([Report(broker, at_ms, {name: BundleStats() for name in names})])
        if some:
            place = batch.reports.schema.get_field_index("some_bundles")
            batch = replace(
                batch,
                reports=batch.reports.set_column(
                    place, batch.reports.schema.field(place), [[True]]
                ),
            )
        shard, _ = fold(shard, batch, at_ms, FoldConfig(10, 1000))
    return view_of("c", [shard], reports[-1][1], {"cpu": 1.0})


def doubtful(view: ClusterView) -> tuple[set[str], set[str]]:
    """The bundles that are not reshaped, and those that are not moved."""
    found = find_overlaps(view)
    names = np.array(view.bundles.names.to_pylist())
    return set(names[found.reshaping]), set(names[found.moving])


def test_a_parent_and_its_children_in_one_report() -> None:
    assert doubtful(view_after(("a", 1_000, [PARENT, LOW, HIGH]))) == (
        {PARENT, LOW, HIGH},
        {PARENT},
    )


@pytest.mark.parametrize("first", ["a", "b"])
def test_children_on_another_broker_whoever_has_reported_last(first: str) -> None:
    reports = {"a": ("a", 1_000, [PARENT]), "b": ("b", 1_000, [LOW, HIGH])}
    last = reports.pop({"a": "b", "b": "a"}[first])
    view = view_after(reports[first], (last[0], 2_000, last[2]))
    assert doubtful(view) == ({PARENT, LOW, HIGH}, {PARENT})


def test_a_whole_report_without_the_parent_ends_it() -> None:
    assert doubtful(view_after(("a", 1_000, [PARENT, LOW, HIGH]), ("a", 2_000, [LOW, HIGH]))) == (
        set(),
        set(),
    )


def test_of_top_bundles_what_is_named_no_more_gives_way_to_what_is() -> None:
    split = view_after(("a", 1_000, [PARENT]), ("a", 2_000, [LOW, HIGH]), some=True)
    assert doubtful(split) == ({PARENT}, {PARENT})
    merged = view_after(("a", 1_000, [LOW, HIGH]), ("a", 2_000, [PARENT]), some=True)
    assert doubtful(merged) == ({LOW, HIGH}, {LOW, HIGH})


def test_of_top_bundles_that_are_all_named_no_more_the_later_ones_count() -> None:
    other = "t/o/0x00000000_0xffffffff"
    view = view_after(
        ("a", 1_000, [PARENT]), ("a", 2_000, [LOW, HIGH]), ("a", 3_000, [other]), some=True
    )
    assert doubtful(view) == ({PARENT}, {PARENT})


def test_a_dead_brokers_bundles_are_not_served() -> None:
    view = view_after(("a", 1_000, [PARENT]), ("b", 1_500, [LOW, HIGH]))
    view.brokers.alive[view.brokers.names.index("a")] = False
    assert doubtful(view) == (set(), set())
