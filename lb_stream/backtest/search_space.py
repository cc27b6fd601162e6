"""The space that `--suggest` searches: bounds or choices for settings of one policy, checked by the
models that declare the settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from lb_stream.contracts.keys import SettingError, expected
from lb_stream.settings.names import all_models, canonical
from lb_stream.settings.resolve import ResolvedSettings
from lb_stream.settings.usage import reading, why_unread
from lb_stream.sim.simulation import Policy

OPTION = "--search"
FORM = "low..high or one|other"
BY_RATIO = 100
"""A range whose ends are so many times apart is searched by ratio: 1 to 10 counts as much as 10 to
100."""
DIGITS = 3
"""Significant digits of a value that is tried: more of them tell policies apart by less than the
measures do."""

_ABOVE_AVERAGE = {
    "threshold_percent": "2..30",
    "history_ratio": "0..0.98",
    "min_throughput_mb": "0.1..20",
}
_UNLOAD = {
    "max_unload_ratio": "0.05..0.6",
    "min_unload_msgs_per_s": "10..10000",
    "min_unload_bytes_per_s": "10000..10000000",
}
SPACES: Mapping[str, Mapping[str, str]] = {
    "ThresholdShedder": _ABOVE_AVERAGE | {"lower_boundary": "false|true"},
    "RangeThresholdShedder": _ABOVE_AVERAGE,
    "OverloadShedder": {"overloaded_threshold_percent": "50..95"},
    "SimpleLoadManager": {"overloaded_threshold_percent": "50..95", "comfort_percent": "30..80"},
    "UniformLoadShedder": {"rate_difference_percent": "10..200", "throughput_multiplier": "1.2..8"}
    | _UNLOAD,
    "AvgShedder": {
        "low_threshold_points": "3..30",
        "high_threshold_points": "10..60",
        "hit_count_low": "1..12",
        "hit_count_high": "1..4",
    }
    | _UNLOAD,
    "TransferShedder": {
        "target_std": "0.02..0.5",
        "hit_count_threshold": "0..8",
        "max_brokers_per_cycle": "1..10",
        "top_bundles": "3..50",
        "unload_delay_ms": "30000..600000",
    },
    "LeastMoves": {
        "least_moves_trigger_ratio": "1.08..1.4",
        "least_moves_acceptable_ratio": "1.035..1.08",
        "least_moves_max_destination_ratio": "1.0..1.035",
        "least_moves_hot_for_ms": "1000..600000",
    },
}
"""Shedder → what is searched where nobody says what: its thresholds, how long it waits, how much it
takes at once."""
FOR_ALL: Mapping[str, str] = {
    "shedding_grace_period_ms": "60000..3600000",
    "max_moves_per_minute": "1..10000",
}
"""The same, for every shedder."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A number from `low` to `high`, both included."""

    low: float
    high: float
    whole: bool

    @property
    def by_ratio(self) -> bool:
        """Whether the logarithm is searched."""
        return self.low > 0 and self.high >= BY_RATIO * self.low

    @property
    def count(self) -> float:
        """How many values there are."""
        return self.high - self.low + 1 if self.whole and self.high < 10**DIGITS else math.inf

    def value_of(self, found: Any) -> float:
        """What is tried for what the optimiser asks for: few digits, within the bounds."""
        rounded = min(max(float(f"{found:.{DIGITS}g}"), self.low), self.high)
        return round(rounded) if self.whole else rounded

    def found_at(self, value: Any) -> float | None:
        """What the optimiser would ask for to try this value. None: it can't."""
        return value if isinstance(value, int | float) and self.low <= value <= self.high else None


@dataclass(frozen=True, slots=True)
class Choices:
    """One of some values, by how they were written."""

    values: Mapping[str, Any]

    @property
    def count(self) -> float:
        """How many values there are."""
        return len(self.values)

    def value_of(self, found: Any) -> Any:
        """What is tried for what the optimiser asks for."""
        return self.values[found]

    def found_at(self, value: Any) -> str | None:
        """What the optimiser would ask for to try this value. None: it can't."""
        return next((text for text, candidate in self.values.items() if candidate == value), None)


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched of a policy: setting → its values, and what the policy itself has there."""

    base: Policy
    parts: Mapping[str, ValueRange | Choices]
    at: Mapping[str, Any]

    def trials(self, wanted: int) -> int:
        """How many policies can be tried, of so many that are wanted; the policy itself is one of
        them."""
        return int(
            min(
                wanted,
                math.prod(part.count for part in self.parts.values()) + (self.start() is None),
            )
        )

    def changes(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that differ from the policy's own where the optimiser asks for this."""
        values = {name: part.value_of(found[name]) for name, part in self.parts.items()}
        return {name: value for name, value in values.items() if value != self.at[name]}

    def start(self) -> dict[str, Any] | None:
        """What the optimiser would ask for to try the policy itself. None: it lies outside."""
        found = {name: part.found_at(self.at[name]) for name, part in self.parts.items()}
        return None if None in found.values() else found

    def policy(self, changes: Mapping[str, Any], number: int) -> Policy:
        """The policy with some settings changed; the 0th is the policy itself."""
        return Policy(
            f"{self.base.name} {number}" if number else self.base.name,
            {**self.base.settings, **changes},
        )


