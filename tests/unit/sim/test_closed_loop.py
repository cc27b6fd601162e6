"""The balancer's core against the model: does a hot cluster become even, and does it then keep
still?"""

import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lb_stream.core.commands.responder import Received
from lb_stream.operations.merge import Merge
from lb_stream.sim import build_cluster
from tests.support.sim_loop import ClosedLoop

PROJECT = Path(__file__).parents[3]
START = 1_700_000_000_000
DEMO = tomllib.loads((PROJECT / "conf" / "local.toml").read_text())["balancer"]


def closed_loop(workload: str, seed: int, at_s: float = 0.0, **settings: object) -> ClosedLoop:
    return ClosedLoop(
        build_cluster(6, 96, workload, seed, START, at_s), {**DEMO, **settings}, START
    )


@pytest.mark.parametrize("seed", range(1, 6))
def test_one_hot_broker_is_relieved_until_the_cluster_is_even_and_then_nothing_moves(
    seed: int,
) -> None:
    loop = closed_loop("hot_spot", seed)
    assert loop.unevenness() >= 1.8
    loop.run(60)
    settled = len(loop.decisions)
    assert settled > 0 and loop.unevenness() <= 1.25
    assert sum(loop.run(120)) <= 2, (
        "the cluster goes on moving bundles"
    )  # one move: an unload and its assignment
    assert loop.unevenness() <= 1.25
    assert Counter(outcome.outcome for outcome in loop.outcomes) == {
        "confirmed": len(loop.decisions)
    }
    first_unload: dict[str, int] = {}
    for unload in (decision for decision in loop.decisions if decision.kind == "unload"):
        since_ms = unload.issued_ms - first_unload.setdefault(unload.bundle, unload.issued_ms)
        assert since_ms == 0 or since_ms > DEMO["shedding_grace_period_ms"], (
            "a bundle moved again too soon"
        )


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("shedder", ["OverloadShedder", "AvgShedder", "UniformLoadShedder"])
def test_every_other_shedder_evens_out_the_hot_broker_under_the_demos_settings(
    shedder: str, seed: int
) -> None:
    loop = closed_loop("hot_spot", seed, shedding_strategy=shedder)
    loop.run(100)
    assert loop.unevenness() <= 1.25
    assert loop.outcomes and {outcome.outcome for outcome in loop.outcomes} == {"confirmed"}


def test_every_move_is_an_unload_and_then_an_assignment_to_where_it_was_meant_to_go() -> None:
    loop = closed_loop("hot_spot", 1)
    loop.run(60)
    unloads = {
        decision.bundle: decision for decision in loop.decisions if decision.kind == "unload"
    }
    assigns = {
        decision.bundle: decision for decision in loop.decisions if decision.kind == "assign"
    }
    assert unloads and unloads.keys() == assigns.keys()
    for bundle, assign in assigns.items():
        assert (
            assign.destination == unloads[bundle].destination
            and assign.issued_ms > unloads[bundle].issued_ms
        )
        assert loop.cluster.owners()[bundle] == assign.destination


def test_bundles_that_are_too_large_are_split_and_their_children_take_part() -> None:
    loop = closed_loop("hot_spot", 1, split_enabled=True, bundle_max_msgs_per_s=7_000)
    large = {
        name
        for name in loop.cluster.bundles
        if loop.cluster.bundle_load(name, START).rate_msgs_per_s > 7_150
    }
    loop.run(100)
    splits = [decision for decision in loop.decisions if decision.kind == "split"]
    assert large and large <= {split.bundle for split in splits}
    assert Counter(outcome.outcome for outcome in loop.outcomes) == {
        "confirmed": len(loop.decisions)
    }
    assert None not in loop.cluster.owners().values()
    assert (
        max(
            loop.cluster.bundle_load(name, loop.now_ms).rate_msgs_per_s
            for name in loop.cluster.bundles
        )
        < 7_150
    )
    assert len(loop.cluster.bundles) == 96 + len(splits)
    assert loop.unevenness() <= 1.25


def test_bundles_of_merge_advice_are_merged_on_command_and_nothing_else_follows() -> None:
    settings = {
        "merge_advice_enabled": True,
        "merge_advice_after_ms": 60_000,
        "namespace_default_bundles": 1,
    }
    loop = ClosedLoop(
        build_cluster(2, 12, "steady", 1, START),
        {**DEMO, "shedding_enabled": False, **settings},
        START,
    )
    loop.cluster.model.owner[:] = np.repeat([0, 1], 6)
    before = sum(load.throughput_bytes_per_s for load in loop.cluster.loads(START).values())
    loop.run(90)
    pairs = sorted(
        (bundle, one.neighbour) for bundle, one in loop.memory.mergeable.items() if one.advised_ms
    )
    namespace = pairs[0][0].rpartition("/")[0]
    for most in (1, 5):
        loop.commands = [
            Received.from_command(
                Merge(id=f"m{most}", namespace=namespace, advised=most), loop.now_ms
            )
        ]
        loop.run(5)
        assert [
            (decision.kind, decision.bundle, decision.neighbour) for decision in loop.decisions
        ] == [("merge", *pair) for pair in pairs[: min(most, 2)]]
    assert [outcome.outcome for outcome in loop.outcomes] == ["confirmed", "confirmed"]
    assert len(loop.cluster.bundles) == 10 and None not in loop.cluster.owners().values()
    assert sum(
        load.throughput_bytes_per_s for load in loop.cluster.loads(loop.now_ms).values()
    ) == pytest.approx(before)
    merged = loop.decisions[0].children[0]
    assert loop.view is not None
    average = loop.view.bundles.long.throughput[loop.view.bundles.rows_of([merged])[0]]
    assert average == pytest.approx(
        loop.cluster.bundle_load(merged, loop.now_ms).throughput_bytes_per_s, rel=0.05
    )
    loop.run(30)
    assert len(loop.decisions) == 2, "what has just been merged is neither split nor merged again"


def test_a_hot_spot_that_appears_later_is_met_when_it_appears() -> None:
    loop = closed_loop("hot_spot", 4, at_s=30.0)
    assert sum(loop.run(29)) == 0
    loop.run(90)
    assert loop.decisions and loop.decisions[0].issued_ms >= START + 30_000
    assert loop.unevenness() <= 1.25


def test_an_even_cluster_is_left_alone() -> None:
    loop = closed_loop("steady", 2)
    assert sum(loop.run(90)) == 0


def test_skewed_load_is_evened_out_too() -> None:
    loop = closed_loop("skewed", 2)
    before = loop.unevenness()
    loop.run(120)
    assert loop.unevenness() < before and loop.unevenness() <= 1.25


def test_the_same_seed_makes_the_same_decisions() -> None:
    def decisions() -> list[str]:
        loop = closed_loop("hot_spot", 3)
        loop.run(40)
        return [decision.to_json() for decision in loop.decisions]

    first = decisions()
    assert first and first == decisions()


def test_a_broker_that_refuses_is_left_with_its_bundle_and_nobody_else_gets_it() -> None:
    loop = closed_loop("hot_spot", 1)
    loop.seen.epoch = 99  # every decision of this balancer comes from a run that is over
    owners = loop.cluster.owners()
    loop.run(10)
    assert loop.decisions and loop.cluster.owners() == owners
    assert {outcome.outcome for outcome in loop.outcomes} == {"refused"}
