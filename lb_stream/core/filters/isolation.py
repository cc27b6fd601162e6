"""Isolation policies: a namespace with a policy uses its primaries, others the shared brokers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lb_stream.core.filters.base import FilterContext
from lb_stream.core.model.policies import IsolationPolicy
from lb_stream.core.model.rules import FilteredBy
from lb_stream.core.model.view import Bools, ClusterView, Rows


class Isolation:
    """Keeps the brokers that isolation policies allow. Only the rows given count as available."""

    rule = FilteredBy.ISOLATION

    def __init__(self, view: ClusterView, by_port: bool = True) -> None:
        """`by_port`: expressions with a colon are matched against host:port too."""
        self._by_port = by_port
        self._policies = view.policies
        self._brokers = tuple(view.brokers.names)
        self._by_namespace: dict[str, IsolationPolicy | None] = {}
        self._shared: Bools | None = None

    def keep(self, context: FilterContext) -> Rows:
        """Return the policy's primaries, with its secondaries while there are too few primaries.

        For a namespace without a policy: the shared brokers, which are no policy's primaries.
        """
        rows = context.rows
        if not self._policies.isolation:
            return rows
        policy = self.policy_of(context.namespace)
        if policy is None:
            return rows[self._is_shared()[rows]]
        primary, secondary = _masks(policy, self._brokers, self._by_port)
        if np.count_nonzero(primary[rows]) < policy.min_available:
            return rows[(primary | secondary)[rows]]
        return rows[primary[rows]]

    def policy_of(self, namespace: str) -> IsolationPolicy | None:
        """Return the policy that counts for a namespace; None: there is none."""
        if not self._policies.isolation:
            return None
        if namespace not in self._by_namespace:
            self._by_namespace[namespace] = self._policies.isolation_of(namespace)
        return self._by_namespace[namespace]

    def matches_none(self, namespace: str, rows: Rows) -> bool:
        """Return whether the namespace has a policy that matches none of these brokers."""
        policy = self.policy_of(namespace)
        if policy is None:
            return False
        primary, secondary = _masks(policy, self._brokers, self._by_port)
        return not (primary | secondary)[rows].any()

    def _is_shared(self) -> Bools:
        if self._shared is None:
            owned = [
                _masks(policy, self._brokers, self._by_port)[0]
                for policy in self._policies.isolation
            ]
            self._shared = ~np.logical_or.reduce(owned)
        return self._shared


@lru_cache(maxsize=1_024)
def _masks(policy: IsolationPolicy, brokers: tuple[str, ...], by_port: bool) -> tuple[Bools, Bools]:
    """Return which brokers are the policy's primaries, and which are its secondaries.

    The result is kept from round to round: regular expressions take long.
    """
    found = [
        (policy.is_primary(broker, by_port), policy.is_secondary(broker, by_port))
        for broker in brokers
    ]
    masks = np.array(found, np.bool_).reshape(-1, 2)
    masks.flags.writeable = False
    return masks[:, 0], masks[:, 1]
