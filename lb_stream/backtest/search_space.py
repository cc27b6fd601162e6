"""The space that `--suggest` searches: bounds or choices for settings of one policy.

The models that declare the settings check them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from lb_stream.contracts.keys import GivenSettings, SettingError, describe_expected_setting
from lb_stream.settings.names import list_models, normalise_names
from lb_stream.settings.resolve import ResolvedSettings
from lb_stream.settings.usage import explain_unread, find_readers
from lb_stream.sim.simulation import Policy

OPTION = "--search"
FORM = "low..high or one|other"
BY_RATIO = 100
"""A range with such a ratio of its ends is searched on a logarithmic scale."""
DIGITS = 3
"""Significant digits of a value that is tried. More of them change measures by less than noise."""

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
"""Shedder → the settings that are searched by default: thresholds, delays, and amounts."""
FOR_ALL: Mapping[str, str] = {
    "shedding_grace_period_ms": "60000..3600000",
    "max_moves_per_minute": "1..10000",
}
"""Settings that are searched by default for every shedder."""


Parameter = float | str
"""What the optimiser varies: a number of a range, or the text of a choice."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A number from `low` to `high`, both included."""

    low: float
    high: float
    whole: bool

    @property
    def by_ratio(self) -> bool:
        """Return whether the range is searched on a logarithmic scale."""
        return self.low > 0 and self.high >= BY_RATIO * self.low

    @property
    def count(self) -> float:
        """Return the number of values."""
        return self.high - self.low + 1 if self.whole and self.high < 10**DIGITS else math.inf

    def to_value(self, parameter: float) -> float:
        """Convert the optimiser's parameter to the value to try: few digits, within the bounds."""
        rounded = min(max(float(f"{parameter:.{DIGITS}g}"), self.low), self.high)
        return round(rounded) if self.whole else rounded

    def to_parameter(self, value: object) -> float | None:
        """Convert a value to the optimiser's parameter. None: the value lies outside."""
        return value if isinstance(value, int | float) and self.low <= value <= self.high else None


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices of a value: its text as given → the value."""

    values: Mapping[str, object]

    @property
    def count(self) -> float:
        """Return the number of values."""
        return len(self.values)

    def to_value(self, parameter: str) -> object:
        """Convert the optimiser's parameter, a choice's text, to its value."""
        return self.values[parameter]

    def to_parameter(self, value: object) -> str | None:
        """Convert a value to the optimiser's parameter. None: it is no choice."""
        return next((text for text, candidate in self.values.items() if candidate == value), None)


@dataclass(frozen=True, slots=True)
class Space:
    """The settings of a policy that are searched."""

    base: Policy
    parts: Mapping[str, ValueRange | Choices]  # setting → its values
    base_values: GivenSettings  # setting → the value that `base` has

    def trials(self, wanted: int) -> int:
        """Return how many policies can be tried, at most `wanted`; `base` is one of them."""
        return int(
            min(
                wanted,
                math.prod(part.count for part in self.parts.values()) + (self.start() is None),
            )
        )

    def changes(self, parameters: Mapping[str, Any]) -> dict[str, object]:
        """Return the settings that differ from the base's, for the optimiser's parameters."""
        values = {name: part.to_value(parameters[name]) for name, part in self.parts.items()}
        return {name: value for name, value in values.items() if value != self.base_values[name]}

    def start(self) -> dict[str, Parameter] | None:
        """Return the optimiser's parameters of the base. None: it lies outside of the space."""
        parameters: dict[str, Parameter] = {}
        for name, part in self.parts.items():
            parameter = part.to_parameter(self.base_values[name])
            if parameter is None:
                return None
            parameters[name] = parameter
        return parameters

    def policy(self, changes: GivenSettings, number: int) -> Policy:
        """Return the base with some settings changed; number 0 is the base itself."""
        return Policy(
            f"{self.base.name} {number}" if number else self.base.name,
            {**self.base.settings, **changes},
        )


