"""Find the broker that serves a topic, by the ownership records of the compacted topic.

See docs/lookups.md "Lookups".
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from lb_stream.contracts.decisions import OwnershipState
from lb_stream.core.model.names import FULL_RANGE_END, parse_bundle

GONE: frozenset[OwnershipState] = frozenset({"Deleted", "Init"})
"""States of bundles that no longer exist: other bundles have taken their place, or none."""

UNOWNED: frozenset[OwnershipState] = frozenset({"Free"})
"""States in which no broker serves a bundle and no decision about it is pending."""


@dataclass(frozen=True, slots=True)
class Route:
    """A bundle and the broker that serves its topics; `broker` None: none does yet."""

    bundle: str
    state: OwnershipState
    broker: str | None
    version: int
    since_ms: int

    @staticmethod
    def from_record(
        bundle: str,
        state: OwnershipState,
        owner: str | None,
        destination: str | None,
        version: int,
        since_ms: int,
    ) -> Route:
        """Return the route that an ownership record gives.

        The owner serves a bundle while it splits or merges it. A bundle that moves is routed to its
        destination.
        """
        is_served = state in ("Owned", "Splitting", "Merging")
        return Route(bundle, state, owner if is_served else destination, version, since_ms)

    @property
    def unowned(self) -> bool:
        """Whether a lookup has to ask for an owner."""
        return self.state in UNOWNED


@dataclass(slots=True)
class _Namespace:
    """The bundles of one namespace by their ranges."""

    routes: dict[tuple[int, int], Route] = field(default_factory=dict)
    order: list[tuple[int, int]] | None = None  # (lower, -upper), sorted; None: not built yet

    def find(self, hashed: int) -> Route | None:
        """Return the bundle that a hash is in; None: there is none.

        A child wins over the record of the bundle that was split. O(log n) where bundles don't
        overlap.
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
        """Remember a bundle's last record, or drop the bundle.

        It is dropped by None, and by a record that says that it no longer exists. Raises ValueError
        for a wrong name.
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
        """Return the bundle that the topics of a hash are in; None: no record names one."""
        known = self._clusters.get(cluster, {}).get(namespace)
        return None if known is None else known.find(hashed)

    @property
    def clusters(self) -> list[str]:
        """The clusters that have a record, sorted."""
        return sorted(self._clusters)

    def __len__(self) -> int:
        return sum(
            len(namespace.routes)
            for namespaces in self._clusters.values()
            for namespace in namespaces.values()
        )
