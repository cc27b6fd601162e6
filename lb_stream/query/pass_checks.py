"""Checks of what the last pass of the shedder, or the last round, has refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lb_stream.core.model.rules import Refuses
from lb_stream.core.shedding.base import traits_of
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.checks import Check, Situation, list_names
from lb_stream.query.references import Reference, refer
from lb_stream.query.wording import explain_refusal, place_of_rule, rule_precedence

if TYPE_CHECKING:
    from lb_stream.query.lake import Row


def check_last_pass(
    now: Situation, refusals: Sequence[Row], drained: bool, stale: bool = False
) -> Iterator[Check]:
    """Yield the refusals of the last pass, in the rules' order; then the time of the pass.

    `refusals`: rows of the table since `find_pass_begin_ms`. Refusals of earlier passes don't
    count. If the broker is drained, those that concern only the shedder don't count either.
    `stale`: the tables are not up to date, so that nobody knows of later passes.
    """
    for rule in sorted({row["rule"] for row in refusals}, key=rule_precedence):
        place = place_of_rule(rule)
        if place == "operators" or (place == "suspension" and rule not in _OF_A_PASS):
            continue  # other checks have these
        begin_ms = _begin_ms(now, place, drained)
        rows = [row for row in refusals if row["rule"] == rule]
        rows = [row for row in rows if begin_ms is not None and row["now_ms"] >= begin_ms]
        if rows and not (drained and place in _OF_SHEDDER):
            keeps = place not in ("splitting", "")
            last = max(row["seq"] for row in rows)
            about = (
                *refer("round", now.cluster, str(last)),
                *_refer_to_brokers(now, rows),
            )
            text = _describe_refusals(rows, place)
            yield Check(place or "noted", text, keeps, _until_ms(rows), about)
    last_ms, every_ms = now.memory.last_shed_ms, now.config.balancer.shedding_interval_ms
    if last_ms is None:
        yield Check("shedding pass", "there has been none yet", not drained)
        return
    if stale:
        yield Check("shedding pass", f"last at {clock(last_ms)}; none is known since")
        return
    ago_s = (now.now_ms - last_ms) / 1000
    due = f"every {every_ms / 1000:g} s"
    if traits_of(now.config.shedder).paces_itself:
        due = "with each report"
    text = f"last at {clock(last_ms)}, {ago_s:.0f} s ago; {due}"
    yield Check("shedding pass", text)


_OF_A_PASS = frozenset({Refuses.SINGLE_BROKER.name})
"""Rules about the cluster's state that only refusals of a pass show; see `check_suspension`."""
_OF_SHEDDER = ("strategy", "waiting", "limits")
"""Places of rules that don't block a drain, or that other checks of a drain cover."""


def find_pass_begin_ms(now: Situation, drained: bool) -> int:
    """Return the time (ms) since which refusals may be the last pass's or the last round's."""
    begins = (_begin_ms(now, place, drained) for place in ("assigning", "policies"))
    return min(begin_ms for begin_ms in begins if begin_ms is not None)


def _begin_ms(now: Situation, place: str, drained: bool) -> int | None:
    """Return when the last round began that applies the rules of a place; None: none has yet."""
    if place == "assigning":
        return int(now.last["now_ms"])  # every round assigns
    if drained:
        return max((row["now_ms"] for row in now.loads), default=0)
    last_ms: int | None = now.memory.last_shed_ms
    return last_ms


def _refer_to_brokers(now: Situation, rows: Sequence[Row]) -> tuple[Reference, ...]:
    brokers = sorted({row["broker"] for row in rows if row["broker"]})
    return refer("broker", now.cluster, *brokers) if brokers else ()


def _describe_refusals(rows: Sequence[Row], place: str) -> str:
    """Describe the refusals of one rule: number, brokers, subjects and figures."""
    times, last = sum(row["count"] for row in rows), max(rows, key=lambda row: row["seq"])
    counted = f", {times} times" if times > 1 else ""
    brokers = sorted({row["broker"] for row in rows if row["broker"]})
    subjects = sorted({subject for row in rows for subject in row["subjects"] or ()})
    about = f" ({list_names(subjects, times)})" if subjects else ""
    saw = ""
    if seen := [row for row in rows if row["greatest"] is not None]:
        low = min(seen, key=lambda row: row["least"])
        high = max(seen, key=lambda row: row["greatest"])
        figures = figure(low["least"], low["unit"]), figure(high["greatest"], high["unit"])
        saw = f", saw {' to '.join(dict.fromkeys(figures))}"
    limit = "" if last["limit"] is None else f", limit {figure(last['limit'], last['unit'])}"
    until_ms = _until_ms(rows)
    until = "" if until_ms is None else f", until {clock(until_ms)}"
    refused_in = f"refused in the last {'round' if place == 'assigning' else 'pass'}"
    where = f"at {list_names(brokers, len(brokers)) or 'the cluster'} in round {last['seq']}"
    rule = f"{last['rule']}{counted} {where}{about}: {explain_refusal(last['rule'])}"
    return f"{refused_in}: {rule}{saw}{limit}{until}"


def _until_ms(rows: Sequence[Row]) -> int | None:
    return min((row["until_ms"] for row in rows if row["until_ms"] is not None), default=None)