def read_space(base: Policy, searched: Iterable[str] = ()) -> Space:
    """The space given by `name=low..high` and `name=one|other`; by none of them, the shedder's own.

    Names are ours or Pulsar's, values in their units. Raises SettingError, naming the setting, what
    was given and what was expected.
    """
    base = Policy(base.name, canonical(base.settings))
    simulated = _simulated_settings(base)
    config = simulated.config
    if not config.balancer.enabled or not config.balancer.shedding_enabled:
        raise SettingError("--policy", base.name, "one that sheds, for --suggest")
    given = _given(searched) or _default(config.shedder.name)
    parts = {ours: _part(base, name, text) for ours, (name, text) in given.items()}
    under = [
        config,
        *(
            _simulated_settings(base, **{ours: value}).config
            for ours, part in parts.items()
            for value in _chosen(part)
        ),
    ]
    for ours, (name, text) in given.items():
        if not any(reading(ours, config) for config in under):
            raise SettingError(
                name, text, f"a setting that is read: {why_unread(ours, config)}", OPTION
            )
    return Space(base, parts, {ours: _in_force(simulated, ours) for ours in parts})


def _default(shedder: str) -> dict[str, tuple[str, str]]:
    return {
        name: (name, text) for name, text in (*SPACES.get(shedder, {}).items(), *FOR_ALL.items())
    }


def _simulated_settings(base: Policy, **over: Any) -> ResolvedSettings:
    """The settings as a scenario is played with them: without splits."""
    return base.resolve(**{"split_enabled": False, **over})


def _chosen(part: ValueRange | Choices) -> Iterable[Any]:
    return part.values.values() if isinstance(part, Choices) else ()


def _given(searched: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Our name of a setting → its name and its values, as given."""
    found: dict[str, tuple[str, str]] = {}
    for given in searched:
        name, equals, text = (part.strip() for part in given.partition("="))
        if not equals or not name:
            raise SettingError(OPTION, given, f"NAME={FORM}")
        try:
            (ours,) = canonical({name: "0"})
        except SettingError as error:
            raise SettingError(name, text, error.expected, OPTION) from None
        if ours in found:
            raise SettingError(name, text, "each setting once", OPTION)
        found[ours] = name, text
    return found


def _part(base: Policy, name: str, text: str) -> ValueRange | Choices:
    """The values of one setting, under our name."""
    low, dots, high = text.partition("..")
    if dots:
        ends = [_value(base, name, end) for end in (low, high)]
        whole = all(isinstance(end, int) for end in ends)
        if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
            raise SettingError(name, text, "one|other: it is no number", OPTION)
        if ends[0] >= ends[1]:
            raise SettingError(name, text, "low..high with the lower one first", OPTION)
        return ValueRange(ends[0], ends[1], whole)
    values = {choice.strip(): _value(base, name, choice.strip()) for choice in text.split("|")}
    if len(values) < 2:
        raise SettingError(name, text, FORM, OPTION)
    return Choices(values)


def _value(base: Policy, name: str, text: str) -> Any:
    """A setting's value, from text. SettingError: no model has the setting, or it can't be that."""
    ((ours, value),) = canonical({name: text}).items()
    model = next(model for model in all_models() if ours in model.model_fields)
    try:
        value = getattr(model(**{ours: value}), ours)
        base.resolve(**{ours: value})
    except ValidationError as error:
        raise SettingError(name, text, expected(error.errors()[0]), OPTION) from None
    except SettingError as error:
        raise SettingError(name, text, error.expected, OPTION) from None
    return value


def _in_force(resolved: ResolvedSettings, name: str) -> Any:
    """Find what a setting is; its default where another strategy than the policy's reads it."""
    values = resolved.values
    if name in values:
        return values[name]
    return next(
        model.model_fields[name].default for model in all_models() if name in model.model_fields
    )
