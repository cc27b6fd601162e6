"""AvgShedder: pair the busiest broker with the idlest, and level pairs that stay far apart.

It is a shedder and a placement, which share one memory. Bundles that leave a broker go to its
partner. Every other bundle keeps its first destination. See docs/strategies.md "AvgShedder".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.registry import read_memory, write_memory
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.placement.base import Best, PlacementContext, placement
from lb_stream.core.shedding.base import (
    ShedContext,
    Traits,
    Unload,
    Unloads,
    explain_none_chosen,
    heaviest_first,
    rows_by_broker,
    shedder,
)

PLANNED, DRAWN = "chosen before", "drawn"
"""How a placement found its brokers: the unit of its scores."""


class AvgShedderConfig(KeyModel):
    """Settings of AvgShedder. Scores are usages in percent points."""

    low_threshold_points: int = key(
        15,
        "A pair of brokers is levelled when its usages stay this far apart for hit_count_low "
        "rounds.",
        unit="points",
        pulsar="loadBalancerAvgShedderLowThreshold",
        ge=0,
        le=100,
    )
    high_threshold_points: int = key(
        40,
        "A pair of brokers is levelled when its usages stay this far apart for hit_count_high "
        "rounds.",
        unit="points",
        pulsar="loadBalancerAvgShedderHighThreshold",
        ge=0,
        le=100,
    )
    hit_count_low: int = key(
        8,
        "Rounds in a row that a pair must be beyond the low threshold.",
        unit="rounds",
        pulsar="loadBalancerAvgShedderHitCountLowThreshold",
        ge=0,
    )
    hit_count_high: int = key(
        2,
        "Rounds in a row that a pair must be beyond the high threshold.",
        unit="rounds",
        pulsar="loadBalancerAvgShedderHitCountHighThreshold",
        ge=0,
    )
    max_unload_ratio: float = key(
        0.2,
        "The part of the pair's difference that moves.",
        pulsar="maxUnloadPercentage",
        ge=0,
        le=1,
    )
    min_unload_msgs_per_s: int = key(
        1000,
        "Nothing moves when less than this would move.",
        unit="msg/s",
        pulsar="minUnloadMessage",
        ge=0,
    )
    min_unload_bytes_per_s: int = key(
        1_048_576,
        "Nothing moves when less than this would move.",
        unit="bytes/s",
        pulsar="minUnloadMessageThroughput",
        ge=0,
    )
    avg_target_key: Literal["value", "name", "plan"] = key(
        "value",
        "How a bundle's destination is remembered. value: under its figures, as Pulsar 4 does; it "
        "is forgotten when they change. name: under its name. plan: under its name until the "
        "pass ends, as Pulsar 5.0 does; a bundle without a destination is placed at random, and "
        "one whose destination is overloaded goes elsewhere.",
    )
    overloaded_threshold_percent: float = key(
        85,
        "A planned destination above this usage is replaced by another broker.",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )

    @property
    def plans_each_pass(self) -> bool:
        """Whether destinations are a plan: made by a pass, and forgotten with it."""
        return self.avg_target_key == "plan"


@dataclass(slots=True)
class AvgMemory:
    """The rounds in a row that brokers' pairs were too far apart, and bundles' destinations."""

    hits_low: dict[str, int] = field(default_factory=dict)  # broker → rounds
    hits_high: dict[str, int] = field(default_factory=dict)  # broker → rounds
    target: dict[str, str] = field(default_factory=dict)  # `target_key` of a bundle → broker
    # Of a plan: bundle → the broker that it leaves.
    source: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(data: Mapping[str, object]) -> AvgMemory:
        """Read the JSON object of the last round."""
        return read_memory(data, AvgMemory)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes."""
        return write_memory(self)


def target_key(view: ClusterView, bundle: int, config: AvgShedderConfig) -> str:
    """Return the key under which the destination of a bundle is remembered."""
    if config.avg_target_key != "value":
        return view.bundles.name(bundle)
    bundles = view.bundles
    values = (
        *bundles.short.row(bundle),
        *bundles.long.row(bundle),
        bundles.short_samples[bundle],
        bundles.long_samples[bundle],
        bundles.topics[bundle],
    )
    return blake2b(repr([float(value) for value in values]).encode(), digest_size=8).hexdigest()


def drop_departed_brokers(
    view: ClusterView, config: AvgShedderConfig, memory: AvgMemory
) -> AvgMemory:
    """Return the memory without unknown brokers, and without destinations of unknown bundles.

    The reference keeps both for ever. Destinations are only dropped once there are twice as many as
    bundles, so that the search over all bundles is rare. A plan doesn't outlive its pass, whatever
    ended it.
    """
    names = set(view.brokers.names)
    hits_low, hits_high = (
        {name: hits for name, hits in counters.items() if name in names}
        for counters in (memory.hits_low, memory.hits_high)
    )
    if config.plans_each_pass:
        return AvgMemory(hits_low, hits_high)
    target, bundles = memory.target, len(view.bundles)
    if len(target) > 2 * bundles:
        kept = {target_key(view, row, config) for row in range(bundles)}
        target = {key: broker for key, broker in target.items() if key in kept}
    return AvgMemory(hits_low, hits_high, target)


