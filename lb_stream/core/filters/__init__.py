"""Filters: they keep brokers from being candidates for a bundle. One filter, one file.

`candidates.py` puts them in each load manager's order. See docs/placement.md "Filters".
"""

from lb_stream.core.filters.anti_affinity import (
    AntiAffinity,
    FailureDomain,
    domains_of,
    stays_apart,
    unload_helps,
)
from lb_stream.core.filters.base import Filter, FilterContext, FilterError
from lb_stream.core.filters.census import Census
from lb_stream.core.filters.drained import Drained
from lb_stream.core.filters.even_distribution import EvenDistribution
from lb_stream.core.filters.isolation import Isolation
from lb_stream.core.filters.later_version import LaterVersion
from lb_stream.core.filters.load_manager_class import LoadManagerClass
from lb_stream.core.filters.max_topics import MaxTopics
from lb_stream.core.filters.topic_kind import TopicKind

__all__ = [
    "AntiAffinity",
    "Census",
    "Drained",
    "EvenDistribution",
    "FailureDomain",
    "Filter",
    "FilterContext",
    "FilterError",
    "Isolation",
    "LaterVersion",
    "LoadManagerClass",
    "MaxTopics",
    "TopicKind",
    "domains_of",
    "stays_apart",
    "unload_helps",
]
