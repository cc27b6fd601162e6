"""Compares the settings with which a Pulsar broker runs with those that its cluster has here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.contracts.keys import GivenSettings, SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.contracts.unread import WHY
from lb_stream.core.model.registry import UnknownStrategyError
from lb_stream.settings.explain import ExplainedSetting, Origins, explain_settings
from lb_stream.settings.load import same_value
from lb_stream.settings.load_managers import CLASS_KEYS, NOOP, find_strategy
from lb_stream.settings.names import list_known_names, list_pulsar_names, normalise_names
from lb_stream.settings.resolve import resolve
from lb_stream.settings.spelling import choose_spellings
from lb_stream.settings.usage import AGENTS

EXPECTED = frozenset(
    {"mode", "enabled", "shedding_enabled", "split_enabled", "unloading_timeout_ms"}
)
"""Settings that are meant to differ.

Pulsar's own balancing is off when this balancer is on, and agents need a longer time-out.
"""

_OPTIONAL = re.compile(r"Optional(?:\.empty|\[(.*)\])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DifferingSetting:
    """A setting with another value in a broker than here; both values are in units of `key`.

    `pulsar` is Pulsar's key, `key` the one here; `given_by` says where the value here comes from.
    """

    pulsar: str
    broker_value: object
    key: str
    value: object
    unit: str
    given_by: str

    def __str__(self) -> str:
        broker, here = (_describe(value, self.unit) for value in (self.broker_value, self.value))
        return f"{self.pulsar}: {broker} in the broker, {here} here ({self.key}, {self.given_by})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between a broker's settings and a cluster's.

    `unusable`: lines about values of the broker that can't be settings here.
    """

    differing: tuple[DifferingSetting, ...]
    unusable: tuple[str, ...]


def compare_settings(
    runtime: Mapping[str, object], own: GivenSettings, origins: Origins, cluster: str
) -> Comparison:
    """Find what would change here if the balancer were given the broker's settings in force.

    A setting that was given here under our name is meant to be as it is: it overrides the broker's.
    `runtime`: what the broker answers, Pulsar's key → text. `own`: the cluster's settings, under
    our names. Raises SettingError for settings that are wrong already without the broker's.
    """
    ours = _explain(own, origins, cluster)
    chosen_here = {name for name in own if _is_chosen(ours.get(name))}
    running, unusable = read_runtime(runtime, EXPECTED | chosen_here)
    while True:
        try:
            theirs = _explain({**own, **running}, {}, cluster)
            break
        except SettingError as error:
            # Without a value that doesn't go with the others here, the rest can be compared.
            unusable += (_describe_unusable(error),)
            if running.pop(error.key, None) is None:
                return Comparison((), unusable)
    if manager := MANAGER_CLASSES.get(str(running.get("load_manager")).rpartition(".")[2]):
        # The simple manager may have taken its place, as strategies don't go together here.
        theirs["load_manager"] = replace(theirs["load_manager"], value=manager)
    differing = tuple(_compare(ours, theirs, running.keys()))
    return Comparison(differing, unusable)


def _explain(own: GivenSettings, origins: Origins, cluster: str) -> dict[str, ExplainedSetting]:
    """Return our key → the balancer's setting; an unset weight has the value that it counts as."""
    explained = explain_settings(Settings(balancer=dict(own)), origins, cluster)
    found = {setting.key: setting for setting in explained if setting.section == "balancer"}
    weights = resolve(own).config.balancer.weights
    for resource in ("memory", "direct_memory"):
        setting = found[key := f"{resource}_weight"]
        if setting.value is None:
            found[key] = replace(setting, value=weights.get(resource))
    return found


def _is_chosen(setting: ExplainedSetting | None) -> bool:
    """Return whether a setting was given under our name, and not under Pulsar's."""
    name = "" if setting is None else setting.given_by.rpartition(", ")[2]
    return name not in list_pulsar_names()


def read_runtime(
    runtime: Mapping[str, object], left_out: Set[str]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the broker's settings that count here, by our names; lines about unusable ones.

    `left_out`: keys that are passed over, by our names.
    """
    texts, unusable = read_runtime_texts(runtime, left_out)
    return normalise_names(texts), unusable


def read_runtime_texts(
    runtime: Mapping[str, object], left_out: Set[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the same as `read_runtime`, as a broker.conf has it: Pulsar's names → texts."""
    ours = list_known_names()
    texts = {
        name: text
        for name in list_pulsar_names() & runtime.keys()
        if name not in WHY and (text := parse_java_text(runtime[name])) is not None
    }
    found: dict[str, str] = {}
    unusable: list[str] = []
    for name, text in sorted(choose_spellings(texts).items()):
        key, _ = ours[name]
        if key in left_out:
            continue
        try:
            _require_known_class(name, text)
            normalise_names({name: text})
            found[name] = text
        except SettingError as error:
            unusable.append(_describe_unusable(error))
    return found, tuple(unusable)


def parse_java_text(value: object) -> str | None:
    """Return a value of a broker's runtime configuration as a broker.conf has it; None: unset.

    Java writes an optional value as `Optional[1.0]` or `Optional.empty`, a list as `[a, b]`.
    """
    text = "null" if value is None else str(value).strip()
    if optional := _OPTIONAL.fullmatch(text):
        text = optional[1] or "null"
    if text in ("", "null"):
        return None
    if text.startswith("[") and text.endswith("]"):
        return ",".join(part.strip() for part in text[1:-1].split(","))
    return text


def _require_known_class(name: str, text: str) -> None:
    """Raise SettingError for a class of the cluster's own, which has no counterpart here."""
    key = CLASS_KEYS.get(name)
    if key is None:
        return
    if key != "load_manager":
        found = find_strategy(key, text)
        if isinstance(found, UnknownStrategyError):
            raise SettingError(name, text, found.expected)
    elif text.rpartition(".")[2] not in (*MANAGER_CLASSES, NOOP):
        raise SettingError(name, text, f"one of {', '.join(MANAGER_CLASSES)}")


def _describe_unusable(error: SettingError) -> str:
    return (
        f"{error.key} = {error.value!r} in the broker is no setting here: expected {error.expected}"
    )


def _compare(
    ours: Mapping[str, ExplainedSetting],
    theirs: Mapping[str, ExplainedSetting],
    running: Set[str],
) -> Iterator[DifferingSetting]:
    """Yield the broker's settings that differ, and that anything but an agent reads."""
    for key, setting in ours.items():
        other = theirs[key]
        readers = {*setting.read_by, *other.read_by} - {AGENTS}
        if key not in running or not readers or same_value(setting.value, other.value):
            continue
        yield DifferingSetting(
            setting.pulsar, other.value, key, setting.value, setting.unit, setting.given_by
        )


def _describe(value: object, unit: str) -> str:
    """Describe a value for people: a class by its simple name, a number with its unit."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.12g} {unit}".rstrip()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "nothing"
    return "not set" if value is None else str(value).rpartition(".")[2]
