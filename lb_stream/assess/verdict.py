"""One sentence on a cluster: whether it is even, and what moves would make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lb_stream.assess.hot_brokers import HotBroker
from lb_stream.assess.plays import Bound, Play
from lb_stream.sim.measures.series import BALANCED

UNEXPLAINED = 0.15
"""What brokers report and what their bundles' load explains may differ by this much usage."""
LITTLE = 0.1
"""Below this usage of the fullest broker nothing is at stake."""
WORTH_IT = 0.97
"""Moves are worth it that bring max usage below this part of it."""
LEAST_ERROR = 0.02
"""Usages that are explained to this part of a broker are explained well enough."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence. `is_uneven`: moves would make the cluster more even.

    `can_tell`: the simulated usages explain the reported ones well enough to say so.
    """

    sentence: str
    is_uneven: bool
    can_tell: bool = True


def give_verdict(
    bound: Bound,
    ahead: Play,
    brokers: int,
    silent: int,
    hottest: HotBroker | None = None,
    error: float | None = None,
) -> Verdict:
    """Judge a cluster's present.

    `ahead`: what LeastMoves makes of it. `hottest`: the hottest broker by its report; its usage is
    None only if no limit of any broker is known. `error`: by how much simulated usages miss
    reported ones, a ratio; None: no report shows it.
    """
    reported = None if hottest is None else hottest.usage
    found = _judge(bound, ahead, brokers, hottest, error)
    if found.can_tell and reported is not None and abs(reported - bound.max_usage) > UNEXPLAINED:
        doubt = (
            f" But the fullest broker reports {reported:.0%}: judge with care what the load of "
            "bundles does not explain."
        )
        found = replace(found, sentence=found.sentence + doubt)
    if silent:
        part = f"Of the {brokers} of {brokers + silent} brokers that reported: "
        return replace(found, sentence=part + found.sentence[0].lower() + found.sentence[1:])
    return found


def _judge(
    bound: Bound, ahead: Play, brokers: int, hottest: HotBroker | None, error: float | None
) -> Verdict:
    if brokers < 2:
        return Verdict("One broker: there is nowhere to move a bundle to.", False)
    if bound.max_usage <= 0 or bound.mean_usage <= 0:
        return Verdict("No load: no bundle carries anything, so nothing can be uneven.", False)
    if hottest is not None and hottest.usage is None:
        return Verdict(
            "How full brokers are is not known: none states a limit that can be believed. The "
            f"busiest carries {hottest.over_mean:.2g} times the mean traffic.",
            hottest.over_mean > BALANCED,
        )
    gain = max(bound.max_usage - ahead.max_usage_end, 0.0)
    hidden = max(gain, (BALANCED - 1.0) * bound.max_usage, LEAST_ERROR)
    if error is not None and error > hidden:
        reported = (
            ""
            if hottest is None
            else f" The fullest broker reports {hottest.usage:.0%}, {hottest.over_mean:.2g} times "
            "the mean."
        )
        return Verdict(
            "The simulation can't tell whether moves would help: usages follow the load only to "
            f"± {error:.0%} of a broker, and moves would gain {gain:.0%}.{reported} Record for "
            "longer, at times with more load.",
            is_uneven=False,
            can_tell=False,
        )
    over, times = bound.max_usage / max(bound.bound, 1e-12), bound.max_usage / bound.mean_usage
    fullest = f"the fullest broker is at {bound.max_usage:.0%}, {times:.2g} times the mean"
    if over <= BALANCED:
        if times <= BALANCED:
            return Verdict(f"Even: {fullest}, and no move is needed.", False)
        return Verdict(
            f"As even as moves can make it: {fullest}, and no assignment of whole bundles does "
            "clearly better.",
            False,
        )
    start = "Uneven, with little at stake" if bound.max_usage < LITTLE else "Uneven"
    if not ahead.moves or ahead.max_usage_end > WORTH_IT * bound.max_usage:
        tried = (
            f"its {ahead.moves:,} moves do not lower that" if ahead.moves else "it moves nothing"
        )
        return Verdict(
            f"{start}: {fullest}, where {bound.bound:.0%} may be possible; but LeastMoves finds no "
            f"way there ({tried}).",
            True,
        )
    moves = "1 move brings" if ahead.moves == 1 else f"{ahead.moves:,} moves bring"
    return Verdict(
        f"{start}: {fullest}; {moves} it to {ahead.max_usage_end:.0%}, where {bound.bound:.0%} is "
        "the least possible.",
        True,
    )
