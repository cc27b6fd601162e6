"""Merge advice: neighbours at one broker that have long been small enough to be one bundle.

Pulsar merges no bundles: the advice is for people. See docs/splitting.md "Merge advice".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.core.model.memory import Mergeable
from lb_stream.core.model.names import BOUND_LENGTH, RANGE_LENGTH, SYSTEM_NAMESPACE, namespace_of
from lb_stream.core.model.view import Bools, Bundles, ClusterView, Floats, Ints, Rows
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.trigger import ReasonLimits, census

MAX_PAIRS = 200
"""The most pairs that are watched in one cluster, because its memory holds them. Pairs that are
watched already come first, then the smallest."""
LOOKS = 12
"""How many times bundles are examined within the time that a pair must stay small."""
ADVISE_EVERY_MS = 86_400_000
"""Advice that still holds is published again after this time, with new figures."""
SMALL = 0.5
"""A pair stays below this share of each limit: a merged bundle must not be split soon."""


@dataclass(frozen=True, slots=True)
class MergeAdvice:
    """The advice to merge a bundle and the neighbour whose range follows, or its withdrawal.

    Ratios: what both carry together ÷ the limit above which a bundle is split.
    """

    bundle: str
    neighbour: str
    owner: str = ""  # of both; empty: the advice is withdrawn
    since_ms: int | None = None  # since when they have been small
    topics_ratio: float | None = None
    sessions_ratio: float | None = None  # None: there is no limit
    rate_ratio: float | None = None
    bandwidth_ratio: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the fields for JSON, with the namespace."""
        return {"namespace": namespace_of(self.bundle)} | asdict(self)


@dataclass(frozen=True, slots=True)
class MergeLook:
    """The result of one examination: the pairs to watch, and the advice to publish."""

    at_ms: int | None = None  # None: merge advice is switched off
    pairs: Mapping[str, Mergeable] = field(default_factory=dict)  # by their first bundle
    advice: tuple[MergeAdvice, ...] = ()


def find_merge_advice(
    view: ClusterView,
    free: Bools,
    least: Mapping[str, int],
    watched: Mapping[str, Mergeable],
    config: SplittingConfig,
) -> MergeLook:
    """Examine all bundles once. O(n); Python loops over the pairs.

    A pair is advised when it has been small for merge_advice_after_ms, and both bundles have had
    the same owner for that time. The advice is published then, daily, and when it is withdrawn.
    `free`: bundles without a pending decision. `least`: namespace → the fewest bundles it may have.
    """
    # Small pairs, as many as leave each namespace enough bundles.
    bundles, now_ms = view.bundles, view.now_ms
    begin_ms = now_ms - config.merge_advice_after_ms
    may = free & (bundles.owner >= 0) & (bundles.reported_ms >= begin_ms)
    may[bundles.rows_of_namespace(SYSTEM_NAMESPACE)] = False
    low, high, ratios = small_neighbours(bundles, may, config)
    known = _watched(bundles.names.take(pa.array(low)), bundles.names.take(pa.array(high)), watched)
    chosen = disjoint(low, high, known)
    least_bundles = config.namespace_default_bundles
    chosen = chosen[_within_room(bundles, low[chosen], known[chosen], least, least_bundles)]
    known_then_small = np.lexsort((ratios[chosen].max(axis=1), ~known[chosen]))
    chosen = np.sort(chosen[known_then_small[:MAX_PAIRS]])

    # Pairs that have been small for long enough are advised, now or already; others are watched.
    last_change_ms = np.maximum(
        bundles.owner_since_ms[low[chosen]], bundles.owner_since_ms[high[chosen]]
    )
    pairs, advice = dict[str, Mergeable](), list[MergeAdvice]()
    for at, changed_ms in zip(chosen.tolist(), last_change_ms.tolist(), strict=True):
        first, second = bundles.name(int(low[at])), bundles.name(int(high[at]))
        before = watched[first] if known[at] else Mergeable(second, now_ms, 0)
        if changed_ms > begin_ms or before.since_ms > begin_ms:
            pairs[first] = Mergeable(second, before.since_ms, 0)
        elif before.advised_ms and now_ms - before.advised_ms < ADVISE_EVERY_MS:
            pairs[first] = before
        else:
            pairs[first] = Mergeable(second, before.since_ms, now_ms)
            shares = [float(ratio) if np.isfinite(ratio) else None for ratio in ratios[at]]
            owner = view.brokers.names[bundles.owner[low[at]]]
            advice.append(MergeAdvice(first, second, owner, before.since_ms, *shares))
    return MergeLook(now_ms, pairs, (*withdraw_advice(watched, pairs), *advice))


