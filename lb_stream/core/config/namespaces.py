"""Settings of namespaces: each key is a key of its cluster's, `namespace.TENANT/NAMESPACE.KEY`, so
that it lies over others as these do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.base import LONGEST_NAMESPACE
from lb_stream.contracts.keys import SettingError

SECTION = "namespace"
"""The section that holds them: [namespace."TENANT/NAMESPACE"], or within a cluster's."""
PREFIX = f"{SECTION}."
_NAMESPACE = re.compile(r"[^/\s]+(/[^/\s]+){1,2}")


def namespace_key(name: str, value: Any) -> tuple[str, str]:
    """The namespace and its own key of a key that begins with PREFIX. Raises SettingError."""
    namespace, _, own = name.removeprefix(PREFIX).rpartition(".")
    if own not in NamespaceConfig.model_fields:
        raise SettingError(
            name,
            value,
            f"{PREFIX}TENANT/NAMESPACE.KEY with one of the keys "
            f"{', '.join(NamespaceConfig.model_fields)}",
        )
    if not _NAMESPACE.fullmatch(namespace) or len(namespace) > LONGEST_NAMESPACE:
        raise SettingError(
            name, value, f"a namespace as tenant/namespace between {PREFIX!r} and {own!r}"
        )
    return namespace, own


def flat(namespaces: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Sections, namespace → key → value, as keys of the cluster."""
    return {
        f"{PREFIX}{namespace}.{name}": value
        for namespace, keys in namespaces.items()
        for name, value in keys.items()
    }


def nested(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Namespace → key → value, of all the given keys that are namespaces'; sorted."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(given):
        if name.startswith(PREFIX):
            namespace, own = namespace_key(name, given[name])
            found.setdefault(namespace, {})[own] = given[name]
    return found
