"""One cluster's settings → what its rounds and its agents run with, checked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, BalancerConfig, NamespaceConfig
from lb_stream.contracts.keys import SettingError, build_settings
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import UnreadKeys, describe_unread
from lb_stream.core.config.auto_approve import check_auto_approve
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.config.windows import check_windows
from lb_stream.core.model.registry import Strategy, UnknownStrategyError
from lb_stream.core.placement import extensible_placement, placement, simple_placement
from lb_stream.core.placement.base import Placement
from lb_stream.core.splitting import Algorithms, SplittingConfig, split_algorithm
from lb_stream.settings.load_managers import choose_load_manager
from lb_stream.settings.names import normalise_names
from lb_stream.settings.spelling import PREFIX, group_namespaces, lay_over

NONE: Mapping[str, Any] = MappingProxyType({})
"""A layer without settings."""


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """What one cluster's settings come to.

    `config`: what its rounds run with; `reporting`: what its agents do; `warnings`: what of the
    settings was replaced by something that works, or has no effect.
    """

    config: ClusterConfig
    reporting: ReportConfig
    warnings: tuple[str, ...]

    @property
    def values(self) -> dict[str, Any]:
        """Every key in force, defaults included, typed; `profile` first."""
        config = self.config
        found: dict[str, Any] = {}
        # A strategy may read a key of the balancer's.
        for model in (
            config.balancer,
            config.shedder_config,
            config.placement_config,
            config.splitting,
            self.reporting,
        ):
            found = {name: getattr(model, name) for name in type(model).model_fields} | found
        for namespace, own in config.namespaces.items():
            found |= {
                f"{PREFIX}{namespace}.{name}": getattr(own, name)
                for name in sorted(own.model_fields_set)
            }
        return dict(sorted(found.items(), key=lambda item: item[0] != "profile"))


def apply_overrides(own: Mapping[str, Any], commanded: Mapping[str, Any]) -> dict[str, Any]:
    """Lay what operators have commanded over a cluster's own settings; under our names."""
    return lay_over(normalise_names(own), normalise_names(commanded), commanded)


def resolve(own: Mapping[str, Any], commanded: Mapping[str, Any] = NONE) -> ResolvedSettings:
    """Resolve one cluster's settings, and what operators have commanded over them.

    Names are ours or Pulsar's. Of a thousand clusters most have the same settings, and the same as
    in the round before: these are resolved once. Raises SettingError, naming key, value and what
    was expected.
    """
    layers = _hashable(own), _hashable(commanded)
    try:
        return _resolved(*layers)
    except (TypeError, SettingError):  # once more, so that the error has the value as it was given
        return resolve_uncached(apply_overrides(own, commanded))


def cluster_config(values: Mapping[str, Any]) -> ClusterConfig:
    """Resolve what a cluster's rounds run with, for `decide`. Raises SettingError."""
    return resolve(values).config


@lru_cache(maxsize=256)
def _resolved(
    own: tuple[tuple[str, Any], ...], commanded: tuple[tuple[str, Any], ...]
) -> ResolvedSettings:
    return resolve_uncached(apply_overrides(dict(own), dict(commanded)))


def _hashable(layer: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A layer as a key of the cache. JSON makes lists of tuples: here they are tuples again."""
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in sorted(layer.items())
    )


def resolve_uncached(values: Mapping[str, Any], *, dynamic: bool = False) -> ResolvedSettings:
    """Resolve settings under any names, over the profile and the defaults; nothing is remembered.

    A load manager or strategy that isn't there, named in Pulsar's words, gives the manager that
    Pulsar would fall back to, and a warning (`settings.load_managers` says when). `dynamic`: a
    command changes the settings of a running cluster. Raises SettingError.
    """
    given = normalise_names(values)
    # The layers: what is given over the shedder's part of the profile over the profile.
    profile = given.get("profile", BalancerConfig.model_fields["profile"].default)
    given = (PROFILES.get(profile, {}) if isinstance(profile, str) else {}) | given
    chosen = choose_load_manager(given, dynamic)
    given = SHEDDER_PROFILES.get(str(profile), {}).get(chosen.shedder.name, {}) | given
    # One default follows from another setting.
    reporting = build_settings(ReportConfig, given)
    given = {"report_timeout_ms": max(1, 2 * reporting.report_max_interval_ms)} | given
    # The balancer's own settings, and those of each strategy that runs.
    balancer = build_settings(BalancerConfig, given | {"load_manager": chosen.manager})
    check_windows(balancer)
    check_auto_approve(balancer.auto_approve)
    chosen_placement, placement_warnings = _placement(balancer)
    splitting = build_settings(SplittingConfig, given)
    algorithms = _algorithms(splitting, given)
    return ResolvedSettings(
        ClusterConfig(
            balancer=balancer,
            shedder=chosen.shedder,
            shedder_config=build_settings(chosen.shedder.config, given),
            placement=chosen_placement,
            placement_config=build_settings(chosen_placement.config, given),
            splitting=splitting,
            split_algorithms=algorithms,
            namespaces=_namespaces(given),
        ),
        reporting,
        warnings=(
            *chosen.warnings,
            *placement_warnings,
            *algorithms.warnings,
            *describe_unread(build_settings(UnreadKeys, given), given),
        ),
    )


def _namespaces(given: Mapping[str, Any]) -> dict[str, NamespaceConfig]:
    found = {}
    for name, own in group_namespaces(given).items():
        found[name] = build_settings(NamespaceConfig, own, f"{PREFIX}{name}.")
        check_windows(found[name], f"{PREFIX}{name}.")
    return found


def _algorithms(splitting: SplittingConfig, given: Mapping[str, Any]) -> Algorithms:
    for name in (splitting.split_algorithm, *splitting.supported_split_algorithms):
        with suppress(UnknownStrategyError):
            split_algorithm[name]  # loads it if it is a plug-in's
    configs = {
        name: build_settings(split_algorithm[name].config, given) for name in split_algorithm.names
    }
    return Algorithms(splitting.split_algorithm, configs)


def _placement(balancer: BalancerConfig) -> tuple[Strategy[Placement], tuple[str, ...]]:
    """Find the placement strategy of the cluster's load manager, and warn of one that stands in."""
    match balancer.load_manager:
        case "extensible":
            return extensible_placement["LeastResourceUsageWithWeight"], ()
        case "simple":
            name = balancer.simple_placement_strategy
            try:
                return simple_placement[name], ()
            except UnknownStrategyError as error:
                other = simple_placement["weightedRandomSelection"]
                warning = (
                    f"simple_placement_strategy = {name!r}: expected {error.expected}; "
                    f"{other.name} is used instead"
                )
                return other, (warning,)
        case _:
            return placement[balancer.placement_strategy], ()
