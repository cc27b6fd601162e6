"""Describe the numbers by which a shedder decides whether to shed from a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from lb_stream.core.shedding.uniform import NEARLY_ZERO
from lb_stream.io.messages.shown import figure
from lb_stream.query.lake import Row

Loads = Sequence[Row]
"""Rows of alive brokers: broker, usage_ratio, bytes_per_s, msgs_per_s."""


class StrategyNumbers(NamedTuple):
    """A shedder's numbers about a broker as a text, and whether it sheds because of them."""

    text: str
    exceeds_limit: bool


@dataclass(frozen=True, slots=True)
class _Case:
    """What a description is made from: a shedder's config and memory, all loads, the broker's."""

    config: Any  # the shedder's own class of config
    memory: Mapping[str, Any]
    loads: Loads
    load: Row


def describe_numbers(
    strategy: str, config: object, memory: Mapping[str, object], loads: Loads, broker: str
) -> StrategyNumbers | None:
    """Describe a shedder's numbers about a broker; None where the broker's load isn't known.

    `memory`: the shedder's own. A plug-in's shedder is described by usage and mean usage.
    """
    load = next((row for row in loads if row["broker"] == broker), None)
    if load is None or load["usage_ratio"] is None:
        return None
    describe = _DESCRIPTIONS.get(strategy, _describe_usage)
    return describe(_Case(config, memory, loads, load))


def _describe_usage(case: _Case) -> StrategyNumbers:
    """Compare the broker's usage with the mean; always a reason to shed."""
    usage, mean = case.load["usage_ratio"], _mean(case.loads)
    return StrategyNumbers(f"{_usage(usage)} usage; the brokers' mean is {_usage(mean)}", True)


def _describe_smoothed_usage(case: _Case) -> StrategyNumbers:
    """Compare the broker's smoothed usage with the average of all plus the threshold."""
    smoothed = case.memory.get("usage", {})
    if case.load["broker"] not in smoothed:
        return _describe_usage(case)
    usage, average = smoothed[case.load["broker"]], fmean(smoothed.values())
    limit = average + case.config.threshold
    place = "not below" if usage >= limit else "below"
    text = (
        f"{_usage(usage)} smoothed usage, {place} {_usage(limit)}: the average of "
        f"{_usage(average)} and the threshold"
    )
    return StrategyNumbers(text, usage >= limit and average > 0.0)


def _describe_overload(case: _Case) -> StrategyNumbers:
    """Compare the broker's usage with the threshold of overload, which is itself too much."""
    usage, limit = case.load["usage_ratio"], case.config.overloaded_threshold_percent / 100
    place = "not below" if usage >= limit else "below"
    text = f"{_usage(usage)} usage, {place} the limit of {_usage(limit)}"
    return StrategyNumbers(text, usage >= limit)


def _describe_limit(case: _Case) -> StrategyNumbers:
    """Compare the broker's usage with the threshold of overload, which is itself allowed."""
    usage, limit = case.load["usage_ratio"], case.config.overloaded_threshold_percent / 100
    place = "above" if usage > limit else "not above"
    text = f"{_usage(usage)} usage, {place} the limit of {_usage(limit)}"
    return StrategyNumbers(text, usage > limit)


def _describe_extremes(case: _Case) -> StrategyNumbers:
    """Compare the busiest broker with the idlest, by message rate and by throughput."""
    rates = [row["msgs_per_s"] or 0.0 for row in case.loads]
    throughputs = [row["bytes_per_s"] or 0.0 for row in case.loads]
    min_rate, min_throughput = (
        lowest if lowest > NEARLY_ZERO else 1.0 for lowest in (min(rates), min(throughputs))
    )
    # How far the busiest broker is above the idlest: percent of messages, ratio of throughputs.
    difference = 100 * (max(rates) - min_rate) / min_rate
    multiple = max(throughputs) / min_throughput
    max_difference = case.config.rate_difference_percent
    max_multiple = case.config.throughput_multiplier
    text = (
        f"the busiest broker has {difference:.0f}% more messages than the idlest (limit "
        f"{max_difference:g}%) and {multiple:.2f} times its throughput (limit {max_multiple:g})"
    )
    by_rate = difference > max_difference > 0
    by_throughput = multiple > max_multiple > 0
    # Throughputs count only where message rates are near enough to each other.
    measure = throughputs if by_throughput and not by_rate else rates
    busiest = case.loads[measure.index(max(measure))]["broker"]
    if case.load["broker"] != busiest:
        return StrategyNumbers(f"{text}; only the busiest broker sheds, {busiest}", False)
    return StrategyNumbers(text, by_rate or by_throughput)


def _describe_pair(case: _Case) -> StrategyNumbers:
    """Compare the broker with its partner: the busiest is paired with the idlest, and so on."""
    by_usage = sorted(case.loads, key=lambda row: row["usage_ratio"] or 0.0)
    brokers = [row["broker"] for row in by_usage]
    place = brokers.index(case.load["broker"])
    partner = by_usage[len(by_usage) - 1 - place]
    if partner is by_usage[place]:
        return StrategyNumbers(
            "with an odd number of brokers the one in the middle has no partner", False
        )
    points = 100 * (case.load["usage_ratio"] - (partner["usage_ratio"] or 0.0))
    text = f"{points:.1f} points above {partner['broker']}, with which it is paired"
    if place < len(by_usage) // 2:
        return StrategyNumbers(f"{text}: only the busier of a pair sheds", False)
    low, high = case.config.low_threshold_points, case.config.high_threshold_points
    limits = f"limits {low} for {case.config.hit_count_low} rounds and {high}"
    return StrategyNumbers(f"{text}, {limits} for {case.config.hit_count_high}", points >= low)


def _describe_deviation(case: _Case) -> StrategyNumbers:
    """Compare the standard deviation of smoothed usages with its target."""
    smoothed = {name: row[0] for name, row in case.memory.get("brokers", {}).items()}
    if case.load["broker"] not in smoothed:
        return _describe_usage(case)
    usage, mean = smoothed[case.load["broker"]], fmean(smoothed.values())
    deviation, target = pstdev(smoothed.values()), case.config.target_std
    place = "above" if deviation > target else "not above"
    text = (
        f"the brokers' usages deviate by {deviation:.3f}, {place} the target of {target:g}; "
        f"this one's is {_usage(usage)}, the mean {_usage(mean)}"
    )
    return StrategyNumbers(text, deviation > target and usage > mean)


def _usage(value: float | None) -> str:
    return figure(value, "ratio")


def _mean(loads: Loads) -> float:
    """Return the mean usage of the active brokers: a drained one, if it is asked about, is none."""
    active = [row for row in loads if row["active"]] or loads
    return fmean(row["usage_ratio"] or 0.0 for row in active)


_DESCRIPTIONS: Mapping[str, Callable[[_Case], StrategyNumbers]] = {
    "ThresholdShedder": _describe_smoothed_usage,
    "RangeThresholdShedder": _describe_smoothed_usage,
    "OverloadShedder": _describe_overload,
    "SimpleLoadManager": _describe_limit,
    "UniformLoadShedder": _describe_extremes,
    "AvgShedder": _describe_pair,
    "TransferShedder": _describe_deviation,
}
