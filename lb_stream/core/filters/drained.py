"""Drained brokers: by an operator's command they get no bundle."""

from __future__ import annotations

import numpy as np

from lb_stream.core.filters.base import FilterContext
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import ClusterView, Rows


class Drained:
    """Keeps brokers that are not being drained."""

    rule = FilteredBy.DRAINED

    def __init__(self, view: ClusterView) -> None:
        self._drained = [
            row for row, name in enumerate(view.brokers.names) if name in view.policies.drained
        ]

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers that are not being drained."""
        rows = context.rows
        return rows[~np.isin(rows, self._drained)] if self._drained else rows