def withdraw_advice(
    watched: Mapping[str, Mergeable], still: Mapping[str, Mergeable]
) -> tuple[MergeAdvice, ...]:
    """Build the advice that withdraws pairs which no longer hold."""
    gone = (
        first
        for first, pair in watched.items()
        if pair.advised_ms and (first not in still or not still[first].advised_ms)
    )
    return tuple(MergeAdvice(first, watched[first].neighbour) for first in gone)


def small_neighbours(
    bundles: Bundles, may: Bools, config: SplittingConfig
) -> tuple[Rows, Rows, Floats]:
    """Find pairs of neighbours at one owner that are small together.

    Returns the rows of the first bundles, of their neighbours, and the ratios (pairs, 4), in the
    order of the rows. Names are compared last, when few pairs are left.
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
    """Return (pairs, 4): sums of topics, sessions, long-term messages/s and bytes/s ÷ their limits.

    -inf: there is no limit.
    """
    limits = np.array(ReasonLimits.from_config(config)[1:], np.float64)
    columns = (bundles.topics, bundles.sessions, bundles.long.rate, bundles.long.throughput)
    sums = np.stack([column[low] + column[high] for column in columns], axis=1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Floats = np.where(limits > 0, sums / limits, np.inf)
    if config.bundle_max_sessions <= 0:
        ratios[:, 1] = -np.inf
    return ratios


def _touch(low: pa.StringArray, high: pa.StringArray) -> Bools:
    """Return whether each second bundle begins where the first ends, in the same namespace."""
    same = pc.equal(
        pc.utf8_slice_codeunits(low, 0, -RANGE_LENGTH),
        pc.utf8_slice_codeunits(high, 0, -RANGE_LENGTH),
    )
    end = pc.utf8_slice_codeunits(low, -BOUND_LENGTH)
    begin = pc.utf8_slice_codeunits(high, 1 - RANGE_LENGTH, -1 - BOUND_LENGTH)
    touch: Bools = pc.and_(same, pc.equal(end, begin)).to_numpy(zero_copy_only=False)
    return touch


def _watched(low: pa.StringArray, high: pa.StringArray, watched: Mapping[str, Mergeable]) -> Bools:
    """Return which pairs are watched already."""
    place = pc.index_in(low, value_set=pa.array(list(watched), pa.string()))
    neighbours = pa.array([pair.neighbour for pair in watched.values()], pa.string())
    known: Bools = (
        pc.equal(high, neighbours.take(place)).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return known


def disjoint(low: Rows, high: Rows, known: Bools) -> Rows:
    """Choose pairs, given in order, so that no bundle is in two of them.

    All known pairs are chosen, which share no bundle. Of the pairs between them every other one of
    each chain is chosen, which is the most that a chain gives.
    """
    # Whether a pair begins with the bundle that the pair before ends with.
    joined = np.zeros(len(low) + 1, np.bool_)
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
    """Return which pairs may be merged so that each namespace keeps its least number of bundles.

    Known pairs come first, then the others by row. `least`: namespace → that number; else
    `default`.
    """
    if not len(low):
        return np.zeros(0, np.bool_)
    codes, counts, namespaces = census(bundles)
    used, code = np.unique(codes[low], return_inverse=True)
    room: Ints = counts[used] - np.array(
        [max(least.get(namespaces[number], 0), default) for number in used.tolist()]
    )
    order = np.lexsort((low, ~known, code))
    begins = np.flatnonzero(np.diff(code[order], prepend=-1))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    within: Bools = rank < room[code]
    return within
