"""AvgShedder: pair the busiest broker with the idlest, and level pairs that stay far apart.

See docs/strategies.md "AvgShedder".

It is both shedder and placement: the bundles that it sheds go to the partner that it sheds them
for, and every other bundle stays with the broker that it was once given. Both sides share one
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.model.view import ClusterView, Floats, Rows
from lb_stream.core.placement.base import Best, PlacementContext, placement
from lb_stream.core.shedding.base import (
    ShedContext,
    Traits,
    Unload,
    Unloads,
    heaviest_first,
    none_chosen,
    rows_by_broker,
    shedder,
)


class AvgShedderConfig(KeyModel):
    """Settings of AvgShedder. Scores are usages in percent points."""

    low_threshold_points: int = key(
        15,
        "A pair of brokers whose usages stay this far apart for long is levelled.",
        unit="points",
        pulsar="loadBalancerAvgShedderLowThreshold",
        ge=0,
        le=100,
    )
    high_threshold_points: int = key(
        40,
        "A pair of brokers whose usages are this far apart is levelled soon.",
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
        0.2, "how much of the difference to move", pulsar="maxUnloadPercentage", ge=0, le=1
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
    avg_target_key: Literal["value", "name"] = key(
        "value",
        "The key under which a bundle's destination is remembered: its figures, as in the "
        "reference (forgotten when they change), or its name.",
    )


@dataclass(slots=True)
class AvgMemory:
    """Rounds in a row that each broker's pair was too far apart, and bundles' destinations."""

    hits_low: dict[str, int] = field(default_factory=dict)
    hits_high: dict[str, int] = field(default_factory=dict)
    target: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(data: Mapping[str, Any]) -> AvgMemory:
        """From the JSON object of the last round."""
        return AvgMemory(
            *(
                {str(k): v for k, v in data.get(name, {}).items()}
                for name in ("hits_low", "hits_high", "target")
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        return {
            "hits_low": dict(self.hits_low),
            "hits_high": dict(self.hits_high),
            "target": dict(self.target),
        }


def target_key(view: ClusterView, bundle: int, config: AvgShedderConfig) -> str:
    """What the destination of a bundle is remembered under."""
    if config.avg_target_key == "name":
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
    """Return the memory without departed brokers, and without destinations of unknown bundles.

    The reference keeps both for ever. Destinations wait until there are twice as many as bundles:
    then most are of figures, or bundles, that are no more, and looking at every bundle costs little
    beside what it took to place so many.
    """
    names = set(view.brokers.names)
    hits_low, hits_high = (
        {name: hits for name, hits in counters.items() if name in names}
        for counters in (memory.hits_low, memory.hits_high)
    )
    target, bundles = memory.target, len(view.bundles)
    if len(target) > 2 * bundles:
        kept = {target_key(view, row, config) for row in range(bundles)}
        target = {key: broker for key, broker in target.items() if key in kept}
    return AvgMemory(hits_low, hits_high, target)


def forget_plan(before: AvgMemory, after: AvgMemory) -> AvgMemory:
    """Return the memory with the counters of fired pairs as before: they are still as far apart."""
    hits_low = {**before.hits_low, **after.hits_low}
    hits_high = {**before.hits_high, **after.hits_high}
    return AvgMemory(hits_low, hits_high, after.target)


TRAITS = Traits(observe=drop_departed_brokers, forget_plan=forget_plan)


@shedder("AvgShedder", config=AvgShedderConfig, memory=AvgMemory.read, traits=TRAITS)
def shed_to_partner(context: ShedContext[AvgShedderConfig, AvgMemory]) -> tuple[Unloads, AvgMemory]:
    """Level each pair of brokers whose scores have been too far apart for long enough.

    Scores are 100 x usage. Bundles go by their short-term message rate, or by throughput when the
    rates are too close.
    """
    view, config, memory = context.view, context.config, context.memory
    now = AvgMemory(dict(memory.hits_low), dict(memory.hits_high), dict(memory.target))
    alive = np.flatnonzero(view.brokers.alive)
    score = 100 * view.brokers.usage
    order = alive[np.argsort(score[alive], kind="stable")].tolist()
    pairs = _pairs_apart(view, config, now, order, score)
    if not pairs:
        now.hits_low.clear()
        now.hits_high.clear()
        return Unloads(), now
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
    """Pair lowest with highest, and so on; return pairs beyond the low threshold, count hits."""
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
    """Whether one of the pair's brokers has been apart for long enough.

    Then all four counters start anew, else it is refused.
    """
    names = [view.brokers.names[broker] for broker in pair]
    low = max(memory.hits_low.get(name, 0) for name in names)
    high = max(memory.hits_high.get(name, 0) for name in names)
    if low < config.hit_count_low and high < config.hit_count_high:
        # Far apart, a pair fires by whichever count is reached first.
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
    """Choose bundles of the pair's busier broker, together at most the amount to move."""
    (low, high), (rows, loads, score) = pair, figures
    latest, names = view.brokers.latest, view.brokers.names
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
    saw, amount, before = float(score[high] - score[low]), budget, len(proposals)
    for row in heaviest_first(rows, load).tolist():
        value = float(load[row])
        if 0 < value <= budget:
            budget -= value
            memory.target[target_key(view, row, config)] = names[low]
            proposals.append(
                Unload(
                    row,
                    high,
                    "Overloaded",
                    Decides.PAIR_APART,
                    saw,
                    float(config.low_threshold_points),
                    None,
                    None,
                )
            )
    if len(proposals) == before:
        refusals.append(none_chosen(view, high, rows, load, amount, unit))


@placement("AvgShedder", config=AvgShedderConfig, memory=AvgMemory.read)
def stay_with_partner(
    context: PlacementContext[AvgShedderConfig, AvgMemory],
) -> tuple[Best, AvgMemory]:
    """Choose the bundle's remembered broker if it is a candidate, else draw one and remember it."""
    targets, candidates, bundle, memory = (
        context.targets,
        context.candidates,
        context.bundle,
        context.memory,
    )
    names, remembered = targets.view.brokers.names, target_key(targets.view, bundle, context.config)
    wanted = memory.target.get(remembered)
    chosen = candidates == (names.index(wanted) if wanted in names else -1)
    if len(candidates) and not chosen.any():
        row = targets.draw(targets.view.bundles.name(bundle), candidates)
        chosen = candidates == row
        memory.target[remembered] = names[row]
    return Best(candidates[chosen], np.where(chosen, 0.0, 1.0), "chosen before"), memory
