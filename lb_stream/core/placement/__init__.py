"""Placement strategies: which broker should take a bundle. One strategy, one file.

Who may take it at all is decided before, by `candidates`. Source: spec/placement.md.
"""

from lb_stream.core.placement.base import Best, Targets, placement

# Importing a strategy registers it.
from lb_stream.core.placement.least_long_term_message_rate import least_long_term_message_rate

__all__ = ["Best", "Targets", "least_long_term_message_rate", "placement"]
