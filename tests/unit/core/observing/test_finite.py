"""A figure that is no number keeps one broker out of the round, and the round goes on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats, ResourceUsage
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.finite import exclude_non_finite
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shedding import shedder
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

NOW_MS = 1_000_000
BAD = [np.nan, np.inf, -np.inf, 1.7e308]
LOADS = {"a:1": (0.95, 6), "b:1": (0.40, 3), "c:1": (0.20, 2), "d:1": (0.90, 4)}


def view(**cpu: ResourceUsage) -> ClusterView:
    """Four brokers, a and d hot; `cpu`: what a broker reports of it instead."""
    reports, at = [], 0
    for name, (usage, bundles) in LOADS.items():
        mine = {
            f"t/n/0x{at + i:08x}_0x{at + i + 1:08x}": BundleStats(
                msg_throughput_in=2e7, msg_rate_in=2000, topics=2
            )
            for i in range(bundles)
        }
        at += bundles
        told = cpu.get(name[0], ResourceUsage(usage=usage * 100, limit=100.0))
        reports.append(Report(name, NOW_MS, mine, {"cpu": (told.usage, told.limit)}))
    shard, _ = fold(Shard.empty(), batch_of(reports), NOW_MS, FoldConfig())
    return view_of("c", [shard], NOW_MS, cluster_config({}).balancer.weights)


def changed(values: np.ndarray, row: int, value: float) -> np.ndarray:
    result = values.copy()
    result[row] = value
    return result


def with_bad_broker(seen: ClusterView, name: str, where: str, value: float) -> ClusterView:
    brokers, row = seen.brokers, seen.brokers.names.index(name)
    if where == "usage":
        return replace(seen, brokers=replace(brokers, usage=changed(brokers.usage, row, value)))
    if where == "cpu":
        usage, limit = brokers.resources["cpu"]
        return replace(
            seen,
            brokers=replace(
                brokers,
                resources=dict(brokers.resources) | {"cpu": (changed(usage, row, value), limit)},
            ),
        )
    return replace(
        seen,
        brokers=replace(
            brokers,
            latest=replace(brokers.latest, rate_in=changed(brokers.latest.rate_in, row, value)),
        ),
    )


def with_bad_bundle(seen: ClusterView, row: int, value: float) -> ClusterView:
    long = replace(seen.bundles.long, rate_out=changed(seen.bundles.long.rate_out, row, value))
    return replace(seen, bundles=replace(seen.bundles, long=long))


def played(seen: ClusterView, rounds: int = 1, **settings: Any) -> Round:
    """Some rounds on one view; the last one. Its memory must go through JSON."""
    config = cluster_config(
        {
            "shedding_interval_ms": 0,
            "min_throughput_mb": 0,
            "hit_count_threshold": 0,
            "hit_count_low": 0,
            "hit_count_high": 0,
            "max_unload_ratio": 0.5,
            "least_moves_hot_for_ms": 0,
            "least_moves_min_standard_errors": 0,
            "dry_run": False,
        }
        | settings
    )
    memory = Memory()
    for _ in range(rounds):
        done = decide(seen, memory, Inbox(), config)
        memory = Memory.from_json(done.memory.to_json())
    return done


def not_finite(done: Round) -> dict[str | None, tuple[str, ...]]:
    return {
        refusal.broker: refusal.subjects
        for refusal in done.refusals
        if refusal.rule == "not_finite"
    }


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("where", ["usage", "cpu", "latest_rate_in"])
@pytest.mark.parametrize("strategy", shedder.names)
def test_a_broker_with_a_load_that_is_no_number_is_left_out_of_every_shedders_round(
    strategy: str, where: str, value: float
) -> None:
    bad = with_bad_broker(view(), "d:1", where, value)
    other = {"placement_strategy": "AvgShedder"} if strategy == "AvgShedder" else {}
    done = played(bad, shedding_strategy=strategy, **other)
    assert set(not_finite(done)) == {"d:1"}
    assert not [
        decision for decision in done.decisions if "d:1" in (decision.source, decision.destination)
    ]
    for decision in done.decisions:
        decision.to_json()
    assert {decision.source for decision in done.decisions} >= {"a:1"}


@pytest.mark.parametrize("usage", [5.0, 0.0])
def test_a_report_that_the_contract_accepts_may_make_a_usage_that_is_no_number(
    usage: float,
) -> None:
    seen = view(d=ResourceUsage(usage=usage, limit=1e-46))
    assert not np.isfinite(seen.brokers.usage[seen.brokers.names.index("d:1")])
    assert set(not_finite(played(seen))) == {"d:1"}


def test_the_refusal_names_the_figures_and_carries_no_figure_itself() -> None:
    done = played(
        with_bad_broker(
            with_bad_broker(view(), "d:1", "cpu", np.nan), "d:1", "latest_rate_in", np.inf
        )
    )
    (refused,) = (refusal for refusal in done.refusals if refusal.rule == "not_finite")
    assert refused.subjects == ("cpu_usage", "latest_rate_in")
    assert (refused.least, refused.greatest, refused.limit) == (None, None, None)


def test_the_average_is_taken_over_the_others() -> None:
    done = played(with_bad_broker(view(), "d:1", "usage", np.inf))
    assert done.decisions[0].explain.average == pytest.approx((0.95 + 0.40 + 0.20) / 3, rel=1e-6)


def test_a_broker_left_out_keeps_its_bundles_and_its_life() -> None:
    done = played(with_bad_broker(view(), "d:1", "usage", np.nan), rounds=2)
    assert done.memory.dead == () and not [
        decision for decision in done.decisions if decision.kind == "assign"
    ]
    assert "d:1" not in done.memory.strategies["ThresholdShedder"]["usage"]


@pytest.mark.parametrize("value", BAD)
def test_a_bundles_average_that_is_no_number_keeps_its_owner_out(value: float) -> None:
    seen = view()
    row = int(np.flatnonzero(seen.bundles.owner == seen.brokers.names.index("c:1"))[0])
    done = played(with_bad_bundle(seen, row, value))
    assert set(not_finite(done)) == {"c:1"}
    assert "c:1" not in {decision.destination for decision in done.decisions} and done.decisions


@pytest.mark.parametrize("value", BAD)
def test_an_unowned_bundle_without_sound_averages_is_placed_as_an_idle_one(value: float) -> None:
    seen = view()
    orphan = replace(
        seen.bundles,
        owner=changed(seen.bundles.owner, 0, -1),
        gained=np.zeros(len(seen.bundles), np.bool_),
    )
    done = played(with_bad_bundle(replace(seen, bundles=orphan), 0, value))
    name = seen.bundles.name(0)
    assert not_finite(done) == {None: (name,)}
    assert [
        (decision.kind, decision.bundle) for decision in done.decisions if decision.kind == "assign"
    ] == [("assign", name)]


def test_a_sound_view_is_passed_on_as_it_is() -> None:
    seen = view()
    assert exclude_non_finite(seen) == (seen, []) and exclude_non_finite(seen)[0] is seen
