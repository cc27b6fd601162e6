"""Texts of all screens: the command line, the console, the report page and notifications.

A heading and a state have one word on all of them. Rules (`core.model.rules`) are explained with
the figures of a decision in their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from lb_stream.core.model.rules import DECIDES, FILTERED_BY, PLACES, REFUSES, Decides, Rule
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from lb_stream.contracts.settings import Event
    from lb_stream.core.config.windows import ClosedWindow
    from lb_stream.query.lake import Row

OUTCOME = "Outcome"
RESULT = "Result"
PENDING = "pending"
DRY_RUN = "dry run"
NO_BROKER = "no broker"
UNASSIGNED = "unassigned"
MAX_USAGE = "Max usage"
MEAN_USAGE = "Mean usage"
TOP_NAMESPACES = "Top namespaces"
MAX_OVER_MEAN = "Max ÷ mean"
NEXT_MOVES = "Next moves"
WITHOUT_BROKER = "Without a broker"
CLIENT_SECONDS = "Client-seconds"
MOVED_TRAFFIC = "Traffic of the moved bundles"
WHY_NO_MOVES = "Why nothing moves"
NOTHING_DECIDED = "nothing has been decided yet"
TO_BE_FOUND = "to be found"  # a destination
NO_BLOCKERS = "nothing: the next pass decides"


class DecisionFigure(NamedTuple):
    """A figure of a decision's column `explain`. `unit` None: that of the strategy."""

    title: str
    unit: str | None


DECISION_FIGURES = {
    "saw": DecisionFigure("Saw", None),
    "limit": DecisionFigure("Limit", None),
    "average": DecisionFigure("Average", None),
    "expected_after": DecisionFigure("Expected after the move", None),
    "gain": DecisionFigure("Gain", None),
    "cost": DecisionFigure("Cost (average bundle: 1)", ""),
    "client_seconds": DecisionFigure("Cost to clients", "client-seconds"),
    "plan_moves": DecisionFigure("Moves of the plan", ""),
    "plan_fewest": DecisionFigure("Fewest moves possible", ""),
    "plan_max_before": DecisionFigure("Max usage before the plan", "ratio"),
    "plan_max_unsplit": DecisionFigure("Max usage expected without its splits", "ratio"),
    "plan_max_split": DecisionFigure("Max usage expected after its splits alone", "ratio"),
    "plan_max_after": DecisionFigure("Max usage expected after its moves", "ratio"),
}
"""Figure of `explain` → how screens show it."""

EVENT_HEADLINES: Mapping[Event, str] = {
    "job_down": "the job is down",
    "kafka_down": "Kafka doesn't answer",
    "job_behind": "the job is behind",
    "job_unknown": "whether the job runs is not known",
    "disk_low": "the disk is nearly full",
    "no_reports": "no broker reports",
    "cluster_suspended": "clusters are suspended",
    "cluster_failing": "rounds fail",
    "broker_dead": "brokers are silent",
    "isolation_matches_none": "isolation policies match no broker",
    "moves_failing": "moves fail again and again",
    "budget_exhausted": "budgets of moves are exhausted",
    "imbalance": "clusters are uneven",
    "rollout_stands_still": "rollouts stand still",
    "approval_wanted": "proposals wait for approval",
    "profile_change": "profiles will change",
}
"""Name of an event → its headline."""

RULES_BY_PLACE: Mapping[str, tuple[str, ...]] = {
    place: tuple(name for name, rule in REFUSES.items() if rule.place == place) for place in PLACES
}
"""Place in the order of precedence (`core.model.rules.PLACES`) → its refusing rules."""


