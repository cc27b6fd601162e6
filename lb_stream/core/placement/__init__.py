"""Placement strategies: which broker should take a bundle. One strategy, one file.

The filters of `core.filters` have chosen the candidates before. See docs/placement.md.
"""

from lb_stream.core.placement.base import (
    Best,
    Targets,
    extensible_placement,
    placement,
    simple_placement,
)

# Importing a strategy registers it.
from lb_stream.core.placement.least_long_term_message_rate import least_long_term_message_rate
from lb_stream.core.placement.least_resource_usage_with_weight import (
    least_reported_usage,
    least_resource_usage,
)
from lb_stream.core.placement.round_robin import round_robin
from lb_stream.core.placement.simple import (
    least_loaded_server,
    least_msg_per_second,
    weighted_random_selection,
)

__all__ = [
    "Best",
    "Targets",
    "extensible_placement",
    "least_loaded_server",
    "least_long_term_message_rate",
    "least_msg_per_second",
    "least_reported_usage",
    "least_resource_usage",
    "placement",
    "round_robin",
    "simple_placement",
    "weighted_random_selection",
]
