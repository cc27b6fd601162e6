"""A shedder's own numbers about a broker against its limit, from tables and its memory: why it does, or doesn't, shed from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from lb_stream.io.messages.figures import figure

Loads = Sequence[Mapping[str, Any]]
"""Living brokers: broker, usage_ratio, bytes_per_s, msgs_per_s."""


class Numbers(NamedTuple):
    """The numbers in words, and whether they are a reason to shed."""

    told: str
    beyond: bool


def numbers(strategy: str, config: Any, remembered: Mapping[str, Any], loads: Loads, broker: str) -> Numbers | None:
    """The numbers about a broker; None where its load isn't known. For a plug-in's strategy: its usage against the mean."""
    mine = next((row for row in loads if row["broker"] == broker), None)
    if mine is None or mine["usage_ratio"] is None:
        return None
    return _OF.get(strategy, _plain)(config, remembered, loads, mine)


def _plain(config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]) -> Numbers:
    return Numbers(f"{_usage(mine['usage_ratio'])} usage; the brokers' mean is {_usage(_mean(loads))}", True)


def _above_average(config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]) -> Numbers:
    smoothed = remembered.get("usage", {})
    if mine["broker"] not in smoothed:
        return _plain(config, remembered, loads, mine)
    saw, average = smoothed[mine["broker"]], fmean(smoothed.values())
    limit = average + config.threshold
    place = "not below" if saw >= limit else "below"
    told = f"{_usage(saw)} smoothed usage, {place} {_usage(limit)}: the average of {_usage(average)} and the threshold"
    return Numbers(told, saw >= limit)


def _overloaded(config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]) -> Numbers:
    saw, limit = mine["usage_ratio"], config.overloaded_threshold_percent / 100
    return Numbers(f"{_usage(saw)} usage, {'not below' if saw >= limit else 'below'} the limit of {_usage(limit)}", saw >= limit)


def _uniform(config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]) -> Numbers:
    rate, flow = ([row[name] or 0.0 for row in loads] for name in ("msgs_per_s", "bytes_per_s"))
    apart = 100 * (max(rate) - min(rate)) / min(rate) if min(rate) else float("inf")
    times = max(flow) / min(flow) if min(flow) else float("inf")
    told = f"the busiest broker has {apart:.0f}% more messages than the idlest (limit {config.rate_difference_percent:g}%) "
    beyond = apart > config.rate_difference_percent > 0 or times > config.throughput_multiplier > 0
    told += f"and {times:.2f} times its throughput (limit {config.throughput_multiplier:g})"
    busiest = (mine["msgs_per_s"] or 0.0) >= max(rate) or (mine["bytes_per_s"] or 0.0) >= max(flow)
    return Numbers(told + ("" if busiest else "; this broker is not the busiest: only that one sheds"), beyond and busiest)


def _pairs(config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]) -> Numbers:
    points = 100 * (mine["usage_ratio"] - min(row["usage_ratio"] or 0.0 for row in loads))
    beyond = points > config.low_threshold_points
    told = f"{points:.1f} points above the idlest broker, limits {config.low_threshold_points} for {config.hit_count_low} rounds"
    return Numbers(f"{told} and {config.high_threshold_points} for {config.hit_count_high}", beyond)


def _deviation(config: Any, remembered: Mapping[str, Any], loads: Loads, mine: Mapping[str, Any]) -> Numbers:
    smoothed = {name: row[0] for name, row in remembered.get("brokers", {}).items()}
    if mine["broker"] not in smoothed:
        return _plain(config, remembered, loads, mine)
    saw, mean, spread = smoothed[mine["broker"]], fmean(smoothed.values()), pstdev(smoothed.values())
    place = "above" if spread > config.target_std else "not above"
    told = f"the brokers' usages deviate by {spread:.3f}, {place} the target of {config.target_std:g}"
    return Numbers(f"{told}; this one's is {_usage(saw)}, the mean {_usage(mean)}", spread > config.target_std and saw > mean)


def _usage(value: float | None) -> str:
    return figure(value, "ratio")


def _mean(loads: Loads) -> float:
    return fmean(row["usage_ratio"] or 0.0 for row in loads)


_OF: Mapping[str, Callable[[Any, Mapping[str, Any], Loads, Mapping[str, Any]], Numbers]] = {
    "ThresholdShedder": _above_average,
    "RangeThresholdShedder": _above_average,
    "OverloadShedder": _overloaded,
    "SimpleLoadManager": _overloaded,
    "UniformLoadShedder": _uniform,
    "AvgShedder": _pairs,
    "TransferShedder": _deviation,
}
