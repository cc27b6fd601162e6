"""What each layer gives: a TOML file, a broker.conf, the environment, one argument.

Each key is checked under its own name, so that an error says where the value stands. Both
spellings of a balancer's key (ours, Pulsar's) are brought to ours: a later layer wins whichever
spelling it uses. The strategies, which declare most of the balancer's keys, are imported only where
such a key is given.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lb_stream.contracts.keys import SettingError, pulsar_names
from lb_stream.contracts.settings import SHADOW, Settings
from lb_stream.settings.files import parse_properties, read_setting_file
from lb_stream.settings.secrets import remember_secrets
from lb_stream.settings.spelling import PREFIX, SECTION, flatten_namespaces

ENVIRONMENT_PREFIX = "LB_"
"""LB_KAFKA__BOOTSTRAP_SERVERS=host:9092 sets kafka.bootstrap_servers; LB_BALANCER__DRY_RUN=false sets balancer.dry_run."""

SECTIONS = ("kafka", "topics", "stream", "upkeep", "notify", "hooks", "balancer", "cluster")

FREE_SECTIONS = (
    ("kafka", "options"),
    ("stream", "store_options"),
    ("notify", "targets"),
    ("notify", "routes"),
)
"""Sections whose keys are others', or names that their author chose: they have no declared types."""

KeyPath = tuple[str, ...]
"""Where a key stands: ("balancer", "dry_run"), ("cluster", "eu-1", "dry_run"), ("cluster", "eu-1", "shadow", "avg", "shedding_strategy"),
("kafka", "options", "ssl_cafile")."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it stands: a file, a variable's name or --set, with the key's spelling if it isn't ours."""

    value: Any
    origin: str


def read_toml(path: Path) -> dict[KeyPath, Given]:
    try:
        values = tomllib.loads(read_setting_file(path, "--config"))
    except tomllib.TOMLDecodeError as error:
        raise SettingError("--config", str(path), f"a TOML file ({error})") from None
    remember_secrets((), values)
    return _flatten(values, str(path))


def read_broker_conf(path: Path) -> dict[KeyPath, Given]:
    """Pulsar's properties. They hold hundreds of keys that are none of ours: those are left out, so are empty values."""
    from lb_stream.settings.names import list_models

    known, found = pulsar_names(*list_models()), {}
    for name, value in parse_properties(read_setting_file(path, "--broker-conf")):
        if name in known and value.strip():
            found[name] = value.strip()
    return _flatten({"balancer": found}, str(path))


def read_environment(environment: Mapping[str, str]) -> dict[KeyPath, Given]:
    found: dict[KeyPath, Given] = {}
    for name, text in sorted(environment.items()):
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        if name.startswith(ENVIRONMENT_PREFIX):
            remember_secrets(path, text)
            _refuse_single_underscore(name, text, path)
            found |= _flatten(_nested(path, text), name) if path[0] in SECTIONS else {}
    return found


def _refuse_single_underscore(name: str, text: str, path: KeyPath) -> None:
    """LB_KAFKA_BOOTSTRAP_SERVERS would be ignored without a word. Other programs' variables (LB_KAFKA_PORT) are let be."""
    section, _, key = path[0].partition("_")
    if len(path) == 1 and section in SECTIONS and key in list_section_keys(section):
        remember_secrets((section, key), text)
        right = f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
        raise SettingError(
            name, text, f"two underscores between section and key: {right}", "environment"
        )


def parse_argument(argument: str) -> dict[KeyPath, Given]:
    name, equals, text = argument.partition("=")
    above, of_namespace, own = f".{name.strip()}".partition(
        f".{PREFIX}"
    )  # a namespace's name may hold dots
    path = tuple(above.split("."))[1:] + ((PREFIX + own,) if of_namespace else ())
    remember_secrets(path, text)
    if not equals or not name.strip():
        shown = re.match(r"[\w.-]*", argument)
        raise SettingError(
            "--set", shown[0] if shown else "", "KEY=VALUE"
        )  # what follows may be a secret
    if path[:1] == ("cluster",) and len(path) > 3:
        end = -3 if path[-3] == SHADOW else -1
        path = ("cluster", ".".join(path[1:end]), *path[end:])  # a cluster's name may hold dots
    return _flatten(_nested(path if len(path) > 1 else ("balancer", *path), text), "--set")


