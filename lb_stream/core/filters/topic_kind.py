"""Topic kinds: a bundle goes to brokers that serve its kind of topics."""

from __future__ import annotations

from lb_stream.core.filters.base import FilterContext
from lb_stream.core.filters.isolation import Isolation
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import ClusterView, Rows


class TopicKind:
    """Keeps the brokers that serve the bundle's kind of topics.

    The kind is non-persistent if the namespace has ever had such topics, else persistent. The
    filter does not apply to a namespace with an isolation policy.
    """

    rule = FilteredBy.TOPIC_KIND

    def __init__(self, view: ClusterView, isolation: Isolation) -> None:
        self._brokers = view.brokers
        self._non_persistent = view.policies.non_persistent
        self._isolation = isolation

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers that serve the bundle's kind of topics."""
        rows, brokers = context.rows, self._brokers
        if self._isolation.policy_of(context.namespace) is not None:
            return rows
        if context.namespace in self._non_persistent:
            return rows[brokers.non_persistent_topics[rows]]
        return rows[brokers.persistent_topics[rows]]
