"""The extensible manager's trigger, the reference's DefaultNamespaceBundleSplitStrategyImpl.

See docs/splitting.md "Splitting".

Each broker looks at its own bundles' latest statistics once per interval and splits what has been
too large in several looks in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.reports import SplitReason
from lb_stream.core.model.names import BundleRange, bundle_name, parse_bundle
from lb_stream.core.model.view import Bools, Rows
from lb_stream.core.splitting.base import Algorithms, Range, Topics
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.perform import Cut, SplitRejected, can_be_cut, cut
from lb_stream.core.splitting.trigger import FEWEST_TOPICS, REASONS, SplitLoads, reasons

TopicsOf = Callable[[str], Topics]
"""Bundle name → its topics; asked only for bundles that are about to be split."""


@dataclass(frozen=True, slots=True)
class SplitMemory:
    """Bundle → looks in a row in which it was too large."""

    hits: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def read(data: Mapping[str, Any]) -> SplitMemory:
        """From the JSON object of the last look."""
        return SplitMemory({str(name): int(count) for name, count in data.get("hits", {}).items()})

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        return {"hits": dict(self.hits)}


@dataclass(frozen=True, slots=True)
class OwnBundles:
    """One broker's bundles in the order in which they are visited, and what it knows about splits.

    `owned`: the state channel says that the broker owns the bundle. `splitting`: bundles anywhere
    that are being split now.
    """

    names: pa.StringArray
    loads: SplitLoads
    owned: Bools
    bundle_counts: Mapping[str, int]  # namespace → its bundles
    splitting: tuple[BundleRange, ...]
    topics_of: TopicsOf


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """One decision: the children stay with their owner, Pulsar's word for why."""

    bundle: str
    reason: SplitReason
    cut: Cut


@dataclass(frozen=True, slots=True)
class SplitLook:
    """What one look decided, in order, and bundles that could not be split: (bundle, why)."""

    choices: tuple[SplitChoice, ...]
    refused: tuple[tuple[str, str], ...]


def split_strategy(
    own: OwnBundles, config: SplittingConfig, algorithms: Algorithms, memory: SplitMemory
) -> tuple[SplitLook, SplitMemory]:
    """Decide what to split in this look. O(n), and in Python only the bundles that are too large.

    Bundles behind the one with which the maximum per look is reached are not looked at: their hits
    stay as they are.
    """
    hits = _known(memory.hits, own.names)
    refused: list[tuple[str, str]] = []
    candidates = (own.loads.topics >= FEWEST_TOPICS) & own.owned
    why = np.where(candidates, reasons(own.loads, config), 0)
    chosen: list[SplitChoice] = []
    taken: dict[str, int] = {}
    last = len(own.names)
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
    _forget(hits, own, candidates & (why == 0), last)
    return SplitLook(tuple(chosen), tuple(refused)), SplitMemory(hits)


def _known(hits: Mapping[str, int], names: pa.StringArray) -> dict[str, int]:
    """The hits of bundles that are still here."""
    return {
        name: hits[name]
        for name, row in zip(hits, _rows_of(names, hits).tolist(), strict=True)
        if row >= 0
    }


def _rows_of(names: pa.StringArray, wanted: Iterable[str]) -> Rows:
    rows: Rows = (
        pc.index_in(pa.array(list(wanted), pa.string()), value_set=names)
        .fill_null(-1)
        .to_numpy()
        .astype(np.intp)
    )
    return rows


def _forget(hits: dict[str, int], own: OwnBundles, quiet: Bools, last: int) -> None:
    """Take away the hits of bundles that were looked at and are not too large; a range too narrow
    to split keeps them."""
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
    """The cut of one bundle, or why there is none: its namespace is full, a neighbour is being
    split, no boundary, or several of them where only one may be."""
    count = own.bundle_counts.get(parent.namespace, 1) + taken.get(parent.namespace, 0)
    if count >= config.namespace_max_bundles:
        return "namespace_max_bundles"
    if any(in_the_way(parent, other, config) for other in own.splitting):
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


def in_the_way(parent: BundleRange, other: BundleRange, config: SplittingConfig) -> bool:
    """Whether a split under way blocks this one: same lower or same upper end, in a namespace that
    matches."""
    matches = other.namespace == parent.namespace
    if config.split_namespace_match == "prefix":
        matches = bundle_name(*other).startswith(parent.namespace)
    return matches and (other.lower == parent.lower or other.upper == parent.upper)
