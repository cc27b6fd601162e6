"""All keys of the balancer, its strategies and its agents, and settings under our names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.keys import GivenSettings, KeyModel, SettingError, pulsar_names
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import UnreadKeys
from lb_stream.core import least_moves as _least_moves  # noqa: F401 (it registers itself)
from lb_stream.core.model.registry import Registry
from lb_stream.core.placement import extensible_placement, placement, simple_placement
from lb_stream.core.shedding import shedder
from lb_stream.core.splitting import SplittingConfig, split_algorithm
from lb_stream.settings.load_managers import normalise_pulsar_value
from lb_stream.settings.spelling import (
    OLD_SPELLINGS,
    PREFIX,
    list_names,
    split_namespace_key,
    to_our_names,
)

REGISTRIES: tuple[Registry[Any], ...] = (
    shedder,
    placement,
    simple_placement,
    extensible_placement,
    split_algorithm,
)
"""Every kind of strategy."""


def list_models() -> tuple[type[KeyModel], ...]:
    """Return the model of each group of settings.

    These are the balancer's, each strategy's, the agents', and Pulsar's keys without effect.
    """
    strategies = (registry[name].config for registry in REGISTRIES for name in registry.names)
    return (BalancerConfig, SplittingConfig, *strategies, ReportConfig, UnreadKeys)


def list_known_names() -> dict[str, tuple[str, int]]:
    """Return every accepted name, ours and Pulsar's → (our name, factor); see `list_names`."""
    return list_names(list_models())


def list_pulsar_names() -> set[str]:
    """Return Pulsar's names of all keys, misspelt ones included."""
    return {*pulsar_names(*list_models()), *OLD_SPELLINGS}


def load_plugins() -> None:
    """Load every plug-in, so that its keys are known too: they are loaded only when needed."""
    for registry in REGISTRIES:
        registry.load_plugins()


def normalise_names(values: GivenSettings) -> dict[str, object]:
    """Return settings under our names. Raises SettingError for an unknown name."""
    namespace_values = {
        name: value
        for name, value in values.items()
        if name.startswith(PREFIX) and split_namespace_key(name, value)
    }
    values = {name: value for name, value in values.items() if name not in namespace_values}
    known = list_known_names()
    if not known.keys() >= values.keys():
        load_plugins()
        known = list_known_names()
    for name in values:
        if name not in known:
            nearest = ", ".join(get_close_matches(name, list(known), n=3, cutoff=0.0))
            raise SettingError(name, values[name], f"one of the known keys; nearest: {nearest}")
    return namespace_values | to_our_names(values, known, normalise_pulsar_value)


def to_our_name(name: str, value: object) -> str:
    """Return our name of a key. Raises SettingError for an unknown name."""
    try:
        (ours,) = normalise_names({name: value})
    except SettingError:
        # The value may be wrong and the name right.
        (ours,) = normalise_names({name: 0})
    return ours
