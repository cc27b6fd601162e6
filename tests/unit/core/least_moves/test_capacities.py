"""Capacities: stated limits that count, and brokers that don't know what others know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream import ask
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.least_moves.capacities import (
    CPU,
    DIRECT,
    IN,
    OUT,
    assume_capacities,
    expected_capacities,
    find_believed,
    find_exceeded,
)
from lb_stream.core.least_moves.fleet import build_fleet, observe_fleet
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.view import ClusterView
from lb_stream.recorded import Round
from tests.support.build import Report, batch_of
from tests.unit.core.least_moves.plans import AT_ONCE, a_name

WEIGHTS = {"cpu": 1.0, "bandwidth_in": 1.0, "bandwidth_out": 1.0}
GBIT, MB = 1_000_000.0, 1e6  # kbit/s; bytes/s
KBIT = 125.0
NOT_KNOWN = (0.0, -1.0)

Limits = Mapping[str, float]


def a_cluster(
    counts: Mapping[str, int],
    limits: Mapping[str, Limits],
    cpu: Mapping[str, float] | None = None,
    direct: Mapping[str, float] | None = None,
    samples: int = 6,
) -> ClusterView:
    """Brokers with so many bundles of 10 MB/s in and 1,000 msg/s, after some reports.

    `limits`: of bandwidth, kbit/s, and of direct memory, MiB. `cpu`, `direct`: use of the cpu
    (percent) and of direct memory (MiB) for each bundle; without: 5 and 10.
    """
    shard = Shard.empty()
    for sample in range(samples):
        at_ms = 1_000 + 60_000 * sample
        reports = []
        for number, (broker, count) in enumerate(counts.items()):
            own = limits.get(broker, {})
            used_cpu = (cpu or {}).get(broker, 5.0) * count
            into = own.get("bandwidth_in", GBIT)
            resources = {
                "cpu": (used_cpu, own.get("cpu", 100.0)),
                "bandwidth_in": (count * 10 * MB / KBIT if into > 0 else 0.0, into),
                "bandwidth_out": (0.0, own.get("bandwidth_out", GBIT)),
                "direct_memory": (
                    (direct or {}).get(broker, 10.0) * count,
                    own.get("direct_memory", 4_096.0),
                ),
                "memory": (500.0, 4_096.0),
            }
            stats = {
                a_name(1_000 * number + at): BundleStats(
                    msg_rate_in=1_000.0, msg_throughput_in=10 * MB, topics=2
                )
                for at in range(count)
            }
            reports.append(Report(broker, at_ms + number, stats, resources))
        shard = fold(shard, batch_of(reports), at_ms + 10, FoldConfig())[0]
    return view_of("c", [shard], at_ms + 10, WEIGHTS)


def moves_of(done: Round) -> Counter[tuple[str | None, str | None]]:
    return Counter((decision.source, decision.destination) for decision in done.decisions)


def figures_of(done: Round) -> Iterable[float]:
    """Every usage that the round's decisions and refusals state."""
    for decision in done.decisions:
        explain = decision.explain
        found = (explain.saw, explain.limit, explain.average, explain.expected_after)
        yield from (figure for figure in found if figure is not None)
    for refusal in done.refusals:
        if refusal.unit == "ratio":
            found = (refusal.least, refusal.greatest, refusal.limit)
            yield from (figure for figure in found if figure is not None)


@pytest.mark.parametrize("resource", ["bandwidth_in", "direct_memory"])
@pytest.mark.parametrize("known", list(product([True, False], repeat=3)))
def test_the_moves_are_the_same_whoever_knows_a_limit(
    resource: str, known: tuple[bool, ...]
) -> None:
    """a 30 % of its cpu, b 10 %, c 5 %; bandwidths of 48, 16, 8 %."""
    counts = {"a": 6, "b": 2, "c": 1}
    for figure in NOT_KNOWN:
        stated = {
            name: {} if knows else {resource: figure}
            for name, knows in zip(counts, known, strict=True)
        }
        done = ask(a_cluster(counts, stated), **AT_ONCE)
        assert moves_of(done) == {("a", "b"): 1, ("a", "c"): 2}, stated
        assert max(figures_of(done)) < 1.0


