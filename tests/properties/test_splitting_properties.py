"""What holds of every split: children partition their parent, no namespace grows past its maximum,
the columns do what the words say."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.names import (
    BundleRange,
    bundle_name,
    namespace_codes,
    namespace_of,
    parse_bundle,
)
from lb_stream.core.model.topics import Ring
from lb_stream.core.splitting import (
    Cut,
    OwnBundles,
    Range,
    SplitLoads,
    SplitMemory,
    SplitRejected,
    Topics,
    cut,
    split_strategy,
    split_task,
)
from lb_stream.core.splitting.config import ALGORITHMS
from lb_stream.core.splitting.simple import split_simple
from lb_stream.core.splitting.trigger import REASONS
from lb_stream.settings.resolve import cluster_config

FULL = 0xFFFFFFFF

hashes = st.integers(0, FULL) | st.integers(0, 9)
ranges = (
    st.tuples(hashes, hashes)
    .filter(lambda pair: pair[0] != pair[1])
    .map(lambda pair: BundleRange("t/n", min(pair), max(pair)))
)


@st.composite
def topics(draw: st.DrawFn, of: BundleRange) -> Topics:
    """Topics within the range, some of them at one hash, some without load or statistics."""
    inside = st.integers(of.lower, of.upper - 1) | st.sampled_from([of.lower, of.upper - 1])
    rows = draw(
        st.lists(
            st.tuples(inside, st.sampled_from([0.0, 1.0, 30.0, 90.0, 500.0]), st.booleans()),
            max_size=12,
        )
    )
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    rate = np.array(columns[1], np.float64)
    return Topics(np.array(columns[0], np.int64), rate, rate * 1e6, np.array(columns[2], np.bool_))


algorithm_settings = st.fixed_dictionaries(
    {},
    optional={
        "hex_midpoint": st.sampled_from(["reference", "exact", "decimal_hex"]),
        "flow_duplicate_hash": st.sampled_from(["last", "sum"]),
        "bundle_max_msgs_per_s": st.sampled_from([0, 50, 100, 30_000]),
        "bundle_max_bandwidth_mb": st.sampled_from([0, 50, 4096]),
        "flow_difference_percent": st.sampled_from([0, 10, 100]),
    },
)


def parts_of(parent: BundleRange, children: tuple[str, ...]) -> None:
    """Assert that the children are the parent, without gap and without overlap, and none is
    empty."""
    found = [parse_bundle(child) for child in children]
    assert {child.namespace for child in found} == {parent.namespace}
    assert (found[0].lower, found[-1].upper) == (parent.lower, parent.upper)
    assert all(before.upper == after.lower for before, after in pairwise(found))
    assert all(child.lower < child.upper for child in found)


@given(ranges, st.lists(hashes, max_size=5))
def test_children_partition_their_parent_for_any_boundaries(
    parent: BundleRange, positions: list[int]
) -> None:
    done = cut(parent, positions)
    fits = len(set(positions)) == len(positions) > 0 and all(
        parent.lower < position < parent.upper for position in positions
    )
    assert isinstance(done, Cut) == fits
    if isinstance(done, Cut):
        assert done.boundaries == tuple(sorted(positions))
        parts_of(parent, done.children)


@given(
    st.data(), ranges, st.sampled_from(ALGORITHMS), algorithm_settings, st.lists(hashes, max_size=4)
)
def test_children_partition_their_parent_for_every_algorithm(
    data: st.DataObject,
    parent: BundleRange,
    algorithm: str,
    settings: dict[str, Any],
    positions: list[int],
) -> None:
    config = cluster_config(settings)
    inside = data.draw(topics(parent))
    bundle = Range.from_bundle(bundle_name(*parent), inside, positions)
    found = config.split_algorithms.boundaries(config.split_algorithms.named(algorithm), bundle)
    assert (found.positions is None or not found.positions) == (found.why is not None)
    if not found.positions:
        return
    assert list(found.positions) == sorted(found.positions)
    done = cut(parent, found.positions)
    if isinstance(done, Cut):
        parts_of(parent, done.children)
    if algorithm == "topic_count_equally_divide":
        left = int(np.count_nonzero(inside.hashes < found.positions[0]))
        assert left <= len(inside) // 2


@given(st.data(), st.integers(1, 8))
def test_a_ring_stays_whole_however_often_it_is_cut(data: st.DataObject, bundles: int) -> None:
    ring = Ring.new("t/n", bundles)
    for _ in range(3):
        row = data.draw(st.integers(0, len(ring) - 1))
        parent = parse_bundle(ring.name(row))
        made = cut(parent, data.draw(st.lists(st.integers(parent.lower, parent.upper), max_size=3)))
        if isinstance(made, SplitRejected):
            continue
        before, ring = (
            ring,
            Ring.from_boundaries("t/n", sorted([*ring.boundaries.tolist(), *made.boundaries])),
        )
        assert ring.names == [*before.names[:row], *made.children, *before.names[row + 1 :]]


@given(st.integers(1, 40), st.lists(hashes, min_size=1))
def test_every_hash_has_exactly_the_bundle_whose_range_it_is_in(
    bundles: int, wanted: list[int]
) -> None:
    ring = Ring.new("t/n", bundles)
    for one, row in zip(wanted, ring.rows(np.array(wanted, np.int64)).tolist(), strict=True):
        _, lower, upper = parse_bundle(ring.name(row))
        assert lower <= one < upper or (one == upper == FULL)


# --- triggers ---

NAMES = [
    f"t/{namespace}/0x{low:08x}_0x{low + width:08x}"
    for namespace in ("n", "n1", "m")
    for low, width in ((0, 16), (16, 16), (32, 1), (48, 16))
]
figures = st.tuples(
    st.sampled_from([0, 1, 2, 3, 100, 101]),
    st.sampled_from([0, 10, 11]),
    st.sampled_from([0.0, 50.0, 50.5]),
    st.sampled_from([0.0, 1_048_576.0, 1_048_577.0]),
)
looks = st.dictionaries(st.sampled_from(NAMES), figures, max_size=len(NAMES))
trigger_configs = st.fixed_dictionaries(
    {
        "bundle_max_topics": st.just(100),
        "bundle_max_bandwidth_mb": st.sampled_from([1, 2048, 4096]),
    },
    optional={
        "bundle_max_sessions": st.sampled_from([-1, 0, 10]),
        "bundle_max_msgs_per_s": st.sampled_from([50, 30_000]),
        "namespace_max_bundles": st.integers(0, 6),
        "bandwidth_limit_32bit": st.booleans(),
        "split_hit_count": st.integers(0, 2),
        "max_splits_per_cycle": st.integers(0, 3),
        "split_namespace_match": st.sampled_from(["prefix", "exact"]),
    },
).map(cluster_config)


def columns(stats: dict[str, tuple[int, int, float, float]]) -> SplitLoads:
    kinds = (np.int64, np.int64, np.float64, np.float64)
    return SplitLoads(
        *(
            np.array([row[place] for row in stats.values()], kind)
            for place, kind in enumerate(kinds)
        )
    )


def reason_of(row: tuple[int, int, float, float], config: ClusterConfig) -> str | None:
    """The first limit that a bundle is strictly above, as the words say it."""
    own = config.splitting
    bandwidth = own.bundle_max_bandwidth_mb * 1024 * 1024
    if own.bandwidth_limit_32bit:
        bandwidth = int(np.array([bandwidth], np.int64).astype(np.int32)[0])
    checks = (
        ("Topics", row[0] > own.bundle_max_topics),
        ("Sessions", own.bundle_max_sessions > 0 and row[1] > own.bundle_max_sessions),
        ("MsgRate", row[2] > own.bundle_max_msgs_per_s),
        ("Bandwidth", row[3] > bandwidth),
    )
    return next((name for name, holds in checks if holds), None)


@given(
    looks,
    trigger_configs,
    st.dictionaries(st.sampled_from(["t/n", "t/n1", "t/m"]), st.integers(1, 6)),
)
def test_the_modular_trigger_is_the_definition_bundle_by_bundle(
    stats: dict[str, tuple[int, int, float, float]], config: ClusterConfig, counts: dict[str, int]
) -> None:
    codes, namespaces = namespace_codes(pa.array([*stats], pa.string()))
    bundle_counts = np.array([counts.get(name, 1) for name in namespaces], np.int64)
    found = split_task(
        columns(stats),
        np.ones(len(stats), np.bool_),
        lambda rows: (codes[rows], bundle_counts),
        config.splitting,
    )
    expected, full, chosen = [], [], Counter[str]()
    for name, row in stats.items():
        reason, namespace = reason_of(row, config), namespace_of(name)
        if row[0] < 2 or reason is None:
            continue
        if counts.get(namespace, 1) + chosen[namespace] < config.splitting.namespace_max_bundles:
            chosen[namespace] += 1
            expected.append((name, reason))
        else:
            full.append(name)
    names = [*stats]
    assert [
        (names[at], REASONS[why])
        for at, why in zip(found.rows.tolist(), found.reasons.tolist(), strict=True)
    ] == expected
    assert [names[at] for at in found.full.tolist()] == full
    for namespace, taken in chosen.items():
        assert counts.get(namespace, 1) + taken <= config.splitting.namespace_max_bundles


@given(
    looks,
    trigger_configs,
    st.dictionaries(st.sampled_from(["t/n", "t/n1", "t/m"]), st.integers(1, 6)),
)
def test_the_simple_trigger_is_the_definition_bundle_by_bundle(
    stats: dict[str, tuple[int, int, float, float]], config: ClusterConfig, counts: dict[str, int]
) -> None:
    codes, namespaces = namespace_codes(pa.array([*stats], pa.string()))
    bundle_counts = np.array([counts.get(name, 1) for name in namespaces], np.int64)
    found = split_simple(
        columns(stats),
        np.ones(len(stats), np.bool_),
        lambda rows: (codes[rows], bundle_counts),
        config.splitting,
    )
    most = config.splitting.namespace_max_bundles
    expected = [
        (name, reason_of(row, config))
        for name, row in stats.items()
        if row[0] > 1 and reason_of(row, config) and counts.get(namespace_of(name), 1) < most
    ]
    assert [
        ([*stats][at], REASONS[why])
        for at, why in zip(found.rows.tolist(), found.reasons.tolist(), strict=True)
    ] == expected
    assert (found.full_bundles >= most).all()


class Scalar:
    """The extensible manager's trigger, word by word."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config, self.hits = config.splitting, dict[str, int]()

    def look(
        self,
        stats: dict[str, Any],
        not_owned: set[str],
        counts: dict[str, int],
        splitting: list[str],
        whole: ClusterConfig,
    ) -> list[tuple[str, str]]:
        decided: list[tuple[str, str]] = []
        chosen = Counter[str]()
        self.hits = {name: count for name, count in self.hits.items() if name in stats}
        for name, row in stats.items():
            namespace, lower, upper = parse_bundle(name)
            if row[0] < 2 or name in not_owned or upper - lower <= 1:
                continue
            reason = reason_of(row, whole)
            if reason is None:
                self.hits.pop(name, None)
                continue
            self.hits[name] = self.hits.get(name, 0) + 1
            if self.hits[name] <= self.config.split_hit_count:
                continue
            if counts.get(namespace, 1) + chosen[namespace] >= self.config.namespace_max_bundles:
                continue
            if any(self._blocks(name, other) for other in splitting):
                continue
            decided.append((name, reason))
            chosen[namespace] += 1
            del self.hits[name]
            if len(decided) == self.config.max_splits_per_cycle:
                break
        return decided

    def _blocks(self, name: str, other: str) -> bool:
        namespace, bounds = namespace_of(name), name.rpartition("/")[2].split("_")
        prefix = self.config.split_namespace_match == "prefix"
        if not (other.startswith(namespace) if prefix else namespace_of(other) == namespace):
            return False
        text = other.rpartition("/")[2]
        return text.startswith(bounds[0]) or text.endswith(bounds[1])


