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


_LIMITS: Mapping[str, Callable[[Any], Limit]] = {
    "ThresholdShedder": _above_mean,
    "RangeThresholdShedder": _above_mean,
    "OverloadShedder": _overloaded,
    "SimpleLoadManager": _overloaded,
    "LeastMoves": _trigger,
}


def find_limit(config: ClusterConfig) -> Limit | None:
    """Return the limit of a cluster's strategy; None: it compares no usage with a limit."""
    shedder = config.shedder
    build = _LIMITS.get(shedder.name)
    return None if build is None else build(config.shedder_config)
