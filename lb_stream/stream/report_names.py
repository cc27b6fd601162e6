"""The bundles' names in reports: each is checked and hashed once in a process, not in each batch.

A broker's next report names nearly the same bundles, mostly in the same order. So a process keeps
the names of each broker's last report or roster, with what it has found out about them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.names import are_bundle_names
from lb_stream.stream.records import LONGEST_BUNDLE
from lb_stream.stream.shards.slicing import name_hashes

KEPT_NAMES = 2_000_000
"""Names of brokers' last reports that a process keeps: about 100 MB."""

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Sized)


class NamesCache(Generic[K, N]):
    """Lists of names or rows that a process keeps, those used last at the end: `most` in all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """Keep nothing, as a new process."""
        self._kept: OrderedDict[K, N] = OrderedDict()
        self._names = 0

    def get(self, key: K) -> N | None:
        """Return a list that is kept."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: K, names: N) -> None:
        """Keep a list; those used longest ago go."""
        if (old := self._kept.pop(key, None)) is not None:
            self._names -= len(old)
        self._kept[key] = names
        self._names += len(names)
        while self._names > self._most and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._names -= len(dropped)


@dataclass(slots=True)
class ReportNames:
    """The names of a report or roster, in its order.

    `malformed`: the first row whose name is no bundle's; None: all are. `_hashes`: once they are
    needed, which small clusters never do.
    """

    names: pa.Array
    malformed: int | None
    _hashes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def hashes(self) -> NDArray[np.int64]:
        """The hash of each name, as `name_hashes` gives it; not to be changed."""
        if self._hashes is None:
            self._hashes = name_hashes(self.names)
        return self._hashes

    @staticmethod
    def check(names: pa.Array, known: ReportNames | None = None) -> ReportNames:
        """Return checked names. `known`: names of which most are expected to be the same."""
        if known is None or known.malformed is not None:
            return ReportNames(names, _first_malformed(names))
        if known.names.equals(names):
            return known
        place = pc.index_in(names, value_set=known.names)
        new = np.flatnonzero(place.is_null().to_numpy(zero_copy_only=False))
        new_names = names.take(pa.array(new))
        malformed = _first_malformed(new_names)
        hashes = None
        if known._hashes is not None and len(known):
            hashes = known._hashes.take(place.fill_null(0).to_numpy())
            hashes[new] = name_hashes(new_names)
        return ReportNames(names, None if malformed is None else int(new[malformed]), hashes)


_CACHE: NamesCache[tuple[str, str], ReportNames] = NamesCache(KEPT_NAMES)


def check_names(cluster: str, broker: str, names: pa.Array) -> ReportNames:
    """Return the checked names of a broker's report or roster.

    What is known of the broker's last ones is used again: the result doesn't depend on it.
    """
    known = _CACHE.get((cluster, broker))
    found = ReportNames.check(names, known)
    if found is not known and found.malformed is None:
        _CACHE.put((cluster, broker), found)
    return found


def _first_malformed(names: pa.Array) -> int | None:
    """Return the first row whose name is no bundle's, or is too long."""
    good = are_bundle_names(names, LONGEST_BUNDLE)
    return None if good.all() else int(np.argmin(good))
