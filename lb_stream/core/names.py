"""Bundle names: `<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH`. Source: spec/placement.md §1."""

from __future__ import annotations

import re
from typing import NamedTuple

BUNDLE_PATTERN = r"^[^/]+/[^/]+(/[^/]+)?/0x[0-9a-f]{8}_0x[0-9a-f]{8}$"
"""Two parts before the range, or three: heartbeat namespaces are named `pulsar/<cluster>/<host:port>`."""

SYSTEM_PATTERN = r"^(sla-monitor/[^/]+/[^:/]+:\d+|pulsar/([^/]+/)?[^:/]+:\d+)/0x"
"""Heartbeat and SLA-monitor namespaces: they belong to the broker in their name, always. Source: spec/shedding.md §1."""

_SYSTEM = re.compile(SYSTEM_PATTERN)
FULL_RANGE_END = 0xFFFFFFFF


class BundleRange(NamedTuple):
    """The hash range of a bundle: [lower, upper), the last one of a namespace including 0xffffffff."""

    namespace: str
    lower: int
    upper: int


def parse_bundle(name: str) -> BundleRange:
    """Split a bundle's name. Raises ValueError, naming what was expected, when it is none."""
    if not re.match(BUNDLE_PATTERN, name):
        raise ValueError(f"not a bundle name: {name!r}; expected <tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH")
    namespace, _, bounds = name.rpartition("/")
    lower, upper = (int(bound, 16) for bound in bounds.split("_"))
    if lower >= upper:
        raise ValueError(f"empty bundle range: {name!r}; expected a lower bound below the upper one")
    return BundleRange(namespace, lower, upper)


def namespace_of(name: str) -> str:
    """The namespace of a bundle name that is known to be well formed."""
    return name.rpartition("/")[0]


def is_system_bundle(name: str) -> bool:
    """Whether the bundle is of a heartbeat or SLA-monitor namespace, which no strategy may touch."""
    return _SYSTEM.match(name) is not None
