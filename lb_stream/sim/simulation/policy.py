"""Policies: settings that balance a cluster, by the names of strategies or from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lb_stream.contracts.balancer import PROFILES
from lb_stream.contracts.keys import GivenSettings, SettingError
from lb_stream.core.model.registry import Registry, Strategy, UnknownStrategyError
from lb_stream.core.placement import placement, simple_placement
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import traits_of
from lb_stream.settings.load import load_settings
from lb_stream.settings.names import normalise_names
from lb_stream.settings.resolve import ResolvedSettings, resolve

Kind = TypeVar("Kind", bound=Callable[..., object])
NONE = "none"
"""The policy that sheds nothing. It assigns unassigned bundles and carries out commands."""


class PolicyError(ValueError):
    """An unknown policy, or one with wrong settings. The message is one line for people."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A name to show, and settings, under our names or Pulsar's."""

    name: str
    settings: GivenSettings

    def values(self, **over: object) -> dict[str, object]:
        """Return the settings under our names, with others over them. Raises SettingError."""
        return normalise_names(self.settings) | over

    def resolve(self, **over: object) -> ResolvedSettings:
        """Resolve the settings, with others over them. Raises SettingError."""
        return resolve(self.values(**over))


def read_policy(name_or_file: str) -> Policy:
    """Read a policy by name or from a file of settings. Raises PolicyError.

    Names: `Shedder+Placement`, one name for both, a profile, `none`. Files: TOML, or Pulsar's
    broker.conf. In a TOML file the section [balancer] counts, and that of a cluster if it is the
    only one.
    """
    file = Path(name_or_file)
    try:
        policy = (
            _read_file(file)
            if file.suffix in (".toml", ".conf") or file.is_file()
            else _build_named(name_or_file)
        )
        policy.resolve()
    except SettingError as error:
        raise PolicyError(str(error)) from None
    return policy


def _read_file(file: Path) -> Policy:
    is_toml = file.suffix != ".conf"
    settings = load_settings(file if is_toml else None, None if is_toml else file, environment={})
    only = next(iter(settings.cluster)) if len(settings.cluster) == 1 else ""
    return Policy(file.stem, settings.of_cluster(only))


def _build_named(name: str) -> Policy:
    if name == NONE:
        return Policy(name, {"enabled": False})
    if name in PROFILES:
        return Policy(name, {"profile": name})
    first, plus, second = name.partition("+")
    settings = _shedder_settings(first) | (_placement_settings(second) if plus else {})
    if not plus and first in placement.names:
        settings |= _placement_settings(first)
    return Policy(name, settings)


def _shedder_settings(name: str) -> dict[str, object]:
    manager = traits_of(_require_strategy(shedder, name)).manager
    return {"shedding_strategy": name, "load_manager": "modular" if manager == "any" else manager}


def _placement_settings(name: str) -> dict[str, object]:
    if name in simple_placement.names and name not in placement.names:
        return {"load_manager": "simple", "simple_placement_strategy": name}
    _require_strategy(placement, name)
    return {"placement_strategy": name}


def _require_strategy(registry: Registry[Kind], name: str) -> Strategy[Kind]:
    try:
        return registry[name]
    except UnknownStrategyError as error:
        raise PolicyError(
            f"--policy: {registry.kind} {name!r}: expected {error.expected}; or Shedder+Placement, "
            f"{NONE!r}, a file of settings"
        ) from None
