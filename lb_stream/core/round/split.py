"""The splits of a round: of bundles that are too large, and those that brokers ask for.

In Pulsar, the modular manager's leader judges all bundles, and each broker of the simple manager
its own after a report. This module does both. Reports of the extensible manager name only the
heaviest bundles: its agents judge them (`splitting.extensible`) and ask for splits. See
docs/splitting.md "Splitting".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from lb_stream.contracts.decisions import Explain
from lb_stream.contracts.reports import SplitAsk
from lb_stream.core.disruption.holds import Holds
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.refusals import MOST_SUBJECTS, Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Ints, Rows
from lb_stream.core.round.limits import MoveAllowance, build_holds
from lb_stream.core.round.planned_splits import count_bundles, may_split
from lb_stream.core.round.shed import preselects
from lb_stream.core.round.state import Division, RoundState
from lb_stream.core.splitting import (
    SplitLoads,
    SplitRejected,
    SplittingConfig,
    TooLarge,
    cut,
    plan,
    split_simple,
    split_task,
)
from lb_stream.core.splitting.extensible import blocks_split
from lb_stream.core.splitting.trigger import REASONS, RULES, ReasonLimits, census

STRATEGIES = {"modular": "BundleSplitterTask", "simple": "SimpleLoadManager"}


def split_too_large(state: RoundState) -> None:
    """Decide splits of bundles that are too large, up to the maximum of bundles of a namespace.

    Refusals are only added in batches with new samples, as they would be the same in all others.
    """
    # End if this manager does not split here.
    config, view, manager = state.config.splitting, state.view, state.config.balancer.load_manager
    if manager == "extensible" or state.memory.operator_state.paused:
        return
    if state.config.leaves_splits_to_plan:
        return
    if manager == "modular" and (
        not config.split_enabled or np.count_nonzero(view.brokers.alive) <= 1
    ):
        return
    # The bundles that are too large, and those of them that can't be split.
    splitting = [pending.bundle for pending in state.memory.pending if pending.kind == "split"]
    loads, found = find_too_large(view, may_split(state), splitting, config, manager)
    found, refusals = _without_overlaps(state, found)
    rule, most_bundles = Refuses.NAMESPACE_MAX_BUNDLES, config.namespace_max_bundles
    refusals += _refused(view, found.full, rule, found.full_bundles, most_bundles)
    if not config.split_enabled:
        refusals += _refused(view, found.rows, Refuses.SPLIT_DISABLED)
        found = replace(found, rows=found.rows[:0], reasons=found.reasons[:0])
    # Splits of the others, as far as the limit allows.
    limits, most = ReasonLimits.from_config(config), config.max_splits_in_flight
    room = max(0, most - len(splitting))
    too_large = zip(found.rows.tolist(), found.reasons.tolist(), strict=True)
    for place, (row, reason) in enumerate(too_large):
        if room == 0:
            rest, saw = found.rows[place:], np.array([most])
            refusals += _refused(view, rest, Refuses.SPLITS_IN_FLIGHT, saw, most)
            break
        explain = Explain(saw=loads.saw(row, reason), limit=limits[reason], unit=RULES[reason].unit)
        refused = _decide(state, row, reason, explain)
        if refused is None:
            room -= 1
        else:
            refusals.append(refused)
    if view.brokers.sampled.any():
        state.refusals += refusals


def _without_overlaps(state: RoundState, found: TooLarge) -> tuple[TooLarge, list[Refusal]]:
    """Return the too large bundles without those that overlap others, and refusals of these.

    Such bundles were split or merged elsewhere.
    """
    if not len(found.rows):
        return found, []
    doubtful = state.overlapped.reshaping[found.rows]
    refusals = _refused(state.view, found.rows[doubtful], Refuses.OVERLAPS)
    return replace(found, rows=found.rows[~doubtful], reasons=found.reasons[~doubtful]), refusals


def find_small_enough(state: RoundState, bundles: Sequence[str]) -> frozenset[str]:
    """Return those of the bundles that are not too large now, by this batch's new samples.

    Empty with the extensible manager, whose brokers judge.
    """
    view, manager = state.view, state.config.balancer.load_manager
    rows = view.bundles.rows_of(bundles)
    rows = rows[rows >= 0]
    has_figures = np.append(view.brokers.alive & view.brokers.sampled, False)
    rows = rows[has_figures[view.bundles.owner[rows]]]
    if manager == "extensible" or not len(rows):
        return frozenset()
    asked = np.zeros(len(view.bundles), np.bool_)
    asked[rows] = True
    _, found = find_too_large(view, asked, (), state.config.splitting, manager)
    large = {*found.rows.tolist(), *found.full.tolist()}
    return frozenset(view.bundles.name(row) for row in rows.tolist() if row not in large)


def split_as_asked(state: RoundState, asks: Iterable[tuple[str, SplitAsk]]) -> None:
    """Decide the splits that brokers of the extensible manager ask for; `asks`: (broker, split).

    The broker has judged that its bundle is too large. This checks the rest: the broker owns the
    bundle, which is free, its namespace has places left, and no neighbour is being split.
    """
    config = state.config.splitting
    if (
        state.config.balancer.load_manager != "extensible"
        or not config.split_enabled
        or state.memory.operator_state.paused
        or state.config.leaves_splits_to_plan
    ):
        return
    for broker, ask in asks:
        refused = _decide_asked(state, broker, ask, config)
        if refused is not None:
            state.refusals.append(refused)


def _decide_asked(
    state: RoundState, broker: str, ask: SplitAsk, config: SplittingConfig
) -> Refusal | None:
    """Decide one split that a broker asks for, or return the refusal."""
    # The bundle is the broker's own, and free.
    view, parent = state.view, parse_bundle(ask.bundle)
    row = int(view.bundles.rows_of([ask.bundle])[0])
    owner = int(view.bundles.owner[row]) if row >= 0 else -1
    if row >= 0 and not state.free_bundles()[row]:
        return refusal(Refuses.NOT_FREE, broker, [ask.bundle])
    if (until_ms := state.memory.operator_state.rejected(moves=False).get(ask.bundle)) is not None:
        return refusal(Refuses.REJECTED, broker, [ask.bundle], until_ms=until_ms)
    if owner < 0 or view.brokers.names[owner] != broker:
        return refusal(Refuses.NOT_ITS_OWNER, broker, [ask.bundle])
    # The limit on splits leaves room for it, and no neighbour is being split.
    splitting = [pending.bundle for pending in state.memory.pending if pending.kind == "split"]
    splitting += [decision.bundle for decision in state.decisions if decision.kind == "split"]
    if len(splitting) >= config.max_splits_in_flight:
        return refusal(
            Refuses.SPLITS_IN_FLIGHT,
            None,
            [ask.bundle],
            saw=[len(splitting)],
            limit=config.max_splits_in_flight,
        )
    others = [parse_bundle(name) for name in splitting]
    if any(blocks_split(parent, other, config) for other in others):
        return refusal(Refuses.NEIGHBOUR_IS_SPLITTING, broker, [ask.bundle])
    if state.overlapped.reshaping[row]:
        return refusal(Refuses.OVERLAPS, broker, [ask.bundle])
    # The namespace stays within its maximum of bundles.
    count = count_bundles(view, parent.namespace) + sum(
        other.namespace == parent.namespace for other in others
    )
    if count + max(1, len(ask.boundaries)) > config.namespace_max_bundles:
        return refusal(
            Refuses.NAMESPACE_MAX_BUNDLES,
            None,
            [ask.bundle],
            saw=[count],
            limit=config.namespace_max_bundles,
        )
    # The bundle can be split at these boundaries.
    found = cut(parent, ask.boundaries)
    if isinstance(found, SplitRejected):
        return refusal(found.rule, broker, [ask.bundle])
    reason = REASONS.index(ask.reason)
    state.decide(
        "split",
        row,
        broker,
        None,
        reason=ask.reason,
        rule=RULES[reason],
        strategy="DefaultNamespaceBundleSplitStrategyImpl",
        explain=Explain(saw=ask.saw, limit=ask.limit, unit=RULES[reason].unit),
        division=Division(found.children, found.boundaries, ask.algorithm, False),
    )
    return None


def unload_children(state: RoundState) -> None:
    """Unload the children of confirmed splits that were decided with `unload_children`.

    Each goes to the broker that placement chooses. With the extensible manager children stay. If
    `assign_unowned` is `on_lookup`, brokers have moved them already.
    """
    config = state.config.balancer
    if config.load_manager == "extensible" or config.assign_unowned == "on_lookup":
        return
    parents = [
        pending
        for pending, outcome in state.inputs.settled.ended
        if pending.unload_children and outcome.outcome == "confirmed"
    ]
    if not parents:
        return
    free, holds, room = state.free_bundles(), build_holds(state), MoveAllowance.build(state)
    for parent in parents:
        for row in _children(state.view, parent, free):
            made = len(state.decisions)
            refused = _unload_child(state, row, holds, room)
            free[row] = False
            if refused is not None:
                state.refusals.append(refused)
            holds.take(state.decisions[made:])


def _children(view: ClusterView, parent: Pending, free: Bools) -> list[int]:
    """Return the free bundles inside a split bundle's range that its owner serves now."""
    owner, names = view.bundles.owner, view.brokers.names
    return [
        row
        for row in view.bundles.rows_inside(parent.bundle).tolist()
        if free[row] and owner[row] >= 0 and names[owner[row]] == parent.source
    ]


