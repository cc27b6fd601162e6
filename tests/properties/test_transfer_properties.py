"""What holds of every pass of TransferShedder, whatever the brokers report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from lb_stream.core.model.view import Rates
from lb_stream.core.shedding.top_bundles import reported_tops, sort_keys
from lb_stream.core.shedding.transfer_cycle import Cycle, CycleLimits, LoadStore, Top, run_cycle

NOW_MS = 10_000_000
LOADS = (0.0, 0.05, 0.3, 0.5, 0.86, 0.9, 1.4)
FLOWS = (0.0, 1e3, 1e6, 3e7, 3.3e7, 1e8)


@dataclass(frozen=True)
class Scene:
    """One cluster, the shedder's settings, and who may have what."""

    store: LoadStore
    lists: tuple[Top, ...]
    limits: CycleLimits
    hits: int
    unloaded: dict[str, int]
    forbidden: frozenset[tuple[int, int]]

    def run(self) -> Cycle:
        return run_cycle(self.store, self.limits, self.hits, self.unloaded, self.may_take, NOW_MS)

    def may_take(self, bundle: int, broker: int) -> bool:
        return (bundle, broker) not in self.forbidden


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Drawn from a seed: a draw for every figure would take most of the time."""
    random = Random(draw(st.integers(0, 1 << 32)))
    brokers, count, lists = random.randint(0, 6), 0, []
    for _ in range(brokers):
        mine = random.choice([0, 1, 2, 4, 7])
        loads = np.array(
            sorted(random.choice([*FLOWS, random.uniform(0, 5e7)]) for _ in range(mine))
        )
        lists.append(
            Top(
                np.arange(count, count + mine),
                loads,
                np.array([random.random() < 0.85 for _ in range(mine)], np.bool_),
            )
        )
        count += mine
    flow = np.array(
        [
            max(
                float(top.throughput.sum()) * random.choice([1.0, 1.0, 2.0]),
                random.choice([0.0, 5e7]),
            )
            for top in lists
        ]
    )
    names = tuple(f"b{at}:1" for at in range(brokers))
    store = LoadStore(
        names,
        np.array([random.choice(LOADS) for _ in names]),
        np.array([random.choice(FLOWS) for _ in names]),
        flow,
        np.array([NOW_MS - random.choice([0, 0, 0, 1_000, 2_000_000]) for _ in names], np.int64),
        lambda row, _soon: lists[row],
        ("missing:1",) if random.random() < 0.05 else (),
    )
    limits = CycleLimits(
        target_std=random.choice([0.0, 0.1, 0.25, 1.0]),
        hit_count_threshold=random.choice([0, 0, 2]),
        transfer=random.random() < 0.75,
        max_brokers=random.choice([0, 1, 3, 9]),
        delay_ms=random.choice([0, 180_000]),
        ttl_ms=1_800_000,
        overloaded=random.choice([0.5, 0.85]),
        counts_gain=random.random() < 0.5,
    )
    forbidden = frozenset(
        (bundle, broker)
        for bundle in range(count)
        for broker in range(brokers)
        if random.random() < 0.1
    )
    unloaded = {
        name: NOW_MS - random.choice([0, 100_000, 200_000])
        for name in (*names, "gone:1")
        if random.random() < 0.08
    }
    return Scene(store, tuple(lists), limits, random.choice([0, 1, 2, 5]), unloaded, forbidden)


@given(scenes())
def test_every_move_is_of_a_reported_bundle_to_somebody_who_may_have_it_and_no_bundle_moves_twice(
    scene: Scene,
) -> None:
    cycle = scene.run()
    assert len({move.bundle for move in cycle.moves}) == len(cycle.moves)
    for move in cycle.moves:
        assert move.bundle in scene.lists[move.source].bundles
        assert (
            scene.lists[move.source].throughput[
                list(scene.lists[move.source].bundles).index(move.bundle)
            ]
            > 0
        )
        assert move.destination != move.source
        assert (move.destination is not None) == scene.limits.transfer
        if move.destination is not None:
            assert scene.may_take(move.bundle, move.destination)


@given(scenes())
def test_a_source_keeps_one_of_its_top_bundles_and_those_that_were_unloaded_lately(
    scene: Scene,
) -> None:
    cycle = scene.run()
    sources = {(move.source, move.destination) for move in cycle.moves}
    for source, destination in sources:
        top = scene.lists[source]
        gone = [move.bundle for move in cycle.moves if move.source == source]
        returns = any(
            other == (destination, source) for other in sources
        )  # what comes back in exchange knows no such limits
        if not returns:
            assert len(gone) < len(top.bundles)
            assert all(top.may_leave[list(top.bundles).index(bundle)] for bundle in gone)


@given(scenes())
def test_a_pass_relieves_no_more_brokers_than_it_may(scene: Scene) -> None:
    pairs = {frozenset((move.source, move.destination)) for move in scene.run().moves}
    assert len(pairs) <= scene.limits.max_brokers


@given(scenes())
def test_a_pass_says_why_it_did_nothing_or_starts_the_count_anew(scene: Scene) -> None:
    cycle = scene.run()
    if cycle.moves:
        assert cycle.skip is None and cycle.hits == 0
        assert {move.why.reason for move in cycle.moves} <= {"Overloaded", "Underloaded"}
        assert all(
            move.why.saw > move.why.limit for move in cycle.moves if move.why.reason == "Overloaded"
        )
        assert all(
            move.why.saw < move.why.limit
            for move in cycle.moves
            if move.why.reason == "Underloaded"
        )
    elif cycle.skip in ("CoolDown", "OutDatedData", "NoBrokers") or cycle.average is None:
        assert cycle.hits == scene.hits and cycle.std is None
    else:
        assert cycle.hits in (0, scene.hits + 1)
    assert cycle.unloaded.items() <= scene.unloaded.items()


@st.composite
def exchanges(draw: st.DrawFn) -> Scene:
    """Two brokers, the fuller one with bundles too heavy for the difference, the other one with
    lighter ones to give back."""
    scene, random = draw(scenes()), Random(draw(st.integers(0, 1 << 32)))
    heavy = np.array(sorted(random.uniform(3e7, 9e7) for _ in range(random.randint(2, 4))))
    light = np.array(sorted(random.uniform(1e6, 4e7) for _ in range(random.randint(1, 5))))
    count = len(heavy) + len(light)
    lists = (
        Top(np.arange(len(heavy)), heavy, np.ones(len(heavy), np.bool_)),
        Top(np.arange(len(heavy), count), light, np.ones(len(light), np.bool_)),
    )
    flow = np.array([heavy.sum(), light.sum()])
    store = LoadStore(
        ("b0:1", "b1:1"),
        np.array([0.9, random.uniform(0.2, 0.7)]),
        flow,
        flow,
        np.full(2, NOW_MS),
        lambda row, _soon: lists[row],
    )
    limits = replace(
        scene.limits, target_std=0.0, hit_count_threshold=0, transfer=True, max_brokers=1
    )
    return Scene(store, lists, limits, 0, {}, frozenset())


@given(exchanges())
def test_an_exchange_leaves_the_source_with_less_and_nobody_with_more_than_the_source_had(
    scene: Scene,
) -> None:
    moves = replace(scene, limits=replace(scene.limits, counts_gain=True)).run().moves
    gone, back = (
        [move.bundle for move in moves if move.source == 0],
        [move.bundle for move in moves if move.source == 1],
    )
    event(f"{len(gone)} go, {len(back)} come back")
    flow = np.concatenate([top.throughput for top in scene.lists])
    change = float(flow[gone].sum() - flow[back].sum())
    most = scene.store.throughput[0]
    assert change >= 0 and len(gone) < len(scene.lists[0].bundles)
    if back:
        assert gone and most - change < most * 0.75 * (1 + 1e-9)
        assert scene.store.throughput[1] + change < most * (1 + 1e-9)


@given(scenes())
def test_the_same_cluster_gives_the_same_pass(scene: Scene) -> None:
    assert repr(scene.run()) == repr(scene.run())  # NaN is not equal to itself


@given(st.integers(0, 1 << 32))
def test_top_bundles_of_several_brokers_are_those_of_each_by_a_full_sort(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 12, random.integers(1, 5))
    count, most = int(sizes.sum()), int(random.integers(0, 6))
    # Few values, so that bundles are equal in some keys, or in all.
    values = random.choice([0.0, 4e4, 1e5, 1.49e5, 3e6, np.inf, np.nan], (4, count))
    stats, numbers = Rates(*values), random.choice([0, 500, 100_000], (2, count))
    allowed, ends = random.random(count) < 0.8, np.cumsum(sizes)
    expected = []
    for begin, end in zip(ends - sizes, ends, strict=True):
        rows = [
            row
            for row in range(begin, end)
            if allowed[row] and stats.throughput_in[row] + stats.throughput_out[row] != 0
        ]
        keys = sort_keys(stats.take(np.array(rows, np.intp)), *numbers[:, rows])
        order = sorted(range(len(rows)), key=lambda at: tuple(-float(key[at]) for key in keys))
        expected.append([rows[at] for at in order[:most]][::-1])
    found = reported_tops(stats, numbers[0], numbers[1], allowed, ends, most)
    assert [top.tolist() for top in found] == expected
