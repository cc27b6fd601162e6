"""What a policy is: a cluster's settings, named by strategies or read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lb_stream.contracts.keys import SettingError
from lb_stream.core.model.registry import Registry, UnknownStrategyError
from lb_stream.core.placement import placement, simple_placement
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import traits_of
from lb_stream.settings.load import load_settings
from lb_stream.settings.names import canonical
from lb_stream.settings.resolve import ResolvedSettings, resolve

NONE = "none"
"""The policy that sheds nothing: bundles that lose their owner get one, and operators are
obeyed."""


class PolicyError(ValueError):
    """A policy that there isn't, or with settings that can't be.

    The message is one line for people.
    """


@dataclass(frozen=True, slots=True)
class Policy:
    """A name to show, and the settings that it stands for: our names or Pulsar's."""

    name: str
    settings: Mapping[str, Any]

    def values(self, **over: Any) -> dict[str, Any]:
        """The settings under our names, with others over them. Raises SettingError."""
        return canonical(self.settings) | over

    def resolve(self, **over: Any) -> ResolvedSettings:
        """Resolve the settings, with others over them. Raises SettingError."""
        return resolve(self.values(**over))


def read_policy(name_or_file: str) -> Policy:
    """A policy by name (`Shedder+Placement`, one name for both, `none`) or from a file of settings
    (TOML, or Pulsar's broker.conf).

    In a TOML file the section [balancer] counts, and that of a cluster if there is one only. Raises
    PolicyError.
    """
    file = Path(name_or_file)
    try:
        policy = (
            _from_file(file)
            if file.suffix in (".toml", ".conf") or file.is_file()
            else _named(name_or_file)
        )
        policy.resolve()
    except SettingError as error:
        raise PolicyError(str(error)) from None
    return policy


def _from_file(file: Path) -> Policy:
    is_toml = file.suffix != ".conf"
    settings = load_settings(file if is_toml else None, None if is_toml else file, environment={})
    only = next(iter(settings.cluster)) if len(settings.cluster) == 1 else ""
    return Policy(file.stem, settings.of_cluster(only))


def _named(name: str) -> Policy:
    if name == NONE:
        return Policy(name, {"enabled": False})
    first, plus, second = name.partition("+")
    found = _shedding(first) | (_placing(second) if plus else {})
    if not plus and first in placement.names:
        found |= _placing(first)
    return Policy(name, found)


def _shedding(name: str) -> dict[str, Any]:
    manager = traits_of(_known(shedder, name)).manager
    return {"shedding_strategy": name, "load_manager": "modular" if manager == "any" else manager}


def _placing(name: str) -> dict[str, Any]:
    if name in simple_placement.names and name not in placement.names:
        return {"load_manager": "simple", "simple_placement_strategy": name}
    _known(placement, name)
    return {"placement_strategy": name}


def _known(registry: Registry[Any], name: str) -> Any:
    try:
        return registry[name]
    except UnknownStrategyError as error:
        raise PolicyError(
            f"--policy: {registry.kind} {name!r}: expected {error.expected}; or Shedder+Placement, "
            f"{NONE!r}, a file of settings"
        ) from None
