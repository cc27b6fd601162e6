"""Limit of topics: a broker with too many topics gets no bundle."""

from __future__ import annotations

from lb_stream.core.filters.base import FilterContext
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import Rows


class MaxTopics:
    """Keeps the brokers with at most `limit` topics; `strict` (extensible manager): with fewer."""

    rule = FilteredBy.MAX_TOPICS

    def __init__(self, limit: int, *, strict: bool) -> None:
        self._most = limit - 1 if strict else limit

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers within the limit."""
        rows = context.rows
        return rows[context.topics[rows] <= self._most]
