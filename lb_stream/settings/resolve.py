"""Resolves one cluster's settings: checks them, and builds what its rounds and agents run with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, BalancerConfig, NamespaceConfig
from lb_stream.contracts.keys import GivenSettings, SettingError, build_settings
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import UnreadKeys, describe_unread
from lb_stream.core.config.auto_approve import check_auto_approve
from lb_stream.core.config.broker_capacities import check_capacities
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.config.windows import check_windows
from lb_stream.core.model.followed_profile import UNKNOWN
from lb_stream.core.model.registry import Strategy, UnknownStrategyError
from lb_stream.core.placement import extensible_placement, placement, simple_placement
from lb_stream.core.placement.base import Placement
from lb_stream.core.splitting import Algorithms, SplittingConfig, split_algorithm
from lb_stream.settings.load_managers import choose_load_manager
from lb_stream.settings.names import normalise_names
from lb_stream.settings.spelling import PREFIX, group_namespaces, lay_over

NONE: GivenSettings = MappingProxyType({})
"""A layer without settings."""


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """One cluster's settings in force.

    `config`: of its rounds; `reporting`: of its agents' reports; `warnings`: settings that were
    replaced by something that works, or that have no effect.
    """

    config: ClusterConfig
    reporting: ReportConfig
    warnings: tuple[str, ...]

    @property
    def values(self) -> dict[str, object]:
        """Return every key in force with its typed value, defaults included; `profile` first."""
        config = self.config
        found: dict[str, object] = {}
        # A key that two models have is the balancer's: a strategy may read it too.
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


def apply_overrides(own: GivenSettings, overrides: GivenSettings) -> dict[str, object]:
    """Return a cluster's own settings with operators' overrides on top, under our names."""
    return lay_over(normalise_names(own), normalise_names(overrides), overrides)


def resolve(
    own: GivenSettings, overrides: GivenSettings = NONE, followed: str = UNKNOWN
) -> ResolvedSettings:
    """Resolve one cluster's own settings with operators' overrides on top.

    Names are ours or Pulsar's. `followed`: the profile where no setting names one. Results are
    cached: most of a thousand clusters have the same settings, in each round. Raises SettingError,
    which names the key, its value and what was expected.
    """
    try:
        return _resolve_cached(_to_hashable(own), _to_hashable(overrides), followed)
    except (TypeError, SettingError):
        # Unhashable values have no place in the cache, and an error shows the value as given.
        return resolve_uncached(apply_overrides(own, overrides), followed=followed)


def cluster_config(values: GivenSettings) -> ClusterConfig:
    """Return the config with which a cluster's rounds run. Raises SettingError."""
    return resolve(values).config


@lru_cache(maxsize=256)
def _resolve_cached(
    own: tuple[tuple[str, object], ...],
    overrides: tuple[tuple[str, object], ...],
    followed: str,
) -> ResolvedSettings:
    return resolve_uncached(apply_overrides(dict(own), dict(overrides)), followed=followed)


def _to_hashable(layer: GivenSettings) -> tuple[tuple[str, object], ...]:
    """Convert a layer to a key of the cache. Lists, which JSON makes of tuples, become tuples."""
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in sorted(layer.items())
    )


def resolve_uncached(
    values: GivenSettings, *, dynamic: bool = False, followed: str = UNKNOWN
) -> ResolvedSettings:
    """Resolve settings under our names or Pulsar's, without the cache.

    An unknown load manager or strategy in Pulsar's form leads to the manager that Pulsar falls back
    to, and a warning (see `settings.load_managers`). `dynamic`: a command changes the settings of a
    running cluster. `followed`: as for `resolve`. Raises SettingError.
    """
    given = {"profile": followed} | normalise_names(values)
    # Layers: the given values, over the shedder's part of the profile, over the profile.
    profile = given["profile"]
    given = (PROFILES.get(profile, {}) if isinstance(profile, str) else {}) | given
    chosen = choose_load_manager(given, dynamic)
    given = SHEDDER_PROFILES.get(str(profile), {}).get(chosen.shedder.name, {}) | given
    # a default that follows from another setting
    reporting = build_settings(ReportConfig, given)
    given = {"report_timeout_ms": max(1, 2 * reporting.report_max_interval_ms)} | given
    # the balancer's own settings, and those of each strategy that runs
    balancer = build_settings(
        BalancerConfig, given | dict(chosen.replaced) | {"load_manager": chosen.manager}
    )
    check_windows(balancer)
    check_auto_approve(balancer.auto_approve)
    check_capacities(balancer.broker_capacities)
    chosen_placement, placement_warnings = _choose_placement(balancer)
    splitting = build_settings(SplittingConfig, given)
    algorithms = _build_algorithms(splitting, given)
    return ResolvedSettings(
        ClusterConfig(
            balancer=balancer,
            shedder=chosen.shedder,
            shedder_config=build_settings(chosen.shedder.config, given),
            placement=chosen_placement,
            placement_config=build_settings(chosen_placement.config, given),
            splitting=splitting,
            split_algorithms=algorithms,
            namespaces=_build_namespaces(given),
        ),
        reporting,
        warnings=(
            *chosen.warnings,
            *placement_warnings,
            *algorithms.warnings,
            *describe_unread(build_settings(UnreadKeys, given), given),
        ),
    )


def _build_namespaces(given: GivenSettings) -> dict[str, NamespaceConfig]:
    """Build the settings of each namespace that has its own. Raises SettingError."""
    found = {}
    for name, own in group_namespaces(given).items():
        found[name] = build_settings(NamespaceConfig, own, f"{PREFIX}{name}.")
        check_windows(found[name], f"{PREFIX}{name}.")
    return found


def _build_algorithms(splitting: SplittingConfig, given: GivenSettings) -> Algorithms:
    """Build the settings of each split algorithm. Raises SettingError."""
    # Looking an algorithm up loads it if it is a plug-in's.
    for name in (splitting.split_algorithm, *splitting.supported_split_algorithms):
        with suppress(UnknownStrategyError):
            split_algorithm[name]
    configs = {
        name: build_settings(split_algorithm[name].config, given) for name in split_algorithm.names
    }
    return Algorithms(splitting.split_algorithm, configs)


def _choose_placement(balancer: BalancerConfig) -> tuple[Strategy[Placement], tuple[str, ...]]:
    """Choose the placement of the cluster's load manager. Also returns warnings."""
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
