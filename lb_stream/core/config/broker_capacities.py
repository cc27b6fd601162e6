"""Rules of broker_capacities: what brokers can carry, in place of the limits that they report.

A rule is a text of words name=value: `broker`, a name or a pattern, and the capacities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from lb_stream.contracts.base import LONGEST_BROKER
from lb_stream.contracts.keys import SettingError
from lb_stream.core.config.rule_words import read_words
from lb_stream.core.model.policies import host_of

KEY = "broker_capacities"
UNITS = {
    "cpu_cores": ("cpu", 100.0),
    "memory_mib": ("memory", 1.0),
    "direct_memory_mib": ("direct_memory", 1.0),
    "bandwidth_in_mbps": ("bandwidth_in", 1_000.0),
    "bandwidth_out_mbps": ("bandwidth_out", 1_000.0),
}
"""Word of a rule → the resource, and how many of its units in reports (percent of a core, MiB,
kbit/s) are one of the word's."""
EXPECTED = (
    f"words of broker, {', '.join(UNITS)}, as in 'broker=broker-1*:8080 bandwidth_in_mbps=1000 "
    "bandwidth_out_mbps=1000'"
)
MAX_RULES = 200
MAX_CAPACITY = 1e9
"""The highest value of a word: a petabit/s, or a petabyte."""


@dataclass(frozen=True, slots=True)
class CapacityRule:
    """The capacities of the brokers that match a pattern."""

    pattern: str
    capacities: Mapping[str, float]  # word → value

    @property
    def is_name(self) -> bool:
        """Whether the pattern has no wildcard: it is the name of a broker or a host."""
        return not any(wildcard in self.pattern for wildcard in "*?[")

    def matches(self, broker: str) -> bool:
        """Whether the rule is about a broker (host:port). A pattern without a port names hosts."""
        name = broker if ":" in self.pattern else host_of(broker)
        return fnmatchcase(name, self.pattern)

    def find_rows(self, brokers: Sequence[str]) -> list[int]:
        """Return the places of the brokers in this list that the rule is about."""
        return [row for row, broker in enumerate(brokers) if self.matches(broker)]

    def limits(self) -> dict[str, float]:
        """Return the limits that replace reported ones, by resource, in the units of reports."""
        return {
            resource: self.capacities[word] * unit
            for word, (resource, unit) in UNITS.items()
            if word in self.capacities
        }

    def to_text(self) -> str:
        """Return the text of the rule."""
        words = [f"{word}={value:.12g}" for word, value in self.capacities.items()]
        return " ".join([f"broker={self.pattern}", *words])


def check_capacities(texts: Iterable[str]) -> None:
    """Raise SettingError for an invalid rule, or too many rules."""
    given = tuple(texts)
    if len(given) > MAX_RULES:
        raise SettingError(KEY, f"{len(given)} rules", f"{MAX_RULES} at most")
    for text in given:
        try:
            parse_rule(text)
        except ValueError as error:
            raise SettingError(KEY, text, f"{EXPECTED} ({error})") from None


@lru_cache(maxsize=8_192)
def parse_rule(text: str) -> CapacityRule:
    """Parse the text of a rule. Raises ValueError for an invalid one."""
    given = read_words(text)
    pattern = given.pop("broker", "")
    if not pattern or len(pattern) > LONGEST_BROKER:
        raise ValueError(f"broker is missing: a name or pattern of 1 to {LONGEST_BROKER} letters")
    if unknown := given.keys() - UNITS.keys():
        raise ValueError(f"{min(unknown)} is unknown")
    if not given:
        raise ValueError("it has no capacity")
    capacities = {word: _capacity(word, given[word]) for word in UNITS if word in given}
    return CapacityRule(pattern, capacities)


def _capacity(word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_CAPACITY:
        raise ValueError(f"{word} {text} is no number above 0, up to {MAX_CAPACITY:g}")
    return value
