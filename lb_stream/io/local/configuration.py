"""Settings from files, environment and arguments: arguments > environment > TOML > broker.conf >
profile > default.

Each layer is checked key by key under its own name, so that an error says where the value stands.
Both spellings of a balancer's key (ours, Pulsar's) are brought to ours first: a later layer wins
whichever spelling it uses.

The strategies, which declare most of the balancer's keys, are imported only where such a key is
given or asked for.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lb_stream.contracts.keys import SettingError, pulsar_names
from lb_stream.contracts.settings import SHADOW, Settings
from lb_stream.io.local.settings_files import find_exposures, properties, text_of
from lb_stream.io.messages.secrets import learn

if TYPE_CHECKING:
    from lb_stream.core.config.cluster_config import ClusterConfig

ENVIRONMENT_PREFIX = "LB_"
"""LB_KAFKA__BOOTSTRAP_SERVERS=host:9092 sets kafka.bootstrap_servers; LB_BALANCER__DRY_RUN=false
sets balancer.dry_run."""

SECTIONS = ("kafka", "topics", "stream", "upkeep", "notify", "hooks", "balancer", "cluster")

FREE_SECTIONS = (
    ("kafka", "options"),
    ("stream", "store_options"),
    ("notify", "targets"),
    ("notify", "routes"),
)
"""Sections whose keys are others', or names that their author chose: they have no declared
types."""

KeyPath = tuple[str, ...]
"""Where a key stands: ("balancer", "dry_run"), ("cluster", "eu-1", "dry_run"), ("cluster", "eu-1",
"shadow", "avg", "shedding_strategy"), ("kafka", "options", "ssl_cafile")."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it stands: a file, a variable's name or --set, with the key's spelling if
    it isn't ours."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings, and of every key that somebody gave (under our name): who gave it.

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
    """Read and check everything.

    `arguments` are `section.key=value`, or `key=value` for the balancer's keys (ours or Pulsar's).

    Raises SettingError, naming the key, the value, what was expected and where the value stands.
    """
    return load(toml, broker_conf, arguments, environment).settings


