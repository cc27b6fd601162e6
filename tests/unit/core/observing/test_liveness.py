"""Who is taken for dead, at the limits: of silence, and of how many may vanish together."""

import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.observing.liveness import Liveness, judge_liveness
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Event, Report, batch_of

NOW_MS = 10_000_000
CONFIG = cluster_config({"heartbeat_timeout_ms": 30_000, "report_timeout_ms": 60_000}).balancer


def judged(
    silences_ms: list[int],
    *,
    heartbeats: bool = True,
    caught_up: bool = True,
    dead: tuple[str, ...] = (),
) -> Liveness:
    """Brokers b0, b1, … that were last heard so long ago; each owns a bundle."""
    reports, events = [], []
    for at, silence in enumerate(silences_ms):
        last_ms = NOW_MS - silence
        reports.append(Report(f"b{at}", last_ms, {f"t/n/0x{at:08x}_0x{at + 1:08x}": BundleStats()}))
        events += [Event("heartbeat", f"b{at}", last_ms, offset=last_ms + 1)] if heartbeats else []
    shard, _ = fold(Shard.empty(), batch_of(reports, events), NOW_MS, FoldConfig())
    return judge_liveness(
        view_of("c", [shard], NOW_MS, CONFIG.weights), Memory(dead=dead), CONFIG, caught_up
    )


@pytest.mark.parametrize(("heartbeats", "limit_ms"), [(True, 30_000), (False, 60_000)])
def test_a_broker_is_dead_at_its_limit(heartbeats: bool, limit_ms: int) -> None:
    assert judged([0, limit_ms - 1], heartbeats=heartbeats).dead == ()
    after = judged([0, limit_ms], heartbeats=heartbeats)
    assert (after.dead, after.suspended) == (("b1",), None)
    assert (after.view.brokers.alive.tolist(), after.view.bundles.owner.tolist()) == (
        [True, False],
        [0, -1],
    )


def test_three_of_ten_may_vanish_together_but_not_four() -> None:
    assert judged([0] * 7 + [31_000] * 3).dead == ("b7", "b8", "b9")
    after = judged([0] * 6 + [31_000] * 4)
    assert after.dead == () and after.suspended is not None
    assert (after.suspended.rule, after.suspended.count, after.suspended.limit) == (
        "mass_disappearance",
        4,
        30_000,
    )
    assert after.view.bundles.owner.tolist() == list(range(10))


def test_those_who_are_about_to_reach_their_limit_count_among_those_who_vanish() -> None:
    assert judged([0] * 6 + [31_000] + [22_499] * 3).dead == (
        "b6",
    )  # three quarters of the limit: not yet
    assert judged([0] * 6 + [31_000] + [22_500] * 3).suspended is not None
    assert judged([0] * 6 + [29_999] * 4).suspended is None  # nobody is due


def test_one_of_two_may_vanish_but_not_the_last_one() -> None:
    assert judged([0, 31_000]).dead == ("b1",)
    after = judged([31_000, 40_000], dead=("b1",))
    assert (
        after.dead == ("b1",)
        and after.suspended is not None
        and after.suspended.rule == "everything_silent"
    )


def test_before_the_job_has_caught_up_nobody_newly_dies_and_nobody_dead_comes_back_unheard() -> (
    None
):
    after = judged([0, 31_000, 31_000], caught_up=False, dead=("b2",))
    assert (after.dead, after.suspended) == (("b2",), None)
    assert judged([0, 31_000, 5], caught_up=False, dead=("b2",)).dead == ()


def test_a_cluster_without_brokers_is_judged_too() -> None:
    after = judged([])
    assert (after.dead, after.suspended) == ((), None)


def test_after_a_doubt_about_its_connection_the_extensible_manager_waits_three_minutes_longer() -> (
    None
):
    config = CONFIG.model_copy(update={"load_manager": "extensible"})

    def dead(silence_ms: int, unsteady_ms: int | None) -> tuple[str, ...]:
        reports = [
            Report("b0", NOW_MS, {}),
            Report("b1", NOW_MS - silence_ms, {}),
            Report("b2", NOW_MS, {}),
        ]
        shard, _ = fold(
            Shard.empty(),
            batch_of(reports, [Event("heartbeat", "b1", NOW_MS - silence_ms)]),
            NOW_MS,
            FoldConfig(),
        )
        return judge_liveness(
            view_of("c", [shard], NOW_MS, config.weights),
            Memory(unsteady_ms=unsteady_ms),
            config,
            caught_up=True,
        ).dead

    assert dead(31_000, None) == ("b1",)
    assert dead(31_000, NOW_MS - 180_000) == ()
    assert dead(31_000, NOW_MS - 180_001) == ("b1",)
    assert dead(210_001, NOW_MS) == ("b1",)


def test_only_the_extensible_manager_remembers_when_its_connection_was_in_doubt() -> None:
    for manager, remembered in (("extensible", NOW_MS), ("modular", None), ("simple", None)):
        config = CONFIG.model_copy(update={"load_manager": manager})
        shard, _ = fold(Shard.empty(), batch_of([Report("b0", NOW_MS, {})]), NOW_MS, FoldConfig())
        view = view_of("c", [shard], NOW_MS, config.weights)
        assert judge_liveness(view, Memory(), config, caught_up=False).unsteady_ms == remembered
        assert judge_liveness(view, Memory(unsteady_ms=5), config, caught_up=True).unsteady_ms == (
            5 if remembered else None
        )


def sharing(last_ms: dict[str, tuple[int, int]]) -> Shard:
    """Brokers that were last heard in that partition at that time; all send heartbeats."""
    reports = [
        Report(name, at_ms, {}, partition=partition, offset=at_ms)
        for name, (partition, at_ms) in last_ms.items()
    ]
    beats = [
        Event("heartbeat", name, at_ms, partition=partition, offset=at_ms + 1)
        for name, (partition, at_ms) in last_ms.items()
    ]
    return fold(Shard.empty(), batch_of(reports, beats), NOW_MS, FoldConfig())[0]


def test_a_flood_in_its_partition_that_is_still_being_read_kills_no_broker() -> None:
    behind_ms = NOW_MS - 40_000
    shard = sharing({"shared": (0, behind_ms - 2_000)} | {f"b{at}": (1, NOW_MS) for at in range(9)})

    def dead(times: dict[int, int]) -> tuple[str, ...]:
        return judge_liveness(
            view_of("c", [shard], NOW_MS, CONFIG.weights, times=times),
            Memory(),
            CONFIG,
            caught_up=True,
        ).dead

    assert dead({0: behind_ms, 1: NOW_MS}) == ()
    assert dead({0: behind_ms + 28_001, 1: NOW_MS}) == ("shared",), (
        "its own partition has been read further than its limit"
    )
    assert dead({1: NOW_MS}) == ("shared",), "nothing of its partition is left to read"


def test_a_broker_is_measured_where_it_spoke_last() -> None:
    shard = sharing({"a": (0, NOW_MS - 31_000), "b": (1, NOW_MS)})
    shard, _ = fold(
        shard,
        batch_of([], [Event("heartbeat", "a", NOW_MS - 31_000, partition=3)]),
        NOW_MS,
        FoldConfig(),
    )
    assert view_of(
        "c", [shard], NOW_MS, CONFIG.weights, times={0: 5, 3: NOW_MS - 30_000}
    ).brokers.silence_ms.tolist() == [1_000, 0]
