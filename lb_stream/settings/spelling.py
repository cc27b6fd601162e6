"""How settings are spelled: our names and Pulsar's, another word for the mode, keys of namespaces.

Nothing here needs a strategy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.base import LONGEST_NAMESPACE
from lb_stream.contracts.keys import KeyModel, SettingError, pulsar_names

OLD_SPELLINGS = {
    "loadBalancerBandwithInResourceWeight": "bandwidth_in_weight",
    "loadBalancerBandwithOutResourceWeight": "bandwidth_out_weight",
}
"""Pulsar's misspelt keys: they count as long as the right one is not given or 1."""

DRY_RUN = "dry_run"
"""Another word for the mode: true stands for observe, false for act.

Beside a mode true goes over it, and false says nothing.
"""


@cache
def list_names(models: tuple[type[KeyModel], ...]) -> dict[str, tuple[str, int]]:
    """List every name of the models' keys, ours and Pulsar's → (our name, factor).

    The factor leads from the value given under that name to ours.
    """
    ours = {name: (name, 1) for model in models for name in model.model_fields}
    ours[DRY_RUN] = ("mode", 1)
    return ours | pulsar_names(*models) | {old: (name, 1) for old, name in OLD_SPELLINGS.items()}


def to_our_names(
    values: Mapping[str, Any],
    known: Mapping[str, tuple[str, int]],
    read: Callable[[str, Any], Any] = lambda _name, value: value,
) -> dict[str, Any]:
    """Bring settings under our names; `known` has all of theirs.

    `read`: (name, value) → our value, where that is not only a factor.
    """
    result: dict[str, Any] = {}
    # The order in which they were given doesn't count: a log's settings are sorted.
    for name, value in sorted(values.items(), key=lambda item: item[0] == DRY_RUN):
        ours, factor = known[name]
        if name == DRY_RUN:
            if (mode := _parse_mode(value)) == "observe" or ours not in result:
                result[ours] = mode
        elif name not in OLD_SPELLINGS:
            result[ours] = read(name, _scale(name, value, factor))
    for old, ours in OLD_SPELLINGS.items():
        if old in values and _is_one(result.get(ours, 1)):
            result[ours] = values[old]
    return result


def lay_over(
    own: Mapping[str, Any], over: Mapping[str, Any], commanded: Mapping[str, Any]
) -> dict[str, Any]:
    """Lay what was commanded over a cluster's own settings, both under our names.

    `commanded`: the same as `over`, under the names that the commands gave. The end of a dry run
    lifts no need for approval that was given: only another mode does.
    """
    if own.get("mode") == "approve" and over.get("mode") == "act" and "mode" not in commanded:
        over = {name: value for name, value in over.items() if name != "mode"}
    return {**own, **over}


def _parse_mode(dry_run: Any) -> str:
    try:
        return "observe" if TypeAdapter(bool).validate_python(dry_run) else "act"
    except ValidationError:
        raise SettingError(DRY_RUN, dry_run, "true or false") from None


def _is_one(value: Any) -> bool:
    try:
        return float(value) == 1.0
    except (TypeError, ValueError, OverflowError):
        return False


def _scale(name: str, value: Any, factor: int) -> Any:
    if factor == 1:
        return value
    try:
        scaled = float(value) * factor
    except (TypeError, ValueError, OverflowError):
        raise SettingError(name, value, "a number") from None
    return int(scaled) if scaled.is_integer() else scaled


# --- keys of namespaces: keys of their cluster's, so that they lie over others as these do ---

SECTION = "namespace"
"""The section that holds them: [namespace."TENANT/NAMESPACE"], or within a cluster's."""
PREFIX = f"{SECTION}."
"""Begins such a key: `namespace.TENANT/NAMESPACE.KEY`."""
_NAMESPACE = re.compile(r"[^/\s]+(/[^/\s]+){1,2}")


def split_namespace_key(name: str, value: Any) -> tuple[str, str]:
    """Split a key that begins with PREFIX into the namespace and its own key. Raises SettingError."""
    namespace, _, own = name.removeprefix(PREFIX).rpartition(".")
    if own not in NamespaceConfig.model_fields:
        keys = ", ".join(NamespaceConfig.model_fields)
        raise SettingError(name, value, f"{PREFIX}TENANT/NAMESPACE.KEY with one of the keys {keys}")
    if not _NAMESPACE.fullmatch(namespace) or len(namespace) > LONGEST_NAMESPACE:
        raise SettingError(
            name, value, f"a namespace as tenant/namespace between {PREFIX!r} and {own!r}"
        )
    return namespace, own


def flatten_namespaces(namespaces: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Turn sections, namespace → key → value, into keys of the cluster."""
    return {
        f"{PREFIX}{namespace}.{name}": value
        for namespace, keys in namespaces.items()
        for name, value in keys.items()
    }


def group_namespaces(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Gather the keys of namespaces as namespace → key → value, sorted by namespace."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(given):
        if name.startswith(PREFIX):
            namespace, own = split_namespace_key(name, given[name])
            found.setdefault(namespace, {})[own] = given[name]
    return found
