"""UniformLoadShedder: unload from the busiest broker when it is too far from the idlest.

See docs/strategies.md "UniformLoadShedder".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lb_stream.contracts.keys import key
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rules import Decides, Refuses, Rule
from lb_stream.core.model.view import Floats
from lb_stream.core.shedding.base import (
    BundleRules,
    ShedContext,
    Unload,
    Unloads,
    carrying,
    heaviest_first,
    none_chosen,
    rows_by_broker,
    shedder,
    too_few_bundles,
)

INT_MAX = 2**31 - 1
NEARLY_ZERO = 1e-6


class UniformLoadShedderConfig(BundleRules):
    """Settings of UniformLoadShedder."""

    rate_difference_percent: float = key(
        50.0,
        "act when the busiest broker's message rate exceeds the idlest one's by this much; 0 or "
        "less: never",
        unit="%",
        pulsar="loadBalancerMsgRateDifferenceShedderThreshold",
    )
    throughput_multiplier: float = key(
        4.0,
        "act when the busiest broker's throughput is more than this many times the idlest one's; 0 "
        "or less: never",
        pulsar="loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
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
    max_unload_bundles: int = key(
        -1,
        "most bundles in one pass; -1: no limit",
        unit="bundles",
        pulsar="maxUnloadBundleNumPerShedding",
        ge=-1,
    )
    uniform_need_allowance: int = key(
        0,
        "by how much a bundle may exceed what is left to move; Pulsar allows 1 000 before 4.2: "
        "below that difference all bundles move, and back",
        unit="msg/s or bytes/s",
        ge=0,
        le=INT_MAX,
    )
    uniform_need_overflow: bool = key(
        True, "compute what is left to move in 32 bits, overflow included, as the reference does"
    )


@dataclass(frozen=True, slots=True)
class _Spread:
    """The maximum and minimum of one measure over the live brokers."""

    broker: int  # the one with the maximum
    max: float
    min: float

    @staticmethod
    def of(values: Floats, rows: np.ndarray[Any, np.dtype[np.intp]]) -> _Spread:
        """Find them among the rows; the first wins a tie, a minimum of nearly 0 counts as 1."""
        least = min(float(values[rows].min()), float(INT_MAX))
        greatest = int(rows[np.argmax(values[rows])])
        return _Spread(
            greatest, float(values[greatest]), 1.0 if abs(least) <= NEARLY_ZERO else least
        )


@shedder("UniformLoadShedder", config=UniformLoadShedderConfig)
def shed_uneven(context: ShedContext[UniformLoadShedderConfig, None]) -> tuple[Unloads, None]:
    """Unload from the broker with the highest message rate, or else the highest throughput.

    Rates messages/s, throughputs bytes/s. When the rates are too far apart, only they count, even
    when no bundle is chosen.
    """
    view, config = context.view, context.config
    alive = np.flatnonzero(view.brokers.alive)
    if not len(alive):
        return Unloads(), None
    rate, throughput = (
        _Spread.of(view.brokers.latest.rate, alive),
        _Spread.of(view.brokers.latest.throughput, alive),
    )
    difference = (rate.max - rate.min) * 100 / rate.min
    multiple = throughput.max / throughput.min
    if 0 < config.rate_difference_percent < difference:
        why = (Decides.RATE_DIFFERENCE, difference, config.rate_difference_percent)
        return _shed(
            context, rate, view.bundles.short.rate, config.min_unload_msgs_per_s, why
        ), None
    if 0 < config.throughput_multiplier < multiple:
        why = (Decides.THROUGHPUT_MULTIPLE, multiple, config.throughput_multiplier)
        return _shed(
            context, throughput, view.bundles.short.throughput, config.min_unload_bytes_per_s, why
        ), None
    return Unloads(), None


def _shed(
    context: ShedContext[UniformLoadShedderConfig, None],
    spread: _Spread,
    load: Floats,
    least: int,
    why: tuple[Rule, float, float],
) -> Unloads:
    view, config, (rule, saw, limit) = context.view, context.config, why
    name = view.brokers.names[spread.broker]
    need = min(int((spread.max - spread.min) * config.max_unload_ratio), INT_MAX)
    unit = "msg/s" if rule is Decides.RATE_DIFFERENCE else "bytes/s"
    bundles = int(view.bundle_counts(system=config.count_system_bundles)[spread.broker])
    if (too_few := too_few_bundles(view, spread.broker, bundles)) is not None:
        return Unloads(refusals=(too_few,))
    if need < least:
        return Unloads(
            refusals=(refusal(Refuses.MIN_UNLOAD, name, saw=[need], limit=least, unit=unit),)
        )
    if config.max_unload_bundles == 0:
        return Unloads(refusals=(refusal(Refuses.NONE_IN_A_PASS, name, saw=[0], limit=0),))
    eligible = rows_by_broker(view, np.array([spread.broker]), context.eligible)[spread.broker]
    rows = heaviest_first(carrying(eligible, load, config), load)
    proposals: list[Unload] = []
    left = need
    for row, value in zip(rows.tolist(), load[rows].tolist(), strict=True):
        if config.max_unload_bundles != -1 and len(proposals) >= config.max_unload_bundles:
            break
        if value <= _allowed(left, config):
            proposals.append(Unload(row, spread.broker, "Overloaded", rule, saw, limit, None, None))
            left -= int(value)
    if proposals:
        return Unloads(tuple(proposals))
    most = _allowed(need, config)
    return Unloads(refusals=(none_chosen(view, spread.broker, eligible, load, most, unit),))


def _allowed(left: int, config: UniformLoadShedderConfig) -> int:
    """What a bundle may weigh: what is left and the allowance; in 32 bits a full budget turns
    negative."""
    total = left + config.uniform_need_allowance
    return total - 2**32 if config.uniform_need_overflow and total > INT_MAX else total