def load(
    toml: Path | None = None,
    broker_conf: Path | None = None,
    arguments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """As `load_settings`, with the origin of every value that isn't a default."""
    given: dict[KeyPath, Given] = _from_broker_conf(broker_conf) if broker_conf is not None else {}
    over = _from_toml(toml) if toml is not None else {}
    replaced = list(_replaced(given, over))
    given |= over
    given |= _from_environment(os.environ if environment is None else environment)
    for argument in arguments:
        given |= _from_argument(argument)
    settings = _checked(given)
    origins = {path: one.origin for path, one in given.items()}
    values = {path: one.value for path, one in given.items()}
    exposed = tuple(filter(None, find_exposures(values, {} if toml is None else {toml: over})))
    if not settings.balancer and not settings.cluster:
        return Loaded(settings, origins, tuple(dict.fromkeys((*replaced, *exposed))))
    from lb_stream.core.config.cluster_config import cluster_config
    from lb_stream.core.shadow.settings import shadow_config

    warnings = (
        warning
        for cluster in ("", *settings.cluster)
        for warning in cluster_config(settings.of_cluster(cluster)).warnings
    )
    of_shadows = (
        f"cluster.{cluster}.shadow.{name}: {warning}"
        for cluster in settings.cluster
        for name, own in settings.shadows_of(cluster).items()
        for warning in shadow_config(settings.of_cluster(cluster), {}, own).warnings
        if warning not in cluster_config(settings.of_cluster(cluster)).warnings
    )
    told = tuple(dict.fromkeys((*replaced, *exposed, *warnings, *of_shadows)))
    return Loaded(settings, origins, told)


def _replaced(broker_conf: Mapping[KeyPath, Given], toml: Mapping[KeyPath, Given]) -> Iterator[str]:
    """Where the TOML file overrides the broker.conf.

    A file with every key, as `config show` prints it, overrides all of it.
    """
    for path, below in broker_conf.items():
        over = toml.get(path)
        if over is not None and not same_value(over.value, below.value):
            key, name = below.origin.rpartition(", ")[2], ".".join(path)
            told = (
                f"{name} = {over.value!r} ({over.origin}) goes over it; leave it out there to "
                "keep the cluster's own"
            )
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


def _checked(given: Mapping[KeyPath, Given]) -> Settings:
    merged: dict[str, Any] = {section: {} for section in SECTIONS}
    for path, one in given.items():
        place = merged
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = one.value
    origins = {path: one.origin for path, one in given.items()}
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
    if not settings.balancer and not settings.cluster:
        return settings
    typed: dict[str, Any] = {}
    for cluster in ("", *settings.cluster):
        try:
            typed[cluster] = effective(settings, cluster)
        except SettingError as error:
            own = ("cluster", cluster, error.key)
            path = own if own in given else ("balancer", error.key)
            raise SettingError(
                ".".join(path), error.value, error.expected, origins.get(path, "")
            ) from None
    clusters = {cluster: _typed(keys, typed[cluster]) for cluster, keys in settings.cluster.items()}
    for cluster, keys in clusters.items():
        if shadows := settings.shadows_of(cluster):
            keys[SHADOW] = {
                name: _checked_shadow(settings, cluster, name, origins) for name in shadows
            }
    return settings.model_copy(
        update={"balancer": _typed(settings.balancer, typed[""]), "cluster": clusters}
    )


def _checked_shadow(
    settings: Settings, cluster: str, name: str, origins: Mapping[KeyPath, str]
) -> dict[str, Any]:
    """A shadow's own settings in their types.

    Raises SettingError for those that can't be, or don't go with the cluster's.
    """
    from lb_stream.core.shadow.settings import check_shadow, shadow_config

    own = settings.shadows_of(cluster)[name]
    place: KeyPath = ("cluster", cluster, SHADOW, name)
    try:
        check_shadow(name, own)
        return _typed(own, _in_force(shadow_config(settings.of_cluster(cluster), {}, own)))
    except SettingError as error:
        path = (*place, error.key) if error.key != name else place
        origin = origins.get(path) or next(
            (origin for at, origin in origins.items() if at[:4] == place), ""
        )
        raise SettingError(".".join(path), error.value, error.expected, origin) from None


def _typed(given: Mapping[str, Any], effective: Mapping[str, Any]) -> dict[str, Any]:
    """The given values in their types.

    The load manager stays as it was named: which one runs may differ from cluster to cluster.
    """
    return {
        name: value if name == "load_manager" else effective.get(name, value)
        for name, value in given.items()
    }


def effective(settings: Settings, cluster: str = "") -> dict[str, Any]:
    """Every key that one cluster's rounds run with, defaults included, typed.

    "" stands for clusters that have no settings of their own.
    """
    from lb_stream.core.config.cluster_config import cluster_config

    return _in_force(cluster_config(settings.of_cluster(cluster)))


def _in_force(checked: ClusterConfig) -> dict[str, Any]:
    from lb_stream.core.config.namespaces import PREFIX

    found: dict[str, Any] = {}
    # A strategy may read a key of the balancer's.
    for model in (
        checked.balancer,
        checked.shedder_config,
        checked.placement_config,
        checked.splitting,
        checked.reporting,
    ):
        found = {name: getattr(model, name) for name in type(model).model_fields} | found
    for namespace, own in checked.namespaces.items():
        found |= {
            f"{PREFIX}{namespace}.{name}": getattr(own, name)
            for name in sorted(own.model_fields_set)
        }
    return dict(sorted(found.items(), key=lambda item: item[0] != "profile"))


def _expected_in_section(path: KeyPath, error: Any) -> str:
    from lb_stream.core.config.reading import expected

    if error["type"] == "extra_forbidden":
        known = _known_in(path[0])
        return (
            "one of the known keys; nearest: "
            f"{', '.join(get_close_matches(path[-1], known, n=3) or known)}"
        )
    return expected(error)


def _known_in(section: str) -> list[str]:
    model: Any = Settings.model_fields[section].annotation
    if fields := getattr(model, "model_fields", None):
        return list(fields)
    from lb_stream.core.config.cluster_config import known_keys

    return list(known_keys())


def _flat(values: Mapping[str, Any], origin: str) -> dict[KeyPath, Given]:
    """Nested sections as paths, the balancer's keys under our names."""
    from lb_stream.core.config.namespaces import SECTION

    found: dict[KeyPath, Given] = {}
    for section, content in sorted(values.items(), key=lambda item: item[0] == SECTION):
        if section not in (*SECTIONS, SECTION):
            raise SettingError(
                section, content, f"one of the sections {', '.join((*SECTIONS, SECTION))}", origin
            )
        keys = _section(section, content, origin)
        if section == "balancer":
            found |= _balancer((section,), keys, origin)
        elif section == SECTION:
            own = _balancer(("balancer",), {section: keys}, origin)
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
                found |= _cluster(
                    cluster, dict(_section(f"cluster.{cluster}", own, origin)), origin
                )
        else:
            found |= {(section, name): Given(value, origin) for name, value in keys.items()}
    for free in FREE_SECTIONS:
        options = found.pop(free, Given({}, origin)).value
        found |= {
            (*free, name): Given(value, origin)
            for name, value in _section(".".join(free), options, origin).items()
        }
    return found


def _cluster(cluster: str, own: dict[str, Any], origin: str) -> dict[KeyPath, Given]:
    """A cluster's settings, and its shadows'."""
    section = f"cluster.{cluster}.{SHADOW}"
    shadows = _section(section, own.pop(SHADOW, {}), origin)
    found = _balancer(("cluster", cluster), own, origin)
    for name, keys in shadows.items():
        place = f"{section}.{name}"
        if not _section(place, keys, origin):
            raise SettingError(
                place,
                {},
                "a section with keys in it: what the shadow does otherwise than its cluster",
                origin,
            )
        found |= _balancer(("cluster", cluster, SHADOW, name), keys, origin)
    return found


def _balancer(prefix: KeyPath, keys: Mapping[str, Any], origin: str) -> dict[KeyPath, Given]:
    from lb_stream.core.config.cluster_config import canonical
    from lb_stream.core.config.namespaces import SECTION

    found: dict[KeyPath, Given] = {}
    own = _section(".".join((*prefix, SECTION)), keys.get(SECTION, {}), origin)
    for name, value in (
        {name: value for name, value in keys.items() if name != SECTION}
        | _of_namespaces(prefix, own, origin)
    ).items():
        if name == SHADOW:
            expected = (
                "a setting; shadows stand in [cluster.CLUSTER.shadow.NAME], and have none "
                "of their own"
            )
            raise SettingError(".".join((*prefix, name)), value, expected, origin)
        try:
            ((ours, own_value),) = canonical({name: value}).items()
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
    from lb_stream.core.config.namespaces import SECTION, flat

    for namespace, keys in namespaces.items():
        _section(".".join((*prefix, SECTION, namespace)), keys, origin)
    return flat(namespaces)


def _section(name: str, content: Any, origin: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise SettingError(name, content, f"a section with keys in it, such as {name}.KEY", origin)
    return content


# --- the layers ---


def _from_toml(path: Path) -> dict[KeyPath, Given]:
    try:
        values = tomllib.loads(text_of(path, "--config"))
    except tomllib.TOMLDecodeError as error:
        raise SettingError("--config", str(path), f"a TOML file ({error})") from None
    learn((), values)
    return _flat(values, str(path))


def _from_broker_conf(path: Path) -> dict[KeyPath, Given]:
    """Pulsar's properties.

    They hold hundreds of keys that are none of ours: those are left out, so are empty values.
    """
    from lb_stream.core.config.cluster_config import all_models

    known, found = pulsar_names(*all_models()), {}
    for name, value in properties(text_of(path, "--broker-conf")):
        if name in known and value.strip():
            found[name] = value.strip()
    return _flat({"balancer": found}, str(path))


def _from_environment(environment: Mapping[str, str]) -> dict[KeyPath, Given]:
    found: dict[KeyPath, Given] = {}
    for name, text in sorted(environment.items()):
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        if name.startswith(ENVIRONMENT_PREFIX):
            learn(path, text)
            _refuse_single_underscore(name, text, path)
            found |= _flat(_nested(path, text), name) if path[0] in SECTIONS else {}
    return found


def _refuse_single_underscore(name: str, text: str, path: KeyPath) -> None:
    """LB_KAFKA_BOOTSTRAP_SERVERS would be ignored without a word.

    Other programs' variables (LB_KAFKA_PORT) are let be.
    """
    section, _, key = path[0].partition("_")
    if len(path) == 1 and section in SECTIONS and key in _known_in(section):
        learn((section, key), text)
        right = f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
        raise SettingError(
            name, text, f"two underscores between section and key: {right}", "environment"
        )


def _from_argument(argument: str) -> dict[KeyPath, Given]:
    from lb_stream.core.config.namespaces import PREFIX

    name, equals, text = argument.partition("=")
    above, of_namespace, own = f".{name.strip()}".partition(
        f".{PREFIX}"
    )  # a namespace's name may hold dots
    path = tuple(above.split("."))[1:] + ((PREFIX + own,) if of_namespace else ())
    learn(path, text)
    if not equals or not name.strip():
        shown = re.match(r"[\w.-]*", argument)
        raise SettingError(
            "--set", shown[0] if shown else "", "KEY=VALUE"
        )  # what follows may be a secret
    if path[:1] == ("cluster",) and len(path) > 3:
        end = -3 if path[-3] == SHADOW else -1
        path = ("cluster", ".".join(path[1:end]), *path[end:])  # a cluster's name may hold dots
    return _flat(_nested(path if len(path) > 1 else ("balancer", *path), text), "--set")


def _nested(path: KeyPath, text: str) -> dict[str, Any]:
    # A client's options have no declared types; everything else is turned into its type by the
    # model that declares it.
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
