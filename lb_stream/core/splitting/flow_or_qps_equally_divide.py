"""flow_or_qps_equally_divide: pieces that each stay within the limits on messages/s and bytes/s.

See docs/splitting.md "Split algorithms".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lb_stream.core.splitting.base import Boundaries, SplitContext, Topics, middle, split_algorithm
from lb_stream.core.splitting.config import MIB, SplittingConfig


@dataclass(frozen=True, slots=True)
class _Load:
    """Messages/s and bytes/s of the topics with one hash."""

    rate: float
    throughput: float


@split_algorithm("flow_or_qps_equally_divide", config=SplittingConfig)
def flow_or_qps_equally_divide(context: SplitContext[SplittingConfig]) -> Boundaries:
    """Cut before each topic with which the piece so far would exceed a limit, in order of hashes.

    O(n log n) for n topics. Topics without load don't count. A bundle is cut only if it is above a
    limit by the difference threshold. The bandwidth limit doesn't overflow here.
    Source: docs/splitting.md "Split algorithms".
    """
    # Whether the bundle is far enough above a limit.
    bundle, config = context.bundle, context.config
    if len(bundle.topics) <= 1:
        return Boundaries(None, "too_few_topics")
    most_rate, most_bytes = config.bundle_max_msgs_per_s, config.bundle_max_bandwidth_mb * MIB
    factor = 1 + config.flow_difference_percent / 100.0
    summed = config.flow_duplicate_hash == "sum"
    walk, loads, rate, throughput = _loaded(bundle.topics, summed)
    if len(loads) < 2:
        return Boundaries(None, "too_few_topics")
    if rate < most_rate * factor and throughput < most_bytes * factor:
        return Boundaries(None, "below_limits")

    # One piece after the other.
    found, piece = [], loads[walk[0]]
    for before, at in pairwise(walk):
        grown = _Load(piece.rate + loads[at].rate, piece.throughput + loads[at].throughput)
        if grown.rate > most_rate or grown.throughput > most_bytes:
            found.append(middle(before, at, config.hex_midpoint, one_higher=True))
            grown = loads[at]
        piece = grown
    return Boundaries(tuple(found), None if found else "nothing_to_separate")


def _loaded(topics: Topics, summed: bool) -> tuple[list[int], dict[int, _Load], float, float]:
    """Return the topics with load: hashes in order, load by hash, total messages/s and bytes/s.

    Several topics with one hash: the hash is repeated, with the load of the last topic. `summed`:
    it stands once, with the sum of their loads.
    """
    rows = np.flatnonzero(topics.known & ((topics.rate > 0) | (topics.throughput > 0)))
    hashes, loads = topics.hashes[rows].tolist(), dict[int, _Load]()
    total_rate = total_throughput = 0.0
    for at, rate, throughput in zip(
        hashes, topics.rate[rows].tolist(), topics.throughput[rows].tolist(), strict=True
    ):
        before = loads.get(at) if summed else None
        loads[at] = (
            _Load(before.rate + rate, before.throughput + throughput)
            if before
            else _Load(rate, throughput)
        )
        total_rate += rate
        total_throughput += throughput
    return sorted(loads if summed else hashes), loads, total_rate, total_throughput
