"""Load-manager class: brokers that run another load manager get no bundle."""

from __future__ import annotations

import numpy as np

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.core.filters.base import FilterContext
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import ClusterView, Rows


class LoadManagerClass:
    """Keeps the brokers that report the cluster's load manager.

    If no live broker reports a load manager, all are kept.
    """

    rule = FilteredBy.LOAD_MANAGER_CLASS

    def __init__(self, view: ClusterView, manager: str) -> None:
        classes = view.brokers.load_managers
        self._same = np.array(
            [MANAGER_CLASSES.get(name.rpartition(".")[2]) == manager for name in classes], np.bool_
        )
        if not any(
            name for name, alive in zip(classes, view.brokers.alive.tolist(), strict=True) if alive
        ):
            self._same[:] = True

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers with the cluster's load manager."""
        rows = context.rows
        return rows[self._same[rows]]
