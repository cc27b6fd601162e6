"""Namespaces and their policies, as they are imported from an existing cluster."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, FiniteFloat, field_validator

from lb_stream.contracts.base import LONGEST_NAMESPACE, SERVED_NAMESPACE_PATTERN, OwnRecord

RING_END = 0xFFFFFFFF
MOST_BUNDLES = 1 << 14
"""Maximum bundles of one namespace.

Pulsar's brokers stop splitting at 128 (loadBalancerNamespaceMaximumBundles); its limit is 2^32.
"""


class Namespace(OwnRecord):
    """One namespace: the boundaries of its bundles, and its anti-affinity group.

    `boundaries` rise strictly from 0 to 0xffffffff; a namespace of n bundles has n + 1 of them.
    """

    name: str = Field(
        pattern=SERVED_NAMESPACE_PATTERN,
        max_length=LONGEST_NAMESPACE,
        description="<tenant>/<namespace>",
    )
    boundaries: Annotated[list[int], Field(max_length=MOST_BUNDLES + 1)]
    anti_affinity_group: str | None = None

    @field_validator("boundaries")
    @classmethod
    def _whole_ring(cls, value: list[int]) -> list[int]:
        if (
            len(value) < 2
            or value[0] != 0
            or value[-1] != RING_END
            or any(low >= high for low, high in pairwise(value))
        ):
            raise ValueError(f"expected hashes that rise strictly from 0 to {RING_END}")
        return value

    @property
    def bundles(self) -> list[str]:
        """Return the names of its bundles, in the order of their ranges."""
        return [f"{self.name}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(self.boundaries)]


class NamespaceIsolation(OwnRecord):
    """An isolation policy: regular expressions of namespaces, and of brokers that they may use.

    A broker's expression must match the whole host or, if it has a colon, the whole host:port.
    Secondary brokers count while fewer than `min_available` primary ones are active.
    """

    name: str
    namespaces: list[str]
    primary: list[str]
    secondary: list[str] = []
    min_available: Annotated[int, Field(ge=0)] = 1
    usage_threshold_percent: FiniteFloat = 100.0


class ClusterNamespaces(OwnRecord):
    """All namespaces and isolation policies of a cluster. `failure_domains`: broker → domain."""

    namespaces: list[Namespace] = []
    isolation: list[NamespaceIsolation] = []
    failure_domains: dict[str, str] = {}
