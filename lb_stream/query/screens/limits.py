"""The usage at which a cluster's strategy begins to unload a broker, as a line of its charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lb_stream.io.messages.shown import figure

if TYPE_CHECKING:
    from lb_stream.core.config.cluster_config import ClusterConfig


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of usage: `factor` times the mean usage, plus `base` (a ratio)."""

    name: str
    factor: float
    base: float

    def at_mean(self, mean: float | None) -> float | None:
        """Return the limit at a mean usage; None where the mean isn't known."""
        return None if mean is None else self.factor * mean + self.base


def _above_mean(config: Any) -> Limit:
    return Limit(f"limit: mean + {figure(config.threshold, 'ratio')}", 1.0, config.threshold)


def _overloaded(config: Any) -> Limit:
    limit = config.overloaded_threshold_percent / 100
    return Limit(f"limit: {figure(limit, 'ratio')}", 0.0, limit)


def _trigger(config: Any) -> Limit:
    """Return LeastMoves' trigger. Where brokers are alike, a broker's target is the mean."""
    factor = config.least_moves_trigger_ratio
    return Limit(f"limit: about {factor:g} × mean", factor, 0.0)


def _spread(config: Any) -> Limit:
    """Return TransferShedder's allowed spread: usages deviate by so much from the mean."""
    target = config.target_std
    return Limit(f"mean + allowed deviation of {figure(target, 'ratio')}", 1.0, target)


_LIMITS: Mapping[str, Callable[[Any], Limit]] = {
    "ThresholdShedder": _above_mean,
    "RangeThresholdShedder": _above_mean,
    "OverloadShedder": _overloaded,
    "SimpleLoadManager": _overloaded,
    "LeastMoves": _trigger,
    "TransferShedder": _spread,
}
_COMPARES: Mapping[str, str] = {
    "UniformLoadShedder": "the message rates and throughputs of the busiest and the idlest broker",
    "AvgShedder": "the usages of a full and an idle broker with each other",
}
"""Shedder without a limit of usage → what it compares instead."""


def describe_missing_limit(config: ClusterConfig) -> str:
    """Say why a chart of usages has no line of a limit; empty: it has one, or should have none."""
    shedder = config.shedder
    compares = _COMPARES.get(shedder.name)
    if shedder.name in _LIMITS or compares is None:
        return ""
    return f"{shedder.name} compares {compares}: there is no limit of usage to show."


def find_limit(config: ClusterConfig) -> Limit | None:
    """Return the limit of a cluster's strategy; None: it compares no usage with a limit."""
    shedder = config.shedder
    build = _LIMITS.get(shedder.name)
    return None if build is None else build(config.shedder_config)