@pytest.mark.parametrize("use", [0.0, -1.0, 0.1])
@pytest.mark.parametrize("limit", [100.0, 0.0, -1.0])
@pytest.mark.parametrize("knows", [(), ("a",), ("b", "c"), ("a", "b", "c")])
def test_cpu_that_is_not_known_leaves_what_is_known(
    use: float, limit: float, knows: tuple[str, ...]
) -> None:
    """Bandwidths of 80, 16, 8 %; cpu of 0, unknown, or 1 % where it isn't 5 % a bundle."""
    counts = {"a": 10, "b": 2, "c": 1}
    stated = {name: {} if name in knows else {"cpu": limit} for name in counts}
    cpu = {name: 5.0 if name in knows else use for name in counts}
    done = ask(a_cluster(counts, stated, cpu), **AT_ONCE)
    assert len(done.decisions) >= 5 and {source for source, _ in moves_of(done)} == {"a"}
    assert moves_of(done) == moves_of(ask(a_cluster(counts, {}), **AT_ONCE))
    assert max(figures_of(done)) < 1.0


def test_a_limit_below_the_traffic_is_none_and_neither_is_the_same_figure_elsewhere() -> None:
    counts, slow = {"a": 6, "b": 2, "c": 1}, {"bandwidth_in": GBIT / 10}
    view = a_cluster(counts, dict.fromkeys(counts, slow))
    assert find_exceeded(view.brokers)[:, 0].tolist() == [True, True, False]  # 60, 20, 10 of 12.5
    assert not find_believed(view.brokers, {})[:, IN].any()
    done = ask(view, **AT_ONCE)
    assert moves_of(done) == {("a", "b"): 1, ("a", "c"): 2}
    assert max(figures_of(done)) < 1.0


def test_one_broker_above_the_figure_that_many_state_refutes_its_own_limit_only() -> None:
    counts = {"a": 14, "b": 2, "c": 1, "d": 1}  # 140 MB/s of 125
    view = a_cluster(counts, {})
    assert find_believed(view.brokers, {})[:, IN].tolist() == [False, True, True, True]


def test_a_limit_that_was_exceeded_stays_refuted_when_traffic_falls() -> None:
    slow = {"a": {"bandwidth_in": GBIT / 10}}
    memory = observe_fleet(a_cluster({"a": 6, "b": 6}, slow), LeastMovesMemory())
    assert memory.refuted == {"a": (12.5 * MB, 0.0, 0.0)}
    assert LeastMovesMemory.read(memory.to_dict()).refuted == memory.refuted
    quiet = a_cluster({"a": 1, "b": 6}, slow)
    assert not find_exceeded(quiet.brokers).any()
    assert find_believed(quiet.brokers, memory.refuted)[:, IN].tolist() == [False, True]
    replaced = a_cluster({"a": 1, "b": 6}, {})  # the machine has another card now
    assert find_believed(replaced.brokers, memory.refuted)[:, IN].all()
    assert not memory.without_forgotten(["b"]).refuted


def test_a_traffic_near_the_limit_refutes_nothing() -> None:
    view = a_cluster({"a": 13, "b": 2}, {})  # 130 MB/s of 125: samples are noisy
    assert find_believed(view.brokers, {}).all()


@pytest.mark.parametrize("limit", [KBIT / 1e4, GBIT / 1e6, GBIT / 2e3])
def test_a_bandwidth_into_which_hardly_any_bundle_fits_is_none(limit: float) -> None:
    counts = {"a": 6, "b": 2, "c": 0}
    view = a_cluster(counts, {"c": {"bandwidth_in": limit}})
    assert find_believed(view.brokers, {})[:, IN].tolist() == [True, True, False]
    assert moves_of(ask(view, **AT_ONCE)) == moves_of(ask(a_cluster(counts, {}), **AT_ONCE))


def test_the_cpu_of_a_broker_that_carries_hardly_anything_is_no_speed_of_its_kind() -> None:
    """The other process on b's host takes 30 %, and b is the only one of its kind."""
    view = a_cluster({"a": 6, "b": 1}, {"b": {"direct_memory": 8_192.0}}, {"b": 30.0})
    carried = np.array([1.0, 1e-4])
    idle = view.brokers.latest
    idle = replace(idle, **{f.name: getattr(idle, f.name) * carried for f in fields(idle)})
    view = replace(view, brokers=replace(view.brokers, latest=idle))
    memory = observe_fleet(view, LeastMovesMemory())
    assert set(memory.kind_of) == {"a", "b"} and len(memory.kinds) == 1
    speeds = build_fleet(view, view, memory).capacity[:, CPU]
    assert speeds[1] == pytest.approx(speeds[0])


