"""The names of settings: ours and Pulsar's, `dry_run` for the mode, keys of namespaces.

Nothing here imports a strategy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache

from pydantic import TypeAdapter, ValidationError

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.base import LONGEST_NAMESPACE, NAMESPACE_PATTERN
from lb_stream.contracts.keys import GivenSettings, KeyModel, SettingError, pulsar_names

OLD_SPELLINGS = {
    "loadBalancerBandwithInResourceWeight": "bandwidth_in_weight",
    "loadBalancerBandwithOutResourceWeight": "bandwidth_out_weight",
}
"""Pulsar's misspelt key → our name. It counts if the right key is absent or 1."""
RIGHT_SPELLINGS = {old: old.replace("Bandwith", "Bandwidth") for old in OLD_SPELLINGS}
"""Pulsar's misspelt key → the right one."""

BALANCING = ("loadBalancer", "loadManager", "namespaceBundle", "defaultNumberOf", "scalableTopic")
"""How the names of Pulsar's keys of balancing begin."""
SIMILARITY = 0.9
"""A key as similar as this to a key of balancing is taken for a typing error in it."""

DRY_RUN = "dry_run"
"""Another name of the mode: true means observe, false means act.

If `mode` is given too, true overrides it, and false has no effect.
"""


@cache
def list_names(models: tuple[type[KeyModel], ...]) -> dict[str, tuple[str, int]]:
    """Return every name of the models' keys, ours and Pulsar's → (our name, factor).

    A value under that name, multiplied by the factor, is ours.
    """
    ours = {name: (name, 1) for model in models for name in model.model_fields}
    ours[DRY_RUN] = ("mode", 1)
    return ours | pulsar_names(*models) | {old: (name, 1) for old, name in OLD_SPELLINGS.items()}


def choose_spellings(values: Mapping[str, str]) -> dict[str, str]:
    """Return a broker.conf's values without the misspelt keys that don't count, or the right ones.

    Both may stand in the file: the misspelt key counts if the right one is 1.
    """
    chosen = dict(values)
    for old, right in RIGHT_SPELLINGS.items():
        if old in chosen and right in chosen:
            del chosen[right if _to_float(chosen[right]) == 1.0 else old]
    return chosen


def find_misspelt(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the names that seem to be keys of balancing and aren't known → the nearest known key.

    Letters' case counts only for what is known: `loadbalancerEnabled` is not.
    """
    keys = {name.lower(): name for name in known}
    found = {}
    for name in set(names).difference(keys.values()):
        is_balancing = name.lower().startswith(tuple(begin.lower() for begin in BALANCING))
        cutoff = 0.0 if is_balancing else SIMILARITY
        for near in get_close_matches(name.lower(), keys, n=1, cutoff=cutoff):
            found[name] = keys[near]
    return dict(sorted(found.items()))


def to_our_names(
    values: GivenSettings,
    known: Mapping[str, tuple[str, int]],
    read: Callable[[str, object], object] = lambda _name, value: value,
) -> dict[str, object]:
    """Return settings under our names. `known` must have each of the given names.

    `read`: (name, value times its factor) → our value.
    """
    result: dict[str, object] = {}
    # `dry_run` comes last whatever the given order is: a log's settings are sorted by name.
    for name, value in sorted(values.items(), key=lambda item: item[0] == DRY_RUN):
        ours, factor = known[name]
        if name == DRY_RUN:
            if (mode := _parse_mode(value)) == "observe" or ours not in result:
                result[ours] = mode
        elif name not in OLD_SPELLINGS:
            result[ours] = read(name, _scale(name, value, factor))
    for old, ours in OLD_SPELLINGS.items():
        if old in values and _to_float(result.get(ours, 1)) == 1.0:
            result[ours] = values[old]
    return result


def lay_over(
    own: GivenSettings, over: GivenSettings, commanded: GivenSettings
) -> dict[str, object]:
    """Return a cluster's own settings with overrides on top, under our names.

    `over` and `commanded` are the same overrides: under our names, and as the commands named them.
    The end of a dry run (`dry_run` = false) leaves the mode `approve` as it is.
    """
    if own.get("mode") == "approve" and over.get("mode") == "act" and "mode" not in commanded:
        over = {name: value for name, value in over.items() if name != "mode"}
    return {**own, **over}


def _parse_mode(dry_run: object) -> str:
    """Return the mode that a value of `dry_run` means. Raises SettingError."""
    try:
        return "observe" if TypeAdapter(bool).validate_python(dry_run) else "act"
    except ValidationError:
        raise SettingError(DRY_RUN, dry_run, "true or false") from None


def _to_float(value: object) -> float | None:
    """Return a number, or a text that holds one, as a float; None: the value is neither."""
    if not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _scale(name: str, value: object, factor: int) -> object:
    """Multiply a value that is given in Pulsar's unit. Raises SettingError if it is no number."""
    if factor == 1:
        return value
    number = _to_float(value)
    if number is None:
        raise SettingError(name, value, "a number")
    scaled = number * factor
    return int(scaled) if scaled.is_integer() else scaled


# --- keys of namespaces ---
#
# They are flat keys of their cluster, so that one layer overrides another key by key.

SECTION = "namespace"
"""The section of namespaces: [namespace."TENANT/NAMESPACE"], also inside a cluster's section."""
PREFIX = f"{SECTION}."
"""Prefix of a namespace's key: `namespace.TENANT/NAMESPACE.KEY`."""
_NAMESPACE = re.compile(NAMESPACE_PATTERN)


def split_namespace_key(name: str, value: object) -> tuple[str, str]:
    """Split a key that begins with PREFIX into the namespace and the namespace's key.

    `value` is for messages. Raises SettingError.
    """
    namespace, _, own = name.removeprefix(PREFIX).rpartition(".")
    if own not in NamespaceConfig.model_fields:
        keys = ", ".join(NamespaceConfig.model_fields)
        raise SettingError(name, value, f"{PREFIX}TENANT/NAMESPACE.KEY with one of the keys {keys}")
    if not _NAMESPACE.fullmatch(namespace) or len(namespace) > LONGEST_NAMESPACE:
        raise SettingError(
            name, value, f"a namespace as tenant/namespace between {PREFIX!r} and {own!r}"
        )
    return namespace, own


def flatten_namespaces(namespaces: Mapping[str, GivenSettings]) -> dict[str, object]:
    """Turn sections (namespace → key → value) into keys of the cluster."""
    return {
        f"{PREFIX}{namespace}.{name}": value
        for namespace, keys in namespaces.items()
        for name, value in keys.items()
    }


def group_namespaces(given: GivenSettings) -> dict[str, dict[str, object]]:
    """Gather the keys of namespaces as namespace → key → value, sorted by namespace."""
    found: dict[str, dict[str, object]] = {}
    for name in sorted(given):
        if name.startswith(PREFIX):
            namespace, own = split_namespace_key(name, given[name])
            found.setdefault(namespace, {})[own] = given[name]
    return found
