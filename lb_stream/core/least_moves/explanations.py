"""Proposals, refusals and texts of LeastMoves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lb_stream.core.least_moves.cpu import BUSY, NOTABLE, NOTICED, model_cpu
from lb_stream.core.least_moves.fleet import UNKNOWN_NOISE
from lb_stream.core.least_moves.memory import ENOUGH, UNSERVED_MS, Ceiling, LeastMovesMemory
from lb_stream.core.least_moves.plan import NEGLIGIBLE, MovePlan, PlannedMove
from lb_stream.core.least_moves.shares import Shares
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.shedding.base import Unload, too_few_bundles


def build_proposals(plan: MovePlan, before: Shares, trigger: float) -> tuple[Unload, ...]:
    """Build the proposals of the plan's moves, with usages instead of shares.

    `before`: the shares before the moves. `trigger`: the share above which the pass acts.
    """
    client_seconds = plan.payback.client_seconds
    known = bool(client_seconds.any())  # else reports have no numbers of clients
    saw, expected = before.usage(before.peak), before.usage(plan.share.max(axis=1))
    limit, even = (before.usage(np.full(len(saw), share)) for share in (trigger, 1.0))
    return tuple(
        Unload(
            move.bundle,
            move.source,
            "Overloaded",
            Decides.ABOVE_EVEN,
            saw=float(saw[move.source]),
            limit=float(limit[move.source]),
            average=float(even[move.source]),
            expected_after=float(expected[move.source]),
            destination=move.destination,
            considered=_considered(move, before),
            with_next=move.with_next,
            cost=float(plan.cost[move.bundle]),
            client_seconds=float(client_seconds[move.bundle]) if known else None,
            usages=usages,
        )
        for move, usages in zip(plan.moves, _usages(plan, before), strict=True)
    )


def _considered(move: PlannedMove, before: Shares) -> tuple[tuple[int, float], ...]:
    """Return the destination and the second best broker with their usages, the lower one first.

    The second best has the lower usage if its choice would have led to more moves in all.
    """
    brokers = [broker for broker in (move.destination, move.second) if broker >= 0]
    shares = np.array([move.share, move.second_share])[: len(brokers)]
    both = zip(brokers, before.usage(shares, np.array(brokers)).tolist(), strict=True)
    return tuple(sorted(both, key=lambda scored: scored[1]))


def _usages(plan: MovePlan, before: Shares) -> list[tuple[float, float, float, float]]:
    """Return the usages of each move: source before and after it, destination before and after it.

    They are computed backwards from the end of the plan. O(moves).
    """
    # What each move adds to the share of its source and of its destination.
    brokers = np.array([(move.source, move.destination) for move in plan.moves], np.intp).ravel()
    bundles = np.repeat(np.array([move.bundle for move in plan.moves], np.intp), 2)
    change = plan.demand[bundles] * plan.per_unit[brokers]
    change[::2] *= -1.0

    # The share after a move is the final share less all later changes at that broker.
    order = np.argsort(brokers, kind="stable")  # each broker's moves follow one another
    among, sums = brokers[order], np.cumsum(change[order], axis=0)
    later = sums[np.searchsorted(among, among, side="right") - 1] - sums if len(among) else sums
    after = np.empty_like(change)
    after[order] = plan.share[among] - later
    shares = (after - change).max(axis=1), after.max(axis=1)
    found = np.stack([before.usage(share, brokers) for share in shares], axis=1)
    return [(a, b, c, d) for a, b, c, d in found.reshape(-1, 4).tolist()]


def explain_unrelieved(
    view: ClusterView,
    plan: MovePlan,
    sources: Rows,
    rows: dict[int, Rows],
    before: Shares,
    acceptable_share: float,
) -> list[Refusal]:
    """Explain why sources that have just reported stay above the acceptable share."""
    found, share, bundles = [], plan.share.max(axis=1), view.bundle_counts(system=False)
    full, limit = before.usage(share), before.usage(np.full(len(share), acceptable_share))
    moved = [move.bundle for move in plan.moves]
    for source in sources[
        view.brokers.sampled[sources] & (share[sources] > acceptable_share + NEGLIGIBLE)
    ].tolist():
        name = view.brokers.names[source]
        rest = plan.disruption.within(np.setdiff1d(rows[source], moved))
        if (too_few := too_few_bundles(view, source, int(bundles[source]))) is not None:
            found.append(too_few)
        elif not len(rest):
            found.append(refusal(Refuses.NO_ELIGIBLE_BUNDLE, name, saw=[0], limit=1))
        else:
            dear, worth = _by_payback(view, plan, source, rest)
            found += dear
            if worth or not dear:
                found.append(
                    refusal(Refuses.NO_ROOM, name, saw=[full[source]], limit=float(limit[source]))
                )
    return found


def _by_payback(
    view: ClusterView, plan: MovePlan, source: int, rest: Rows
) -> tuple[list[Refusal], bool]:
    """Return the refusal of bundles whose move doesn't pay back, and whether any other's does.

    `rest`: the bundles that the plan leaves at the source.
    """
    within_s = plan.payback.within_s
    after_s = plan.payback.after_s(
        source, plan.share[source], plan.demand[rest] * plan.per_unit[source], rest
    )
    dear, worth = (after_s > within_s) & (after_s < np.inf), bool((after_s <= within_s).any())
    if not dear.any():
        return [], worth
    names = view.bundles.names.take(rest[dear]).to_pylist()
    return [
        refusal(
            Refuses.DOES_NOT_PAY_BACK,
            view.brokers.names[source],
            names,
            saw=after_s[dear] / 60,
            limit=within_s / 60,
        )
    ], worth


def explain_waiting(
    view: ClusterView, above: Bools, waited_ms: Floats, needed_ms: Floats, calm_ms: int
) -> list[Refusal]:
    """Explain why hot brokers (`above`) wait: they are not hot for long, or brokers restart."""
    found = []
    for broker in np.flatnonzero(above & view.brokers.sampled).tolist():
        name = view.brokers.names[broker]
        if waited_ms[broker] < needed_ms[broker]:
            found.append(
                refusal(
                    Refuses.NOT_HOT_FOR_LONG,
                    name,
                    saw=[waited_ms[broker]],
                    limit=float(needed_ms[broker]),
                )
            )
        elif view.now_ms < calm_ms:
            found.append(refusal(Refuses.RESTARTS, name, until_ms=calm_ms))
    return found


def explain_fixed(
    view: ClusterView, before: Shares, relieved: Bools, trigger: float
) -> list[Refusal]:
    """Explain why brokers that load which can't move fills above the trigger are not relieved."""
    usage = (before.share + before.excess).max(axis=1) * before.even
    limit = trigger * before.even
    above = before.is_overfull & (usage > limit) & view.brokers.sampled & ~relieved
    return [
        refusal(
            Refuses.FIXED_LOAD, view.brokers.names[row], saw=[usage[row]], limit=float(limit[row])
        )
        for row in np.flatnonzero(above & view.brokers.reachable).tolist()
    ]


