"""Brokers that are being relieved: what leaves one hot broker should not arrive at another one in the same round."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from lb_stream.core.filters.base import Asked
from lb_stream.core.view import Rows


class BeingRelieved:
    """The brokers that nothing shall leave in this round."""

    name = "being_relieved"

    def __init__(self, relieved: Collection[int]) -> None:
        self._relieved = list(relieved)

    def keep(self, rows: Rows, asked: Asked) -> Rows:
        """Those that are not being relieved."""
        return rows[~np.isin(rows, self._relieved)] if self._relieved else rows
