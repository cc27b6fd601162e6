"""Splits of a plan: when LeastMoves splits a bundle, where, and what it refuses to split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream import ask
from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.topic_shares import TopicShares
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, decide
from lb_stream.recorded import Round
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of
from tests.unit.core.least_moves.plans import AT_ONCE, a_name

BIG = "t/big/0x00000000_0x80000000"
TOPICS = 16
HASHES = [0x08000000 * number + 77 for number in range(TOPICS)]
ALIKE = [1 / TOPICS] * TOPICS
ONE_HOT = [0.97] + [0.03 / (TOPICS - 1)] * (TOPICS - 1)
SETTINGS: dict[str, object] = {**AT_ONCE, "dry_run": False}

Owned = Mapping[str, Mapping[str, float]]


def others(load: float = 300.0, brokers: Sequence[str] = ("b", "c", "d")) -> dict[str, Any]:
    """Brokers with twenty like bundles each."""
    return {
        broker: {a_name(1_000 * at + number): load / 20 for number in range(20)}
        for at, broker in enumerate(brokers, start=1)
    }


UNEVEN: Owned = {"a": {BIG: 800.0, a_name(1): 50.0, a_name(2): 50.0}, **others()}
"""A mean usage of 0.45, where one bundle alone uses 0.8."""


def a_view(
    owned: Owned,
    shares: Sequence[float] = (),
    *,
    bundle: str = BIG,
    now_ms: int = 60_000,
    before: float = 1.0,
    unsampled: Sequence[str] = (),
    bytes_each: float = 0.0,
) -> ClusterView:
    """Brokers whose cpu is busy with a thousandth of their messages/s, after three reports.

    `shares`: of the topics of `bundle`. `before`: the part of its load that it had in the first two
    of them. Bundles of the namespace t/big have several topics. `bytes_each`: size of a message.
    """
    shard = Shard.empty()
    for number, part in enumerate((before, before, 1.0)):
        loads = {
            broker: {
                name: load * part if name == bundle else load for name, load in bundles.items()
            }
            for broker, bundles in owned.items()
        }
        reports = [
            Report(
                broker,
                now_ms - 59_000 + 29_500 * number,
                {
                    name: None
                    if name in unsampled
                    else BundleStats(
                        msg_rate_in=load,
                        msg_throughput_in=load * bytes_each,
                        topics=TOPICS if name.startswith("t/big") else 1,
                    )
                    for name, load in bundles.items()
                },
                {"cpu": (sum(bundles.values()) / 10, 100)},
            )
            for broker, bundles in loads.items()
        ]
        shard = fold(shard, batch_of(reports), now_ms - 59_000 + 29_500 * number, FoldConfig())[0]
    view = view_of("c", [shard], now_ms, {"cpu": 1.0})
    if not len(shares):
        return view
    row = int(view.bundles.rows_of([bundle])[0])
    rows = np.full(len(shares), row)
    topics = TopicShares.from_columns(rows, np.array(HASHES[: len(shares)]), np.array(shares))
    return replace(view, topic_shares=topics)


def splits_of(done: Round) -> list[Decision]:
    return [decision for decision in done.decisions if decision.kind == "split"]


def rules_of(done: Round) -> set[str]:
    return {refused.rule for refused in done.refusals}


def with_children(split: Decision, shares: Sequence[float]) -> dict[str, dict[str, float]]:
    """The brokers after a split of BIG."""
    owned = {broker: dict(bundles) for broker, bundles in UNEVEN.items()}
    load = owned["a"].pop(BIG)
    for name, share in zip(split.children, shares, strict=True):
        owned["a"][name] = load * share
    return owned


def shares_of_children(split: Decision, shares: Sequence[float]) -> list[float]:
    ranges = [parse_bundle(name) for name in split.children]
    return [
        sum(share for at, share in zip(HASHES, shares, strict=True) if low <= at < high)
        for _, low, high in ranges
    ]


def test_a_bundle_larger_than_an_even_load_is_split_and_its_children_move_in_the_next_round() -> (
    None
):
    done = ask(a_view(UNEVEN, ALIKE), **SETTINGS)
    (split,) = done.decisions
    assert (split.kind, split.bundle, split.source) == ("split", BIG, "a")
    assert (split.algorithm, split.rule) == ("specified_positions_divide", "larger_than_even")
    assert not split.unload_children
    parts = shares_of_children(split, ALIKE)
    assert sum(parts) == pytest.approx(1.0) and max(parts) * 800 < 1.0475 * 450

    after = a_view(with_children(split, parts), now_ms=63_000)
    moved = ask(after, done.memory, **SETTINGS)
    assert not splits_of(moved) and moved.decisions
    assert {decision.explain.plan for decision in moved.decisions} == {split.explain.plan}
    owned = with_children(split, parts)
    usage = {broker: sum(bundles.values()) for broker, bundles in owned.items()}
    loads = {name: load for bundles in owned.values() for name, load in bundles.items()}
    for move in moved.decisions:
        usage[str(move.source)] -= loads[move.bundle]
        usage[str(move.destination)] += loads[move.bundle]
    assert max(usage.values()) / 1_000 == pytest.approx(split.explain.plan_max_after, rel=0.02)


def test_the_explanation_has_the_max_before_without_the_split_and_after_its_moves() -> None:
    (split,) = ask(a_view(UNEVEN, ALIKE), **SETTINGS).decisions
    explain = split.explain
    assert (explain.saw, explain.average) == pytest.approx((0.8, 0.45))
    assert explain.plan_max_before == explain.plan_max_split == pytest.approx(0.9)
    assert explain.plan_max_unsplit == pytest.approx(0.8, abs=0.06)
    assert explain.plan_max_after is not None and explain.plan_max_after < 0.45 * 1.0475
    assert explain.plan == "c:1"


def test_nothing_is_split_where_no_bundle_stands_in_the_way() -> None:
    even = {**UNEVEN, "a": {BIG: 250.0, a_name(1): 25.0, a_name(2): 25.0}}
    assert not ask(a_view(even, ALIKE), **SETTINGS).decisions


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"least_moves_min_split_gain_ratio": 0.6}, "split_gains_little"),
        ({"least_moves_max_splits_per_hour": 0}, "splits_per_hour"),
        ({"namespace_max_bundles": 1}, "namespace_max_bundles"),
    ],
)
def test_a_price_or_limit_that_is_too_high_or_too_low_refuses_a_split(
    settings: dict[str, object], rule: str
) -> None:
    done = ask(a_view(UNEVEN, ALIKE), **{**SETTINGS, **settings})
    assert not splits_of(done) and rule in rules_of(done)


@pytest.mark.parametrize(
    "settings",
    [{"least_moves_splits": False}, {"split_enabled": False}, {"max_splits_in_flight": 0}],
)
def test_splits_can_be_switched_off(settings: dict[str, object]) -> None:
    done = ask(a_view(UNEVEN, ALIKE), **{**SETTINGS, **settings})
    assert not splits_of(done) and done.decisions, "its broker's other bundles leave"


def test_the_bundle_of_one_hot_topic_is_not_split_and_the_refusal_has_its_share() -> None:
    done = ask(a_view(UNEVEN, ONE_HOT), **SETTINGS)
    assert not splits_of(done)
    (refused,) = [refused for refused in done.refusals if refused.rule == "one_topic"]
    assert (refused.broker, refused.subjects) == ("a", (BIG,))
    assert refused.greatest == pytest.approx(0.97)


def test_without_topics_shares_it_is_halved_by_the_number_of_topics_at_its_owner() -> None:
    done = ask(a_view(UNEVEN), **SETTINGS)
    (split,) = done.decisions
    assert (split.algorithm, split.boundaries, split.children) == (
        "topic_count_equally_divide",
        [],
        [],
    )


def halved(heavy: float) -> dict[str, dict[str, float]]:
    """The brokers after a split of BIG at its middle."""
    owned = {broker: dict(bundles) for broker, bundles in UNEVEN.items()}
    load = owned["a"].pop(BIG)
    owned["a"] |= {
        "t/big/0x00000000_0x40000000": heavy * load,
        "t/big/0x40000000_0x80000000": (1 - heavy) * load,
    }
    return owned


def test_the_child_of_a_split_that_divided_nothing_is_not_split_by_the_same_means() -> None:
    asked = ask(a_view(UNEVEN), **SETTINGS)
    idle = ask(a_view(halved(0.97), now_ms=63_000), asked.memory, **SETTINGS)
    assert not splits_of(idle) and "idle_split" in rules_of(idle)
    much_later = ask(a_view(halved(0.97), now_ms=9_000_000), idle.memory, **SETTINGS)
    assert not splits_of(much_later)


def test_the_child_that_is_still_too_large_is_split_again() -> None:
    asked = ask(a_view(UNEVEN), **SETTINGS)
    again = ask(a_view(halved(0.9), now_ms=63_000), asked.memory, **SETTINGS)
    (split,) = splits_of(again)
    assert split.bundle == "t/big/0x00000000_0x40000000"


def test_moves_wait_for_the_children_and_then_for_no_longer() -> None:
    asked = ask(a_view(UNEVEN, ALIKE), **SETTINGS)
    soon = ask(a_view(UNEVEN, ALIKE, now_ms=63_000), asked.memory, **SETTINGS)
    assert not soon.decisions and "children_awaited" in rules_of(soon)
    later = ask(a_view(UNEVEN, ALIKE, now_ms=80_000), soon.memory, **SETTINGS)
    assert {decision.kind for decision in later.decisions} == {"unload"}


def test_children_without_figures_count_with_what_they_are_expected_to_carry() -> None:
    asked = ask(a_view(UNEVEN, ALIKE), **SETTINGS)
    (split,) = asked.decisions
    parts = shares_of_children(split, ALIKE)
    view = a_view(with_children(split, parts), now_ms=63_000, unsampled=split.children)
    moved = ask(view, asked.memory, **SETTINGS)
    assert set(split.children) & {decision.bundle for decision in moved.decisions}


def test_a_passing_peak_is_not_split_before_it_has_lasted() -> None:
    settings = {**SETTINGS, "least_moves_split_grown_ms": 600_000}
    peak = ask(a_view(UNEVEN, ALIKE, before=0.3), **settings)
    assert not splits_of(peak)
    lasted = a_view(UNEVEN, ALIKE, before=0.3, now_ms=60_000 + 600_000)
    assert splits_of(ask(lasted, peak.memory, **settings))


def test_no_other_broker_is_relieved_while_a_bundle_is_about_to_be_split() -> None:
    settings = {**SETTINGS, "least_moves_hot_for_ms": 45_000}
    first = ask(a_view(UNEVEN, ALIKE), **settings)
    assert not first.decisions and "not_hot_for_long" in rules_of(first)
    due = ask(a_view(UNEVEN, ALIKE, now_ms=60_000 + 45_000), first.memory, **settings)
    assert [decision.kind for decision in due.decisions] == ["split"]


def test_brokers_of_the_extensible_manager_are_asked_for_one_boundary_at_a_time() -> None:
    done = ask(a_view(UNEVEN, ALIKE), load_manager="extensible", **SETTINGS)
    (split,) = splits_of(done)
    assert len(split.boundaries) == 1
    several = {"load_manager": "extensible", "split_at_several_boundaries": True}
    (split,) = splits_of(ask(a_view(UNEVEN, ALIKE), **{**SETTINGS, **several}))
    assert len(split.boundaries) >= 1


def test_two_bundles_are_split_in_one_plan_where_the_first_alone_would_leave_the_second() -> None:
    second = "t/big/0x80000000_0xffffffff"
    owned = {**UNEVEN, "b": {second: 700.0}}
    done = ask(a_view(owned, ALIKE), **SETTINGS)
    assert {split.bundle for split in splits_of(done)} == {BIG, second}
    assert len({split.explain.plan for split in splits_of(done)}) == 1


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, []),
        ({"split_by_limits": "always"}, ["split"]),
        ({"least_moves_splits": False}, ["split"]),
    ],
)
def test_limits_split_only_what_the_plan_leaves_them(
    settings: dict[str, object], kinds: list[str]
) -> None:
    even = {**UNEVEN, "a": {BIG: 250.0, a_name(1): 25.0, a_name(2): 25.0}}
    done = ask(a_view(even, ALIKE), **{**SETTINGS, "bundle_max_msgs_per_s": 200, **settings})
    assert [decision.kind for decision in done.decisions] == kinds
    assert all(
        decision.unload_children == (not settings.get("least_moves_splits", True))
        for decision in done.decisions
    )


def test_in_mode_approve_the_split_waits_for_approval() -> None:
    done = ask(a_view(UNEVEN, ALIKE), **{**SETTINGS, "mode": "approve"})
    assert not done.decisions
    (proposal,) = done.memory.proposals
    assert (proposal.kind, proposal.bundle) == ("split", BIG) and proposal.boundaries
    assert proposal.explain["plan_max_after"] < 0.48
    later = ask(
        a_view(UNEVEN, ALIKE, now_ms=80_000), done.memory, **{**SETTINGS, "mode": "approve"}
    )
    assert [one.kind for one in later.memory.proposals if one.kind == "split"] == ["split"]


def test_moves_are_proposed_while_a_split_waits_for_approval() -> None:
    settings = {**SETTINGS, "mode": "approve"}
    first = ask(a_view(UNEVEN, ALIKE, bytes_each=1.0), **settings)
    assert [proposal.kind for proposal in first.memory.proposals] == ["split"]
    second = ask(a_view(UNEVEN, ALIKE, now_ms=63_000, bytes_each=1.0), first.memory, **settings)
    assert "children_awaited" not in rules_of(second)
    assert {proposal.kind for proposal in second.memory.proposals} == {"split", "unload"}


def test_children_are_awaited_once_their_split_is_approved() -> None:
    settings = {**SETTINGS, "mode": "approve"}
    first = ask(a_view(UNEVEN, ALIKE), **settings)
    (split,) = first.memory.proposals
    waits = ask(a_view(UNEVEN, ALIKE, now_ms=800_000), first.memory, **settings)
    assert "children_awaited" not in rules_of(waits)

    command = COMMANDS["approve-proposals"].model_validate(
        {"id": "c1", "by": "User:ann", "proposals": [split.proposal_id]}
    )
    approved = decide(
        a_view(UNEVEN, ALIKE, now_ms=801_000),
        waits.memory,
        Inbox(commands=(Received.from_command(command, 801_000),)),
        cluster_config(settings),
    )
    assert [decision.kind for decision in approved.decisions] == ["split"]
    after = ask(a_view(UNEVEN, ALIKE, now_ms=803_000), approved.memory, **settings)
    assert "children_awaited" in rules_of(after)


@pytest.mark.parametrize("by", ["namespace", "pin"])
def test_what_may_not_move_is_not_split_by_a_plan_not_even_beside_another_split(by: str) -> None:
    held = "t/bigger/0x00000000_0x80000000"
    owned = {**UNEVEN, "b": {**UNEVEN["b"], held: 850.0}}
    excluded = {"shedding_excluded_namespaces": ["t/bigger"]} if by == "namespace" else {}
    pins = {held: 3_600_000} if by == "pin" else {}
    memory = Memory(operator_state=OperatorState(pins=pins))
    done = ask(a_view(owned, ALIKE), memory, **{**SETTINGS, **excluded})
    assert [split.bundle for split in splits_of(done)] == [BIG]
    (refused,) = (refused for refused in done.refusals if refused.rule == "held_whole")
    assert (refused.broker, refused.subjects) == ("b", (held,))
    free = ask(a_view(owned, ALIKE), **SETTINGS)
    assert held in {split.bundle for split in splits_of(free)}


def test_where_one_topic_sets_the_even_load_more_moves_lower_the_max_usage() -> None:
    small = {a_name(at): load for at, load in enumerate((40.0, 35.0, 25.0, 20.0, 15.0, 12.0), 1)}
    owned = {"a": {BIG: 690.0, **small}, **others()}
    for extra, moves, kept in ((0.0, 4, 27.0), (0.095, 6, 0.0)):
        settings = {**SETTINGS, "least_moves_extra_moves_ratio": extra}
        done = ask(a_view(owned, ONE_HOT), **settings)
        assert {(move.kind, move.source) for move in done.decisions} == {("unload", "a")}
        left = sum(small[move.bundle] for move in done.decisions)
        assert (len(done.decisions), sum(small.values()) - left) == (moves, kept)


def test_two_bundles_that_are_as_large_as_each_other_are_split_together() -> None:
    second = "t/big/0x80000000_0xffffffff"
    owned = {**UNEVEN, "b": {second: 800.0}}
    splits = splits_of(ask(a_view(owned), **SETTINGS))
    assert {split.bundle for split in splits} == {BIG, second}, "one split alone gains nothing"


def test_an_owner_that_knows_its_topics_rates_cuts_at_its_limits_if_that_takes_fewer_moves() -> (
    None
):
    limits = {"bundle_max_msgs_per_s": 250}
    (split,) = splits_of(ask(a_view(UNEVEN), **{**SETTINGS, **limits}))
    assert (split.algorithm, split.children) == ("flow_or_qps_equally_divide", [])
    for settings in ({"split_options": "of_default"}, {"load_manager": "extensible"}):
        (split,) = splits_of(ask(a_view(UNEVEN), **{**SETTINGS, **limits, **settings}))
        assert split.algorithm == "topic_count_equally_divide"


def test_the_limit_of_a_namespace_counts_all_splits_of_one_plan() -> None:
    owned = {**UNEVEN, "b": {"t/big/0x80000000_0xffffffff": 700.0}}
    done = ask(a_view(owned, ALIKE), **{**SETTINGS, "least_moves_max_splits_per_hour": 1})
    assert [split.bundle for split in splits_of(done)] == [BIG]
    assert "splits_per_hour" in rules_of(done)