def forget_plan(before: AvgMemory, after: AvgMemory) -> AvgMemory:
    """Return the memory with the hit counts before the pass, as the pairs are still far apart."""
    hits_low = {**before.hits_low, **after.hits_low}
    hits_high = {**before.hits_high, **after.hits_high}
    return AvgMemory(hits_low, hits_high, after.target)


def end_plan(config: AvgShedderConfig, memory: AvgMemory) -> AvgMemory:
    """Return the memory without destinations that count in their own pass only."""
    if not config.plans_each_pass:
        return memory
    return AvgMemory(memory.hits_low, memory.hits_high)


TRAITS = Traits(observe=drop_departed_brokers, end_pass=end_plan, forget_plan=forget_plan)


@shedder("AvgShedder", config=AvgShedderConfig, memory=AvgMemory.read, traits=TRAITS)
def shed_to_partner(context: ShedContext[AvgShedderConfig, AvgMemory]) -> tuple[Unloads, AvgMemory]:
    """Level each pair of brokers whose scores have been too far apart for long enough.

    A score is 100 x usage. Bundles are chosen by short-term message rate, or by throughput if the
    pair's message rates are too close. Source: docs/strategies.md "AvgShedder".
    """
    # Pairs that are too far apart: highest with lowest, then the second of both, and so on.
    view, config, memory = context.view, context.config, context.memory
    before = {} if config.plans_each_pass else memory.target
    now = AvgMemory(dict(memory.hits_low), dict(memory.hits_high), dict(before))
    alive = np.flatnonzero(view.brokers.alive)
    score = 100 * view.brokers.usage
    order = alive[np.argsort(score[alive], kind="stable")].tolist()
    pairs = _pairs_apart(view, config, now, order, score)
    if not pairs:
        now.hits_low.clear()
        now.hits_high.clear()
        return Unloads(), now

    # Pairs whose hit counts are reached, and the bundles that leave the busier broker of each.
    refusals: list[Refusal] = []
    firing = [pair for pair in pairs if _fires(view, config, now, pair, score, refusals)]
    rows = rows_by_broker(view, np.array([high for _, high in firing], np.intp), context.eligible)
    loads = (view.bundles.short.rate, view.bundles.short.throughput) if firing else ()
    proposals: list[Unload] = []
    for low, high in firing:
        _level(view, config, now, (low, high), (rows[high], loads, score), proposals, refusals)
    return Unloads(tuple(proposals), tuple(refusals)), now


