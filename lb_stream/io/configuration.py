"""Settings from files, environment and arguments: arguments > environment > TOML > broker.conf > profile > default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lb_stream.contracts.settings import Settings
from lb_stream.core.config import SettingError, canonical, cluster_config, known_keys

ENVIRONMENT_PREFIX = "LB_"
"""LB_KAFKA__BOOTSTRAP_SERVERS=host:9092 sets kafka.bootstrap_servers; LB_BALANCER__DRY_RUN=false sets balancer.dry_run."""

SECTIONS = ("kafka", "topics", "stream", "balancer", "cluster")


def load_settings(
    toml: Path | None = None,
    broker_conf: Path | None = None,
    arguments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check everything. `arguments` are `section.key=value`, or `key=value` for the balancer's keys (ours or Pulsar's).

    Raises SettingError, naming the key, the value and what was expected.
    """
    merged: dict[str, Any] = {section: {} for section in SECTIONS}
    if broker_conf is not None:
        merged["balancer"] |= canonical(_read_broker_conf(broker_conf))
    if toml is not None:
        _merge(merged, _read_toml(toml))
    for name, value in (os.environ if environment is None else environment).items():
        path = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        if name.startswith(ENVIRONMENT_PREFIX) and path[0] in SECTIONS:
            _merge(merged, _nested(path, _scalar(value)))
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise SettingError("--set", argument, "key=value")
        _merge(merged, _nested(_path(name), _scalar(value)))
    return _checked(merged)


def _checked(merged: dict[str, Any]) -> Settings:
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingError(".".join(map(str, first["loc"])), first["input"], _expected(first)) from None
    for cluster in ("", *settings.cluster):
        cluster_config(settings.of_cluster(cluster))
    return settings


def _expected(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "no such key"
    if error["type"] == "string_pattern_mismatch":
        return f"text that matches {error['ctx']['pattern']}"
    return str(error["msg"]).removeprefix("Input should be ")


def _path(name: str) -> list[str]:
    path = name.split(".")
    return path if path[0] in SECTIONS and len(path) > 1 else ["balancer", name]


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put later values over earlier ones; the balancer's keys are brought to our names first, so that both spellings meet."""
    for section, given in values.items():
        if section not in SECTIONS:
            raise SettingError(section, given, f"one of the sections {', '.join(SECTIONS)}")
        if not isinstance(given, Mapping):
            raise SettingError(section, given, "a section with keys in it")
        if section == "balancer":
            into[section] |= canonical(given)
        elif section == "cluster":
            for name, keys in given.items():
                if not isinstance(keys, Mapping):
                    raise SettingError(f"cluster.{name}", keys, "a section with keys in it")
                into[section].setdefault(name, {}).update(canonical(keys))
        else:
            into[section] |= given


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingError("--config", str(path), f"a file that can be read ({error.strerror})") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError("--config", str(path), f"a TOML file ({error})") from None


def _read_broker_conf(path: Path) -> dict[str, Any]:
    """Pulsar's key=value file. It holds hundreds of keys that are none of ours: those are left out."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise SettingError("--broker-conf", str(path), f"a file that can be read ({error.strerror})") from None
    known, found = known_keys(), {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#") and name.strip() in known and value.strip():
            found[name.strip()] = _scalar(value.strip())
    return found


def _scalar(text: str) -> Any:
    """A value as TOML would read it; what is no TOML value is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
