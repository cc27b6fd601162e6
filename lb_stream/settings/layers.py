"""Reads the layers of settings: a TOML file, a broker.conf, the environment, one argument.

An error names the key as it was given, and where it stands. Both names of a balancer's key (ours,
Pulsar's) become ours, so that a later layer overrides an earlier one under either name. The
strategies, which declare most of the balancer's keys, are imported only where such a key is given.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lb_stream.contracts.keys import KeyModel, SettingError
from lb_stream.contracts.settings import SHADOW, Settings
from lb_stream.settings.files import parse_properties, read_setting_file
from lb_stream.settings.secrets import remember_secrets
from lb_stream.settings.spelling import (
    PREFIX,
    SECTION,
    choose_spellings,
    find_misspelt,
    flatten_namespaces,
)

ENVIRONMENT_PREFIX = "LB_"
"""Prefix of variables that are settings: LB_BALANCER__DRY_RUN=false sets balancer.dry_run."""

SECTIONS = (
    "kafka",
    "topics",
    "stream",
    "upkeep",
    "notify",
    "hooks",
    "security",
    "admission",
    "otel",
    "console",
    "oidc",
    "lookup",
    "metrics",
    "balancer",
    "cluster",
)

CLIENT_OPTIONS = ("kafka", "options")
FREE_SECTIONS = (
    CLIENT_OPTIONS,
    ("stream", "store_options"),
    ("notify", "targets"),
    ("notify", "routes"),
)
"""Sections whose keys are not declared: another project's options, or names that users choose."""

KeyPath = tuple[str, ...]
"""Sections and key of a setting: ("balancer", "dry_run"), ("cluster", "eu-1", "dry_run"),
("cluster", "eu-1", "shadow", "avg", "shedding_strategy"), ("kafka", "options", "ssl_cafile")."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value, and where it stands: the file, the variable's name, or --set.

    The name of the key follows if it was not given under ours.
    """

    value: object
    origin: str


Layer = dict[KeyPath, Given]
"""The settings that one layer gives."""


def read_toml(path: Path) -> Layer:
    """Read a TOML file. Raises SettingError."""
    text = read_setting_file(path, "--config")
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise SettingError("--config", str(path), f"a TOML file ({error})") from None
    remember_secrets((), values)
    return _flatten(values, str(path))


def read_broker_conf(path: Path) -> tuple[Layer, tuple[str, ...]]:
    """Read a broker.conf of Pulsar's: its keys of load balancing, without empty values.

    Also returns a warning for each key that seems to be a misspelt key of load balancing. Raises
    SettingError.
    """
    from lb_stream.settings.names import list_pulsar_names, load_plugins

    text = read_setting_file(path, "--broker-conf")
    properties = {name: value.strip() for name, value in parse_properties(text)}
    known = list_pulsar_names()
    if misspelt := find_misspelt(properties, known):
        load_plugins()
        known = list_pulsar_names()
        misspelt = find_misspelt(properties, known)
    values = {name: value for name, value in properties.items() if name in known and value}
    warnings = (
        f"{name} = {properties[name]!r} ({path}) doesn't count: Pulsar has no such key of load "
        f"balancing; the nearest is {near}"
        for name, near in misspelt.items()
    )
    return _flatten({"balancer": choose_spellings(values)}, str(path)), tuple(warnings)


def read_environment(environment: Mapping[str, str]) -> Layer:
    """Read the variables that are settings. Raises SettingError."""
    found: Layer = {}
    for name, text in sorted(environment.items()):
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        if name.startswith(ENVIRONMENT_PREFIX):
            remember_secrets(path, text)
            _require_two_underscores(name, text, path)
            if path[0] in SECTIONS:
                found |= _flatten(_nest(path, text), name)
    return found


def _require_two_underscores(name: str, text: str, path: KeyPath) -> None:
    """Refuse a name such as LB_KAFKA_BOOTSTRAP_SERVERS, which would be ignored silently.

    Other programs' variables, such as LB_KAFKA_PORT, are allowed. Raises SettingError.
    """
    section, _, key = path[0].partition("_")
    if len(path) == 1 and section in SECTIONS and key in list_section_keys(section):
        remember_secrets((section, key), text)
        right = f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
        raise SettingError(
            name, text, f"two underscores between section and key: {right}", "environment"
        )


def parse_argument(argument: str) -> Layer:
    """Parse an argument `section.key=value`, or `key=value` for the balancer. Raises SettingError.

    Names of namespaces and clusters may hold dots.
    """
    name, equals, text = argument.partition("=")
    above, of_namespace, own = f".{name.strip()}".partition(f".{PREFIX}")
    path = tuple(above.split("."))[1:] + ((PREFIX + own,) if of_namespace else ())
    remember_secrets(path, text)
    if not equals or not name.strip():
        # Only the begin is shown: what follows may be a secret.
        shown = re.match(r"[\w.-]*", argument)
        raise SettingError("--set", shown[0] if shown else "", "KEY=VALUE")
    if path[:1] == ("cluster",) and len(path) > 3:
        end = -3 if path[-3] == SHADOW else -1
        path = ("cluster", ".".join(path[1:end]), *path[end:])
    if len(path) == 1:
        path = ("balancer", *path)
    return _flatten(_nest(path, text), "--set")


