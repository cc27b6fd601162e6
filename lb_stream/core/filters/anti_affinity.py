"""Anti-affinity: namespaces of one group are kept on different failure domains and brokers."""

from __future__ import annotations

import numpy as np

from lb_stream.core.filters.base import FilterContext, with_lowest
from lb_stream.core.filters.census import Census
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import ClusterView, Ints, Rows


def domains_of(view: ClusterView) -> Ints | None:
    """Number the failure domain of each broker; None: no domain is defined.

    Brokers without a domain form one domain.
    """
    if not view.policies.failure_domains:
        return None
    domains = [view.policies.domain_of(broker) for broker in view.brokers.names]
    numbers: Ints = np.unique(np.array(domains, np.str_), return_inverse=True)[1]
    return numbers


class FailureDomain:
    """Keeps brokers of the failure domains that serve the fewest of a group's other namespaces."""

    rule = FilteredBy.FAILURE_DOMAIN

    def __init__(self, view: ClusterView, census: Census) -> None:
        self._census, self._domain = census, domains_of(view)

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers of the domains with the lowest count.

        Where a namespace's own bundles count, as in the reference, only candidates are counted.
        """
        rows = context.rows
        counts = self._census.against(context.namespace)
        if counts is None or self._domain is None or not len(rows):
            return rows
        domain = self._domain[rows]
        counting = rows if self._census.own_counts else np.arange(len(counts))
        total = np.bincount(self._domain[counting], counts[counting])
        kept: Rows = rows[total[domain] == total[domain].min()]
        return kept


class AntiAffinity:
    """Keeps the brokers that serve the fewest of the group's other namespaces."""

    rule = FilteredBy.ANTI_AFFINITY

    def __init__(self, census: Census) -> None:
        self._census = census

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers with the lowest count."""
        rows = context.rows
        counts = self._census.against(context.namespace)
        return rows if counts is None else with_lowest(rows, counts)


def unload_helps(counts: Ints | None, allowed: Rows, current: int) -> bool:
    """Return whether an unload of a bundle from `current` can spread its group farther.

    It can't when all allowed brokers serve equally many, at least one each. `counts`: of the group,
    by broker; None: the bundle is in no group. `allowed`: the brokers that policies allow.
    """
    if counts is None or not counts.any():
        return True
    if not len(allowed):
        return False
    mine = counts[allowed]
    least = mine.min()
    own = counts[current] if (allowed == current).any() else 0
    return bool(least == 0 or own > least or (mine != least).any())


def stays_apart(others: Ints | None, allowed: Rows, current: int) -> bool:
    """Return whether another allowed broker serves no more of the bundle's group than `current`.

    `others`: the group's count by broker, without the bundle's namespace; None: it is in no group.
    """
    if others is None:
        return True
    return bool((others[allowed[allowed != current]] <= others[current]).any())
