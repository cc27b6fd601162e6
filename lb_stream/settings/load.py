"""Builds the job's settings from their layers, and checks them.

Arguments override the environment, which overrides the TOML file, which overrides broker.conf. The
strategies, which declare most of the balancer's keys, are imported only where such a key is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lb_stream.contracts.keys import GivenSettings, SettingError, describe_expected_setting
from lb_stream.contracts.settings import SHADOW, Settings
from lb_stream.settings.files import find_exposures
from lb_stream.settings.handing_on import describe_seen_secrets, list_hidden
from lb_stream.settings.layers import (
    SECTIONS,
    Given,
    KeyPath,
    list_section_keys,
    parse_argument,
    read_broker_conf,
    read_environment,
    read_toml,
)

if TYPE_CHECKING:
    from lb_stream.settings.resolve import ResolvedSettings


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Checked settings.

    `origins`: path of each given key, under our name → where it was given. `warnings`: keys that
    nothing knows, settings that were replaced by something that works, absurd values, and files of
    secrets that other users can open.
    """

    settings: Settings
    origins: dict[KeyPath, str]
    warnings: tuple[str, ...] = ()


def load_settings(
    toml: Path | None = None,
    broker_conf: Path | None = None,
    arguments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check the job's settings; see `load`."""
    return load(toml, broker_conf, arguments, environment).settings


def load(
    toml: Path | None = None,
    broker_conf: Path | None = None,
    arguments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Read and check the job's settings, with the origin of every value that isn't a default.

    `arguments`: `section.key=value`, or `key=value` for the balancer's keys (ours or Pulsar's).
    Raises SettingError, which names the key, its value, what was expected, and the origin.
    """
    # The upper layers are read first: errors about files then hide the passwords among them.
    environment, arguments = os.environ if environment is None else environment, list(arguments)
    over = read_environment(environment)
    for argument in (*list_hidden(environment), *arguments):
        over |= parse_argument(argument)
    below, misspelt = ({}, ()) if broker_conf is None else read_broker_conf(broker_conf)
    of_toml = read_toml(toml) if toml is not None else {}
    given = below | of_toml | over
    origins = {path: value.origin for path, value in given.items()}
    values = {path: value.value for path, value in given.items()}
    # checks, and warnings
    settings, replaced = _resolve_clusters(_validate(values, origins), origins)
    exposed = find_exposures(values, {} if toml is None else {toml: of_toml})
    warnings = (
        *misspelt,
        *_describe_overridden(below, of_toml),
        *filter(None, exposed),
        *describe_seen_secrets(arguments),
        *replaced,
    )
    return LoadedSettings(settings, origins, tuple(dict.fromkeys(warnings)))


def _describe_overridden(
    broker_conf: Mapping[KeyPath, Given], toml: Mapping[KeyPath, Given]
) -> Iterator[str]:
    """Describe each value of the broker.conf that the TOML file overrides with another one.

    A file with every key, as `config show` prints it, overrides all of them.
    """
    for path, below in broker_conf.items():
        over = toml.get(path)
        if over is not None and not same_value(over.value, below.value):
            key = below.origin.rpartition(", ")[2]
            yield (
                f"{key} = {below.value} of the broker.conf doesn't count: {'.'.join(path)} = "
                f"{over.value!r} ({over.origin}) overrides it; remove that one to keep the "
                "cluster's own"
            )


def same_value(first: object, second: object) -> bool:
    """Return whether two values mean the same; those of a broker.conf are texts."""
    return _to_comparable(first) == _to_comparable(second)


def _to_comparable(value: object) -> object:
    """Return a value in the form in which equal values are equal: number, list, or simple name."""
    if isinstance(value, list | tuple):
        return [_to_comparable(item) for item in value]
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        pass
    if "," in text:
        return [part.strip() for part in text.split(",")]
    return text.rpartition(".")[2].lower()


def _validate(values: Mapping[KeyPath, object], origins: Mapping[KeyPath, str]) -> Settings:
    """Check the job's own sections; the balancer's are taken as they are. Raises SettingError."""
    merged: dict[str, Any] = {section: {} for section in SECTIONS}
    for path, value in values.items():
        section = merged
        for part in path[:-1]:
            section = section.setdefault(part, {})
        section[path[-1]] = value
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        first = error.errors()[0]
        path = tuple(map(str, first["loc"]))
        raise SettingError(
            ".".join(path), first["input"], _expected_in_section(path, first), origins.get(path, "")
        ) from None
    if settings.notify.quiet_windows:
        from lb_stream.core.config.windows import check_window_texts

        check_window_texts("notify.quiet_windows", settings.notify.quiet_windows)
    return settings


def _resolve_clusters(
    settings: Settings, origins: Mapping[KeyPath, str]
) -> tuple[Settings, tuple[str, ...]]:
    """Check every cluster's settings and its shadows'. Raises SettingError.

    Returns the settings with the balancer's values in their types, and warnings.
    """
    if not settings.balancer and not settings.cluster:
        return settings, ()
    from lb_stream.settings.absurd import explain_absurd
    from lb_stream.settings.resolve import resolve

    general: dict[str, object] = {}
    clusters: dict[str, dict[str, object]] = {}
    warnings: list[str] = []
    for cluster in ("", *settings.cluster):
        try:
            resolved = resolve(settings.of_cluster(cluster))
        except SettingError as error:
            own = ("cluster", cluster, error.key)
            path = own if own in origins else ("balancer", error.key)
            raise _with_origin(error, path, origins) from None
        warnings += resolved.warnings
        if not cluster:
            general = _convert_types(settings.balancer, resolved.values)
            warnings += [f"balancer.{absurd}" for absurd in explain_absurd(general)]
            continue
        clusters[cluster] = _convert_types(settings.cluster[cluster], resolved.values)
        own_absurd = explain_absurd(clusters[cluster])
        warnings += [f"cluster.{cluster}.{absurd}" for absurd in own_absurd]
        shadows = {}
        for name, of_shadow in _resolve_shadows(settings, cluster, origins).items():
            shadows[name] = _convert_types(settings.shadows_of(cluster)[name], of_shadow.values)
            warnings += [
                f"cluster.{cluster}.shadow.{name}: {warning}"
                for warning in of_shadow.warnings
                if warning not in resolved.warnings
            ]
            warnings += [
                f"cluster.{cluster}.shadow.{name}.{absurd}"
                for absurd in explain_absurd(shadows[name])
            ]
        if shadows:
            clusters[cluster][SHADOW] = shadows
    return settings.model_copy(update={"balancer": general, "cluster": clusters}), tuple(warnings)


def _resolve_shadows(
    settings: Settings, cluster: str, origins: Mapping[KeyPath, str]
) -> dict[str, ResolvedSettings]:
    """Resolve the settings of each shadow of a cluster. Raises SettingError."""
    from lb_stream.settings.shadows import check_shadow, resolve_shadow

    found = {}
    for name, own in settings.shadows_of(cluster).items():
        place: KeyPath = ("cluster", cluster, SHADOW, name)
        try:
            check_shadow(name, own)
            found[name] = resolve_shadow(settings.of_cluster(cluster), {}, own)
        except SettingError as error:
            path = (*place, error.key) if error.key != name else place
            inside = (origin for at, origin in origins.items() if at[:4] == place)
            raise _with_origin(error, path, origins, next(inside, "")) from None
    return found


def _with_origin(
    error: SettingError, path: KeyPath, origins: Mapping[KeyPath, str], default: str = ""
) -> SettingError:
    """Return the error with the value's path and origin."""
    origin = origins.get(path) or default
    return SettingError(".".join(path), error.value, error.expected, origin)


def _convert_types(given: GivenSettings, resolved: GivenSettings) -> dict[str, object]:
    """Return the given settings with their values in the types of the resolved ones.

    The load manager stays as it was given, because clusters may resolve it differently.
    """
    return {
        name: value if name == "load_manager" else resolved.get(name, value)
        for name, value in given.items()
    }


def _expected_in_section(path: KeyPath, error: ErrorDetails) -> str:
    """Describe what one of pydantic's errors about a section asks for."""
    if error["type"] == "extra_forbidden":
        known = list_section_keys(path[0])
        nearest = get_close_matches(path[-1], known, n=3) or known
        return f"one of the known keys; nearest: {', '.join(nearest)}"
    return describe_expected_setting(error)
