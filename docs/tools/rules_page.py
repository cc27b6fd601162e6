"""Writes docs/rules.md from the catalogue of rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lb_stream.core.model.rules import DECIDES, FILTERED_BY, PLACES, REFUSES, Rule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"

_INTRO = """\
# Rules

All rules, written from the code by `python -m docs.tools`. The tables hold a rule's name:
`decisions.rule`, `refusals.rule`, `refused_by` of a candidate. `lbctl explain` and
`lbctl explain --why-not BUNDLE` print its sentence. The unit is that of what the rule saw and of
its limit.
"""
_KEPT_BY = {
    "operators": "An operator has forbidden it.",
    "suspension": "The cluster cannot be decided about now.",
    "limits": "A limit on what is pending or recent is reached.",
    "policies": "No other broker may have the bundle, or no other suits it.",
    "assigning": "An unassigned bundle waits.",
    "waiting": "The bundle or broker must wait.",
    "strategy": "The shedder has no reason to act.",
    "splitting": "A bundle is too large, and is not split.",
    "": "These keep no bundle in place.",
}


def page() -> str:
    """Return the page's text."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    yield "## Why a decision is made\n"
    yield from _table(DECIDES.values())
    yield "\n## Why nothing is done\n"
    yield "In order of precedence, as `lbctl explain --why-not BUNDLE` goes through them."
    for place in (*PLACES, ""):
        yield f"\n{_KEPT_BY[place]}\n"
        yield from _table([rule for rule in REFUSES.values() if rule.place == place])
    yield "\n## Why a broker is no candidate\n"
    yield from _table(FILTERED_BY.values())


def _table(rules: Iterable[Rule]) -> Iterator[str]:
    yield "| rule | says | unit |\n|---|---|---|"
    for rule in rules:
        yield f"| `{rule.name}` | {rule.sentence} | {rule.unit} |"