def _pairs_apart(
    view: ClusterView, config: AvgShedderConfig, memory: AvgMemory, order: list[int], score: Floats
) -> list[tuple[int, int]]:
    """Pair brokers from both ends of `order`, and count hits.

    Returns the pairs (low, high) beyond the low threshold.
    """
    pairs = []
    for at in range((len(order) + 1) // 2):
        low, high = order[at], order[len(order) - 1 - at]
        difference = float(score[high] - score[low])
        for name in (view.brokers.names[low], view.brokers.names[high]):
            if difference < config.low_threshold_points:
                memory.hits_low.pop(name, None)
                memory.hits_high.pop(name, None)
            elif difference < config.high_threshold_points:
                memory.hits_low[name] = memory.hits_low.get(name, 0) + 1
                memory.hits_high[name] = 0
            else:
                memory.hits_low[name] = memory.hits_low.get(name, 0) + 1
                memory.hits_high[name] = memory.hits_high.get(name, 0) + 1
        if difference >= config.low_threshold_points:
            pairs.append((low, high))
    return pairs


def _fires(
    view: ClusterView,
    config: AvgShedderConfig,
    memory: AvgMemory,
    pair: tuple[int, int],
    score: Floats,
    refusals: list[Refusal],
) -> bool:
    """Return whether a hit count of the pair has reached its limit; if not, add a refusal.

    If it has, the counts of both brokers begin anew.
    """
    names = [view.brokers.names[broker] for broker in pair]
    low = max(memory.hits_low.get(name, 0) for name in names)
    high = max(memory.hits_high.get(name, 0) for name in names)
    if low < config.hit_count_low and high < config.hit_count_high:
        # The refusal names the count that can be reached first.
        far = float(score[pair[1]] - score[pair[0]]) >= config.high_threshold_points
        sooner = config.hit_count_high - high <= config.hit_count_low - low
        by_high = far and sooner
        hits, limit = (high, config.hit_count_high) if by_high else (low, config.hit_count_low)
        refusals.append(refusal(Refuses.HIT_COUNT, names[1], saw=[hits], limit=limit))
        return False
    for name in names:
        memory.hits_low.pop(name, None)
        memory.hits_high.pop(name, None)
    return True


def _level(
    view: ClusterView,
    config: AvgShedderConfig,
    memory: AvgMemory,
    pair: tuple[int, int],
    figures: tuple[Rows, tuple[Floats, ...], Floats],
    proposals: list[Unload],
    refusals: list[Refusal],
) -> None:
    """Add proposals for bundles of the pair's busier broker, or a refusal.

    Together the bundles carry at most `max_unload_ratio` of the pair's difference. `figures`: the
    broker's eligible bundles, (rate, throughput) of all bundles, the scores of all brokers.
    """
    (low, high), (rows, loads, score) = pair, figures
    latest, names = view.brokers.latest, view.brokers.names

    # The amount that should move: messages/s, or bytes/s if the message rates are too close.
    rate = float(latest.rate[high] - latest.rate[low]) * config.max_unload_ratio
    throughput = float(latest.throughput[high] - latest.throughput[low]) * config.max_unload_ratio
    if rate > config.min_unload_msgs_per_s:
        load, budget, unit = loads[0], rate, "msg/s"
    elif throughput > config.min_unload_bytes_per_s:
        load, budget, unit = loads[1], throughput, "bytes/s"
    else:
        refusals.append(
            refusal(Refuses.MIN_UNLOAD, names[high], saw=[rate], limit=config.min_unload_msgs_per_s)
        )
        return

    # The heaviest bundles that fit into that amount. Their destination is the idler broker.
    amount, before = budget, len(proposals)
    for row in heaviest_first(rows, load).tolist():
        value = float(load[row])
        if 0 < value <= budget:
            budget -= value
            remembered = target_key(view, row, config)
            memory.target[remembered] = names[low]
            if config.plans_each_pass:
                memory.source[remembered] = names[high]
            proposals.append(
                Unload(
                    bundle=row,
                    source=high,
                    reason="Overloaded",
                    rule=Decides.PAIR_APART,
                    saw=float(score[high] - score[low]),
                    limit=float(config.low_threshold_points),
                    average=None,
                    expected_after=None,
                )
            )
    if len(proposals) == before:
        refusals.append(explain_none_chosen(view, high, rows, load, amount, unit))


@placement("AvgShedder", config=AvgShedderConfig, memory=AvgMemory.read)
def stay_with_partner(
    context: PlacementContext[AvgShedderConfig, AvgMemory],
) -> tuple[Best, AvgMemory]:
    """Choose the bundle's remembered broker if it is a candidate, else any.

    What is drawn is remembered too, unless destinations are a plan. Source: docs/strategies.md
    "AvgShedder".
    """
    targets, candidates, memory = context.targets, context.candidates, context.memory
    if context.config.plans_each_pass:
        chosen, unit = _follow_plan(context)
        return Best(candidates[chosen], np.where(chosen, 0.0, 1.0), unit), memory
    view, names = targets.view, targets.view.brokers.names
    key_of_target = target_key(view, context.bundle, context.config)
    chosen = candidates == _find_row(names, memory.target.get(key_of_target))
    unit = PLANNED
    if len(candidates) and not chosen.any():
        unit = DRAWN
        row = targets.draw(view.bundles.name(context.bundle), candidates)
        chosen = candidates == row
        memory.target[key_of_target] = names[row]
    return Best(candidates[chosen], np.where(chosen, 0.0, 1.0), unit), memory


def _follow_plan(
    context: PlacementContext[AvgShedderConfig, AvgMemory],
) -> tuple[Bools, str]:
    """Mark the candidates among which a bundle of a plan is placed, or any other bundle.

    A planned destination that is overloaded gives way to brokers that are not; the source is
    avoided. A broker whose usage isn't known (NaN) counts as neither.
    """
    view, candidates, plan = context.targets.view, context.candidates, context.memory
    bundle, names = view.bundles.name(context.bundle), view.brokers.names
    if bundle not in plan.target:
        return np.ones(len(candidates), np.bool_), DRAWN
    is_source = candidates == _find_row(names, plan.source.get(bundle))
    is_planned = candidates == _find_row(names, plan.target[bundle])
    if not is_planned.any():
        return ~is_source, DRAWN
    score = 100 * view.brokers.usage[candidates]
    limit = context.config.overloaded_threshold_percent
    if not (score[is_planned] > limit).any():
        return is_planned, PLANNED
    others = ~is_planned & ~is_source & (score <= limit)
    return (others, DRAWN) if others.any() else (is_planned, PLANNED)


def _find_row(names: tuple[str, ...], broker: str | None) -> int:
    """Return the broker's row; -1 for none."""
    return names.index(broker) if broker in names else -1
