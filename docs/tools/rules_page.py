"""docs/rules.md, written from the catalogue of rules.

`python -m docs.tools.rules_page` writes the page; a test fails when it is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lb_stream.core.model.rules import DECIDES, FILTERED_BY, PLACES, REFUSES, Rule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"

_INTRO = """\
# Rules

Every rule that there is, written from the code by `python -m docs.tools.rules_page`. The tables
hold a rule's name: `decisions.rule`, `refusals.rule`, `refused_by` of a candidate. `lbctl explain`
and `lbctl explain --why-not BUNDLE` say its sentence. The unit is that of what the rule saw and of
its limit.
"""
_KEPT_BY = {
    "operators": "An operator wants it so.",
    "suspension": "The cluster is in no state to be decided on.",
    "limits": "As much as allowed is under way.",
    "policies": "Nobody else may have it, or should.",
    "assigning": "A bundle without an owner waits.",
    "waiting": "Its own time has not come.",
    "strategy": "The shedder sees no reason.",
    "splitting": "It is too large, and is not split.",
    "": "These keep nothing where it is.",
}


def page() -> str:
    """The page."""
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


if __name__ == "__main__":
    PAGE.write_text(page())
