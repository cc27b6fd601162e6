"""Even distribution: the bundles of one namespace are spread over brokers."""

from __future__ import annotations

from lb_stream.core.filters.base import FilterContext, with_lowest
from lb_stream.core.filters.census import Census
from lb_stream.core.model.names import SYSTEM_NAMESPACE
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import Rows


class EvenDistribution:
    """Keeps the brokers with the fewest bundles of the namespace."""

    rule = FilteredBy.EVEN_DISTRIBUTION

    def __init__(self, census: Census, *, everywhere: bool) -> None:
        self._census, self._everywhere = census, everywhere

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers with the fewest, or all where the filter is off.

        It is always on for the system namespace.
        """
        rows = context.rows
        if not (self._everywhere or context.namespace == SYSTEM_NAMESPACE):
            return rows
        return with_lowest(rows, self._census.of_namespace(context.namespace))
