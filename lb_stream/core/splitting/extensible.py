"""The extensible manager's trigger, the reference's DefaultNamespaceBundleSplitStrategyImpl.

See docs/splitting.md "Splitting".

Each broker checks its own bundles by their latest figures, once per interval. It splits bundles
that were too large in several checks in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from lb_stream.contracts.reports import SplitReason
from lb_stream.core.model.names import BundleRange, bundle_name, parse_bundle
from lb_stream.core.model.registry import read_memory, write_memory
from lb_stream.core.model.view import Bools, Rows
from lb_stream.core.splitting.base import Algorithms, Range, Topics
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.perform import Cut, SplitRejected, can_be_cut, cut
from lb_stream.core.splitting.trigger import FEWEST_TOPICS, REASONS, SplitLoads, reasons

if TYPE_CHECKING:
    import pyarrow as pa

TopicsOf = Callable[[str], Topics]
"""Bundle name → its topics; called only for bundles that are about to be split."""


@dataclass(frozen=True, slots=True)
class SplitMemory:
    """Bundle → checks in a row in which it was too large."""

    hits: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def read(data: Mapping[str, object]) -> SplitMemory:
        """Read the JSON object of the last check."""
        return read_memory(data, SplitMemory)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes."""
        return write_memory(self)


@dataclass(frozen=True, slots=True)
class OwnBundles:
    """One broker's bundles, in the order in which they are checked, and splits in progress."""

    names: pa.StringArray
    loads: SplitLoads
    owned: Bools  # by the ownership records, the broker owns the bundle
    bundle_counts: Mapping[str, int]  # namespace → its bundles
    splitting: tuple[BundleRange, ...]  # bundles at any broker that are being split
    topics_of: TopicsOf


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """A bundle to split, where, and Pulsar's word for why. The children stay with their owner."""

    bundle: str
    reason: SplitReason
    cut: Cut


@dataclass(frozen=True, slots=True)
class SplitLook:
    """The result of one check."""

    choices: tuple[SplitChoice, ...]  # in order
    refused: tuple[tuple[str, str], ...]  # (bundle, why it can't be split)


def split_strategy(
    own: OwnBundles, config: SplittingConfig, algorithms: Algorithms, memory: SplitMemory
) -> tuple[SplitLook, SplitMemory]:
    """Choose the bundles to split in this check. O(n); Python loops over those that are too large.

    The check ends when max_splits_per_cycle is reached; later bundles keep their hits.
    """
    # Bundles that are above a limit.
    hits = _hits_of(memory.hits, own.names)
    refused: list[tuple[str, str]] = []
    candidates = (own.loads.topics >= FEWEST_TOPICS) & own.owned
    why = np.where(candidates, reasons(own.loads, config), 0)
    chosen: list[SplitChoice] = []
    taken: dict[str, int] = {}  # namespace → bundles that the splits so far add
    last = len(own.names)

    # Those that were so in enough checks, as far as they can be cut.
    for row in np.flatnonzero(why > 0).tolist():
        parent = parse_bundle(own.names[row].as_py())
        name = bundle_name(*parent)
        if not can_be_cut(parent.lower, parent.upper):
            refused.append((name, "range_too_narrow"))
            continue
        hits[name] = hits.get(name, 0) + 1
        if hits[name] <= config.split_hit_count:
            continue
        found = _cut_one(own, config, algorithms, parent, taken)
        if isinstance(found, str):
            refused.append((name, found))
            continue
        chosen.append(SplitChoice(name, cast(SplitReason, REASONS[why[row]]), found))
        taken[parent.namespace] = taken.get(parent.namespace, 0) + len(found.boundaries)
        del hits[name]
        if len(chosen) == config.max_splits_per_cycle:
            last = row
            break

    # Bundles that are no longer too large begin again.
    _drop_hits(hits, own, candidates & (why == 0), last)
    return SplitLook(tuple(chosen), tuple(refused)), SplitMemory(hits)


def _hits_of(hits: Mapping[str, int], names: pa.StringArray) -> dict[str, int]:
    """Return the hits of these bundles."""
    return {
        name: hits[name]
        for name, row in zip(hits, _rows_of(names, hits).tolist(), strict=True)
        if row >= 0
    }


def _rows_of(names: pa.StringArray, wanted: Iterable[str]) -> Rows:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows: Rows = (
        pc.index_in(pa.array(list(wanted), pa.string()), value_set=names)
        .fill_null(-1)
        .to_numpy()
        .astype(np.intp)
    )
    return rows


def _drop_hits(hits: dict[str, int], own: OwnBundles, quiet: Bools, last: int) -> None:
    """Drop the hits of bundles before row `last` that are `quiet`: not too large.

    Bundles whose range is too narrow to split keep their hits.
    """
    for name, row in zip([*hits], _rows_of(own.names, hits).tolist(), strict=True):
        if row < last and quiet[row]:
            _, lower, upper = parse_bundle(name)
            if can_be_cut(lower, upper):
                del hits[name]


def _cut_one(
    own: OwnBundles,
    config: SplittingConfig,
    algorithms: Algorithms,
    parent: BundleRange,
    taken: Mapping[str, int],
) -> Cut | str:
    """Return the cut of one bundle, or the name of the reason why it can't be cut."""
    count = own.bundle_counts.get(parent.namespace, 1) + taken.get(parent.namespace, 0)
    if count >= config.namespace_max_bundles:
        return "namespace_max_bundles"
    if any(blocks_split(parent, other, config) for other in own.splitting):
        return "neighbour_is_splitting"
    name = bundle_name(*parent)
    found = algorithms.boundaries(algorithms.named(), Range.from_bundle(name, own.topics_of(name)))
    if (
        found.positions is None
        or len(found.positions) == 0
        or (len(found.positions) > 1 and not config.split_at_several_boundaries)
    ):
        return found.why or "several_boundaries"
    if count + len(found.positions) > config.namespace_max_bundles:
        return "namespace_max_bundles"
    result = cut(parent, found.positions)
    return result.why if isinstance(result, SplitRejected) else result


def blocks_split(parent: BundleRange, other: BundleRange, config: SplittingConfig) -> bool:
    """Return whether the pending split of `other` blocks a split of `parent`.

    It does if their lower or upper bounds are equal, in namespaces that match
    (`split_namespace_match`).
    """
    matches = other.namespace == parent.namespace
    if config.split_namespace_match == "prefix":
        matches = bundle_name(*other).startswith(parent.namespace)
    return matches and (other.lower == parent.lower or other.upper == parent.upper)
