"""Topics' measured shares of their bundles' load, for the few bundles whose owners report them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_ENTRIES = 200
"""Entries of one bundle. Of more topics, neighbours that are light become one entry."""

_TIME = struct.Struct("<q")
_ENTRY = np.dtype([("hash", "<u4"), ("share", "<f4")])


@dataclass(frozen=True, slots=True)
class TopicShares:
    """Parts of bundles' loads by topics' hashes, sorted by (bundle, hash), without doubles.

    The shares of one bundle add up to 1. An entry is a topic, several topics of one hash, or a run
    of light topics that follow one another, whose hash is that of the first. So a cut at an entry's
    hash divides the topics as the entries say; a cut between two of them, up to one entry off.
    """

    bundle: Ints  # row of the view's bundles
    hash: Ints  # 0..2³²-1
    share: Floats

    @staticmethod
    def from_columns(bundle: Ints, hashes: Ints, share: Floats) -> TopicShares:
        """Return shares in any order and of any scale: sorted, added up by hash, normalised.

        Shares are finite and not negative. Bundles without any load are left out.
        """
        if not len(bundle):
            return NO_TOPIC_SHARES
        order = np.lexsort((hashes, bundle))
        bundle, hashes, share = bundle[order], hashes[order], share[order]
        # Entries of the same bundle and hash become one.
        first = np.ones(len(bundle), np.bool_)
        first[1:] = (np.diff(bundle) != 0) | (np.diff(hashes) != 0)
        starts = np.flatnonzero(first)
        bundle, hashes, share = bundle[starts], hashes[starts], np.add.reduceat(share, starts)
        # The shares of each bundle add up to 1.
        starts = np.flatnonzero(np.append(True, np.diff(bundle) != 0))
        total = np.repeat(np.add.reduceat(share, starts), np.diff(starts, append=len(bundle)))
        loaded = total > 0
        return TopicShares(bundle[loaded], hashes[loaded], share[loaded] / total[loaded])

    @staticmethod
    def from_packed(rows: Ints, packed: Sequence[bytes]) -> TopicShares:
        """Return the shares that `pack_shares` has packed; `rows`: of their bundles."""
        if not len(rows):
            return NO_TOPIC_SHARES
        order = np.argsort(rows, kind="stable")
        rows, packed = rows[order], [packed[at] for at in order.tolist()]
        entries = np.frombuffer(b"".join(content[_TIME.size :] for content in packed), _ENTRY)
        sizes = np.array([(len(content) - _TIME.size) // _ENTRY.itemsize for content in packed])
        share = entries["share"].astype(np.float64)
        totals = np.add.reduceat(share, np.cumsum(sizes) - sizes)
        return TopicShares(
            np.repeat(rows, sizes),
            entries["hash"].astype(np.int64),
            share / np.repeat(totals, sizes),
        )

    def __len__(self) -> int:
        return len(self.bundle)

    def of(self, row: int) -> tuple[Ints, Floats]:
        """Return the hashes and shares of one bundle, by hash; empty: not reported. O(log n)."""
        begin, end = np.searchsorted(self.bundle, (row, row + 1)).tolist()
        return self.hash[begin:end], self.share[begin:end]

    @property
    def bundles(self) -> Ints:
        """Return the rows of the bundles that have shares, ascending."""
        return np.unique(self.bundle)

    def renumbered(self, row_of: Iterable[int] | Ints) -> TopicShares:
        """Return the shares for a view with other rows; `row_of`: old row → new one; -1: none."""
        rows = np.asarray(row_of, np.int64)[self.bundle]
        kept = np.flatnonzero(rows >= 0)
        kept = kept[np.argsort(rows[kept], kind="stable")]
        return TopicShares(rows[kept], self.hash[kept], self.share[kept])


NO_TOPIC_SHARES = TopicShares(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


def condense(hashes: Ints, share: Floats, most: int = MAX_ENTRIES) -> tuple[Ints, Floats]:
    """Return at most `most` entries of one bundle's topics, sorted by hash, with the same sum.

    Topics of one hash become one entry. If there are still too many, so do light ones that follow
    one another: no such entry has more than 2 / (most - 1) of the sum, and heavier topics stay
    alone. An entry's hash is that of its first topic.
    """
    if bool((np.diff(hashes) <= 0).any()):
        hashes, number = np.unique(hashes, return_inverse=True)
        share = np.bincount(number, share, len(hashes)).astype(np.float64)
    if len(hashes) <= most:
        return hashes, share
    # Two entries that follow one another have more than the limit, so there are at most `most`.
    limit = 2 * float(share.sum()) / (most - 1)
    firsts, total = [0], float(share[0])
    for at, part in enumerate(share[1:].tolist(), 1):
        total += part
        if total > limit:
            firsts.append(at)
            total = part
    return hashes[firsts], np.add.reduceat(share, firsts)


def pack_shares(at_ms: int, hashes: Ints, share: Floats) -> bytes:
    """Return one bundle's topics, condensed, as the blocks of the stream hold them.

    `at_ms`: append time of the report. `share`: finite, not negative, not all 0; of any scale.
    """
    hashes, share = condense(hashes, share)
    entries = np.empty(len(hashes), _ENTRY)
    entries["hash"], entries["share"] = hashes, share / share.sum()
    return _TIME.pack(at_ms) + entries.tobytes()


def packed_at_ms(packed: Iterable[bytes]) -> Ints:
    """Return the append time of the report that each bundle's shares come from."""
    return np.fromiter((_TIME.unpack_from(content)[0] for content in packed), np.int64)
