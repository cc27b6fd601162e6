"""Merge advice: neighbours at one broker that together have long been far below every limit of a
split.

Pulsar merges no bundles, so the advice is for people. See docs/splitting.md "Merge advice".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.core.model.memory import Mergeable
from lb_stream.core.model.names import BOUND_LENGTH, RANGE_LENGTH, SYSTEM_NAMESPACE, namespace_of
from lb_stream.core.model.view import Bools, Bundles, ClusterView, Floats, Ints, Rows
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.trigger import ReasonLimits, census

MOST_PAIRS = 200
"""Pairs that are watched in one cluster, the smallest first: its memory holds them, and no operator
acts on more at once."""
LOOKS = 12
"""How many times bundles are examined within the time that a pair must stay small."""
TOLD_EVERY_MS = 86_400_000
"""Advice that still holds is published again after this time, with new figures."""
SMALL = 0.5
"""A pair stays below this share of each limit: a merged bundle must not be split soon."""


@dataclass(frozen=True, slots=True)
class MergeAdvice:
    """A bundle and the one whose range follows: what they carry together, as shares of the limits.

    Owner empty: it is advised no more.
    """

    bundle: str
    neighbour: str
    owner: str = ""
    since_ms: int | None = None
    topics_ratio: float | None = None
    sessions_ratio: float | None = None  # None: there is no limit
    rate_ratio: float | None = None
    bandwidth_ratio: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields."""
        return {"namespace": namespace_of(self.bundle)} | asdict(self)


@dataclass(frozen=True, slots=True)
class MergeLook:
    """Result of one look: the pairs to watch, by their first bundle, and the advice to publish.

    `at_ms` None: merge advice is switched off.
    """

    at_ms: int | None = None
    pairs: Mapping[str, Mergeable] = field(default_factory=dict)
    advice: tuple[MergeAdvice, ...] = ()


def merge_look(
    view: ClusterView,
    free: Bools,
    least: Mapping[str, int],
    watched: Mapping[str, Mergeable],
    config: SplittingConfig,
) -> MergeLook:
    """Examine all bundles once.

    `free`: bundles without a pending decision; `least`: the fewest bundles of some namespaces.

    A pair is advised when it has been small for the whole time and neither bundle has come to its
    owner within it. The advice is published
    then, daily from then on, and when it is withdrawn. O(n), and in Python only the pairs.
    """
    bundles, now_ms = view.bundles, view.now_ms
    begin_ms = now_ms - config.merge_advice_after_ms
    may = free & (bundles.owner >= 0) & (bundles.reported_ms >= begin_ms)
    may[bundles.rows_of_namespace(SYSTEM_NAMESPACE)] = False
    low, high, ratios = small_neighbours(bundles, may, config)
    known = _watched(bundles.names.take(pa.array(low)), bundles.names.take(pa.array(high)), watched)
    chosen = disjoint(low, high, known)
    chosen = chosen[
        _within_room(bundles, low[chosen], known[chosen], least, config.namespace_default_bundles)
    ]
    chosen = np.sort(chosen[np.lexsort((ratios[chosen].max(axis=1), ~known[chosen]))[:MOST_PAIRS]])
    rested = (
        np.maximum(bundles.owner_since_ms[low[chosen]], bundles.owner_since_ms[high[chosen]])
        <= begin_ms
    )
    pairs, advice = dict[str, Mergeable](), list[MergeAdvice]()
    for at, has_rested in zip(chosen.tolist(), rested.tolist(), strict=True):
        first, second = bundles.name(int(low[at])), bundles.name(int(high[at]))
        since_ms, advised_ms = (
            (watched[first].since_ms, watched[first].advised_ms) if known[at] else (now_ms, 0)
        )
        if not has_rested or since_ms > begin_ms:
            pairs[first] = Mergeable(second, since_ms, 0)
        elif advised_ms and now_ms - advised_ms < TOLD_EVERY_MS:
            pairs[first] = Mergeable(second, since_ms, advised_ms)
        else:
            pairs[first] = Mergeable(second, since_ms, now_ms)
            shares = [float(one) if np.isfinite(one) else None for one in ratios[at]]
            advice.append(
                MergeAdvice(
                    first, second, view.brokers.names[bundles.owner[low[at]]], since_ms, *shares
                )
            )
    return MergeLook(now_ms, pairs, (*withdrawn(watched, pairs), *advice))


