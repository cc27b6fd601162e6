"""Splits of a plan: of bundles that are larger than an even load, where that lowers the max usage.

A split is for ever, so it is tried first: the plan is made for the cluster as it would be with the
children, and compared with the plan without them. See docs/splitting.md "Splits of a plan".
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

import numpy as np

from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.fleet import Fleet
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.least_moves.split_trial import IDLE, MovesOf, SplitPlan, Trial
from lb_stream.core.least_moves.too_large import EvenLoadsOf, find_due, find_too_large
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import ClusterView, Rows
from lb_stream.core.shedding.base import PlanExpectation, ShedContext

AWAITED_MS = 15_000
"""Moves wait so long for the children of a split that has just been asked for."""
CHILDREN_KNOWN_MS = 600_000
"""After this time a split is forgotten whose children have not all been reported with figures."""
FOLLOWS_MS = 60_000
"""Moves that are planned within this time after a split belong to the split's plan."""
HOUR_MS = 3_600_000

Context = ShedContext[LeastMovesConfig, LeastMovesMemory]


def plans_splits(config: LeastMovesConfig) -> bool:
    """Return whether plans split bundles, so that no limit has to."""
    return config.least_moves_splits


def plan_splits(
    context: Context, fleet: Fleet, even_loads: EvenLoadsOf, moves_of: MovesOf
) -> SplitPlan:
    """Return the splits that lower the max usage, after all moves, by more than their price.

    O(bundles) to find out that no bundle is larger than an even load; only then more.
    """
    memory = _follow(context, fleet)
    rules = context.splittable
    if rules is None or not context.config.least_moves_splits:
        return SplitPlan(replace(memory, too_large={}) if memory.too_large else memory)
    awaited = _find_awaited(context.view, memory, rules.waiting)
    if awaited is not None:
        return SplitPlan(memory, (awaited,), awaits=True)
    large = find_too_large(context, fleet, even_loads)
    if large is None and not memory.too_large:
        return SplitPlan(memory)
    memory, due, soon = find_due(context, fleet, memory, large)
    if large is None or not (len(due) or len(soon)):
        return SplitPlan(memory)
    trial = Trial(context, rules, fleet, large, moves_of, memory)
    if len(soon) and (held := trial.hold_moves(soon)) is not None:
        return SplitPlan(memory, (held,), awaits=True)
    return trial.plan(due)


def expect_children(fleet: Fleet, view: ClusterView, memory: LeastMovesMemory) -> Fleet:
    """Return the fleet with expected demands of children that no report has given figures of."""
    if not memory.splits:
        return fleet
    demand, lasting = fleet.demand.copy(), fleet.lasting.copy()
    for parent, split in memory.splits.items():
        rows = _children(view, parent)
        if len(rows) != len(split.shares):
            continue
        new = view.bundles.short_samples[rows] == 0
        expected = np.outer(split.shares, split.demand)[new]
        demand[rows[new]], lasting[rows[new]] = expected, expected
    return replace(fleet, demand=demand, lasting=lasting)


def expectation(view: ClusterView, memory: LeastMovesMemory) -> PlanExpectation | None:
    """Return what the plan with splits is expected to reach to which present moves belong, if any.

    These are moves within FOLLOWS_MS after the split was asked for.
    """
    return memory.expected if view.now_ms - memory.expected_ms <= FOLLOWS_MS else None


# --- what became of earlier splits ---


def _children(view: ClusterView, parent: str) -> Rows:
    """Return the owned bundles inside of a former bundle's range, in the order of their ranges."""
    rows = view.bundles.rows_inside(parent)
    found: Rows = rows[view.bundles.owner[rows] >= 0]
    return found


def _find_awaited(
    view: ClusterView, memory: LeastMovesMemory, waiting: frozenset[str]
) -> Refusal | None:
    """Return the refusal of moves while the children of a recent split are not known yet.

    `waiting`: bundles whose splits wait for approval, perhaps for hours: moves don't.
    """
    for parent, split in memory.splits.items():
        if parent in waiting:
            continue
        if view.now_ms - split.asked_ms < AWAITED_MS and not len(_children(view, parent)):
            until_ms = split.asked_ms + AWAITED_MS
            return refusal(Refuses.CHILDREN_AWAITED, None, [parent], until_ms=until_ms)
    return None


def _follow(context: Context, fleet: Fleet) -> LeastMovesMemory:
    """Return the memory without splits that have ended; it has the children of idle ones."""
    view, memory = context.view, context.memory
    if not (memory.splits or memory.indivisible or memory.split_times):
        return memory
    asked, too_large = dict(memory.splits), dict(memory.too_large)
    rows = view.bundles.rows_of(memory.indivisible).tolist()
    indivisible = {name for name, row in zip(memory.indivisible, rows, strict=True) if row >= 0}
    waiting = frozenset[str]() if context.splittable is None else context.splittable.waiting
    for parent, split in memory.splits.items():
        if parent in waiting:  # its time begins with its approval
            asked[parent] = replace(split, asked_ms=view.now_ms)
            continue
        children = _children(view, parent)
        stage = _find_stage(view, parent, children)
        if stage == _Stage.MEASURED:
            # A child that is too large has been so for as long as its parent.
            names = [view.bundles.name(row) for row in children.tolist()]
            too_large |= dict.fromkeys(names, split.since_ms)
            load = fleet.demand[children].max(axis=1, initial=0.0)
            heaviest = int(np.argmax(load))
            if not split.measured and load[heaviest] >= IDLE * load.sum():
                indivisible.add(names[heaviest])
        if stage != _Stage.OPEN or view.now_ms - split.asked_ms > CHILDREN_KNOWN_MS:
            del asked[parent]
    return replace(
        memory,
        too_large=too_large,
        splits=asked,
        indivisible=tuple(sorted(indivisible)),
        split_times=tuple(
            (when, name) for when, name in memory.split_times if view.now_ms - when < HOUR_MS
        ),
    )


class _Stage(Enum):
    """How far a split is that was asked for."""

    OPEN = auto()  # it is pending, or its children have no figures yet
    REFUSED = auto()  # its owner serves the whole bundle, and has no split pending
    MEASURED = auto()  # all of its children have been reported with figures


def _find_stage(view: ClusterView, parent: str, children: Rows) -> _Stage:
    """Return how far a split is. `children`: the bundles that are inside of the parent's range."""
    bundles = view.bundles
    row = int(bundles.rows_of([parent])[0])
    if row >= 0 and bundles.owner[row] >= 0:
        is_pending = bundles.in_flight[row] or len(children)
        return _Stage.OPEN if is_pending else _Stage.REFUSED
    sampled = len(children) > 1 and bundles.short_samples[children].min() > 0
    return _Stage.MEASURED if sampled else _Stage.OPEN