def _nest(path: KeyPath, text: str) -> dict[str, object]:
    """Return sections that hold a single value.

    A client's option is parsed as TOML, because nothing declares its type. Any other text is
    converted by the model that declares the key.
    """
    value: object = _parse_toml_value(text) if path[:2] == CLIENT_OPTIONS else text
    if path[:2] in FREE_SECTIONS:
        path = (*path[:2], ".".join(path[2:]))  # Hadoop's names hold dots
    for part in reversed(path[1:]):
        value = {part: value}
    return {path[0]: value}


def _parse_toml_value(text: str) -> object:
    """Parse a value as TOML does; anything else is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


# --- sections ---


def _flatten(values: Mapping[str, object], origin: str) -> Layer:
    """Flatten sections into paths, with the balancer's keys under our names."""
    found: Layer = {}
    # The section of namespaces comes last: it is compared with the balancer's.
    for section, content in sorted(values.items(), key=lambda item: item[0] == SECTION):
        if section not in (*SECTIONS, SECTION):
            raise SettingError(
                section, content, f"one of the sections {', '.join((*SECTIONS, SECTION))}", origin
            )
        keys = _require_section(section, content, origin)
        if section == "balancer":
            found |= _flatten_balancer((section,), keys, origin)
        elif section == SECTION:
            own = _flatten_balancer(("balancer",), {section: keys}, origin)
            for path in found.keys() & own.keys():
                expected = f"it once: in [{SECTION}] or in [balancer.{SECTION}]"
                raise SettingError(".".join(path), own[path].value, expected, origin)
            found |= own
        elif section == "cluster":
            for cluster, content_of_cluster in keys.items():
                of_cluster = _require_section(f"cluster.{cluster}", content_of_cluster, origin)
                found |= _flatten_cluster(cluster, of_cluster, origin)
        else:
            found |= {(section, name): Given(value, origin) for name, value in keys.items()}
    for free in FREE_SECTIONS:
        options = found.pop(free, Given({}, origin)).value
        found |= {
            (*free, name): Given(value, origin)
            for name, value in _require_section(".".join(free), options, origin).items()
        }
    return found


def _flatten_cluster(cluster: str, keys: Mapping[str, object], origin: str) -> Layer:
    """Flatten a cluster's section, and those of its shadows."""
    section = f"cluster.{cluster}.{SHADOW}"
    shadows = _require_section(section, keys.get(SHADOW, {}), origin)
    own = {name: value for name, value in keys.items() if name != SHADOW}
    found = _flatten_balancer(("cluster", cluster), own, origin)
    for name, content in shadows.items():
        place = f"{section}.{name}"
        shadow = _require_section(place, content, origin)
        if not shadow:
            expected = "a section with keys in it: the shadow's settings that differ"
            raise SettingError(place, {}, expected, origin)
        found |= _flatten_balancer(("cluster", cluster, SHADOW, name), shadow, origin)
    return found


def _flatten_balancer(prefix: KeyPath, keys: Mapping[str, object], origin: str) -> Layer:
    """Flatten a section of the balancer's keys, with its section of namespaces."""
    from lb_stream.settings.names import normalise_names

    found: Layer = {}
    sections = _require_section(".".join((*prefix, SECTION)), keys.get(SECTION, {}), origin)
    namespaces = {
        name: _require_section(".".join((*prefix, SECTION, name)), content, origin)
        for name, content in sections.items()
    }
    own = {name: value for name, value in keys.items() if name != SECTION}
    for name, value in (own | flatten_namespaces(namespaces)).items():
        place = ".".join((*prefix, name))
        if name == SHADOW:
            expected = (
                "a setting; shadows have sections of their own, [cluster.CLUSTER.shadow.NAME]"
            )
            raise SettingError(place, value, expected, origin)
        try:
            ((ours, own_value),) = normalise_names({name: value}).items()
        except SettingError as error:
            raise SettingError(place, error.value, error.expected, origin) from None
        path = (*prefix, ours)
        if path in found:
            raise SettingError(place, value, f"{ours} under one of its names only", origin)
        found[path] = Given(own_value, origin if name == ours else f"{origin}, {name}")
    return found


def _require_section(name: str, content: object, origin: str) -> Mapping[str, object]:
    """Return a section's content. Raises SettingError if it is no section."""
    if not isinstance(content, Mapping):
        raise SettingError(name, content, f"a section with keys in it, such as {name}.KEY", origin)
    return content


def list_section_keys(section: str) -> list[str]:
    """Return the declared keys of a section."""
    model = Settings.model_fields[section].annotation
    if isinstance(model, type) and issubclass(model, KeyModel):
        return list(model.model_fields)
    from lb_stream.settings.names import list_known_names

    return list(list_known_names())
