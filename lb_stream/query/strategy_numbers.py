"""Describe the numbers by which a shedder decides whether to shed from a broker, and their limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from lb_stream.core.shedding.uniform import NEARLY_ZERO
from lb_stream.io.messages.shown import figure

Loads = Sequence[Mapping[str, Any]]
"""Living brokers: broker, usage_ratio, bytes_per_s, msgs_per_s."""


class StrategyNumbers(NamedTuple):
    """The numbers in words, and whether they are a reason to shed."""

    text: str
    exceeds_limit: bool


def describe_numbers(
    strategy: str, config: Any, remembered: Mapping[str, Any], loads: Loads, broker: str
) -> StrategyNumbers | None:
    """The numbers about a broker; None where its load isn't known.

    For a plug-in's strategy: its usage against the mean.
    """
    mine = next((row for row in loads if row["broker"] == broker), None)
    if mine is None or mine["usage_ratio"] is None:
        return None
    return _OF.get(strategy, _plain)(config, remembered, loads, mine)


def _plain(
    config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]
) -> StrategyNumbers:
    return StrategyNumbers(
        f"{_usage(mine['usage_ratio'])} usage; the brokers' mean is {_usage(_mean(loads))}", True
    )


def _above_average(
    config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]
) -> StrategyNumbers:
    smoothed = remembered.get("usage", {})
    if mine["broker"] not in smoothed:
        return _plain(config, remembered, loads, mine)
    saw, average = smoothed[mine["broker"]], fmean(smoothed.values())
    limit = average + config.threshold
    place = "not below" if saw >= limit else "below"
    text = (
        f"{_usage(saw)} smoothed usage, {place} {_usage(limit)}: the average of "
        f"{_usage(average)} and the threshold"
    )
    return StrategyNumbers(text, saw >= limit and average > 0.0)


def _overloaded(
    config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]
) -> StrategyNumbers:
    saw, limit = mine["usage_ratio"], config.overloaded_threshold_percent / 100
    return StrategyNumbers(
        f"{_usage(saw)} usage, {'not below' if saw >= limit else 'below'} the limit of "
        f"{_usage(limit)}",
        saw >= limit,
    )


def _above_limit(
    config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]
) -> StrategyNumbers:
    saw, limit = mine["usage_ratio"], config.overloaded_threshold_percent / 100
    above = "above" if saw > limit else "not above"
    return StrategyNumbers(
        f"{_usage(saw)} usage, {above} the limit of {_usage(limit)}", saw > limit
    )


def _uniform(
    config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]
) -> StrategyNumbers:
    columns = [[row[name] or 0.0 for row in loads] for name in ("msgs_per_s", "bytes_per_s")]
    rate, flow = columns
    lowest = [min(column) for column in columns]
    least_rate, least_flow = (least if least > NEARLY_ZERO else 1.0 for least in lowest)
    apart, times = 100 * (max(rate) - least_rate) / least_rate, max(flow) / least_flow
    text = (
        f"the busiest broker has {apart:.0f}% more messages than the idlest (limit "
        f"{config.rate_difference_percent:g}%) "
    )
    text += f"and {times:.2f} times its throughput (limit {config.throughput_multiplier:g})"
    by_rate = apart > config.rate_difference_percent > 0
    by_flow = times > config.throughput_multiplier > 0
    # where rates are too far apart only they count
    measure = rate if by_rate or not by_flow else flow
    busiest = loads[measure.index(max(measure))]["broker"]
    if mine["broker"] != busiest:
        return StrategyNumbers(f"{text}; only the busiest broker sheds, {busiest}", False)
    return StrategyNumbers(text, by_rate or by_flow)


def _pairs(
    config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]
) -> StrategyNumbers:
    order = sorted(loads, key=lambda row: row["usage_ratio"] or 0.0)
    place = next(at for at, row in enumerate(order) if row["broker"] == mine["broker"])
    partner = order[len(order) - 1 - place]
    if partner is order[place]:
        return StrategyNumbers(
            "with an odd number of brokers the one in the middle has no partner", False
        )
    points = 100 * (mine["usage_ratio"] - (partner["usage_ratio"] or 0.0))
    text = f"{points:.1f} points above {partner['broker']}, with which it is paired"
    if place < len(order) // 2:
        return StrategyNumbers(f"{text}: only the busier of a pair sheds", False)
    low, high = config.low_threshold_points, config.high_threshold_points
    limits = f"limits {low} for {config.hit_count_low} rounds and {high}"
    return StrategyNumbers(f"{text}, {limits} for {config.hit_count_high}", points >= low)


def _deviation(
    config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]
) -> StrategyNumbers:
    smoothed = {name: row[0] for name, row in remembered.get("brokers", {}).items()}
    if mine["broker"] not in smoothed:
        return _plain(config, remembered, loads, mine)
    saw, mean, spread = (
        smoothed[mine["broker"]],
        fmean(smoothed.values()),
        pstdev(smoothed.values()),
    )
    place = "above" if spread > config.target_std else "not above"
    text = (
        f"the brokers' usages deviate by {spread:.3f}, {place} the target of {config.target_std:g}"
    )
    return StrategyNumbers(
        f"{text}; this one's is {_usage(saw)}, the mean {_usage(mean)}",
        spread > config.target_std and saw > mean,
    )


def _usage(value: float | None) -> str:
    return figure(value, "ratio")


def _mean(loads: Loads) -> float:
    return fmean(row["usage_ratio"] or 0.0 for row in loads)


_OF: Mapping[str, Callable[[Any, Mapping[str, Any], Loads, Mapping[str, Any]], StrategyNumbers]] = {
    "ThresholdShedder": _above_average,
    "RangeThresholdShedder": _above_average,
    "OverloadShedder": _overloaded,
    "SimpleLoadManager": _above_limit,
    "UniformLoadShedder": _uniform,
    "AvgShedder": _pairs,
    "TransferShedder": _deviation,
}
