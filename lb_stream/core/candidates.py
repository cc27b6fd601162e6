"""Who may take a bundle at all, before any strategy ranks them. Source: spec/placement.md §3 and §4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.names import namespace_of
from lb_stream.core.placement.base import Targets
from lb_stream.core.view import ClusterView, Ints, Rows

NEVER_OLD_MS = 2**63 - 1
ALWAYS_EVEN = "pulsar/system"
"""The namespace whose bundles are spread evenly under any setting."""


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
        namespace = namespace_of(self.view.bundles.name(bundle))
        if (self.config.distribute_bundles_evenly or namespace == ALWAYS_EVEN) and len(kept):
            counts = self._namespace_counts(namespace)[kept]
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
            owner = self.view.bundles.owner[self.view.bundles.rows_of_namespace(namespace)]
            self._counts[namespace] = np.bincount(owner[owner >= 0], minlength=len(self.view.brokers))
        return self._counts[namespace]


def superseded(view: ClusterView, rows: Iterable[int]) -> set[int]:
    """Those of the given unowned bundles that were split or merged, not orphaned.

    That is, whose range overlaps a bundle of the namespace that has an owner, or one that a later report has named: the
    children of a split may have lost their owner as well.
    """
    found: set[int] = set()
    current: dict[str, list[tuple[int, int, int]]] = {}
    for row in rows:
        name = view.bundles.name(row)
        namespace = namespace_of(name)
        if namespace not in current:
            current[namespace] = list(_ranges(view, namespace))
        lower, upper = _bounds(name)
        named_ms = int(view.bundles.reported_ms[row])
        if any(low < upper and lower < high and since_ms > named_ms for low, high, since_ms in current[namespace]):
            found.add(row)
    return found


def _ranges(view: ClusterView, namespace: str) -> Iterator[tuple[int, int, int]]:
    """(lower, upper, when last named) of each bundle of the namespace; an owned one counts as named for ever."""
    mine = view.bundles.rows_of_namespace(namespace)
    for row, name in zip(range(mine.start, mine.stop), view.bundles.names[mine].to_pylist(), strict=True):
        yield *_bounds(name), NEVER_OLD_MS if view.bundles.owner[row] >= 0 else int(view.bundles.reported_ms[row])


def _bounds(name: str) -> tuple[int, int]:
    lower, _, upper = name.rpartition("/")[2].partition("_")
    return int(lower, 16), int(upper, 16)
