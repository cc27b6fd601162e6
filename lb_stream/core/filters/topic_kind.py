"""Topic kinds: a bundle goes to brokers that serve its kind of topics."""

from __future__ import annotations

from lb_stream.core.filters.base import FilterContext
from lb_stream.core.filters.isolation import Isolation
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import ClusterView, Rows


class TopicKind:
    """Persistent topics, or non-persistent ones if the namespace has had any.

    An isolation policy overrules it.
    """

    rule = FilteredBy.TOPIC_KIND

    def __init__(self, view: ClusterView, isolation: Isolation) -> None:
        self._brokers, self._marked, self._isolation = (
            view.brokers,
            view.policies.non_persistent,
            isolation,
        )

    def keep(self, context: FilterContext) -> Rows:
        """Those that serve the bundle's kind."""
        rows = context.rows
        if self._isolation.policy_of(context.namespace) is not None:
            return rows
        serves = (
            self._brokers.non_persistent_topics
            if context.namespace in self._marked
            else self._brokers.persistent_topics
        )
        return rows[serves[rows]]
