"""The words of all screens: the command line, the console, the report page and notifications.

Headings and states have one word each. Rules (`core.model.rules`) are explained with the figures of
a decision in their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from lb_stream.core.config.windows import Closed
from lb_stream.core.model.rules import DECIDES, FILTERED_BY, PLACES, REFUSES, Rule
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock

OUTCOME = "Outcome"
RESULT = "Result"
PENDING = "pending"
DRY_RUN = "dry run"
NO_BROKER = "no broker"
UNASSIGNED = "unassigned"
MAX_USAGE = "Max usage"
MEAN_USAGE = "Mean usage"
TOP_NAMESPACES = "Top namespaces"
WHY_NO_MOVES = "Why nothing moves"
NO_BLOCKERS = "nothing: the next pass decides"

RULES_BY_PLACE: Mapping[str, tuple[str, ...]] = {
    place: tuple(name for name, rule in REFUSES.items() if rule.place == place) for place in PLACES
}
"""What a bundle or broker may be kept by, in order of precedence → the refusing rules that say
so."""


def explain_rule(rule: str, source: str | None, explain: Mapping[str, Any]) -> str:
    """Why a decision was made; a rule that nobody has described with its figures."""
    figures = {
        name: figure(explain.get(name), explain.get("unit")) for name in ("saw", "limit", "average")
    }
    known = _known(DECIDES, rule)
    if known is not None:
        return known.sentence.format(source=source or "its broker", **figures)
    parts = [
        f"{words} {figures[name]}"
        for name, words in (("saw", "saw"), ("limit", "limit"), ("average", "average"))
        if figures[name] != "-"
    ]
    return f"rule {rule}" + (f": {', '.join(parts)}" if parts else "")


def describe_state(row: Mapping[str, Any]) -> str:
    """Return one word or two for a decision's state: its outcome, pending or dry run."""
    return DRY_RUN if row["dry_run"] else str(row["outcome"] or PENDING)


def describe_outcome(row: Mapping[str, Any]) -> str:
    """How a decision ended, for lists and feeds; with the reason, unless it ended well.

    `row`: dry_run, outcome, took_ms and detail, as the tables decisions and outcomes have them.
    """
    if row["dry_run"] or row["outcome"] is None:
        return describe_state(row)
    took = "" if row["took_ms"] is None else f" in {row['took_ms'] / 1000:.1f} s"
    reason = explain_outcome(row)
    return f"{row['outcome']}{took}" + (f": {reason}" if reason else "")


def explain_outcome(row: Mapping[str, Any]) -> str:
    """Why a decision was not carried out, in the words of whoever ended it.

    Empty where it was carried out, is open, or no reason was given.
    """
    if row["outcome"] is None or is_confirmed(row):
        return ""
    return str(row["detail"] or "")


def is_confirmed(row: Mapping[str, Any]) -> bool:
    """Whether reports have shown that a decision was carried out."""
    return bool(row["outcome"] == "confirmed")


def explain_refusal(rule: str) -> str:
    """Why nothing was done."""
    known = _known(REFUSES, rule)
    return known.sentence if known is not None else rule.replace("_", " ")


def explain_closed(shut: Closed) -> str:
    """Why balancing may move nothing now, and until when."""
    until = "" if shut.until_ms is None else f", until {clock(shut.until_ms)}"
    return explain_refusal(shut.rule.name) + (f" ({shut.why})" if shut.why else "") + until


def explain_exclusion(rule: str) -> str:
    """Why a broker was no candidate."""
    known = FILTERED_BY.get(rule)
    return known.sentence if known is not None else rule.replace("_", " ")


def place_of_rule(rule: str) -> str:
    """What a refusing rule keeps a bundle by: one of PLACES; empty: nothing is kept, or nobody
    knows the rule."""
    known = _known(REFUSES, rule)
    return known.place if known is not None else ""


def rule_precedence(rule: str) -> tuple[int, int, str]:
    """A sort key of refusing rules: the order of docs/rules.md; unknown rules come last."""
    place, rules = place_of_rule(rule), list(REFUSES)
    at = list(PLACES).index(place) if place in PLACES else len(PLACES)
    return at, rules.index(rule) if rule in REFUSES else len(rules), rule


def _known(rules: Mapping[str, Rule], name: str) -> Rule | None:
    """The rule of that name, a plug-in's included."""
    if name not in rules:
        _load_plugins()
    return rules.get(name)


@cache
def _load_plugins() -> None:
    from lb_stream.settings.names import REGISTRIES

    for registry in REGISTRIES:
        registry.load_plugins()
