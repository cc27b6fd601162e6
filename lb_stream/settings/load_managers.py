"""Chooses a cluster's load manager and its shedder (docs/strategies.md, "Load managers").

Pulsar falls back to SimpleLoadManager when a class is missing or strategies exclude each other.
This module does the same for settings in Pulsar's form: a class name (with dots), or a value under
Pulsar's key. A wrong simple name under our key is refused, with the names that exist. Each
replacement gives a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.contracts.keys import GivenSettings, SettingError
from lb_stream.core.model.registry import Registry, Strategy, UnknownStrategyError
from lb_stream.core.placement import placement
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import Shedder, traits_of

Manager = Literal["modular", "simple", "extensible"]

MANAGERS: tuple[Manager, ...] = ("modular", "simple", "extensible")
DEFAULTS = {
    "shedding_strategy": "ThresholdShedder",
    "placement_strategy": "LeastLongTermMessageRate",
}
OWN_SHEDDERS = {"simple": "SimpleLoadManager", "extensible": "TransferShedder"}
NOOP = "NoopLoadManager"
"""Pulsar's manager of a broker that is alone: it balances nothing."""
BOTH = "AvgShedder"
"""A shedder and a placement: as the placement it needs itself as the shedder too."""

CLASS_KEYS = {
    "loadManagerClassName": "load_manager",
    "loadBalancerLoadSheddingStrategy": "shedding_strategy",
    "loadBalancerLoadPlacementStrategy": "placement_strategy",
}
"""Pulsar's keys whose values are class names → our keys."""
_REGISTRIES: dict[str, Registry[Any]] = {
    "shedding_strategy": shedder,
    "placement_strategy": placement,
}


@dataclass(frozen=True, slots=True)
class ChosenLoadManager:
    """The load manager and its shedder. `warnings` says which settings were replaced."""

    manager: Manager
    shedder: Strategy[Shedder]
    warnings: tuple[str, ...]
    replaced: Mapping[str, str | bool] = field(default_factory=dict)
    """Key → the value that takes the place of one that doesn't go with the others."""


def normalise_pulsar_value(key: str, value: object) -> object:
    """Return a value of one of Pulsar's keys, with unknown class names marked as such.

    The mark is a dot before the name: names with dots are class names.
    """
    if key not in CLASS_KEYS or not isinstance(value, str) or "." in value:
        return value
    ours = CLASS_KEYS[key]
    known = (
        value in (*MANAGERS, *MANAGER_CLASSES)
        if ours == "load_manager"
        else isinstance(find_strategy(ours, value), Strategy)
    )
    return value if known else f".{value}"


def choose_load_manager(given: GivenSettings, dynamic: bool = False) -> ChosenLoadManager:
    """Choose the load manager and the shedder of one cluster's settings, under our names.

    `dynamic`: a command gives the settings while a manager runs. Raises SettingError for a wrong
    name in our form, and for a wrong manager or shedder of a command.
    """
    # the manager and strategies that the settings name
    manager, warnings = _find_manager(given, dynamic)
    names = {key: _require_text(key, given.get(key, name)) for key, name in DEFAULTS.items()}
    found = {key: find_strategy(key, name) for key, name in names.items()}
    for key, strategy in found.items():
        if isinstance(strategy, UnknownStrategyError) and "." not in names[key]:
            raise SettingError(key, names[key], strategy.expected) from None
    # what takes the place of settings that don't go together
    replaced: dict[str, str | bool] = {}
    if str(given.get("load_manager", "")).endswith(NOOP):
        replaced = {"enabled": False}
    if manager == "modular" and given.get("bad_strategies") == "replace":
        better, more = _replace_placement(found)
        names, warnings = names | better, [*warnings, *more]
        found |= {key: find_strategy(key, name) for key, name in better.items()}
        replaced |= better
    # the manager that Pulsar falls back to
    if manager == "modular":
        error = _find_pulsar_error(names, found)
        if error is not None and _is_refused(given, dynamic):
            raise error
        if error is not None:
            manager = "simple"
            warnings.append(f"{error}; the simple manager runs instead")
    # the shedder: the named one, or the manager's own
    chosen, place = found["shedding_strategy"], found["placement_strategy"]
    if isinstance(chosen, Strategy) and manager == "modular":
        if chosen.name == BOTH and isinstance(place, Strategy) and place.name != BOTH:
            warnings.append(
                f"shedding_strategy = {BOTH!r} without placement_strategy = {BOTH!r}: {place.name} "
                f"chooses the destinations, not {BOTH}'s plan"
            )
        return ChosenLoadManager(manager, chosen, tuple(warnings), replaced)
    if (
        isinstance(chosen, Strategy)
        and manager == "extensible"
        and traits_of(chosen).manager in ("extensible", "any")
    ):
        return ChosenLoadManager(manager, chosen, tuple(warnings))
    own = shedder[OWN_SHEDDERS[manager]]
    if "shedding_strategy" in given and chosen is not own and not warnings:
        warnings.append(
            f"shedding_strategy = {names['shedding_strategy'].removeprefix('.')!r} does not run "
            f"under the {manager} manager; {own.name} runs instead"
        )
    return ChosenLoadManager(manager, own, tuple(warnings), replaced)