def explain_within_noise(
    view: ClusterView, rows: Rows, usage: Floats, limit: Floats
) -> list[Refusal]:
    """Explain why brokers above the trigger are not relieved: noise can explain their excess."""
    names = view.brokers.names
    return [
        refusal(Refuses.WITHIN_NOISE, names[row], saw=[usage[row]], limit=float(limit[row]))
        for row in rows[view.brokers.sampled[rows]].tolist()
    ]


def explain_ceilings(view: ClusterView, ceilings: Mapping[str, Ceiling]) -> list[Refusal]:
    """Explain that brokers that have just reported carry no more, whatever bundles come."""
    return [
        refusal(
            Refuses.CARRIES_NO_MORE, name, saw=[ceiling.into + ceiling.out], limit=ceiling.expected
        )
        for name, is_new in zip(view.brokers.names, view.brokers.sampled.tolist(), strict=True)
        if is_new and (ceiling := ceilings.get(name)) is not None and ceiling.is_sure
    ]


def describe_uncertainty(memory: LeastMovesMemory, names: Sequence[str]) -> str:
    """Describe the figures that are not well known yet, and the assumed ones; empty: none."""
    texts = list[str]()
    if speeds := _describe_unknown_speeds(memory, names):
        texts.append(speeds)
    texts += describe_unlike_brokers(memory, names)
    if memory.unserved_ms is None:
        assumed = f"a moving bundle is assumed to be unassigned for {UNSERVED_MS / 1_000:g} s"
        texts.append(f"no move has been confirmed yet: {assumed}")
    return "; ".join(texts)


def describe_unlike_brokers(memory: LeastMovesMemory, names: Sequence[str]) -> list[str]:
    """Describe the brokers that have become slow, or whose hosts are busy: a text for each."""
    model = model_cpu(memory, names, [memory.kind_of.get(name, "") for name in names])
    texts = []
    for row in np.flatnonzero(model.own).tolist():
        speed, base = 1.0 / float(model.slope[row]), float(model.base[row])
        is_busy = base >= NOTICED
        busy = f"something that no bundle causes takes {base:.0%} of its cpu" if is_busy else ""
        other = abs(speed - 1.0) >= NOTABLE
        pace = f"its cpu does {speed:.0%} of the work of its kind's" if other else ""
        if found := " and ".join(filter(None, (pace, busy))):
            texts.append(f"{names[row]}: {found}, by its usage")
    return texts


def _describe_unknown_speeds(memory: LeastMovesMemory, names: Sequence[str]) -> str:
    """Describe the assumptions about brokers' speeds and noise; empty: both are known."""
    counts = [memory.hosts[name].reports if name in memory.hosts else 0 for name in names]
    reports = int(np.median(counts)) if counts else 0
    if reports >= ENOUGH and memory.noise is not None:
        return ""
    seen = {0: f"no report with {BUSY:.0%} cpu usage", 1: "one report"}
    learned = f"LeastMoves has learned from {seen.get(reports, f'{reports} reports')} of a broker"
    text = f"{learned}, and needs {ENOUGH} to know its speed: until then brokers with the same "
    text += "limits are assumed to be equally fast"
    if memory.noise is None:
        text += f", and a bundle's sample to be off by {UNKNOWN_NOISE:.0%}"
    return text
