"""What AvgShedder remembers over many rounds: no more than the cluster that there is now."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.placement.base import PlacementContext, Targets
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shedding.avg import AvgMemory, target_key
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

BOTH = {
    "shedding_strategy": "AvgShedder",
    "placement_strategy": "AvgShedder",
    "shedding_interval_ms": 0,
    "dry_run": False,
}


def view(rate: float = 10.0, bundles: int = 4) -> ClusterView:
    """Two brokers far apart; the busy one has all bundles."""
    mine = {
        f"t/n/0x{at:08x}_0x{at + 1:08x}": BundleStats(msg_rate_in=rate + at)
        for at in range(bundles)
    }
    reports = [
        Report("busy:1", 1, mine, {"cpu": (90.0, 100.0)}),
        Report("idle:1", 1, {}, {"cpu": (10.0, 100.0)}),
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), 1, FoldConfig())
    return view_of("c", [shard], 1, cluster_config({}).balancer.weights)


def one_round(seen: ClusterView, memory: Memory, **settings: Any) -> Round:
    return decide(seen, memory, Inbox(), cluster_config(BOTH | settings))


def remembering(**what: dict[str, Any]) -> Memory:
    return Memory(strategies={"AvgShedder": AvgMemory(**what).to_dict()})


def test_a_broker_that_the_cluster_has_forgotten_has_no_counters() -> None:
    memory = remembering(hits_low={"busy:1": 3, "gone:1": 3}, hits_high={"gone:1": 1})
    after = AvgMemory.read(
        one_round(view(), memory, hit_count_high=9).memory.strategies["AvgShedder"]
    )
    assert (after.hits_low, after.hits_high) == (
        {"busy:1": 4, "idle:1": 1},
        {"busy:1": 1, "idle:1": 1},
    )


@pytest.mark.parametrize("avg_target_key", ["value", "name"])
def test_destinations_of_what_is_no_more_are_dropped_once_there_are_twice_as_many_as_bundles(
    avg_target_key: Any,
) -> None:
    seen, config = view(), cluster_config(BOTH | {"avg_target_key": avg_target_key}).shedder_config
    mine = {target_key(seen, row, config): "idle:1" for row in range(2)}
    for others, left in ((6, 8), (7, 2)):
        memory = remembering(target=mine | {f"old {number}": "gone:1" for number in range(others)})
        after = AvgMemory.read(
            one_round(seen, memory, avg_target_key=avg_target_key).memory.strategies["AvgShedder"]
        )
        assert len(after.target) == left and after.target.items() >= mine.items()


def test_bundles_that_are_placed_again_and_again_with_other_figures_leave_a_bounded_memory() -> (
    None
):
    memory = Memory()
    for number in range(20):
        seen = view(rate=100.0 * number)
        orphans = replace(seen, bundles=replace(seen.bundles, owner=np.full(4, -1, np.int32)))
        done = one_round(orphans, memory)
        assert len(done.decisions) == 4
        memory = replace(done.memory, pending=())
        assert len(memory.strategies["AvgShedder"]["target"]) <= 12


def test_a_bundle_goes_to_its_remembered_broker_only_while_that_is_a_candidate() -> None:
    seen, config = view(), cluster_config(BOTH | {"avg_target_key": "name"})
    for wanted, candidates, expected in (
        ("idle:1", [0, 1], 1),
        ("idle:1", [0], 0),
        ("gone:1", [1], 1),
    ):
        memory = AvgMemory(target={seen.bundles.name(0): wanted})
        best, after = config.placement.function(
            PlacementContext(
                Targets.from_view(seen), np.array(candidates), 0, config.placement_config, memory
            )
        )
        assert best.rows.tolist() == [expected]
        assert best.scores.tolist() == [0.0 if row == expected else 1.0 for row in candidates]
        assert after.target == {seen.bundles.name(0): seen.brokers.names[expected]}
    best, after = config.placement.function(
        PlacementContext(
            Targets.from_view(seen), np.empty(0, np.intp), 0, config.placement_config, AvgMemory()
        )
    )
    assert not len(best.rows) and not after.target


PLANS = {"profile": "pulsar-5.0", "hit_count_high": 1, "unload_idle_bundles": True}
PLANS |= {"min_unload_msgs_per_s": 0, "min_unload_bytes_per_s": 0}


def test_a_plan_ends_with_its_round_and_the_round_decided_again_is_the_same() -> None:
    """What a killed job left is one round's memory: from it the next round is the same."""
    seen, memory = view(), Memory()
    orphans = replace(seen, bundles=replace(seen.bundles, owner=np.full(4, -1, np.int32)))
    moved = 0
    for now in (seen, orphans, seen):
        done, again = one_round(now, memory, **PLANS), one_round(now, memory, **PLANS)
        assert done.memory.to_json() == again.memory.to_json()
        assert done.decisions == again.decisions
        after = AvgMemory.read(done.memory.strategies["AvgShedder"])
        assert (after.target, after.source) == ({}, {})
        moved += sum(decision.kind == "unload" for decision in done.decisions)
        memory = replace(Memory.from_json(done.memory.to_json()), pending=())
    assert moved


def test_a_plan_that_a_stopped_pass_left_or_another_key_is_followed_in_no_later_round() -> None:
    seen = view()
    orphans = replace(seen, bundles=replace(seen.bundles, owner=np.full(4, -1, np.int32)))
    names = {seen.bundles.name(row): "busy:1" for row in range(4)}
    left = remembering(target=names, source=dict.fromkeys(names, "idle:1"))
    decided = one_round(orphans, left, **PLANS).decisions
    assert decided == one_round(orphans, Memory(), **PLANS).decisions
    assert len(decided) == 4