def _nested(path: KeyPath, text: str) -> dict[str, Any]:
    # A client's options have no declared types; everything else is turned into its type by the model that declares it.
    value: Any = _as_toml(text) if path[:2] == FREE_SECTIONS[0] else text
    if path[:2] in FREE_SECTIONS:
        path = (*path[:2], ".".join(path[2:]))  # Hadoop's names hold dots
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _as_toml(text: str) -> Any:
    """A value as TOML would read it; what is no TOML value is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# --- sections ---


def _flatten(values: Mapping[str, Any], origin: str) -> dict[KeyPath, Given]:
    """Nested sections as paths, the balancer's keys under our names."""
    found: dict[KeyPath, Given] = {}
    for section, content in sorted(values.items(), key=lambda item: item[0] == SECTION):
        if section not in (*SECTIONS, SECTION):
            raise SettingError(
                section, content, f"one of the sections {', '.join((*SECTIONS, SECTION))}", origin
            )
        keys = _require_section(section, content, origin)
        if section == "balancer":
            found |= _read_balancer((section,), keys, origin)
        elif section == SECTION:
            own = _read_balancer(("balancer",), {section: keys}, origin)
            for path in found.keys() & own.keys():
                raise SettingError(
                    ".".join(path),
                    own[path].value,
                    f"it once: in [{SECTION}] or in [balancer.{SECTION}]",
                    origin,
                )
            found |= own
        elif section == "cluster":
            for cluster, own in keys.items():
                found |= _read_cluster(
                    cluster, dict(_require_section(f"cluster.{cluster}", own, origin)), origin
                )
        else:
            found |= {(section, name): Given(value, origin) for name, value in keys.items()}
    for free in FREE_SECTIONS:
        options = found.pop(free, Given({}, origin)).value
        found |= {
            (*free, name): Given(value, origin)
            for name, value in _require_section(".".join(free), options, origin).items()
        }
    return found


def _read_cluster(cluster: str, own: dict[str, Any], origin: str) -> dict[KeyPath, Given]:
    """A cluster's settings, and its shadows'."""
    section = f"cluster.{cluster}.{SHADOW}"
    shadows = _require_section(section, own.pop(SHADOW, {}), origin)
    found = _read_balancer(("cluster", cluster), own, origin)
    for name, keys in shadows.items():
        place = f"{section}.{name}"
        if not _require_section(place, keys, origin):
            raise SettingError(
                place,
                {},
                "a section with keys in it: what the shadow does otherwise than its cluster",
                origin,
            )
        found |= _read_balancer(("cluster", cluster, SHADOW, name), keys, origin)
    return found


def _read_balancer(prefix: KeyPath, keys: Mapping[str, Any], origin: str) -> dict[KeyPath, Given]:
    from lb_stream.settings.names import normalise_names

    found: dict[KeyPath, Given] = {}
    own = _require_section(".".join((*prefix, SECTION)), keys.get(SECTION, {}), origin)
    for name, value in (
        {name: value for name, value in keys.items() if name != SECTION}
        | _of_namespaces(prefix, own, origin)
    ).items():
        if name == SHADOW:
            expected = "a setting; shadows stand in [cluster.CLUSTER.shadow.NAME], and have none of their own"
            raise SettingError(".".join((*prefix, name)), value, expected, origin)
        try:
            ((ours, own_value),) = normalise_names({name: value}).items()
        except SettingError as error:
            raise SettingError(
                ".".join((*prefix, name)), error.value, error.expected, origin
            ) from None
        path = (*prefix, ours)
        if path in found:
            raise SettingError(
                ".".join((*prefix, name)), value, f"only one spelling of {ours}", origin
            )
        found[path] = Given(own_value, origin if name == ours else f"{origin}, {name}")
    return found


def _of_namespaces(prefix: KeyPath, namespaces: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The sections of namespaces as keys."""
    for namespace, keys in namespaces.items():
        _require_section(".".join((*prefix, SECTION, namespace)), keys, origin)
    return flatten_namespaces(namespaces)


def _require_section(name: str, content: Any, origin: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise SettingError(name, content, f"a section with keys in it, such as {name}.KEY", origin)
    return content


def list_section_keys(section: str) -> list[str]:
    model: Any = Settings.model_fields[section].annotation
    if fields := getattr(model, "model_fields", None):
        return list(fields)
    from lb_stream.settings.names import list_known_names

    return list(list_known_names())
