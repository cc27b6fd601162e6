"""TransferShedder against the model: does a hot cluster become even, and does it then keep
still?"""

from collections import Counter

import pytest

from lb_stream.sim import build_cluster
from tests.support.sampling import sampled
from tests.support.sim_loop import ClosedLoop

START = 1_700_000_000_000
DEMO = {
    "shedding_strategy": "TransferShedder",
    "shedding_interval_ms": 4_000,
    "shedding_grace_period_ms": 60_000,
    "unloading_timeout_ms": 15_000,
    "history_ratio": 0.5,
    "target_std": 0.05,
    "hit_count_threshold": 1,
    "unload_delay_ms": 5_000,
}


def closed_loop(workload: str, seed: int, **settings: object) -> ClosedLoop:
    return ClosedLoop(build_cluster(6, 96, workload, seed, START, 0.0), {**DEMO, **settings}, START)


@pytest.mark.parametrize(
    "settings",
    [{}, {"transfer_swap_gain": "always"}, {"profile": "documented"}],
    ids=["", "swap gain", "documented"],
)
@pytest.mark.parametrize("seed", sampled(range(1, 4)))
def test_a_hot_cluster_is_transferred_into_balance_and_then_nothing_moves(
    seed: int, settings: dict[str, object]
) -> None:
    loop = closed_loop("hot_spot", seed, **settings)
    assert loop.unevenness() >= 1.8
    loop.run(100)
    settled = len(loop.decisions)
    assert settled > 0 and loop.unevenness() <= 1.25
    loop.run(60)
    assert len(loop.decisions) - settled <= 4, "the cluster goes on moving bundles"
    assert {outcome.outcome for outcome in loop.outcomes} == {"confirmed"}


def test_every_transfer_is_followed_by_an_assignment_to_the_destination_that_it_named() -> None:
    loop = closed_loop("hot_spot", 1)
    loop.run(60)
    kinds = Counter(decision.kind for decision in loop.decisions)
    assert set(kinds) == {"transfer", "assign"} and kinds["transfer"] == kinds["assign"]
    waiting: dict[str, str | None] = {}
    for decision in loop.decisions:
        if decision.kind == "transfer":
            waiting[decision.bundle] = decision.destination
        else:
            assert waiting.pop(decision.bundle) == decision.destination
            assert (decision.rule, decision.reason) == ("released", "Overloaded")


def test_with_transfer_disabled_the_cluster_is_evened_out_by_unloads_and_placement() -> None:
    loop = closed_loop("hot_spot", 1, transfer_enabled=False)
    loop.run(100)
    assert {decision.kind for decision in loop.decisions} == {"unload", "assign"}
    assert all(
        decision.destination is None for decision in loop.decisions if decision.kind == "unload"
    )
    assert loop.unevenness() <= 1.25


def test_an_even_cluster_is_left_alone() -> None:
    assert sum(closed_loop("steady", 2).run(90)) == 0


def test_the_default_hit_count_waits_for_the_fourth_pass() -> None:
    loop = closed_loop("hot_spot", 2, hit_count_threshold=3)
    assert sum(loop.run(12)) == 0
    assert sum(loop.run(1)) > 0  # passes at 1, 5, 9 and 13 s
