"""Load-manager class: brokers that run another load manager don't obey this one."""

from __future__ import annotations

import numpy as np

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.core.filters.base import FilterContext
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import ClusterView, Rows


class LoadManagerClass:
    """The brokers that advertise the cluster's load manager.

    Where no live broker advertises one, all are kept.
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
        """Those of the same manager."""
        rows = context.rows
        return rows[self._same[rows]]
