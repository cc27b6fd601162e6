"""Rules of auto_approve: which decisions need no approval, by kind, reason, size, hour and budget.

A rule is a text of words name=value. Time is the round's; time zones are those of the pinned
package tzdata.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from lb_stream.contracts.decisions import DecisionKind
from lb_stream.contracts.keys import SettingError
from lb_stream.core.config.rule_words import read_words
from lb_stream.core.config.windows import zone_of

EXPECTED = (
    "words of kind, reason, max_mb, hours, zone and per_hour, as in 'kind=move "
    "reason=overloaded max_mb=5 hours=8-18 per_hour=20'"
)
KINDS: dict[str, tuple[DecisionKind, ...]] = {"move": ("unload", "transfer"), "split": ("split",)}
MB = 1e6
MAX_RULES = 50
MAX_PER_HOUR = 100_000


@dataclass(frozen=True, slots=True)
class AutoApproval:
    """One rule: all its conditions must hold. Empty or None: there is no such condition."""

    text: str
    kinds: tuple[DecisionKind, ...] = ()
    reasons: tuple[str, ...] = ()  # Pulsar's words or names of rules, in lower case
    max_bytes_per_s: float | None = None
    hours: tuple[int, int] | None = None  # from, until; (22, 6) is over midnight
    zone: ZoneInfo | None = None  # of the hours; None: UTC
    per_hour: int | None = None  # budget: approvals in any hour

    def allows(
        self, kind: DecisionKind, reasons: Iterable[str], bytes_per_s: float, now_ms: int
    ) -> bool:
        """Return whether the rule approves such a decision now, apart from its budget.

        `reasons`: all names of the decision's reason.
        """
        if self.kinds and kind not in self.kinds:
            return False
        if self.reasons and not {reason.lower() for reason in reasons} & set(self.reasons):
            return False
        if self.max_bytes_per_s is not None and not bytes_per_s <= self.max_bytes_per_s:
            return False  # also for NaN
        return self.hours is None or self._is_open(now_ms)

    def _is_open(self, now_ms: int) -> bool:
        begin, end = self.hours or (0, 24)
        hour = datetime.fromtimestamp(now_ms // 1_000, self.zone or zone_of("UTC")).hour
        return begin <= hour < end if begin < end else hour >= begin or hour < end


def check_auto_approve(texts: Iterable[str]) -> None:
    """Raise SettingError for an invalid rule, or too many rules."""
    given = tuple(texts)
    if len(given) > MAX_RULES:
        raise SettingError("auto_approve", f"{len(given)} rules", f"{MAX_RULES} at most")
    for text in given:
        try:
            auto_approval(text)
        except ValueError as error:
            raise SettingError("auto_approve", text, f"{EXPECTED} ({error})") from None


@lru_cache(maxsize=1_024)
def auto_approval(text: str) -> AutoApproval:
    """Parse the text of a rule. Raises ValueError for an invalid one."""
    given = read_words(text)
    if unknown := given.keys() - {"kind", "reason", "max_mb", "hours", "zone", "per_hour"}:
        raise ValueError(f"{min(unknown)} is unknown")
    if not given.keys() - {"zone"}:
        raise ValueError("it has no condition: with mode = act nothing needs approval")
    if "zone" in given and "hours" not in given:
        raise ValueError("zone is given without hours")

    # Their values.
    kinds = [kind for word in _words(given, "kind") for kind in _kinds(word)]
    return AutoApproval(
        text,
        tuple(kinds),
        tuple(word.lower() for word in _words(given, "reason")),
        _max_mb(given["max_mb"]) * MB if "max_mb" in given else None,
        _hours(given["hours"]) if "hours" in given else None,
        zone_of(given["zone"]) if "zone" in given else None,
        _per_hour(given["per_hour"]) if "per_hour" in given else None,
    )


def _words(given: dict[str, str], name: str) -> list[str]:
    return [word for word in given.get(name, "").split(",") if word]


def _kinds(word: str) -> tuple[DecisionKind, ...]:
    if word not in KINDS:
        raise ValueError(f"{word} is no kind: there are {', '.join(KINDS)}")
    return KINDS[word]


def _max_mb(text: str) -> float:
    try:
        max_mb = float(text)
    except ValueError:
        max_mb = -1.0
    if not 0 <= max_mb < 1e12:
        raise ValueError(f"max_mb {text} is no number of MB/s")
    return max_mb


def _hours(text: str) -> tuple[int, int]:
    begin, dash, end = text.partition("-")
    hours = (int(begin), int(end)) if dash and begin.isdecimal() and end.isdecimal() else (24, 24)
    if hours[0] > 23 or hours[1] > 24 or hours[0] == hours[1]:
        raise ValueError(f"hours {text} are not in the form 8-18 or 22-6")
    return hours


def _per_hour(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PER_HOUR:
        raise ValueError(f"per_hour {text} is no whole number up to {MAX_PER_HOUR}")
    return int(text)