def explain_rule(rule: str, source: str | None, explain: Mapping[str, Any]) -> str:
    """Explain why a decision was made.

    For a rule without a sentence, such as a plug-in's, return its name and figures.
    """
    figures = {
        name: figure(explain.get(name), explain.get("unit")) for name in ("saw", "limit", "average")
    }
    known = _find_rule(DECIDES, rule)
    saw, limit = explain.get("saw"), explain.get("limit")
    if known is Decides.ABOVE_EVEN and saw is not None and limit is not None and saw <= limit:
        # A swap's way back, or a move that follows another: its own source is not overloaded.
        return (
            f"{source} used {figures['saw']} of its scarcest resource, not more than "
            f"{figures['limit']}: the move is part of a plan that relieves other brokers"
        )
    if known is Decides.UNOWNED:
        died = explain.get("died")
        before = f"its broker {died} has died" if died else "it was unassigned"
        if _is_only_candidate(explain):
            return f"{before}, and its new broker was the only candidate"
        return known.sentence.format(**figures).replace("it was unassigned", before)
    if known is not None:
        return known.sentence.format(source=source or "its broker", **figures)
    parts = [f"{name} {shown}" for name, shown in figures.items() if shown != "-"]
    return f"rule {rule}" + (f": {', '.join(parts)}" if parts else "")


def _is_only_candidate(explain: Mapping[str, Any]) -> bool:
    """Return whether filters left one broker only to a placement that compared several."""
    candidates = explain.get("candidates") or ()
    left = [candidate for candidate in candidates if candidate.get("refused_by") is None]
    return len(candidates) > 1 and len(left) == 1


def describe_state(row: Row) -> str:
    """Return a decision's state in one or two words: its outcome, pending or dry run."""
    return DRY_RUN if row["dry_run"] else str(row["outcome"] or PENDING)


def describe_outcome(row: Row) -> str:
    """Describe how a decision ended; with the reason, unless it was confirmed.

    `row`: dry_run, outcome, took_ms and detail, as in the tables decisions and outcomes.
    """
    if row["dry_run"] or row["outcome"] is None:
        return describe_state(row)
    took = "" if row["took_ms"] is None else f" in {row['took_ms'] / 1000:.1f} s"
    reason = explain_outcome(row)
    return f"{row['outcome']}{took}" + (f": {reason}" if reason else "")


def explain_outcome(row: Row) -> str:
    """Return the reason why a decision was not carried out, as the job or agent gave it.

    Empty if it was carried out, is pending, or has no reason.
    """
    if row["outcome"] is None or is_confirmed(row):
        return ""
    return str(row["detail"] or "")


def is_confirmed(row: Row) -> bool:
    """Return whether reports have shown that a decision was carried out."""
    return bool(row["outcome"] == "confirmed")


def explain_refusal(rule: str) -> str:
    """Explain a refusal by a rule."""
    known = _find_rule(REFUSES, rule)
    return known.sentence if known is not None else rule.replace("_", " ")


def explain_closed(shut: ClosedWindow) -> str:
    """Explain why balancing may move nothing now, and until when."""
    until = "" if shut.until_ms is None else f", until {clock(shut.until_ms)}"
    return explain_refusal(shut.rule.name) + (f" ({shut.why})" if shut.why else "") + until


def explain_exclusion(rule: str) -> str:
    """Explain why a broker was no candidate."""
    known = FILTERED_BY.get(rule)
    return known.sentence if known is not None else rule.replace("_", " ")


def place_of_rule(rule: str) -> str:
    """Return a refusing rule's place, one of PLACES; empty: it has none, or the rule is unknown."""
    known = _find_rule(REFUSES, rule)
    return known.place if known is not None else ""


def rule_precedence(rule: str) -> tuple[int, int, str]:
    """Return a sort key of refusing rules: the order of docs/rules.md, unknown rules last."""
    places, rules = list(PLACES), list(REFUSES)
    place = place_of_rule(rule)
    place_rank = places.index(place) if place in places else len(places)
    rule_rank = rules.index(rule) if rule in rules else len(rules)
    return place_rank, rule_rank, rule


def _find_rule(rules: Mapping[str, Rule], name: str) -> Rule | None:
    """Return the rule of that name, also a plug-in's."""
    if name not in rules:
        _load_plugins()
    return rules.get(name)


@cache
def _load_plugins() -> None:
    from lb_stream.settings.names import REGISTRIES

    for registry in REGISTRIES:
        registry.load_plugins()
