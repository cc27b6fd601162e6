"""The bundles that splits make of a scenario's, and the positions at which brokers cut them.

Simulated brokers and measures share this module: it is the format's definition of a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lb_stream.core.model.names import bundle_name, parse_bundle
from lb_stream.sim.scenario.scenario import Floats, Ints, Scenario

SPLIT_ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "flow_or_qps_equally_divide",
    "specified_positions_divide",
)
"""The algorithms by which a scenario's brokers can split."""


class BundleTree:
    """A scenario's bundles, and behind them those that splits have made, as columns.

    A bundle that has been split keeps its row. `root`: row of the scenario's bundle that each is
    part of; `part`: its part of that bundle's load; `topics`: its number of topics.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Begin with the scenario's bundles."""
        self.scenario = scenario
        self._topics = scenario.topics
        self.roots = len(scenario.bundles)
        self.names = list(scenario.bundles.names)
        self.root: Ints = np.arange(self.roots)
        self.part: Floats = np.ones(self.roots)
        self.topics: Ints = scenario.bundles.topics
        # The topics of a bundle are consecutive rows, as they are sorted by their hashes.
        self._rows: list[tuple[int, int]] = (
            [] if self._topics is None else list(pairwise(self._topics.edges.tolist()))
        )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_grown(self) -> bool:
        """Return whether a bundle has been split."""
        return len(self.names) > self.roots

    def of_roots(self, values: Floats) -> Floats:
        """Return the bundles' own parts of loads of the scenario's bundles (the last axis)."""
        found: Floats = values[..., self.root] * self.part if self.is_grown else values
        return found

    def spread_by_topics(self, counts: Ints) -> Floats:
        """Return as many parts of a count of each scenario's bundle as each bundle has topics."""
        if not self.is_grown:
            return counts.astype(np.float64)
        root = self.root[self.roots :]
        shares = self.topics[self.roots :] / self.scenario.bundles.topics[root]
        return np.append(counts, counts[root] * shares)

    def split(self, row: int, positions: Sequence[int]) -> list[int]:
        """Add the children of a bundle that is cut at these positions, in order of their ranges.

        Returns their rows.
        """
        assert self._topics is not None
        namespace, lower, upper = parse_bundle(self.names[row])
        first, last = self._rows[row]
        cuts = np.searchsorted(self._topics.hash[first:last], positions) + first
        edges = [first, *cuts.tolist(), last]
        children = list(range(len(self.names), len(self.names) + len(positions) + 1))
        self.names += [
            bundle_name(namespace, *ends) for ends in pairwise([lower, *positions, upper])
        ]
        self._rows += pairwise(edges)
        parts = [self._topics.parts[one:other].sum() for one, other in pairwise(edges)]
        self.root = np.append(self.root, np.full(len(children), self.root[row]))
        self.part = np.append(self.part, parts)
        self.topics = np.append(self.topics, np.diff(edges))
        return children

    def topics_of(self, row: int) -> tuple[Ints, Floats]:
        """Return the hashes of a bundle's topics, ascending, and their parts of its root's load."""
        if self._topics is None:
            return np.empty(0, np.int64), np.empty(0)
        topics = slice(*self._rows[row])
        return self._topics.hash[topics], self._topics.parts[topics]

    def find_positions(
        self, row: int, algorithm: str, given: Sequence[int], loads: Floats
    ) -> list[int]:
        """Return where a broker cuts the bundle; empty: it refuses to split.

        `given`: positions for specified_positions_divide. `loads`: true ones, LOADS × bundles.
        """
        if self._topics is None:
            return []
        _, lower, upper = parse_bundle(self.names[row])
        hashes, parts = self.topics_of(row)
        if algorithm == "range_equally_divide":
            found = [lower + (upper - lower) // 2]
        elif len(hashes) < 2:
            found = []
        elif algorithm == "topic_count_equally_divide":
            before, after = (int(hashes[len(hashes) // 2 - 1 + at]) for at in (0, 1))
            found = [before + (after - before) // 2]
        elif algorithm == "flow_or_qps_equally_divide":
            whole = self.part[row] if self.part[row] > 0 else 1.0
            rate_in, rate_out, bytes_in, bytes_out = loads[:, row].tolist()
            found = self._cut_by_flow(
                hashes, parts / whole, rate_in + rate_out, bytes_in + bytes_out
            )
        elif algorithm == "specified_positions_divide":
            found = sorted(set(given))
        else:
            raise ValueError(f"split algorithm {algorithm!r}: expected one of {SPLIT_ALGORITHMS}")
        return [position for position in found if lower < position < upper]

    def _cut_by_flow(self, hashes: Ints, shares: Floats, rate: float, size: float) -> list[int]:
        """Cut before each topic with which the piece so far would exceed a limit."""
        limits = self.scenario.splits
        assert limits is not None
        # topics with one hash count as one, those without load don't count
        distinct, place = np.unique(hashes, return_inverse=True)
        share = np.bincount(place, shares, len(distinct))
        loaded = (rate * share > 0) | (size * share > 0)
        at, rates, sizes = distinct[loaded].tolist(), rate * share[loaded], size * share[loaded]
        enough = 1 + limits.difference
        if len(at) < 2 or (
            sum(rates) < limits.max_rate * enough and sum(sizes) < limits.max_bytes_per_s * enough
        ):
            return []
        found, piece_rate, piece_size = [], 0.0, 0.0
        for number, (topic_rate, topic_size) in enumerate(
            zip(rates.tolist(), sizes.tolist(), strict=True)
        ):
            piece_rate, piece_size = piece_rate + topic_rate, piece_size + topic_size
            if number > 0 and (piece_rate > limits.max_rate or piece_size > limits.max_bytes_per_s):
                before = at[number - 1]
                found.append(before + (at[number] - before) // 2 + 1)
                piece_rate, piece_size = topic_rate, topic_size
        return found