def _unload_child(state: RoundState, row: int, holds: Holds, room: MoveAllowance) -> Refusal | None:
    """Decide the unload of one child, or return the refusal. `room` counts it, `holds` does not."""
    name, owner = state.view.bundles.name(row), int(state.view.bundles.owner[row])
    source = state.view.brokers.names[owner]
    if (limit := holds.refusal([name]) or room.refusal([(row, owner)])) is not None:
        return limit
    choice = state.place(row)
    if choice is None:
        return refusal(Refuses.NO_CANDIDATE, source, [name], limit=1)
    if choice.destination == owner:
        return refusal(Refuses.PLACEMENT_KEEPS_OWNER, source, [name])
    explain = Explain(
        saw=choice.score if np.isfinite(choice.score) else None,
        unit=choice.unit,
        candidates=choice.candidates,
    )
    destination = choice.destination if preselects(state) else None
    strategy = state.config.placement.name
    state.decide(
        "unload",
        row,
        source,
        destination,
        reason="Unknown",
        rule=Decides.SPLIT_CHILD,
        strategy=strategy,
        explain=explain,
    )
    room.take(row, owner)
    return None


def find_too_large(
    view: ClusterView,
    eligible: Bools,
    splitting: Sequence[str],
    config: SplittingConfig,
    manager: str = "modular",
) -> tuple[SplitLoads, TooLarge]:
    """Return the loads of bundles, and the eligible bundles that are too large. O(bundles).

    Only bundles of live brokers are judged; with the simple manager, only of those with a new
    sample in this batch. `splitting`: bundles that are being split, each of which takes one more
    place of its namespace.
    """
    bundles, owner = view.bundles, view.bundles.owner

    def places(rows: Rows) -> tuple[Ints, Ints]:
        codes, counts, _ = census(bundles)
        being_split = bundles.rows_of(splitting)
        np.add.at(counts, codes[being_split[being_split >= 0]], 1)
        return codes[rows].astype(np.int64), counts

    simple = manager == "simple"
    rates, trigger = (bundles.latest, split_simple) if simple else (bundles.long, split_task)
    asked = view.brokers.alive & view.brokers.sampled if simple else view.brokers.alive
    loads = SplitLoads(bundles.topics, bundles.sessions, rates.rate, rates.throughput)
    return loads, trigger(loads, eligible & np.append(asked, False)[owner], places, config)


