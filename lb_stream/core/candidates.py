"""Who may take a bundle at all, before any strategy ranks them. Source: spec/placement.md §3 and §4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.names import namespace_of
from lb_stream.core.placement.base import Targets
from lb_stream.core.view import ClusterView, Ints, Rows


@dataclass(slots=True)
class Candidates:
    """The filter pipeline of one round. Counts of a namespace's bundles are made when its first bundle is placed."""

    view: ClusterView
    config: BalancerConfig
    _counts: dict[str, Ints] = field(default_factory=dict)

    def of(self, bundle: int, targets: Targets) -> tuple[Rows, Rows]:
        """(the candidates that the filters leave, all that policies allow): rows of brokers in order.

        A filter that would leave nobody is undone.
        """
        allowed = np.flatnonzero(self.view.brokers.alive & self.view.brokers.persistent_topics)
        kept = allowed[targets.topics[allowed] <= self.config.broker_max_topics]
        if not len(kept):
            kept = allowed
        if self.config.distribute_bundles_evenly and len(kept):
            counts = self._namespace_counts(namespace_of(self.view.bundles.name(bundle)))[kept]
            kept = kept[counts == counts.min()]
        return kept, allowed

    def add(self, bundle: int, destination: int) -> None:
        """Count a bundle at its destination from now on, and at its source no more."""
        counts = self._namespace_counts(namespace_of(self.view.bundles.name(bundle)))
        counts[destination] += 1
        source = int(self.view.bundles.owner[bundle])
        if source >= 0:
            counts[source] -= 1

    def _namespace_counts(self, namespace: str) -> Ints:
        """Bundles of the namespace by broker; moves in flight count at their destination."""
        if namespace not in self._counts:
            mine = pc.starts_with(self.view.bundles.names, f"{namespace}/0x").to_numpy(zero_copy_only=False).astype(np.bool_)
            owner = self.view.bundles.owner[mine]
            self._counts[namespace] = np.bincount(owner[owner >= 0], minlength=len(self.view.brokers))
        return self._counts[namespace]


def superseded(view: ClusterView, rows: Iterable[int]) -> set[int]:
    """Those of the given unowned bundles whose range an owned bundle of the namespace overlaps: split or merged, not orphaned."""
    found: set[int] = set()
    owned: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        name = view.bundles.name(row)
        namespace = namespace_of(name)
        if namespace not in owned:
            mine = pc.starts_with(view.bundles.names, f"{namespace}/0x").to_numpy(zero_copy_only=False).astype(np.bool_)
            names = view.bundles.names.take(np.flatnonzero(mine & (view.bundles.owner >= 0))).to_pylist()
            owned[namespace] = [_bounds(other) for other in names]
        lower, upper = _bounds(name)
        if any(low < upper and lower < high for low, high in owned[namespace]):
            found.add(row)
    return found


def _bounds(name: str) -> tuple[int, int]:
    lower, _, upper = name.rpartition("/")[2].partition("_")
    return int(lower, 16), int(upper, 16)
