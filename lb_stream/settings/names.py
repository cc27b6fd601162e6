"""Every key that there is, of the balancer, its strategies and agents, and settings under our names."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.keys import KeyModel, SettingError
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import UnreadKeys
from lb_stream.core import least_moves as _least_moves  # noqa: F401 (it registers itself)
from lb_stream.core.model.registry import Registry
from lb_stream.core.placement import extensible_placement, placement, simple_placement
from lb_stream.core.shedding import shedder
from lb_stream.core.splitting import SplittingConfig, split_algorithm
from lb_stream.settings.load_managers import normalise_pulsar_value
from lb_stream.settings.spelling import PREFIX, list_names, split_namespace_key, to_our_names

REGISTRIES: tuple[Registry[Any], ...] = (
    shedder,
    placement,
    simple_placement,
    extensible_placement,
    split_algorithm,
)
"""Every kind of strategy."""


def list_models() -> tuple[type[KeyModel], ...]:
    """List every group of settings.

    The balancer's, each strategy's, the agents', and what is understood without effect.
    """
    strategies = (registry[name].config for registry in REGISTRIES for name in registry.names)
    return (BalancerConfig, SplittingConfig, *strategies, ReportConfig, UnreadKeys)


def list_known_names() -> dict[str, tuple[str, int]]:
    """Every accepted name, ours and Pulsar's → (our name, factor from the given value to ours)."""
    return list_names(list_models())


def normalise_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Bring settings under our names. Raises SettingError for a name that there isn't."""
    of_namespaces = {
        name: value
        for name, value in values.items()
        if name.startswith(PREFIX) and split_namespace_key(name, value)
    }
    values = {name: value for name, value in values.items() if name not in of_namespaces}
    known = list_known_names()
    if not known.keys() >= values.keys():  # a plug-in's, perhaps
        for registry in REGISTRIES:
            registry.load_plugins()
        known = list_known_names()
    for name in values:
        if name not in known:
            nearest = ", ".join(get_close_matches(name, list(known), n=3, cutoff=0.0))
            raise SettingError(name, values[name], f"one of the known keys; nearest: {nearest}")
    return of_namespaces | to_our_names(values, known, normalise_pulsar_value)


def to_our_name(name: str, value: Any) -> str:
    """Find our name of a key. Raises SettingError for one that there isn't."""
    try:
        (found,) = normalise_names({name: value})
    except SettingError:
        # Of a value that can't be translated the name may be right all the same.
        (found,) = normalise_names({name: 0})
    return found
