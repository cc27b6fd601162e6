"""Topics' measured shares of their bundles' load, for the few bundles whose owners report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TopicShares:
    """Parts of bundles' loads by topics' hashes, sorted by (bundle, hash), without doubles.

    The shares of one bundle add up to 1. An entry is a topic, several topics of one hash, or a few
    light topics whose hashes are close together.
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