def withdrawn(
    watched: Mapping[str, Mergeable], still: Mapping[str, Mergeable]
) -> tuple[MergeAdvice, ...]:
    """Build the advice that withdraws pairs which no longer hold."""
    gone = (
        first
        for first, one in watched.items()
        if one.advised_ms and (first not in still or not still[first].advised_ms)
    )
    return tuple(MergeAdvice(first, watched[first].neighbour) for first in gone)


def small_neighbours(
    bundles: Bundles, may: Bools, config: SplittingConfig
) -> tuple[Rows, Rows, Floats]:
    """Bundles that may be merged, those whose ranges follow, at the same owner, and their sums as
    shares of the limits, all small.

    In the order of the rows. Names are looked at last: of few bundles, where there are many
    brokers.
    """
    rows = np.flatnonzero(may)
    low, high = rows[:-1], rows[1:]
    same = bundles.owner[low] == bundles.owner[high]
    low, high = low[same], high[same]
    ratios = _ratios(bundles, low, high, config)
    small = (ratios < SMALL).all(axis=1)
    low, high, ratios = low[small], high[small], ratios[small]
    touch = _touch(bundles.names.take(pa.array(low)), bundles.names.take(pa.array(high)))
    return low[touch], high[touch], ratios[touch]


def _ratios(bundles: Bundles, low: Rows, high: Rows, config: SplittingConfig) -> Floats:
    """(pairs, 4): sums of topics, sessions, messages/s and bytes/s, the latter two on long average,
    ÷ limits; -inf: there is no limit."""
    limits = np.array(ReasonLimits.from_config(config)[1:], np.float64)
    columns = (bundles.topics, bundles.sessions, bundles.long.rate, bundles.long.throughput)
    sums = np.stack([column[low] + column[high] for column in columns], axis=1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Floats = np.where(limits > 0, sums / limits, np.inf)
    if config.bundle_max_sessions <= 0:
        ratios[:, 1] = -np.inf
    return ratios


def _touch(low: pa.StringArray, high: pa.StringArray) -> Bools:
    """Whether the second bundle begins in the same namespace where the first one ends."""
    same = pc.equal(
        pc.utf8_slice_codeunits(low, 0, -RANGE_LENGTH),
        pc.utf8_slice_codeunits(high, 0, -RANGE_LENGTH),
    )
    end, begin = (
        pc.utf8_slice_codeunits(low, -BOUND_LENGTH),
        pc.utf8_slice_codeunits(high, 1 - RANGE_LENGTH, -1 - BOUND_LENGTH),
    )
    touch: Bools = pc.and_(same, pc.equal(end, begin)).to_numpy(zero_copy_only=False)
    return touch


def _watched(low: pa.StringArray, high: pa.StringArray, watched: Mapping[str, Mergeable]) -> Bools:
    """Which pairs are watched already."""
    place = pc.index_in(low, value_set=pa.array(list(watched), pa.string()))
    neighbours = pa.array([one.neighbour for one in watched.values()], pa.string())
    known: Bools = (
        pc.equal(high, neighbours.take(place)).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return known


def disjoint(low: Rows, high: Rows, known: Bools) -> Rows:
    """Of pairs in order those to take, so that no bundle is in two: all known ones, and of what is
    left every other one of each chain.

    No two known ones share a bundle. More pairs than that can't be had of a chain.
    """
    joined = np.zeros(
        len(low) + 1, np.bool_
    )  # whether a pair begins with the bundle that the one before ends with
    joined[1:-1] = low[1:] == high[:-1]
    beside = np.zeros(len(low), np.bool_)
    beside[1:] |= known[:-1] & joined[1:-1]
    beside[:-1] |= known[1:] & joined[1:-1]
    open_, place = ~known & ~beside, np.arange(len(low))
    follows = np.zeros(len(low), np.bool_)
    follows[1:] = open_[1:] & open_[:-1] & joined[1:-1]
    first_of_chain = np.maximum.accumulate(np.where(follows, 0, place))
    return np.flatnonzero(known | (open_ & ((place - first_of_chain) % 2 == 0)))


def _within_room(
    bundles: Bundles, low: Rows, known: Bools, least: Mapping[str, int], default: int
) -> Bools:
    """Which pairs may be merged so that no namespace falls below its number of bundles: known ones
    first, then by the order of the rows."""
    if not len(low):
        return np.zeros(0, np.bool_)
    codes, counts, namespaces = census(bundles)
    used, code = np.unique(codes[low], return_inverse=True)
    room: Ints = counts[used] - np.array(
        [max(least.get(namespaces[one], 0), default) for one in used.tolist()]
    )
    order = np.lexsort((low, ~known, code))
    begins = np.flatnonzero(np.diff(code[order], prepend=-1))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    within: Bools = rank < room[code]
    return within
