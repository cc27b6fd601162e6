"""A count of each broker's bundles of a namespace, and namespaces of an anti-affinity group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.view import ClusterView, Ints

Counted = Literal["namespaces", "bundles"]


@dataclass(slots=True)
class Census:
    """Counts by broker while a round places bundles: each choice counts in the next ones.

    `counted`: a group's count is that of its namespaces with a bundle there, or of its bundles.
    `own_counts`: a namespace's own bundles count against a broker too.
    Pending moves count at their destination, because the view has them applied.
    """

    view: ClusterView
    counted: Counted = "namespaces"
    own_counts: bool = False
    _owner: NDArray[np.int32] = field(init=False)
    _slices: dict[str, slice] = field(default_factory=dict)
    _promised: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    _groups: dict[str, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._owner = self.view.bundles.owner

    def of_namespace(self, namespace: str) -> Ints:
        """Return each broker's bundles of a namespace. O(brokers + the namespace's bundles)."""
        owners = self._owners(namespace)
        counts: Ints = np.bincount(owners, minlength=len(self.view.brokers))
        return counts

    def of_group(self, namespace: str) -> Ints | None:
        """Return each broker's count of a namespace's anti-affinity group, the namespace included.

        None: the namespace is in no group.
        """
        group = self.view.policies.group_of(namespace)
        if group is None:
            return None
        if group not in self._groups:
            counts = np.zeros(len(self.view.brokers), np.int64)
            for member in self.view.policies.namespaces_of(group):
                counts += self._share(member)
            self._groups[group] = counts
        return self._groups[group]

    def of_others(self, namespace: str) -> Ints | None:
        """Return each broker's count of a namespace's group without the namespace itself."""
        counts = self.of_group(namespace)
        return None if counts is None else counts - self._share(namespace)

    def against(self, namespace: str) -> Ints | None:
        """Return what counts against each broker for a namespace; None: it is in no group."""
        return self.of_group(namespace) if self.own_counts else self.of_others(namespace)

    def add(self, bundle: int, destination: int) -> None:
        """Count a bundle at its destination from now on, and no longer at its source."""
        namespace = namespace_of(self.view.bundles.name(bundle))
        counts = self.of_group(namespace)
        if counts is not None:
            counts -= self._share(namespace)
        if self._owner is self.view.bundles.owner:
            self._owner = self._owner.copy()
        self._owner[bundle] = destination
        if counts is not None:
            counts += self._share(namespace)

    def promise(self, bundle: str, broker: int, *, given: bool = True) -> None:
        """Count a bundle at a broker that was given it and hasn't reported it.

        `given` false: no longer count it there. The bundle may have no row in the view, or another
        owner.
        """
        promised = self._promised.setdefault(namespace_of(bundle), {})
        if given:
            promised[bundle, broker] = broker
        else:
            promised.pop((bundle, broker), None)
        self._groups.clear()

    def _share(self, namespace: str) -> Ints:
        """Return what one namespace adds to its group's count, by broker."""
        counts = self.of_namespace(namespace)
        return np.minimum(counts, 1) if self.counted == "namespaces" else counts

    def _owners(self, namespace: str) -> NDArray[np.integer]:
        """Return the broker of each bundle of a namespace, by report, decision or promise."""
        if namespace not in self._slices:
            self._slices[namespace] = self.view.bundles.rows_of_namespace(namespace)
        owners = self._owner[self._slices[namespace]]
        owners = owners[owners >= 0]
        promised = self._promised.get(namespace)
        return np.append(owners, np.array([*promised.values()], np.int32)) if promised else owners
