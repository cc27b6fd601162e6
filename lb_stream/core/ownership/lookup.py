"""Which broker serves a topic, from the ownership records of the compacted topic.

See docs/lookups.md "Lookups".
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from lb_stream.contracts.decisions import OwnershipState
from lb_stream.core.model.names import FULL_RANGE_END, parse_bundle

GONE: frozenset[OwnershipState] = frozenset({"Deleted", "Init"})
"""States of bundles that are no more: others are in their place, or none."""

UNOWNED: frozenset[OwnershipState] = frozenset({"Free"})
"""States in which nobody serves a bundle and nothing is decided about it."""


@dataclass(frozen=True, slots=True)
class Route:
    """One bundle and who answers for its topics. `broker` None: nobody yet."""

    bundle: str
    state: OwnershipState
    broker: str | None
    version: int
    since_ms: int

    @staticmethod
    def of(
        bundle: str,
        state: OwnershipState,
        owner: str | None,
        destination: str | None,
        version: int,
        since_ms: int,
    ) -> Route:
        """From an ownership record: the owner also while it splits or merges the bundle; of a
        bundle on its way whoever is to have it."""
        return Route(
            bundle,
            state,
            owner if state in ("Owned", "Splitting", "Merging") else destination,
            version,
            since_ms,
        )

    @property
    def unowned(self) -> bool:
        """Whether an owner has yet to be asked for."""
        return self.state in UNOWNED


@dataclass(slots=True)
class _Namespace:
    """The bundles of one namespace by their ranges.

    `order` None: the list of those that are there has yet to be made.
    """

    routes: dict[tuple[int, int], Route] = field(default_factory=dict)
    order: list[tuple[int, int]] | None = None

    def find(self, hashed: int) -> Route | None:
        """The bundle of a hash.

        Where a split bundle's old record is still there, the child wins. O(log n) where bundles
        don't overlap.
        """
        if self.order is None:
            self.order = sorted((lower, -upper) for lower, upper in self.routes)
        for at in range(bisect_right(self.order, (hashed, 1)) - 1, -1, -1):
            lower, upper = self.order[at][0], -self.order[at][1]
            if hashed < upper or hashed == upper == FULL_RANGE_END:
                return self.routes[lower, upper]
        return None


class Routes:
    """The last ownership record of every bundle, arranged for lookups."""

    def __init__(self) -> None:
        self._clusters: dict[str, dict[str, _Namespace]] = {}

    def take(self, cluster: str, bundle: str, route: Route | None) -> None:
        """Remember a bundle's last record; None, or one of a bundle that is no more, forgets it.

        Raises ValueError for a wrong name.
        """
        name, lower, upper = parse_bundle(bundle)
        namespaces = self._clusters.setdefault(cluster, {})
        known = namespaces.setdefault(name, _Namespace())
        if route is not None and route.state not in GONE:
            if (lower, upper) not in known.routes:
                known.order = None
            known.routes[lower, upper] = route
        elif known.routes.pop((lower, upper), None) is not None:
            known.order = None
        if not known.routes:
            del namespaces[name]

    def find(self, cluster: str, namespace: str, hashed: int) -> Route | None:
        """The bundle that the topics of a hash are in; None: no record of it."""
        known = self._clusters.get(cluster, {}).get(namespace)
        return None if known is None else known.find(hashed)

    @property
    def clusters(self) -> list[str]:
        """Those that have a record, sorted."""
        return sorted(self._clusters)

    def __len__(self) -> int:
        return sum(
            len(namespace.routes)
            for namespaces in self._clusters.values()
            for namespace in namespaces.values()
        )
