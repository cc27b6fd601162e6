"""Which load manager a cluster's settings come to, and which shedder it runs.

See docs/strategies.md "Load managers".

Pulsar answers a mistake in these settings with another manager: a class that isn't there, or
strategies that don't go together, make it SimpleLoadManager. This module does the same for what is
said in Pulsar's way: a name written as a class name (with dots), or given under Pulsar's key. What
is said in ours, a simple name under our key, is refused with the names there are. Either way
nothing happens silently: what was replaced is told in `warnings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.contracts.keys import SettingError
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
OWN_SHEDDER = {"simple": "SimpleLoadManager", "extensible": "TransferShedder"}
BOTH = "AvgShedder"
"""As a placement strategy, AvgShedder needs AvgShedder as the shedder too."""

CLASS_KEYS = {
    "loadManagerClassName": "load_manager",
    "loadBalancerLoadSheddingStrategy": "shedding_strategy",
    "loadBalancerLoadPlacementStrategy": "placement_strategy",
}
"""Pulsar's keys whose values are class names → ours."""
_REGISTRIES: dict[str, Registry[Any]] = {
    "shedding_strategy": shedder,
    "placement_strategy": placement,
}


@dataclass(frozen=True, slots=True)
class ChosenLoadManager:
    """The manager and its shedder, and what of the settings was replaced on the way."""

    manager: Manager
    shedder: Strategy[Shedder]
    warnings: tuple[str, ...]


def normalise_pulsar_value(key: str, value: Any) -> Any:
    """The value of one of Pulsar's keys.

    A name that stands for nothing here is marked as a class name, by a dot before it.
    """
    if key not in CLASS_KEYS or not isinstance(value, str) or "." in value:
        return value
    ours = CLASS_KEYS[key]
    known = (
        value in (*MANAGERS, *MANAGER_CLASSES)
        if ours == "load_manager"
        else isinstance(_find_strategy(ours, value), Strategy)
    )
    return value if known else f".{value}"


def choose_load_manager(given: Mapping[str, Any], dynamic: bool = False) -> ChosenLoadManager:
    """The manager and shedder of one cluster's settings (under our names). `dynamic`: a command gives them while a manager runs.

    `dynamic`: a command gives them while a manager runs.

    Raises SettingError for what is wrong in our own words, and for a manager or a shedder that a
    command names wrongly.
    """
    manager, warnings = _find_manager(given, dynamic)
    names = {key: given.get(key, default) for key, default in DEFAULTS.items()}
    found = {key: _find_strategy(key, name) for key, name in names.items()}
    for key, strategy in found.items():
        if isinstance(strategy, UnknownStrategyError) and "." not in names[key]:
            raise SettingError(key, names[key], strategy.expected) from None
    if manager == "modular":
        trouble = _find_pulsar_error(names, found)
        if trouble is not None and _is_rejected(given, dynamic):
            raise trouble
        if trouble is not None:
            manager, warnings = "simple", [*warnings, f"{trouble}; the simple manager runs instead"]
    chosen, place = found["shedding_strategy"], found["placement_strategy"]
    if isinstance(chosen, Strategy) and manager == "modular":
        if chosen.name == BOTH and isinstance(place, Strategy) and place.name != BOTH:
            warnings.append(
                f"shedding_strategy = {BOTH!r} without placement_strategy = {BOTH!r}: bundles go "
                f"where {place.name} says"
            )
        return ChosenLoadManager(manager, chosen, tuple(warnings))
    if (
        isinstance(chosen, Strategy)
        and manager == "extensible"
        and traits_of(chosen).manager in ("extensible", "any")
    ):
        return ChosenLoadManager(manager, chosen, tuple(warnings))
    own = shedder[OWN_SHEDDER[manager]]
    if "shedding_strategy" in given and chosen is not own and not warnings:
        warnings.append(
            f"shedding_strategy = {_without_dot(names['shedding_strategy'])!r} is none of the {manager} "
            f"manager's; {own.name} runs instead"
        )
    return ChosenLoadManager(manager, own, tuple(warnings))


def _find_manager(given: Mapping[str, Any], dynamic: bool) -> tuple[Manager, list[str]]:
    name = given.get("load_manager", "modular")
    simple = MANAGER_CLASSES.get(name.rpartition(".")[2], name) if isinstance(name, str) else name
    for known in MANAGERS:
        if simple == known:
            return known, []
    allowed = f"one of {', '.join((*MANAGERS, *MANAGER_CLASSES))}"
    pulsars = isinstance(name, str) and (not name.strip() or "." in name)
    if not pulsars or _is_rejected(given, dynamic):
        raise SettingError("load_manager", _without_dot(name), allowed)
    return "simple", [
        f"load_manager = {_without_dot(name)!r}: expected {allowed}; the simple manager runs instead"
    ]


def _is_rejected(given: Mapping[str, Any], dynamic: bool) -> bool:
    """Whether a mistake is refused rather than answered with the simple manager."""
    return dynamic and given.get("dynamic_bad_manager", "reject") == "reject"


def _find_strategy(key: str, name: Any) -> Strategy[Any] | UnknownStrategyError:
    if not isinstance(name, str):
        raise SettingError(key, name, "text")
    try:
        return _REGISTRIES[key][name]
    except UnknownStrategyError as error:
        return error


def _find_pulsar_error(
    names: Mapping[str, str], found: Mapping[str, Strategy[Any] | UnknownStrategyError]
) -> SettingError | None:
    """Why Pulsar could not build its modular manager, if so.

    Raises SettingError when that is said in our words.
    """
    for key, strategy in found.items():
        if isinstance(strategy, UnknownStrategyError):
            return SettingError(key, _without_dot(names[key]), strategy.expected)
    shed, place = (names[key].rpartition(".")[2] for key in DEFAULTS)
    chosen = found["shedding_strategy"]
    if (
        "." in names["shedding_strategy"]
        and isinstance(chosen, Strategy)
        and traits_of(chosen).manager == "extensible"
    ):
        return SettingError(
            "shedding_strategy",
            _without_dot(names["shedding_strategy"]),
            "one of the modular manager's, as Pulsar has them",
        )
    if place != BOTH or shed == BOTH:
        return None
    others = ", ".join(name for name in placement.names if name != BOTH)
    expected = f"shedding_strategy = {BOTH!r} with it, which is {shed!r}, or one of {others}"
    if "." not in names["placement_strategy"] and "." not in names["shedding_strategy"]:
        raise SettingError("placement_strategy", place, expected)
    return SettingError("placement_strategy", names["placement_strategy"], expected)


def _without_dot(name: Any) -> Any:
    return name.removeprefix(".") if isinstance(name, str) else name
