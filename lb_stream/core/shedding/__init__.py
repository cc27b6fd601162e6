"""Shedding strategies: which bundles should leave which broker. One strategy, one file.

A shedder sees a view and what it remembers, and proposes; whether a proposal becomes a decision is up to the round
(destination, limits, anti-affinity). Source: spec/shedding.md.
"""

from lb_stream.core.shedding.base import Unload, Unloads, shedder

# Importing a strategy registers it.
from lb_stream.core.shedding.threshold import shed_above_average

__all__ = ["Unload", "Unloads", "shed_above_average", "shedder"]
