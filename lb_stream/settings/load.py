"""The job's settings out of all their layers, checked: arguments > environment > TOML > broker.conf.

The strategies, which declare most of the balancer's keys, are imported only where such a key is
given or asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lb_stream.contracts.keys import SettingError, describe_expected_setting
from lb_stream.contracts.settings import SHADOW, Settings
from lb_stream.settings.files import find_exposures
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
class Loaded:
    """Checked settings, and of every key that was given (under our name): where.

    `warnings` tells what of them was replaced by something that works, and which files of secrets
    other users can open.
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
    """Read and check the job's settings, as `load`."""
    return load(toml, broker_conf, arguments, environment).settings


def load(
    toml: Path | None = None,
    broker_conf: Path | None = None,
    arguments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read and check the job's settings, with the origin of every value that isn't a default.

    `arguments`: `section.key=value`, or `key=value` for the balancer's keys (ours or Pulsar's).
    Raises SettingError, naming the key, the value, what was expected and where the value stands.
    """
    # The layers, each over those before it.
    below = read_broker_conf(broker_conf) if broker_conf is not None else {}
    of_toml = read_toml(toml) if toml is not None else {}
    given = below | of_toml | read_environment(os.environ if environment is None else environment)
    for argument in arguments:
        given |= parse_argument(argument)
    origins = {path: value.origin for path, value in given.items()}
    values = {path: value.value for path, value in given.items()}
    # What of them is wrong, and what works otherwise than it was given.
    settings, replaced = _resolved(_validated(values, origins), origins)
    exposed = find_exposures(values, {} if toml is None else {toml: of_toml})
    warnings = (*_overridden(below, of_toml), *filter(None, exposed), *replaced)
    return Loaded(settings, origins, tuple(dict.fromkeys(warnings)))


def _overridden(
    broker_conf: Mapping[KeyPath, Given], toml: Mapping[KeyPath, Given]
) -> Iterator[str]:
    """Where the TOML file overrides the broker.conf. A file with every key, as `config show` prints it, overrides all of it."""
    for path, below in broker_conf.items():
        over = toml.get(path)
        if over is not None and not same_value(over.value, below.value):
            key, name = below.origin.rpartition(", ")[2], ".".join(path)
            told = f"{name} = {over.value!r} ({over.origin}) goes over it; leave it out there to keep the cluster's own"
            yield f"{key} = {below.value} of the broker.conf doesn't count: {told}"


def same_value(one: Any, other: Any) -> bool:
    """Whether two values mean the same; those of a broker.conf are text."""
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        return (
            [part.strip() for part in text.split(",")]
            if "," in text
            else text.rpartition(".")[2].lower()
        )


def _validated(values: Mapping[KeyPath, Any], origins: Mapping[KeyPath, str]) -> Settings:
    """Check the job's own sections; those of the balancer are taken as they are."""
    merged: dict[str, Any] = {section: {} for section in SECTIONS}
    for path, value in values.items():
        place = merged
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
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


def _resolved(
    settings: Settings, origins: Mapping[KeyPath, str]
) -> tuple[Settings, tuple[str, ...]]:
    """Check every cluster's settings and its shadows'.

    Returns the settings with the balancer's values in their types, and the warnings about them.
    """
    if not settings.balancer and not settings.cluster:
        return settings, ()
    from lb_stream.settings.resolve import resolve

    general: dict[str, Any] = {}
    clusters: dict[str, Any] = {}
    warnings: list[str] = []
    for cluster in ("", *settings.cluster):
        try:
            resolved = resolve(settings.of_cluster(cluster))
        except SettingError as error:
            own = ("cluster", cluster, error.key)
            raise _located(
                error, own if own in origins else ("balancer", error.key), origins
            ) from None
        warnings += resolved.warnings
        if not cluster:
            general = _typed(settings.balancer, resolved.values)
            continue
        clusters[cluster] = _typed(settings.cluster[cluster], resolved.values)
        for name, of_shadow in _shadows(settings, cluster, origins).items():
            shadows = clusters[cluster].setdefault(SHADOW, {})
            shadows[name] = _typed(settings.shadows_of(cluster)[name], of_shadow.values)
            warnings += [
                f"cluster.{cluster}.shadow.{name}: {warning}"
                for warning in of_shadow.warnings
                if warning not in resolved.warnings
            ]
    return settings.model_copy(update={"balancer": general, "cluster": clusters}), tuple(warnings)


def _shadows(
    settings: Settings, cluster: str, origins: Mapping[KeyPath, str]
) -> dict[str, ResolvedSettings]:
    """Resolve each shadow of a cluster.

    Raises SettingError for settings that a shadow can't have, or that don't go with the cluster's.
    """
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
            raise _located(error, path, origins, next(inside, "")) from None
    return found


def _located(
    error: SettingError, path: KeyPath, origins: Mapping[KeyPath, str], otherwise: str = ""
) -> SettingError:
    """Say of an error where the value stands."""
    origin = origins.get(path) or otherwise
    return SettingError(".".join(path), error.value, error.expected, origin)


def _typed(given: Mapping[str, Any], in_force: Mapping[str, Any]) -> dict[str, Any]:
    """Give values their types.

    The load manager stays as it was named: which one runs may differ from cluster to cluster.
    """
    return {
        name: value if name == "load_manager" else in_force.get(name, value)
        for name, value in given.items()
    }


def _expected_in_section(path: KeyPath, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        known = list_section_keys(path[0])
        return f"one of the known keys; nearest: {', '.join(get_close_matches(path[-1], known, n=3) or known)}"
    return describe_expected_setting(error)