def read_space(base: Policy, searched: Iterable[str] = ()) -> Space:
    """Read the space from `name=low..high` and `name=one|other`; by default, the shedder's own.

    Names are ours or Pulsar's, values in their units. Raises SettingError, which names the setting,
    its value and what was expected.
    """
    base = Policy(base.name, normalise_names(base.settings))
    simulated = _simulated_settings(base)
    config = simulated.config
    if not config.balancer.enabled or not config.balancer.shedding_enabled:
        raise SettingError("--policy", base.name, "one that sheds, for --suggest")
    given = _parse_searched(searched) or _default_settings(config.shedder.name)
    parts = {ours: _parse_part(base, name, text) for ours, (name, text) in given.items()}
    # Each setting must be read by the policy, or by one with a choice of another setting.
    configs = [
        config,
        *(
            _simulated_settings(base, **{ours: value}).config
            for ours, part in parts.items()
            for value in _choices(part)
        ),
    ]
    for ours, (name, text) in given.items():
        if not any(find_readers(ours, config) for config in configs):
            raise SettingError(
                name, text, f"a setting that is read: {explain_unread(ours, config)}", OPTION
            )
    return Space(base, parts, {ours: _find_value(simulated, ours) for ours in parts})


def _default_settings(shedder: str) -> dict[str, tuple[str, str]]:
    return {
        name: (name, text) for name, text in (*SPACES.get(shedder, {}).items(), *FOR_ALL.items())
    }


def _simulated_settings(base: Policy, **over: object) -> ResolvedSettings:
    """Resolve the settings as a simulation uses them: without splits."""
    return base.resolve(**{"split_enabled": False, **over})


def _choices(part: ValueRange | Choices) -> Iterable[object]:
    return part.values.values() if isinstance(part, Choices) else ()


def _parse_searched(searched: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return our name of a setting → its name and values, as given. Raises SettingError."""
    found: dict[str, tuple[str, str]] = {}
    for given in searched:
        name, equals, text = (part.strip() for part in given.partition("="))
        if not equals or not name:
            raise SettingError(OPTION, given, f"NAME={FORM}")
        try:
            (ours,) = normalise_names({name: "0"})
        except SettingError as error:
            raise SettingError(name, text, error.expected, OPTION) from None
        if ours in found:
            raise SettingError(name, text, "each setting once", OPTION)
        found[ours] = name, text
    return found


def _parse_part(base: Policy, name: str, text: str) -> ValueRange | Choices:
    """Parse the values of one setting. Raises SettingError."""
    low, dots, high = text.partition("..")
    if dots:
        ends = [_parse_value(base, name, end) for end in (low, high)]
        numbers = [
            end for end in ends if isinstance(end, int | float) and not isinstance(end, bool)
        ]
        if len(numbers) < len(ends):
            raise SettingError(name, text, "one|other: it is no number", OPTION)
        if numbers[0] >= numbers[1]:
            raise SettingError(name, text, "low..high with the lower one first", OPTION)
        return ValueRange(
            numbers[0], numbers[1], whole=all(isinstance(number, int) for number in numbers)
        )
    values = {
        choice.strip(): _parse_value(base, name, choice.strip()) for choice in text.split("|")
    }
    if len(values) < 2:
        raise SettingError(name, text, FORM, OPTION)
    return Choices(values)


def _parse_value(base: Policy, name: str, text: str) -> object:
    """Parse a setting's value. Raises SettingError for an unknown setting or a wrong value."""
    ((ours, value),) = normalise_names({name: text}).items()
    model = next(model for model in list_models() if ours in model.model_fields)
    try:
        value = getattr(model(**{ours: value}), ours)
        base.resolve(**{ours: value})
    except ValidationError as error:
        raise SettingError(
            name, text, describe_expected_setting(error.errors()[0]), OPTION
        ) from None
    except SettingError as error:
        raise SettingError(name, text, error.expected, OPTION) from None
    return value


def _find_value(resolved: ResolvedSettings, name: str) -> object:
    """Find a setting's value; its default where the policy's strategies don't read it."""
    values = resolved.values
    if name in values:
        return values[name]
    return next(
        model.model_fields[name].default for model in list_models() if name in model.model_fields
    )
