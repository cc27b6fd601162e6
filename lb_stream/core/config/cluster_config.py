"""One cluster's settings, checked: the balancer's own and those of the strategies that it names."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, BalancerConfig, NamespaceConfig
from lb_stream.contracts.base import expected_by
from lb_stream.contracts.keys import KeyModel, SettingError, pulsar_names
from lb_stream.contracts.unread import UnreadKeys, told
from lb_stream.core.averages import FoldConfig
from lb_stream.core.config.auto_approve import check_auto_approve
from lb_stream.core.config.managers import in_pulsars_words, resolve
from lb_stream.core.config.namespaces import PREFIX, namespace_key, nested
from lb_stream.core.config.windows import check_windows
from lb_stream.core.model.registry import Registry, Strategy, UnknownStrategyError
from lb_stream.core.placement import extensible_placement, placement, simple_placement
from lb_stream.core.placement.base import Placement
from lb_stream.core.reporting.report_needed import ReportConfig
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import Shedder
from lb_stream.core.splitting import Algorithms, SplittingConfig, split_algorithm

Model = TypeVar("Model", bound=KeyModel)

OLD_SPELLINGS = {
    "loadBalancerBandwithInResourceWeight": "bandwidth_in_weight",
    "loadBalancerBandwithOutResourceWeight": "bandwidth_out_weight",
}
"""Pulsar's misspelt keys: they count as long as the right one is not given or 1."""


DRY_RUN = "dry_run"
"""Another way to say what the mode is: true stands for observe, false for act. Beside a mode true goes over it, and false says nothing."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What one cluster's rounds run with. `warnings` tells what of the settings was replaced by something that works.

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
    namespaces: Mapping[str, NamespaceConfig] = field(default_factory=dict)  # those with settings of their own, by name
    warnings: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def fold(self) -> FoldConfig:
        """The settings of the averages."""
        own = self.balancer
        return FoldConfig(own.short_samples, own.long_samples, own.bundle_retention_ms, own.broker_retention_ms, own.sample_mode)


REGISTRIES: tuple[Registry[Any], ...] = (shedder, placement, simple_placement, extensible_placement, split_algorithm)
"""Every kind of strategy."""


def all_models() -> tuple[type[KeyModel], ...]:
    """Every group of settings: the balancer's, each strategy's, the reporting agent's, and what is understood and not read."""
    strategies = (registry[name].config for registry in REGISTRIES for name in registry.names)
    return (BalancerConfig, SplittingConfig, *strategies, ReportConfig, UnreadKeys)


def known_keys() -> dict[str, tuple[str, int]]:
    """Every accepted name, ours and Pulsar's → (our name, factor from the value given under that name)."""
    return _names_of(all_models())


@cache
def _names_of(models: tuple[type[KeyModel], ...]) -> dict[str, tuple[str, int]]:
    ours = {name: (name, 1) for model in models for name in model.model_fields} | {DRY_RUN: ("mode", 1)}
    return ours | pulsar_names(*models) | {old: (name, 1) for old, name in OLD_SPELLINGS.items()}


def canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under our names. Raises SettingError for a name that nothing knows."""
    known = known_keys()
    result = {name: value for name, value in values.items() if name.startswith(PREFIX) and namespace_key(name, value)}
    values = {name: value for name, value in values.items() if name not in result}
    if not known.keys() >= values.keys():  # a plug-in's, perhaps
        for registry in REGISTRIES:
            registry.load_plugins()
        known = known_keys()
    for name, value in sorted(values.items(), key=lambda item: item[0] == DRY_RUN):
        if name not in known:
            raise SettingError(name, value, f"one of the known keys; nearest: {', '.join(_nearest(name, known))}")
        ours, factor = known[name]
        if name == DRY_RUN:
            if (mode := _mode_of(value)) == "observe" or ours not in result:  # whatever their order: a log's settings are sorted
                result[ours] = mode
        elif name not in OLD_SPELLINGS:
            result[ours] = in_pulsars_words(name, _times(name, value, factor))
    for old, ours in OLD_SPELLINGS.items():
        if old in values and _is_one(result.get(ours, 1)):
            result[ours] = values[old]
    return result


def _mode_of(dry_run: Any) -> str:
    try:
        return "observe" if TypeAdapter(bool).validate_python(dry_run) else "act"
    except ValidationError:
        raise SettingError(DRY_RUN, dry_run, "true or false") from None


def _is_one(value: Any) -> bool:
    try:
        return float(value) == 1.0
    except (TypeError, ValueError, OverflowError):
        return False


def _nearest(name: str, known: Mapping[str, object]) -> list[str]:
    return get_close_matches(name, list(known), n=3, cutoff=0.0)


def _times(name: str, value: Any, factor: int) -> Any:
    if factor == 1:
        return value
    try:
        scaled = float(value) * factor
    except (TypeError, ValueError, OverflowError):
        raise SettingError(name, value, "a number") from None
    return int(scaled) if scaled.is_integer() else scaled


def cluster_config(values: Mapping[str, Any], *, dynamic: bool = False) -> ClusterConfig:
    """Check one cluster's settings, given under our names or Pulsar's, later ones over the profile and the defaults.

    A load manager or strategy that isn't there, named in Pulsar's words, gives the manager that Pulsar would fall back to, and a
    warning (`core.config.managers` says when). `dynamic`: a command changes the settings of a running cluster.
    Raises SettingError, naming the key, the value and what was expected.
    """
    given = canonical(values)
    profile = given.get("profile", BalancerConfig.model_fields["profile"].default)
    given = (PROFILES.get(profile, {}) if isinstance(profile, str) else {}) | given
    resolved = resolve(given, dynamic)
    given = SHEDDER_PROFILES.get(str(profile), {}).get(resolved.shedder.name, {}) | given
    reporting = _build(ReportConfig, given)
    given = {"report_timeout_ms": max(1, 2 * reporting.report_max_interval_ms)} | given
    balancer = _build(BalancerConfig, given | {"load_manager": resolved.manager})
    check_windows(balancer)
    check_auto_approve(balancer.auto_approve)
    chosen_placement, placement_warnings = _placement(balancer)
    splitting = _build(SplittingConfig, given)
    for name in (splitting.split_algorithm, *splitting.supported_split_algorithms):
        with suppress(UnknownStrategyError):
            split_algorithm[name]  # loads it if it is a plug-in's
    algorithms = Algorithms(
        splitting.split_algorithm, {name: _build(split_algorithm[name].config, given) for name in split_algorithm.names}
    )
    return ClusterConfig(
        balancer=balancer,
        shedder=resolved.shedder,
        shedder_config=_build(resolved.shedder.config, given),
        placement=chosen_placement,
        placement_config=_build(chosen_placement.config, given),
        splitting=splitting,
        split_algorithms=algorithms,
        reporting=reporting,
        namespaces=_namespaces(given),
        warnings=(*resolved.warnings, *placement_warnings, *algorithms.warnings, *told(_build(UnreadKeys, given), given)),
        given=values,
    )


def _namespaces(given: Mapping[str, Any]) -> dict[str, NamespaceConfig]:
    found = {}
    for name, own in nested(given).items():
        found[name] = _build(NamespaceConfig, own, f"{PREFIX}{name}.")
        check_windows(found[name], f"{PREFIX}{name}.")
    return found


def _placement(balancer: BalancerConfig) -> tuple[Strategy[Placement], tuple[str, ...]]:
    """The strategy that the cluster's load manager uses, and what is said when it stands in for one that nobody knows."""
    match balancer.load_manager:
        case "extensible":
            return extensible_placement["LeastResourceUsageWithWeight"], ()
        case "simple":
            name = balancer.simple_placement_strategy
            try:
                return simple_placement[name], ()
            except UnknownStrategyError as error:
                other = simple_placement["weightedRandomSelection"]
                return other, (f"simple_placement_strategy = {name!r}: expected {error.expected}; {other.name} is used instead",)
        case _:
            return placement[balancer.placement_strategy], ()


def _build(model: type[Model], given: Mapping[str, Any], prefix: str = "") -> Model:
    try:
        return model(**{name: value for name, value in given.items() if name in model.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(said := first.get("ctx", {}).get("error"), SettingError):
            raise said from None  # of settings that don't go together
        raise SettingError(prefix + ".".join(map(str, first["loc"])), first["input"], expected(first)) from None


def expected(error: Any) -> str:
    """What one of pydantic's errors asks for, in words for a user."""
    kind, context = str(error["type"]), error.get("ctx", {})
    for prefix, words in _EXPECTED.items():
        if kind.startswith(prefix):
            return words.format(**context)
    return expected_by(error)


_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string_type": "text",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "dict_type": "a section with keys in it",
    "mapping_type": "a section with keys in it",
    "model_type": "a section with keys in it",
}
"""Beginning of an error's type → what was expected."""
