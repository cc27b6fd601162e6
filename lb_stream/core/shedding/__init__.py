"""Shedding strategies: which bundles should leave which broker. One strategy, one file.

A shedder reads a view and its memory, and returns proposals. The round makes decisions of them, or
refuses them: by limits, by policies, for lack of a destination. See docs/strategies.md "Shedding".
"""

# Importing a strategy registers it.
from lb_stream.core.shedding.avg import shed_to_partner
from lb_stream.core.shedding.base import Unload, Unloads, shedder
from lb_stream.core.shedding.overload import shed_overloaded
from lb_stream.core.shedding.range_threshold import shed_out_of_range
from lb_stream.core.shedding.simple import shed_heaviest
from lb_stream.core.shedding.threshold import shed_above_average
from lb_stream.core.shedding.transfer import transfer_from_fullest
from lb_stream.core.shedding.uniform import shed_uneven

__all__ = [
    "Unload",
    "Unloads",
    "shed_above_average",
    "shed_heaviest",
    "shed_out_of_range",
    "shed_overloaded",
    "shed_to_partner",
    "shed_uneven",
    "shedder",
    "transfer_from_fullest",
]