def _find_manager(given: GivenSettings, dynamic: bool) -> tuple[Manager, list[str]]:
    """Find the manager that the settings name, or that Pulsar falls back to, and warnings."""
    name = given.get("load_manager", "modular")
    simple = MANAGER_CLASSES.get(name.rpartition(".")[2], name) if isinstance(name, str) else name
    for known in MANAGERS:
        if simple == known:
            return known, []
    if isinstance(name, str) and name.rpartition(".")[2] == NOOP:
        return "simple", [f"load_manager = {NOOP!r}: nothing is balanced"]
    allowed = f"one of {', '.join((*MANAGERS, *MANAGER_CLASSES))}"
    if not isinstance(name, str):
        raise SettingError("load_manager", name, allowed)
    shown = name.removeprefix(".")
    in_pulsars_form = not name.strip() or "." in name
    is_named = dynamic or shown.strip()
    if not in_pulsars_form or (_is_refused(given, dynamic) and is_named):
        raise SettingError("load_manager", shown, allowed)
    return "simple", [
        f"load_manager = {shown!r}: expected {allowed}; the simple manager runs instead"
    ]


def _is_refused(given: GivenSettings, dynamic: bool) -> bool:
    """Return whether a mistake in Pulsar's words is an error, instead of the simple manager."""
    if given.get("bad_strategies", "simple") != "simple":
        return True
    return dynamic and given.get("dynamic_bad_manager", "reject") == "reject"


def _replace_placement(
    found: Mapping[str, Strategy[Any] | UnknownStrategyError],
) -> tuple[dict[str, str], list[str]]:
    """Return what takes the place of AvgShedder as the placement of another shedder; a warning."""
    shed, place = found["shedding_strategy"], found["placement_strategy"]
    if not isinstance(shed, Strategy) or not isinstance(place, Strategy):
        return {}, []
    if place.name != BOTH or shed.name == BOTH:
        return {}, []
    instead = DEFAULTS["placement_strategy"]
    return {"placement_strategy": instead}, [
        f"placement_strategy = {BOTH!r} goes only with shedding_strategy = {BOTH!r}, which is "
        f"{shed.name!r}; {instead} is used instead"
    ]


def _require_text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise SettingError(key, value, "text")
    return value


def find_strategy(key: str, name: str) -> Strategy[Any] | UnknownStrategyError:
    """Find the strategy that a key of CLASS_KEYS names, or why there is none."""
    try:
        return _REGISTRIES[key][name]
    except UnknownStrategyError as error:
        return error


def _find_pulsar_error(
    names: Mapping[str, str], found: Mapping[str, Strategy[Any] | UnknownStrategyError]
) -> SettingError | None:
    """Find why Pulsar could not build its modular manager; None: it could.

    Raises SettingError when the mistake is in our form.
    """
    for key, strategy in found.items():
        if isinstance(strategy, UnknownStrategyError):
            return SettingError(key, names[key].removeprefix("."), strategy.expected)
    shed, place = (names[key].rpartition(".")[2] for key in DEFAULTS)
    chosen = found["shedding_strategy"]
    if (
        "." in names["shedding_strategy"]
        and isinstance(chosen, Strategy)
        and traits_of(chosen).manager == "extensible"
    ):
        return SettingError(
            "shedding_strategy",
            names["shedding_strategy"].removeprefix("."),
            "a shedder of the modular manager, as in Pulsar",
        )
    if place != BOTH or shed == BOTH:
        return None
    others = ", ".join(name for name in placement.names if name != BOTH)
    expected = f"one of {others}, or shedding_strategy = {BOTH!r} too (it is {shed!r})"
    if "." not in names["placement_strategy"] and "." not in names["shedding_strategy"]:
        raise SettingError("placement_strategy", place, expected)
    return SettingError("placement_strategy", names["placement_strategy"], expected)
