"""The parts of all split triggers: the loads that they compare, and the limit that is exceeded.

A trigger checks all bundles as columns; Python loops over those that are too large.
See docs/splitting.md "Splitting".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lb_stream.core.model.names import begins_with_another, namespace_codes
from lb_stream.core.model.rules import Decides
from lb_stream.core.model.view import Bools, Bundles, Floats, Ints, Rows
from lb_stream.core.splitting.config import SplittingConfig

REASONS = ("", "Topics", "Sessions", "MsgRate", "Bandwidth")
"""Pulsar's words for reasons, in the order of the checks; the first stands for no reason."""

RULES = (
    Decides.MAX_TOPICS,
    Decides.MAX_TOPICS,
    Decides.MAX_SESSIONS,
    Decides.MAX_RATE,
    Decides.MAX_BANDWIDTH,
)
"""The rule of each reason; the first stands for no reason and is not used."""
FEWEST_TOPICS = 2
"""A bundle with fewer topics is not split."""

Reasons = NDArray[np.int8]
"""Positions in REASONS."""


@dataclass(frozen=True, slots=True)
class SplitLoads:
    """The loads of bundles, in the order in which these are checked."""

    topics: Ints
    sessions: Ints  # producers and consumers
    rate: Floats  # messages/s, in and out
    throughput: Floats  # bytes/s, in and out

    def __len__(self) -> int:
        return len(self.topics)

    def take(self, rows: Rows | Bools) -> SplitLoads:
        """Return the given rows."""
        return SplitLoads(
            self.topics[rows], self.sessions[rows], self.rate[rows], self.throughput[rows]
        )

    def saw(self, row: int, reason: int) -> float:
        """Return the figure of one row that a reason is about."""
        return float(
            (self.topics, self.topics, self.sessions, self.rate, self.throughput)[reason][row]
        )


class ReasonLimits(NamedTuple):
    """The limit of each reason, in the reason's unit."""

    none: int
    topics: int
    sessions: int
    rate: int
    bandwidth: int

    @staticmethod
    def from_config(config: SplittingConfig) -> ReasonLimits:
        """Return the configured limits."""
        return ReasonLimits(
            0,
            config.bundle_max_topics,
            config.bundle_max_sessions,
            config.bundle_max_msgs_per_s,
            config.max_bandwidth_bytes_per_s,
        )


def reasons(loads: SplitLoads, config: SplittingConfig) -> Reasons:
    """Return the first limit, in the order of REASONS, that each bundle is above; 0: none. O(n)."""
    limits = ReasonLimits.from_config(config)
    found = np.zeros(len(loads), np.int8)
    found[loads.throughput > limits.bandwidth] = 4
    found[loads.rate > limits.rate] = 3
    if limits.sessions > 0:
        found[loads.sessions > limits.sessions] = 2
    found[loads.topics > limits.topics] = 1
    return found


def census(bundles: Bundles) -> tuple[NDArray[np.int32], Ints, list[str]]:
    """Return each bundle's namespace as a number, and each namespace's bundles and name. O(n).

    An unassigned bundle counts unless it was split.
    """
    codes, namespaces = namespace_codes(bundles.names)
    here = (bundles.owner >= 0) | bundles.in_flight | ~begins_with_another(bundles.names)
    return codes, np.bincount(codes[here], minlength=len(namespaces)), namespaces


def bundles_before(namespaces: NDArray[np.integer], bundle_counts: Ints, most: int) -> Ints:
    """Return how many bundles the namespace of each bundle to split has at its turn. O(n log n).

    A bundle whose namespace has `most` bundles by then must wait. `namespaces`: each bundle's
    namespace as a number; `bundle_counts`: the bundles that each namespace has now.
    """
    order = np.argsort(namespaces, kind="stable")
    sorted_by = namespaces[order]
    starts = np.flatnonzero(np.diff(sorted_by, prepend=-1))
    earlier = np.empty(len(order), np.int64)
    earlier[order] = np.arange(len(order)) - np.repeat(
        starts, np.diff(np.append(starts, len(order)))
    )
    now = bundle_counts[namespaces]
    found: Ints = np.minimum(now + earlier, np.maximum(now, most))
    return found
