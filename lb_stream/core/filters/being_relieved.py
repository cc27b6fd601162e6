"""Brokers that are being relieved: what leaves one hot broker must not arrive at another one of the same round."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lb_stream.core.filters.base import Asked
from lb_stream.core.view import ClusterView, Rows


class BeingRelieved:
    """Brokers that bundles shall leave in this round take none in it, unless all others do too.

    A bundle's own broker stays, so that a strategy can still say that it is best where it is.
    """

    name = "being_relieved"

    def __init__(self, view: ClusterView) -> None:
        self._owner = view.bundles.owner
        self._relieved = np.zeros(len(view.brokers), np.bool_)

    def relieve(self, brokers: Iterable[int]) -> None:
        """From now on these are being relieved."""
        self._relieved[list(brokers)] = True

    def keep(self, rows: Rows, asked: Asked) -> Rows:
        """Those that are not, and the bundle's own; all of them where nobody would be left."""
        own, free = rows == self._owner[asked.bundle], ~self._relieved[rows]
        kept: Rows = rows[own | free] if (free & ~own).any() else rows
        return kept