def test_an_unknown_capacity_is_that_of_the_others_for_its_cpu() -> None:
    known = np.array([[1.0, 10.0, 0.0, 4.0], [2.0, 0.0, 0.0, 4.0], [1.0, 10.0, 0.0, 4.0]])
    idle = np.zeros((3, 4))
    assert assume_capacities(known, idle)[:, IN].tolist() == [10.0, 20.0, 10.0]
    assert not assume_capacities(known, idle)[:, OUT].any()  # no broker knows it
    without_cpu = known.copy()
    without_cpu[1, CPU] = 0.0
    assert assume_capacities(without_cpu, idle)[:, IN].tolist() == [10.0] * 3


def test_an_assumption_that_the_use_contradicts_is_dropped() -> None:
    known = np.array([[1.0, 10.0, 10.0, 4.0], [1.0, 0.0, 10.0, 4.0]])
    used = np.array([[0.0, 1.0, 1.0, 0.0], [0.0, 30.0, 1.0, 0.0]])
    found = assume_capacities(known, used)
    assert found[1, IN] == 0.0, "three times as fast, so not like the others"
    # By its cpu it carries half of everything, and so counts in the even load.
    assert expected_capacities(found, np.array([1.0, 31.0, 2.0, 0.0]))[1, IN] == 31.0


def test_capacities_that_all_know_stay_as_they_are() -> None:
    known = np.array([[1.0, 10.0, 10.0, 4.0], [3.0, 7.0, 10.0, 4.0]])
    assert assume_capacities(known, known) is not known
    assert np.array_equal(assume_capacities(known, known), known)
    assert expected_capacities(known, np.ones(4)) is known


figures = st.sampled_from([0.0, -1.0, 1e-3, 1.0, 80_000.0, GBIT, 10 * GBIT, 1e12])


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 8),
            figures,
            figures,
            st.sampled_from([0.0, -1.0, 1.0, 100.0, 1_600.0]),
            st.sampled_from([0.0, -1.0, 0.1, 4_096.0]),
            st.sampled_from([0.0, 0.1, 5.0]),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_any_mixture_of_limits_gives_capacities_and_figures_that_make_sense(
    drawn: list[tuple[int, float, float, float, float, float]],
) -> None:
    counts = {f"broker-{at}": count for at, (count, *_) in enumerate(drawn)}
    keys = ("bandwidth_in", "bandwidth_out", "cpu", "direct_memory")
    stated = {
        name: dict(zip(keys, row[1:5], strict=True))
        for name, row in zip(counts, drawn, strict=True)
    }
    cpu = {name: row[5] for name, row in zip(counts, drawn, strict=True)}
    view = a_cluster(counts, stated, cpu, samples=2)
    fleet = build_fleet(view, view, observe_fleet(view, LeastMovesMemory()))
    for found in (fleet.capacity, fleet.expected):
        assert np.isfinite(found).all() and (found >= 0).all()
    some = fleet.capacity > 0
    assert not (fleet.expected[:, ~some.any(axis=0)]).any(), "what no broker knows stays out"
    done = ask(view, **AT_ONCE)
    # A limit is exceeded by a tenth at most, or by twice in use that no bundle explains.
    assert max(figures_of(done), default=0.0) <= 20.0
    assert not fleet.fixed[:, DIRECT][fleet.capacity[:, DIRECT] == 0].any()


@pytest.mark.parametrize("used", [0.0, -1.0])
def test_a_limit_of_direct_memory_counts_only_with_its_use(used: float) -> None:
    counts = {"a": 8, "b": 4, "c": 4}
    limits = {"a": {"direct_memory": 1e-3}}
    done = ask(a_cluster(counts, limits, direct={"a": used}), **AT_ONCE)
    assert set(moves_of(done)) == {("a", "b"), ("a", "c")}
    assert max(figures_of(done)) < 2
