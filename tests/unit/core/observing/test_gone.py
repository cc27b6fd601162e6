"""Bundles that were split, merged or deleted carry nothing; others that have no broker do."""

from dataclasses import replace

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.filters.candidates import find_superseded, superseded
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import bundle_name
from lb_stream.core.model.view import Bundles, ClusterView
from lb_stream.core.observing.gone import clear_gone_bundles, count_topics
from lb_stream.core.observing.known_bundles import add_unassigned_bundles
from lb_stream.core.observing.liveness import judge_liveness
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Event, Report, batch_of

WHOLE, LOW, HIGH = (bundle_name("t/n", lower, upper) for lower, upper in ((0, 8), (0, 4), (4, 8)))
OTHER, SYSTEM = bundle_name("t/other", 0, 8), "pulsar/c/a:1/0x00000000_0xffffffff"
LOADED, EMPTY = BundleStats(topics=9, msg_throughput_in=1e6), BundleStats()


def seen(
    *records: Report | Event, deleted: tuple[str, ...] = ()
) -> tuple[ClusterView, ClusterView]:
    """What the records come to, and the same without what is gone."""
    reports = [record for record in records if isinstance(record, Report)]
    events = [record for record in records if isinstance(record, Event)]
    shard, _ = fold(Shard.empty(), batch_of(reports, events), 10_000, FoldConfig())
    config = cluster_config({}).balancer
    known = view_of("c", [shard], 10_000, config.weights)
    alive = judge_liveness(known, Memory(), config, caught_up=True).view
    return known, clear_gone_bundles(known, alive, deleted)


def carrying(view: ClusterView) -> set[str]:
    loaded = np.flatnonzero(view.bundles.latest.throughput > 0).tolist()
    return {view.bundles.name(row) for row in loaded}


@pytest.mark.parametrize(
    ("before", "after"), [((WHOLE,), (LOW, HIGH)), ((LOW, HIGH), (WHOLE,)), ((WHOLE,), (LOW,))]
)
def test_what_was_split_or_merged_carries_nothing(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    known, view = seen(
        Report("a:1", 1_000, dict.fromkeys((*before, OTHER), LOADED)),
        Report("a:1", 2_000, dict.fromkeys((*after, OTHER), LOADED)),
    )
    assert carrying(known) == {*before, *after, OTHER}, "its averages are kept"
    assert carrying(view) == {*after, OTHER}
    assert view.bundles.topics.sum() == 9 * (len(after) + 1)


def test_a_bundle_on_its_way_and_those_of_a_dead_broker_are_load() -> None:
    own = {LOW: LOADED, HIGH: LOADED, SYSTEM: LOADED}
    left = Report("a:1", 2_000, {HIGH: LOADED, SYSTEM: LOADED})
    goodbye = Event("goodbye", "a:1", 3_000)
    alive = Report("b:1", 9_000, {OTHER: LOADED})
    _, view = seen(Report("a:1", 1_000, own), left, goodbye, alive)
    assert carrying(view) == {LOW, HIGH, OTHER}, "all but the dead broker's own"


def test_what_is_left_of_a_deleted_namespace_carries_nothing() -> None:
    reports = Report("a:1", 1_000, {WHOLE: LOADED, OTHER: LOADED}), Report("a:1", 2_000, {})
    assert carrying(seen(*reports)[1]) == {WHOLE, OTHER}
    assert carrying(seen(*reports, deleted=("t/other",))[1]) == {WHOLE}


def test_topics_of_a_split_bundle_do_not_keep_its_namespace() -> None:
    known, _ = seen(
        Report("a:1", 1_000, {WHOLE: LOADED}), Report("a:1", 2_000, {LOW: EMPTY, HIGH: EMPTY})
    )
    assert count_topics(known, known.bundles.rows_of_namespace("t/n")) == 0


def test_names_and_columns_give_the_same_answer() -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        names = set()
        for lower, length in random.integers([0, 1], [8, 5], (6, 2)).tolist():
            names.add(bundle_name("t/n", lower, min(8, lower + length)))
        first, last = ([name for name in names if random.random() < 0.5] for _ in range(2))
        known, _ = seen(
            Report("a:1", 1_000, dict.fromkeys(first, LOADED)),
            Report("a:1", 2_000, dict.fromkeys(last, LOADED)),
        )
        bundles = known.bundles
        rows = np.flatnonzero(bundles.owner < 0).tolist()
        unowned = {bundles.name(row): int(bundles.owner_since_ms[row]) for row in rows}
        found = {bundles.name(row) for row in superseded(known, rows)}
        assert find_superseded(unowned, last) == found


@pytest.mark.parametrize(("served", "gone"), [((LOW, HIGH), True), ((OTHER,), False)])
def test_a_forgotten_bundle_carries_nothing_once_owned_ones_have_its_range(
    served: tuple[str, ...], gone: bool
) -> None:
    known, _ = seen(
        Report("a:1", 1_000, {WHOLE: LOADED}),
        Report("a:1", 2_000, dict.fromkeys(served, LOADED)),
    )
    forgotten = known.bundles.reported_ms.copy()
    forgotten[known.bundles.rows_of([WHOLE])[0]] = 0
    view = replace(known, bundles=replace(known.bundles, reported_ms=forgotten))
    assert (WHOLE in carrying(clear_gone_bundles(view, view, ()))) is not gone


def test_a_namespace_is_read_once_however_many_of_its_bundles_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    halves = [bundle_name("t/n", number, number + 1) for number in range(16)]
    known, _ = seen(Report("a:1", 9_000, dict.fromkeys(halves, LOADED)))
    known = add_unassigned_bundles(
        known, [bundle_name("t/n", at, at + 2) for at in range(0, 16, 2)]
    )
    read, rows_of = list[str](), Bundles.rows_of_namespace
    monkeypatch.setattr(
        Bundles, "rows_of_namespace", lambda one, name: read.append(name) or rows_of(one, name)
    )
    clear_gone_bundles(known, known, ())
    assert read == ["t/n"]