@given(
    st.lists(
        st.tuples(
            looks,
            st.sets(st.sampled_from(NAMES), max_size=3),
            st.lists(st.sampled_from(NAMES), max_size=2),
        ),
        max_size=5,
    ),
    trigger_configs,
    st.dictionaries(st.sampled_from(["t/n", "t/n1", "t/m"]), st.integers(1, 6)),
)
def test_the_extensible_trigger_is_the_definition_look_by_look(
    rounds: list[tuple[dict[str, Any], set[str], list[str]]],
    config: ClusterConfig,
    counts: dict[str, int],
) -> None:
    scalar, memory = Scalar(config), SplitMemory()
    nothing = Topics.from_names([])
    for stats, not_owned, splitting in rounds:
        own = OwnBundles(
            names=pa.array([*stats], pa.string()),
            loads=columns(stats),
            owned=np.array([name not in not_owned for name in stats], np.bool_),
            bundle_counts=counts,
            splitting=tuple(map(parse_bundle, splitting)),
            topics_of=lambda _name: nothing,
        )
        done, memory = split_strategy(own, config.splitting, config.split_algorithms, memory)
        expected = scalar.look(stats, not_owned, counts, splitting, config)
        assert [(choice.bundle, choice.reason) for choice in done.choices] == expected
        assert memory.hits == scalar.hits
        assert SplitMemory.read(memory.to_dict()) == memory
        for namespace, taken in Counter(namespace_of(name) for name, _ in expected).items():
            assert counts.get(namespace, 1) + taken <= config.splitting.namespace_max_bundles
        for choice in done.choices:
            parts_of(parse_bundle(choice.bundle), choice.cut.children)
