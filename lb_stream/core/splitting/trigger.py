"""What the three managers' split triggers share: the loads they look at, and which limit a bundle
is above.

A trigger looks at all bundles at once, and in Python only at those that are too large. See
docs/splitting.md "Splitting".
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
"""Pulsar's words, in the order in which they are tried; the first stands for none."""

RULES = (
    Decides.MAX_TOPICS,
    Decides.MAX_TOPICS,
    Decides.MAX_SESSIONS,
    Decides.MAX_RATE,
    Decides.MAX_BANDWIDTH,
)
"""The rule of each reason; nothing is decided by the first."""
FEWEST_TOPICS = 2
"""A bundle with fewer has nothing to separate."""

Reasons = NDArray[np.int8]
"""Positions in REASONS."""


@dataclass(frozen=True, slots=True)
class SplitLoads:
    """Bundles in the order in which they are visited: topics, producers and consumers, messages/s
    and bytes/s in and out."""

    topics: Ints
    sessions: Ints
    rate: Floats
    throughput: Floats

    def __len__(self) -> int:
        return len(self.topics)

    def take(self, rows: Rows | Bools) -> SplitLoads:
        """The given rows."""
        return SplitLoads(
            self.topics[rows], self.sessions[rows], self.rate[rows], self.throughput[rows]
        )

    def saw(self, row: int, reason: int) -> float:
        """The figure of one row that the reason is about."""
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
        """The configured limits."""
        return ReasonLimits(
            0,
            config.bundle_max_topics,
            config.bundle_max_sessions,
            config.bundle_max_msgs_per_s,
            config.max_bandwidth_bytes_per_s,
        )


def reasons(loads: SplitLoads, config: SplittingConfig) -> Reasons:
    """Of each bundle the first limit that it is strictly above, in the order of REASONS; 0: none.

    O(n).
    """
    limits = ReasonLimits.from_config(config)
    found = np.zeros(len(loads), np.int8)
    found[loads.throughput > limits.bandwidth] = 4
    found[loads.rate > limits.rate] = 3
    if limits.sessions > 0:
        found[loads.sessions > limits.sessions] = 2
    found[loads.topics > limits.topics] = 1
    return found


def census(bundles: Bundles) -> tuple[NDArray[np.int32], Ints, list[str]]:
    """The number of each bundle's namespace, and of each namespace its bundles and its name. O(n).

    A bundle without an owner counts unless it was split before.
    """
    codes, namespaces = namespace_codes(bundles.names)
    here = (bundles.owner >= 0) | bundles.in_flight | ~begins_with_another(bundles.names)
    return codes, np.bincount(codes[here], minlength=len(namespaces)), namespaces


def bundles_before(namespaces: NDArray[np.integer], bundle_counts: Ints, most: int) -> Ints:
    """For each bundle to split, in the order given: how many bundles its namespace has at its turn.

    A bundle that finds `most` must wait.

    `namespaces` numbers each bundle's namespace, `bundle_counts` holds how many bundles each
    namespace has now. O(n log n).
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