def _refused(
    view: ClusterView, rows: Rows, rule: Rule, saw: Ints | None = None, limit: int | None = None
) -> list[Refusal]:
    """Return one refusal for all rows, with their number and the names of some."""
    if not len(rows):
        return []
    names = [view.bundles.name(row) for row in rows[:MOST_SUBJECTS].tolist()]
    seen = [] if saw is None else [saw.min(), saw.max()]
    return [replace(refusal(rule, None, names, saw=seen, limit=limit), count=len(rows))]


def _decide(state: RoundState, row: int, reason: int, explain: Explain) -> Refusal | None:
    """Decide one split, or return the refusal.

    Reports don't name topics. If the algorithm needs them, the owner's agent finds the boundaries.
    """
    view, config = state.view, state.config
    name, owner = view.bundles.name(row), int(view.bundles.owner[row])
    source = view.brokers.names[owner]
    algorithm = config.split_algorithms.named()
    found = plan(
        config.split_algorithms, algorithm, parse_bundle(name), int(view.bundles.topics[row])
    )
    if isinstance(found, SplitRejected):
        return refusal(found.rule, source, [name])
    unload = (
        config.splitting.unload_split_bundles
        and not state.config.plans_splits  # which moves the children that have to leave
        and _may_leave(state, row, owner)
    )
    state.decide(
        "split",
        row,
        source,
        None,
        reason=REASONS[reason],
        rule=RULES[reason],
        strategy=STRATEGIES[config.balancer.load_manager],
        explain=explain,
        division=Division(found.children, found.boundaries, algorithm.name, unload),
    )
    return None


def _may_leave(state: RoundState, row: int, owner: int) -> bool:
    """Whether policies allow another broker, and the anti-affinity group lets the bundle leave."""
    allowed = state.candidates.allowed(row, state.targets)
    return bool((allowed != owner).any()) and state.candidates.unload_helps(row, owner, allowed)
