"""The model of a scenario's cluster, whose bundles can be split; topics in its load reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lb_stream.core.model.topic_shares import pack_shares
from lb_stream.sim.model import ClusterModel
from lb_stream.sim.scenario.bundle_tree import SPLIT_ALGORITHMS, BundleTree
from lb_stream.sim.scenario.scenario import Floats, Ints, Scenario


class SplittableModel(ClusterModel):
    """A model whose bundles can be split. A bundle that has been split keeps its row, unassigned.

    So a broker that remembers rows, as one with stale reports does, never takes a child for its
    parent.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.tree = BundleTree(scenario)
        self.names = self.tree.names
        self._gone: set[int] = set()

    def acquire(self, bundle: int, broker: int) -> bool:
        """Have the broker serve the bundle. False: it has an owner, or has been split."""
        return bundle not in self._gone and super().acquire(bundle, broker)

    def split(
        self, bundle: int, broker: int, algorithm: str, boundaries: Sequence[int], t_s: float
    ) -> list[int]:
        """Have the broker split the bundle. Returns the children's rows.

        Empty: it doesn't serve the bundle, or there is no position at which to cut.
        """
        if self.owner[bundle] != broker or algorithm not in SPLIT_ALGORITHMS:
            return []
        positions = self.tree.find_positions(bundle, algorithm, boundaries, self.loads(t_s))
        if not positions:
            return []
        children = self.tree.split(bundle, positions)
        self._gone.add(bundle)
        self.owner[bundle] = -1
        self.owner = np.append(self.owner, np.full(len(children), broker))
        scenario = self.scenario.bundles
        self.topics = self.tree.topics
        # Reports count in whole numbers.
        self.producers, self.consumers, self.heap = (
            np.rint(self.tree.spread_by_topics(column)).astype(np.int64)
            for column in (scenario.producers, scenario.consumers, scenario.memory_bytes)
        )
        self._tick = -1
        return children

    def _divide(self, loads: Floats) -> Floats:
        return self.tree.of_roots(loads)

    def _noise_of(self, noise: Floats) -> Floats:
        return noise[self.tree.root] if self.tree.is_grown else noise


def pack_topic_shares(
    model: SplittableModel, rows: Ints, broker: Ints, loads: Floats, at_ms: int
) -> pa.Array:
    """Pack the topics' shares of each reported bundle; null where its report doesn't tell them.

    A broker tells the topics of the bundles that take most of its cpu by its own reckoning, and
    of these only where there are two at least. `rows`: of bundles; `broker`: of each, ascending
    in runs; `loads`: as measured, LOADS × rows; `at_ms`: when the reports arrive.
    """
    splits, brokers = model.scenario.splits, model.scenario.brokers
    if model.scenario.topics is None or splits is None or not splits.detailed_bundles:
        return pa.nulls(len(rows), pa.binary())
    packed: list[bytes | None] = [None] * len(rows)
    cpu = (loads[0] + loads[1]) / brokers.cpu_msgs_per_s[broker] + (
        loads[2] + loads[3]
    ) / brokers.cpu_bytes_per_s[broker]
    # each broker's bundles, heaviest first
    order = np.lexsort((-cpu, broker))
    begins = np.flatnonzero(np.diff(broker[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    heaviest = order[place < splits.detailed_bundles]
    for at in heaviest[model.topics[rows[heaviest]] >= 2].tolist():
        hashes, parts = model.tree.topics_of(int(rows[at]))
        if parts.sum() > 0:
            packed[at] = pack_shares(at_ms, hashes, parts)
    return pa.array(packed, pa.binary())
