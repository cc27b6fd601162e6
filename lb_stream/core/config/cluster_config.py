"""One cluster's settings, checked: the balancer's own and those of the strategies that it names."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, BalancerConfig, NamespaceConfig
from lb_stream.contracts.keys import KeyModel, SettingError
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import UnreadKeys, told
from lb_stream.core.averages import FoldConfig
from lb_stream.core.config.auto_approve import check_auto_approve
from lb_stream.core.config.managers import in_pulsars_words, resolve
from lb_stream.core.config.namespaces import PREFIX, namespace_key, nested
from lb_stream.core.config.reading import build, names_in, translate
from lb_stream.core.config.windows import check_windows
from lb_stream.core.model.registry import Registry, Strategy, UnknownStrategyError
from lb_stream.core.placement import extensible_placement, placement, simple_placement
from lb_stream.core.placement.base import Placement
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import Shedder
from lb_stream.core.splitting import Algorithms, SplittingConfig, split_algorithm


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What one cluster's rounds run with.

    `warnings` tells what of the settings was replaced by something that works.

    `given`: the settings as they were given; commands lay others over them.
    """

    balancer: BalancerConfig
    shedder: Strategy[Shedder]
    shedder_config: KeyModel
    placement: Strategy[Placement]
    placement_config: KeyModel
    splitting: SplittingConfig
    split_algorithms: Algorithms
    reporting: ReportConfig
    namespaces: Mapping[str, NamespaceConfig] = field(
        default_factory=dict
    )  # those with settings of their own, by name
    warnings: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def fold(self) -> FoldConfig:
        """The settings of the averages."""
        own = self.balancer
        return FoldConfig(
            own.short_samples,
            own.long_samples,
            own.bundle_retention_ms,
            own.broker_retention_ms,
            own.sample_mode,
        )


REGISTRIES: tuple[Registry[Any], ...] = (
    shedder,
    placement,
    simple_placement,
    extensible_placement,
    split_algorithm,
)
"""Every kind of strategy."""


def all_models() -> tuple[type[KeyModel], ...]:
    """Every group of settings: the balancer's, each strategy's, the reporting agent's, and what is
    understood and not read."""
    strategies = (registry[name].config for registry in REGISTRIES for name in registry.names)
    return (BalancerConfig, SplittingConfig, *strategies, ReportConfig, UnreadKeys)


def known_keys() -> dict[str, tuple[str, int]]:
    """Every accepted name, ours and Pulsar's → (our name, factor from the value given under that
    name)."""
    return names_in(all_models())


def canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under our names. Raises SettingError for a name that nothing knows."""
    of_namespaces = {
        name: value
        for name, value in values.items()
        if name.startswith(PREFIX) and namespace_key(name, value)
    }
    values = {name: value for name, value in values.items() if name not in of_namespaces}
    known = known_keys()
    if not known.keys() >= values.keys():  # a plug-in's, perhaps
        for registry in REGISTRIES:
            registry.load_plugins()
        known = known_keys()
    for name in values:
        if name not in known:
            nearest = ", ".join(_nearest(name, known))
            raise SettingError(name, values[name], f"one of the known keys; nearest: {nearest}")
    return of_namespaces | translate(values, known, in_pulsars_words)


def _nearest(name: str, known: Mapping[str, object]) -> list[str]:
    return get_close_matches(name, list(known), n=3, cutoff=0.0)


def cluster_config(values: Mapping[str, Any], *, dynamic: bool = False) -> ClusterConfig:
    """Check one cluster's settings, given under our names or Pulsar's, later ones over the profile
    and the defaults.

    A load manager or strategy that isn't there, named in Pulsar's words, gives the manager that
    Pulsar would fall back to, and a warning (`core.config.managers` says when). `dynamic`: a
    command changes the settings of a running cluster. Raises SettingError, naming the key, the
    value and what was expected.
    """
    given = canonical(values)
    profile = given.get("profile", BalancerConfig.model_fields["profile"].default)
    given = (PROFILES.get(profile, {}) if isinstance(profile, str) else {}) | given
    resolved = resolve(given, dynamic)
    given = SHEDDER_PROFILES.get(str(profile), {}).get(resolved.shedder.name, {}) | given
    reporting = build(ReportConfig, given)
    given = {"report_timeout_ms": max(1, 2 * reporting.report_max_interval_ms)} | given
    balancer = build(BalancerConfig, given | {"load_manager": resolved.manager})
    check_windows(balancer)
    check_auto_approve(balancer.auto_approve)
    chosen_placement, placement_warnings = _placement(balancer)
    splitting = build(SplittingConfig, given)
    for name in (splitting.split_algorithm, *splitting.supported_split_algorithms):
        with suppress(UnknownStrategyError):
            split_algorithm[name]  # loads it if it is a plug-in's
    algorithms = Algorithms(
        splitting.split_algorithm,
        {name: build(split_algorithm[name].config, given) for name in split_algorithm.names},
    )
    return ClusterConfig(
        balancer=balancer,
        shedder=resolved.shedder,
        shedder_config=build(resolved.shedder.config, given),
        placement=chosen_placement,
        placement_config=build(chosen_placement.config, given),
        splitting=splitting,
        split_algorithms=algorithms,
        reporting=reporting,
        namespaces=_namespaces(given),
        warnings=(
            *resolved.warnings,
            *placement_warnings,
            *algorithms.warnings,
            *told(build(UnreadKeys, given), given),
        ),
        given=values,
    )


def _namespaces(given: Mapping[str, Any]) -> dict[str, NamespaceConfig]:
    found = {}
    for name, own in nested(given).items():
        found[name] = build(NamespaceConfig, own, f"{PREFIX}{name}.")
        check_windows(found[name], f"{PREFIX}{name}.")
    return found


def _placement(balancer: BalancerConfig) -> tuple[Strategy[Placement], tuple[str, ...]]:
    """The strategy that the cluster's load manager uses, and what is said when it stands in for one
    that nobody knows."""
    match balancer.load_manager:
        case "extensible":
            return extensible_placement["LeastResourceUsageWithWeight"], ()
        case "simple":
            name = balancer.simple_placement_strategy
            try:
                return simple_placement[name], ()
            except UnknownStrategyError as error:
                other = simple_placement["weightedRandomSelection"]
                return other, (
                    f"simple_placement_strategy = {name!r}: expected {error.expected}; "
                    f"{other.name} is used instead",
                )
        case _:
            return placement[balancer.placement_strategy], ()
