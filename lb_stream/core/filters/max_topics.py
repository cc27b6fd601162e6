"""Limit of topics: a broker that serves too many gets no further bundle."""

from __future__ import annotations

from lb_stream.core.filters.base import FilterContext
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import Rows


class MaxTopics:
    """A broker with more topics takes nothing more.

    Under the extensible manager (`strict`) one with as many doesn't either.
    """

    rule = FilteredBy.MAX_TOPICS

    def __init__(self, limit: int, *, strict: bool) -> None:
        self._most = limit - 1 if strict else limit

    def keep(self, context: FilterContext) -> Rows:
        """Those below the limit."""
        rows = context.rows
        return rows[context.topics[rows] <= self._most]
