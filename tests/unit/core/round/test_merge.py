"""Merge advice within rounds: when bundles are looked at, what is remembered, and what ends it."""

from functools import partial

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.memory import Memory, Mergeable
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.topics import Ring
from tests.support.splitting_cluster import Cluster

MINUTE_MS = 60_000
NAMES = Ring.new("t/n", 8).names
OWNED = {"a": dict.fromkeys(NAMES, BundleStats(topics=2, msg_rate_in=1.0)), "b": {}}
PAIRS = {NAMES[at]: NAMES[at + 1] for at in (0, 2, 4, 6)}


Advised = partial(Cluster, merge_advice_enabled=True)


def an_hour(cluster: Cluster) -> None:
    """Until the advice is there: the first look comes five minutes after the first round."""
    for _ in range(14):
        cluster.round(OWNED, wait_ms=5 * MINUTE_MS)


def test_advice_is_told_in_the_round_whose_look_completes_the_hour_and_in_no_other() -> None:
    cluster = Advised()
    told = [cluster.round(OWNED, wait_ms=5 * MINUTE_MS).merge_advice for _ in range(20)]
    assert [len(one) for one in told] == [4 if number == 13 else 0 for number in range(20)]
    assert {one.bundle: one.neighbour for one in told[13]} == PAIRS
    assert {(one.owner, one.since_ms) for one in told[13]} == {("a", 1_000_000 + 10 * MINUTE_MS)}


def test_between_two_looks_and_without_a_report_nothing_is_looked_at_and_nothing_changes() -> None:
    cluster = Advised()
    cluster.round(OWNED)
    assert "merge" not in cluster.memory.to_json(), (
        "a cluster that nobody has looked at remembers nothing of it"
    )
    cluster.round(OWNED, wait_ms=5 * MINUTE_MS)
    sought_ms = cluster.memory.merges_sought_ms
    assert sought_ms == cluster.now_ms and cluster.memory.mergeable.keys() == PAIRS.keys()
    cluster.round(OWNED, wait_ms=5 * MINUTE_MS - 1)
    assert cluster.memory.merges_sought_ms == sought_ms
    cluster.round({}, wait_ms=1)
    assert cluster.memory.merges_sought_ms == sought_ms
    cluster.round(OWNED, wait_ms=1)
    assert cluster.memory.merges_sought_ms == cluster.now_ms


def test_switching_it_off_withdraws_what_was_advised_once_and_forgets_it() -> None:
    cluster = Advised()
    an_hour(cluster)
    assert all(one.advised_ms for one in cluster.memory.mergeable.values())
    off = Cluster(merge_advice_enabled=False)
    off.memory, off.now_ms = cluster.memory, cluster.now_ms
    assert [(one.bundle, one.owner) for one in off.round(OWNED).merge_advice] == [
        (name, "") for name in PAIRS
    ]
    assert "merge" not in off.memory.to_json()
    assert off.round(OWNED).merge_advice == ()


def test_a_dry_run_and_a_pause_advise_as_ever() -> None:
    cluster = Advised(dry_run=True, enabled=False)
    an_hour(cluster)
    assert len(cluster.last.merge_advice) == 4 and not cluster.last.decisions


def test_a_bundle_that_is_being_split_ends_its_pair() -> None:
    cluster = Advised()
    an_hour(cluster)
    large = {"a": OWNED["a"] | {NAMES[1]: BundleStats(topics=1_200)}, "b": {}}
    assert [decision.kind for decision in cluster.round(large).decisions] == ["split"]
    advice = cluster.round(large, wait_ms=5 * MINUTE_MS).merge_advice
    assert [(one.bundle, one.owner) for one in advice] == [(NAMES[0], "")]


def test_a_namespace_made_with_so_many_bundles_keeps_them() -> None:
    cluster = Advised()
    cluster.memory = Memory(operator_state=OperatorState(namespaces={"t/n": 8}))
    an_hour(cluster)
    assert cluster.memory.merges_sought_ms is not None and not cluster.memory.mergeable


def test_a_memory_without_merges_and_one_with_are_both_read_back() -> None:
    assert Memory.from_json(Memory().to_json()) == Memory()
    some = Memory(mergeable={NAMES[0]: Mergeable(NAMES[1], 5, 0)}, merges_sought_ms=9)
    assert Memory.from_json(some.to_json()) == some
