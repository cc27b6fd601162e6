"""An assessment of small clusters: figures computed by hand, the verdict, moves, plays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lb_stream.assess.assessment import Assessment
from lb_stream.assess.plays import Bound
from lb_stream.assess.verdict import give_verdict
from tests.support.assessed_cluster import (
    EVEN,
    UNEVEN,
    assessed,
    bundle,
    minutes,
    observed,
    report,
)
from tests.support.wordings import check_wording


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Assessment:
    return assessed(tmp_path_factory.mktemp("uneven"), minutes(UNEVEN))


def test_cpu_is_as_even_as_by_hand(uneven: Assessment) -> None:
    (cpu,) = (row for row in uneven.observed.evenness if row.resource == "cpu")
    assert (cpu.unit, cpu.brokers, cpu.broker) == ("ratio", 3, "a:8080")
    assert (cpu.max, cpu.mean) == pytest.approx((0.6, 0.3))
    assert cpu.max_over_mean == pytest.approx(2.0)
    assert cpu.over_time == pytest.approx([2.0] * 5)


def test_loads_are_even_by_messages_and_bytes_whatever_the_limits_are(uneven: Assessment) -> None:
    found = {row.resource: row for row in uneven.observed.evenness}
    assert (found["messages"].max, found["messages"].mean) == pytest.approx((600.0, 300.0))
    assert found["traffic"].max == pytest.approx(60_000.0)
    assert found["direct_memory"].max_over_mean == pytest.approx(1.0)


def test_the_worst_moment_of_the_span_is_found(tmp_path: Path) -> None:
    calm = [report(name, own, minute) for minute in (0, 2) for name, own in EVEN.items()]
    worst = [report(name, own, 1) for name, own in UNEVEN.items()]
    found = observed(tmp_path, [*calm[:3], *worst, *calm[3:]])
    cpu = found.evenness[0]
    assert cpu.over_time == pytest.approx([1.0, 2.0, 1.0])
    assert (cpu.median_over_span, cpu.worst_over_span) == pytest.approx((1.0, 2.0))
    assert cpu.worst_ms == found.slots_ms[1]


def test_the_bound_is_the_even_spread_of_bundles_that_can_be_spread(uneven: Assessment) -> None:
    assert uneven.bound.max_usage == pytest.approx(0.6, rel=1e-3)
    assert uneven.bound.mean_usage == pytest.approx(0.3, rel=1e-3)
    assert uneven.bound.bound == pytest.approx(0.3, rel=1e-3)
    assert uneven.bound.largest_usage == pytest.approx(0.1, rel=1e-3)


def test_a_large_bundle_is_a_bound_of_its_own(tmp_path: Path) -> None:
    loads = {"a:8080": {bundle(0): 600.0}, "b:8080": {bundle(1): 30.0}, "c:8080": {bundle(2): 30.0}}
    found = assessed(tmp_path, minutes(loads))
    assert found.bound.bound == pytest.approx(0.6, rel=1e-3)
    assert found.bound.largest_bundle == bundle(0)
    assert not found.is_uneven
    assert found.verdict.startswith("As even as moves can make it")


def test_moves_lead_to_the_bound_and_name_what_they_cost(uneven: Assessment) -> None:
    assert uneven.is_uneven
    assert [move.source for move in uneven.moves] == ["a:8080"] * 3
    assert sorted(str(move.destination) for move in uneven.moves) == ["b:8080", "c:8080", "c:8080"]
    assert uneven.present.max_usage_end == pytest.approx(0.3, rel=1e-3)
    # four clients a bundle, without a broker for 4 s (with the report's second) and 2 s to connect
    assert uneven.present.clients_disturbed == 12
    lost_s = sum(move.client_seconds for move in uneven.moves)
    assert lost_s == uneven.present.client_seconds_lost
    assert all(move.client_seconds >= 4 * (2 + 3) for move in uneven.moves)


def test_the_span_is_played_without_moves_by_the_own_strategy_and_by_least_moves(
    uneven: Assessment,
) -> None:
    assert [played.policy for played in uneven.plays] == ["no moves", "AvgShedder", "LeastMoves"]
    none, _, least = uneven.plays
    assert (none.moves, none.max_usage_end) == (0, pytest.approx(0.6, rel=1e-3))
    assert least.moves == 3
    assert least.over_bound_median == pytest.approx(1.0, rel=1e-3)
    begin_ms, end_ms = uneven.span_ms
    assert end_ms - begin_ms == 3_600_000


def test_an_even_cluster_needs_no_move(tmp_path: Path) -> None:
    found = assessed(tmp_path, minutes(EVEN))
    assert not found.is_uneven
    assert found.verdict.startswith("Even: ")
    assert (found.moves, found.observed.hot) == ((), ())
    assert found.next_steps[0].command.startswith("lbctl assess pulsar")


def test_what_is_excluded_from_shedding_stays_and_raises_the_bound(tmp_path: Path) -> None:
    excluded = "loadBalancerSheddingExcludedNamespaces=shop/orders"
    found = assessed(tmp_path, minutes(UNEVEN), excluded)
    assert found.moves == ()
    assert found.bound.bound == pytest.approx(0.6, rel=1e-3)
    assert found.bound.bound_without_exclusions == pytest.approx(0.3, rel=1e-3)


def test_a_broker_that_stops_reporting_is_down_and_gets_no_bundle(tmp_path: Path) -> None:
    last = [report("c:8080", {}, minute) for minute in range(2)]
    others = {name: UNEVEN[name] for name in ("a:8080", "b:8080")}
    found = assessed(tmp_path, [*minutes(others, 6), *last])
    assert [doubt.brokers for doubt in found.observed.doubts if doubt.kind == "stopped"] == [
        ("c:8080",)
    ]
    assert {move.destination for move in found.moves} == {"b:8080"}
    assert found.bound.bound == pytest.approx(0.4, rel=1e-3)


def test_a_verdict_says_when_there_is_nothing_to_judge(uneven: Assessment) -> None:
    none = Bound(0.0, 0.0, 0.0, 0.0, "", 0.0)
    assert give_verdict(none, uneven.present, 3, 0).sentence.startswith("No load")
    assert give_verdict(uneven.bound, uneven.present, 1, 0).sentence.startswith("One broker")
    some = give_verdict(uneven.bound, uneven.present, 3, 2)
    assert some.sentence.startswith("Of the 3 of 5 brokers that reported: uneven")
    stuck = replace(uneven.present, max_usage_end=uneven.bound.max_usage)
    assert "finds no way there" in give_verdict(uneven.bound, stuck, 3, 0).sentence


def test_a_verdict_doubts_what_the_load_does_not_explain(uneven: Assessment) -> None:
    hottest = uneven.observed.hot[0]
    explained, doubtful = (
        give_verdict(uneven.bound, uneven.present, 3, 0, replace(hottest, usage=usage))
        for usage in (0.7, 0.9)
    )
    assert explained.sentence == uneven.verdict
    assert "But the fullest broker reports 90%" in doubtful.sentence


def test_a_verdict_says_when_the_simulation_cannot_tell(uneven: Assessment) -> None:
    hottest = uneven.observed.hot[0]
    gain = uneven.bound.max_usage - uneven.present.max_usage_end
    known, unknown = (
        give_verdict(uneven.bound, uneven.present, 3, 0, hottest, error)
        for error in (gain - 0.01, gain + 0.01)
    )
    assert known.can_tell and known.is_uneven and known.sentence == uneven.verdict
    assert not unknown.can_tell and not unknown.is_uneven
    check_wording(unknown.sentence)
    # an even cluster has nothing to gain, and a small error hides nothing
    even = replace(uneven.bound, max_usage=uneven.bound.bound)
    assert give_verdict(even, uneven.present, 3, 0, None, 0.03).can_tell
    assert not give_verdict(even, uneven.present, 3, 0, None, 0.1).can_tell


def test_what_explains_the_reports_exactly_has_no_error(uneven: Assessment) -> None:
    assert uneven.model_error == pytest.approx(0.0, abs=1e-6)
    assert uneven.can_tell


def test_without_any_limit_a_verdict_is_about_traffic(tmp_path: Path) -> None:
    absent = dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"))
    lines = [
        report(name, own, minute, **absent) for minute in (0, 1) for name, own in UNEVEN.items()
    ]
    found = assessed(tmp_path, lines)
    assert found.observed.hot[0].usage is None and found.is_uneven
    assert "carries 2 times the mean traffic" in found.verdict
    assert not any(doubt.kind == "traffic_unseen" for doubt in found.observed.doubts)
