"""What holds of every round of every cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import Decision
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import is_system_bundle, namespace_of
from lb_stream.core.model.view import ClusterView
from lb_stream.core.ownership import ledger
from lb_stream.core.ownership.unit_states import ServiceUnit, Store, accepts
from lb_stream.core.placement import placement, simple_placement
from lb_stream.core.placement.base import Targets
from lb_stream.core.round.decide import Round, decide
from lb_stream.core.shedding import shedder
from lb_stream.settings.resolve import cluster_config
from tests.properties.lives import EVERY_ROUND, Step, inbox_of, lives, played
from tests.properties.strategies import (
    Shards,
)

NO_ROWS = {"assign": (), "unload": (), "split": (None,)}
"""A bundle that is being split may have lost its owner already, its children not being reported
yet."""


configs = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["default", "pulsar-4.0", "documented"]),
        "shedding_strategy": st.sampled_from(shedder.names),
        "load_manager": st.sampled_from(["modular", "modular", "simple", "extensible"]),
        "placement_strategy": st.sampled_from(
            [name for name in placement.names if name not in shedder.names]
        ),
        "simple_placement_strategy": st.sampled_from(simple_placement.names),
        "max_moves_in_flight": st.integers(0, 3),
        "max_moves_in_flight_per_broker": st.integers(0, 2),
        "loadBalancerHistoryResourcePercentage": st.sampled_from([0, 0.5, 0.9]),
        "loadBalancerSheddingGracePeriodMinutes": st.sampled_from([0, 1]),
        "loadBalancerBrokerThresholdShedderPercentage": st.sampled_from([0, 5, 10]),
        "lowerBoundarySheddingEnabled": st.booleans(),
        "assign_unowned": st.sampled_from(["eager", "on_lookup"]),
        "distribute_bundles_evenly": st.booleans(),
        "min_brokers": st.integers(1, 3),
        "unloading_timeout_ms": st.sampled_from([1_000, 60_000]),
        "broker_max_topics": st.sampled_from([100, 50_000]),
        "bundle_retention_ms": st.sampled_from([0, 300_000, 10**9]),
        "namespace_max_bundles": st.sampled_from([1, 3, 5, 128]),
        "max_splits_in_flight": st.sampled_from([0, 1, 1_000]),
        "broker_retention_ms": st.sampled_from([40_000, 86_400_000]),
        "tombstone_delay_ms": st.sampled_from([0, 30_000, 3_600_000]),
    },
).map(lambda given: cluster_config(EVERY_ROUND | given))


def as_json(done: Round) -> str:
    """Everything that a round hands on, in canonical form."""
    return canonical_json(
        {
            "decisions": [decision.model_dump(mode="json") for decision in done.decisions],
            "outcomes": [outcome.to_dict() for outcome in done.outcomes],
            "ownership": [one.model_dump(mode="json") for one in done.ownership],
            "refusals": [refusal.to_dict() for refusal in done.refusals],
            "memory": done.memory.to_json(),
        }
    )


def owner_of(view: ClusterView, bundle: str) -> str | None:
    row = int(view.bundles.rows_of([bundle])[0])
    owner = int(view.bundles.owner[row]) if row >= 0 else -1
    return view.brokers.names[owner] if owner >= 0 else None


@given(lives(), configs)
def test_every_decision_can_be_obeyed(steps: list[Step], config: ClusterConfig) -> None:
    for view, memory, done in played(steps, config):
        alive = {name for name in view.brokers.names if name not in done.memory.dead}
        for decision in done.decisions:
            assert not is_system_bundle(decision.bundle)
            assert decision.destination is None or decision.destination in alive
            assert decision.destination != decision.source
            assert decision.issued_ms == done.now_ms < decision.expires_ms
            if decision.kind in ("unload", "transfer"):
                assert decision.source == decision.expected_owner == owner_of(view, decision.bundle)
                assert decision.source in alive
                preselected = (
                    config.balancer.load_manager == "modular"
                    and config.balancer.modular_preselect_destination
                )
                assert (decision.destination is not None) == (
                    preselected or decision.kind == "transfer"
                )
            elif decision.kind == "split":
                assert decision.source == decision.expected_owner == owner_of(view, decision.bundle)
                assert decision.source in alive
                assert decision.destination is None
                assert len(decision.children) == len(decision.boundaries) + 1
            else:
                assert decision.kind == "assign"
                assert decision.source is decision.expected_owner is None
                assert owner_of(view, decision.bundle) not in alive
                assert decision.destination is not None
        assert [decision.decision_id for decision in done.decisions] == [
            f"c:{memory.seq + 1}:{place}" for place in range(len(done.decisions))
        ]


@given(lives(), configs)
def test_no_bundle_is_in_two_decisions_at_once(steps: list[Step], config: ClusterConfig) -> None:
    for _, memory, done in played(steps, config):
        pending = Counter(one.bundle for one in done.memory.pending)
        assert set(pending.values()) <= {1}
        still_open = {one.decision_id for one in done.memory.pending} & {
            one.decision_id for one in memory.pending
        }
        assert {one.decision_id for one in done.memory.pending} == still_open | {
            decision.decision_id for decision in done.decisions
        }
        ended = [outcome.decision_id for outcome in done.outcomes]
        half_done = [move.decision_id for move in done.memory.moves.values()]
        before = [move.decision_id for move in (*memory.pending, *memory.moves.values())]
        assert sorted([*ended, *still_open, *half_done]) == sorted(before), (
            "every decision ends once"
        )


@given(lives(), configs)
def test_no_bundle_goes_to_a_silent_broker_and_a_released_one_is_remembered_until_it_is_owned(
    steps: list[Step], config: ClusterConfig
) -> None:
    for view, memory, done in played(steps, config):
        speaking = dict(
            zip(done.view.brokers.names, done.view.brokers.speaking.tolist(), strict=True)
        )
        for decision in done.decisions:
            assert (
                decision.kind not in ("assign", "unload")
                or decision.destination is None
                or speaking[decision.destination]
            )
        for bundle in {*memory.released} - {*done.memory.released}:
            row = int(view.bundles.rows_of([bundle])[0])
            overlaps = row >= 0 and row in superseded(view, [row])
            assert owner_of(view, bundle) is not None or overlaps


@given(lives(), configs)
def test_no_round_sheds_an_overload_onto_another_broker(
    steps: list[Step], config: ClusterConfig
) -> None:
    if (
        config.balancer.load_manager != "modular"
        or not config.balancer.modular_preselect_destination
    ):
        # their shedders choose destinations by themselves, or nobody does before the release
        return
    threshold = config.balancer.overloaded_threshold_percent / 100.0
    for _, _, done in played(steps, config):
        view, targets = done.view, Targets.from_view(done.view)
        rows = view.bundles.rows_of(decision.bundle for decision in done.decisions).tolist()
        for one, row in zip(done.decisions, rows, strict=True):
            if one.destination is None:
                continue
            destination = view.brokers.names.index(one.destination)
            if one.kind == "unload":
                source = view.brokers.usage[int(view.bundles.owner[row])]
                after = targets.with_bundle(row, np.array([destination]))[0]
                assert (
                    after <= max(threshold, source) or after == targets.usage[destination] <= source
                )
            targets.add(row, destination)


@given(lives(), configs)
def test_moves_under_way_stay_within_their_limits(steps: list[Step], config: ClusterConfig) -> None:
    for _, _, done in played(steps, config):
        sources = Counter(
            one.source for one in done.memory.pending if one.kind in ("unload", "transfer")
        )
        assert sources.total() <= config.balancer.max_moves_in_flight
        assert max(sources.values(), default=0) <= config.balancer.max_moves_in_flight_per_broker


@given(lives(), configs)
def test_splits_never_take_a_namespace_past_its_maximum(
    steps: list[Step], config: ClusterConfig
) -> None:
    for _, _, done in played(steps, config):
        names = done.view.bundles.names.to_pylist()
        splits = Counter(
            namespace_of(one.bundle) for one in done.memory.pending if one.kind == "split"
        )
        for namespace in {
            namespace_of(decision.bundle) for decision in done.decisions if decision.kind == "split"
        }:
            bundles = sum(
                namespace_of(name) == namespace for name in names
            )  # the generated ones don't overlap
            if (
                config.balancer.load_manager == "modular"
            ):  # the simple one looks at the maximum before the look only
                assert bundles + splits[namespace] <= config.splitting.namespace_max_bundles
        assert splits.total() <= config.splitting.max_splits_in_flight


@given(lives(), configs)
def test_a_bundle_that_was_unloaded_is_left_alone_for_the_grace_period(
    steps: list[Step], config: ClusterConfig
) -> None:
    for _, memory, done in played(steps, config):
        since = done.now_ms - config.balancer.shedding_grace_period_ms
        lately = {bundle for bundle, at_ms in memory.recently_unloaded.items() if at_ms >= since}
        assert not lately & {
            decision.bundle for decision in done.decisions if decision.kind == "unload"
        }
        waiting = {
            bundle: retry.kind
            for bundle, retry in done.memory.retries.items()
            if done.now_ms < retry.not_before_ms
        }
        assert not [
            decision
            for decision in done.decisions
            if decision.bundle in waiting and decision.kind != "assign"
        ]
        assert not [
            decision for decision in done.decisions if waiting.get(decision.bundle) == "assign"
        ], "only failed assignments delay an assignment"


@given(lives(), configs, st.sampled_from([2, 4]), st.integers())
def test_neither_shards_nor_the_order_of_records_show_in_a_round(
    steps: list[Step], config: ClusterConfig, shards: int, seed: int
) -> None:
    plain = [as_json(done) for _, _, done in played(steps, config)]
    assert [
        as_json(done)
        for _, _, done in played(steps, config, shards=shards, shuffle=Random(seed).shuffle)
    ] == plain


@given(lives(), configs)
def test_a_replay_from_the_written_memory_makes_the_same_round(
    steps: list[Step], config: ClusterConfig
) -> None:
    for step, (view, memory, done) in zip(steps, played(steps, config), strict=True):
        written = Memory.from_json(memory.to_json())
        assert written == memory
        assert written.to_json() == memory.to_json()
        again = decide(view, written, inbox_of(step, memory), config)
        assert as_json(again) == as_json(done)


@given(lives(), configs)
def test_a_dry_run_decides_the_same_but_remembers_and_publishes_nothing(
    steps: list[Step], config: ClusterConfig
) -> None:
    dry = replace(config, balancer=config.balancer.model_copy(update={"mode": "observe"}))
    (_, _, first), *_ = played(steps, config)
    rounds = [done for _, _, done in played(steps, dry)]
    assert [undry(decision) for decision in rounds[0].decisions] == [*first.decisions]
    moved_by_others: set[str] = set()
    for done in rounds:
        assert all(decision.dry_run for decision in done.decisions)
        assert (done.ownership, done.outcomes, done.memory.pending) == ((), (), ())
        assert (done.memory.versions, done.memory.published_to) == ({}, "")
        bundles = done.view.bundles
        moved_by_others |= {
            bundles.name(row) for row in np.flatnonzero(bundles.gained & ~bundles.appeared)
        }
        assert done.memory.recently_unloaded.keys() <= moved_by_others


@given(lives(), st.data())
def test_settings_may_change_between_any_two_rounds(steps: list[Step], data: st.DataObject) -> None:
    state, memory = Shards.empty(1, cluster_config({}).fold), Memory()
    versions: dict[str, int] = {}
    for step in steps:
        state.take(step.records)
        config = data.draw(configs)
        mode = data.draw(st.sampled_from(["observe", "approve", "act"]))
        config = replace(config, balancer=config.balancer.model_copy(update={"mode": mode}))
        view = view_of("c", state.shards, state.now_ms, config.balancer.weights)
        done = decide(view, memory, inbox_of(step, memory), config)
        memory = Memory.from_json(done.memory.to_json())
        assert memory.strategies.keys() <= {config.shedder.name, config.placement.name}
        assert len({one.bundle for one in memory.pending}) == len(memory.pending), (
            "no bundle is in two decisions at once"
        )
        for record in done.ownership:
            assert record.version >= versions.get(record.bundle, 1)
            versions[record.bundle] = 1 if record.state == "Init" else record.version


def undry(one: Decision) -> Decision:
    return one.model_copy(update={"dry_run": False})


@given(lives(), configs, st.sampled_from([1, 5_000]))
def test_every_ownership_record_may_follow_the_one_before_it(
    steps: list[Step], config: ClusterConfig, most: int
) -> None:
    retention_ms = max(
        1, config.balancer.bundle_retention_ms
    )  # 0 is for comparisons: nobody sees such a bundle go
    config = replace(
        config, balancer=config.balancer.model_copy(update={"bundle_retention_ms": retention_ms})
    )
    is_limited = most == 1 or any(step.max_published is not None for step in steps)
    units: dict[str, ServiceUnit] = {}
    with mock.patch.object(ledger, "MAX_PUBLISHED", most):
        for _, _, done in played(steps, config):
            ids = {decision.decision_id: decision for decision in done.decisions}
            for record in done.ownership:
                assert not is_system_bundle(record.bundle)
                if record.state == "Init":
                    del units[record.bundle]
                    continue
                unit = ServiceUnit(
                    record.state, record.destination, record.source, record.version, record.force
                )
                before = units.get(record.bundle)
                if unit != before:  # when very many are new, all are told anew
                    store: Store = (
                        "system_topic" if is_limited else "metadata_store"
                    )  # what moves before its turn has no record yet
                    assert accepts(before, unit, store)
                    assert not (
                        record.force
                        and accepts(before, replace(unit, force=False), "metadata_store")
                    ), "only what must be"
                if record.decision_id in ids:
                    assert record.version == ids[record.decision_id].expected_version + 1
                units[record.bundle] = unit
            for bundle, unit in units.items():
                owner = owner_of(done.view, bundle)
                if unit.state == "Owned" and bundle not in {
                    one.bundle for one in done.memory.pending
                }:
                    assert owner in (unit.destination, None)


@given(lives(), configs)
def test_what_strategies_see_carries_every_pending_move_out(
    steps: list[Step], config: ClusterConfig
) -> None:
    for view, memory, done in played(steps, config):
        seen = done.view
        before_round = [
            one
            for one in done.memory.pending
            if one.decision_id not in {decision.decision_id for decision in done.decisions}
        ]
        for one in before_round:
            row = int(seen.bundles.rows_of([one.bundle])[0])
            if row >= 0:
                assert seen.bundles.in_flight[row]
                expected = one.source if one.kind == "split" else one.destination
                assert owner_of(seen, one.bundle) in (
                    expected if expected in seen.brokers.names else None,
                    *NO_ROWS[one.kind],
                )
        assert np.count_nonzero(seen.bundles.in_flight) <= len(before_round)
        assert (seen.brokers.usage >= 0).all()
        assert (seen.brokers.topics >= 0).all()
        moving = {
            one.bundle
            for one in memory.pending
            if one.kind != "split" and done.now_ms < one.expires_ms
        } | memory.reserved.keys()
        moving |= {*memory.released}
        assert {*seen.bundles.names.to_pylist()} == {
            *view.bundles.names.to_pylist()
        } | moving  # what is forgotten on its way isn't lost
