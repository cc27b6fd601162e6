"""How releases of Pulsar name topics, namespaces, and the namespaces that belong to a broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Release = Literal["any", "4.0", "4.2", "5.0"]

_PART = r"[-=:.\w]+"
_HOST_PORT = r"[^:/]+:\d+"


@dataclass(frozen=True, slots=True)
class NameRules:
    """What a release takes for a topic, for a namespace, and for one of a broker's own bundles.

    `system_bundle`: a regular expression that the names of heartbeat and SLA-monitor bundles begin
    with. `domains`: what stands before `://` in a topic's name. `with_cluster`: names may have a
    cluster between tenant and namespace.
    """

    system_bundle: str
    domains: tuple[str, ...]
    with_cluster: bool

    def is_namespace(self, name: str) -> bool:
        """Whether the name is that of a namespace."""
        cluster = rf"({_PART}/)?" if self.with_cluster else ""
        return re.fullmatch(rf"{_PART}/{cluster}{_PART}", name) is not None


_TWO_DOMAINS = ("persistent", "non-persistent")
_FOUR_DOMAINS = (*_TWO_DOMAINS, "topic", "segment")

NAME_RULES: Mapping[Release, NameRules] = {
    "any": NameRules(
        rf"^(sla-monitor|pulsar)/([^/]+/)?{_HOST_PORT}/0x", _FOUR_DOMAINS, with_cluster=True
    ),
    "4.0": NameRules(
        rf"^(sla-monitor/[^/]+/|pulsar/([^/]+/)?){_HOST_PORT}/0x", _TWO_DOMAINS, with_cluster=True
    ),
    "4.2": NameRules(rf"^(sla-monitor|pulsar)/{_HOST_PORT}/0x", _TWO_DOMAINS, with_cluster=False),
    "5.0": NameRules(rf"^(sla-monitor|pulsar)/{_HOST_PORT}/0x", _FOUR_DOMAINS, with_cluster=False),
}
"""Release → its names; `any` takes what one of them takes."""
