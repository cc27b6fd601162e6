"""UniformLoadShedder: unload from the busiest broker when it is too far from the idlest.

See docs/strategies.md "UniformLoadShedder".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.contracts.keys import key
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rules import Decides, Refuses, Rule
from lb_stream.core.model.view import Floats, Rows
from lb_stream.core.shedding.base import (
    BundleRules,
    ShedContext,
    Unload,
    Unloads,
    explain_none_chosen,
    heaviest_first,
    rows_by_broker,
    shedder,
    too_few_bundles,
    without_idle,
)

INT_MAX = 2**31 - 1
"""The largest integer of 32 bits: the reference computes in them."""
NEARLY_ZERO = 1e-6
"""A minimum that is no larger than this counts as 1, so that it can divide."""


class UniformLoadShedderConfig(BundleRules):
    """Settings of UniformLoadShedder."""

    rate_difference_percent: float = key(
        50.0,
        "A pass begins when the busiest broker's message rate exceeds the idlest broker's by more "
        "than this. 0 or less: never.",
        unit="%",
        pulsar="loadBalancerMsgRateDifferenceShedderThreshold",
    )
    throughput_multiplier: float = key(
        4.0,
        "A pass begins when the busiest broker's throughput is more than this many times the "
        "idlest broker's. 0 or less: never.",
        pulsar="loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
    )
    max_unload_ratio: float = key(
        0.2,
        "The part of the two brokers' difference that moves.",
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
    max_unload_bundles: int = key(
        -1,
        "Maximum bundles that leave in one pass. -1: no limit.",
        unit="bundles",
        pulsar="maxUnloadBundleNumPerShedding",
        ge=-1,
    )
    uniform_need_allowance: int = key(
        0,
        "How far a bundle may exceed the amount that is left to move. Pulsar before 4.2 allows "
        "1,000; then bundles that carry less all move, and move back.",
        unit="msg/s or bytes/s",
        ge=0,
        le=INT_MAX,
    )
    uniform_need_overflow: bool = key(
        True,
        "The amount that is left to move is computed in 32 bits, with overflow, as in the "
        "reference.",
    )


@dataclass(frozen=True, slots=True)
class _Spread:
    """The maximum and minimum of one measure over the live brokers."""

    broker: int  # row of the broker with the maximum; the first wins a tie
    max: float
    min: float  # 1 where it is nearly 0

    @staticmethod
    def among(values: Floats, rows: Rows) -> _Spread:
        """Find the maximum and the minimum of these rows."""
        lowest = min(float(values[rows].min()), float(INT_MAX))
        highest = int(rows[np.argmax(values[rows])])
        divisor = 1.0 if abs(lowest) <= NEARLY_ZERO else lowest
        return _Spread(highest, float(values[highest]), divisor)


@shedder("UniformLoadShedder", config=UniformLoadShedderConfig)
def shed_uneven(context: ShedContext[UniformLoadShedderConfig, None]) -> tuple[Unloads, None]:
    """Unload from the broker with the highest message rate, or else the highest throughput.

    Rates are messages/s, throughputs bytes/s. When the rates are too far apart, only they count,
    even when no bundle is chosen. Source: docs/strategies.md "UniformLoadShedder".
    """
    # How far the busiest broker is from the idlest, in messages and in bytes.
    view, config = context.view, context.config
    alive = np.flatnonzero(view.brokers.alive)
    if not len(alive):
        return Unloads(), None
    rate = _Spread.among(view.brokers.latest.rate, alive)
    throughput = _Spread.among(view.brokers.latest.throughput, alive)
    difference = (rate.max - rate.min) * 100 / rate.min
    multiple = throughput.max / throughput.min

    # The bundles that leave it, by whichever is too far apart.
    if 0 < config.rate_difference_percent < difference:
        by_rate = (Decides.RATE_DIFFERENCE, difference, config.rate_difference_percent)
        loads, least = view.bundles.short.rate, config.min_unload_msgs_per_s
        return _shed(context, rate, loads, least, by_rate), None
    if 0 < config.throughput_multiplier < multiple:
        by_throughput = (Decides.THROUGHPUT_MULTIPLE, multiple, config.throughput_multiplier)
        loads, least = view.bundles.short.throughput, config.min_unload_bytes_per_s
        return _shed(context, throughput, loads, least, by_throughput), None
    return Unloads(), None


def _shed(
    context: ShedContext[UniformLoadShedderConfig, None],
    spread: _Spread,
    load: Floats,
    least: int,
    why: tuple[Rule, float, float],
) -> Unloads:
    """Choose bundles of the busiest broker, together at most a part of the difference.

    `least`: what must move at least. `why`: the rule, what it saw, its limit.
    """
    view, config, (rule, saw, limit) = context.view, context.config, why
    name = view.brokers.names[spread.broker]
    need = min(int((spread.max - spread.min) * config.max_unload_ratio), INT_MAX)
    unit = "msg/s" if rule is Decides.RATE_DIFFERENCE else "bytes/s"

    # Reasons to unload nothing.
    bundles = int(view.bundle_counts(system=config.count_system_bundles)[spread.broker])
    if (too_few := too_few_bundles(view, spread.broker, bundles)) is not None:
        return Unloads(refusals=(too_few,))
    if need < least:
        return Unloads(
            refusals=(refusal(Refuses.MIN_UNLOAD, name, saw=[need], limit=least, unit=unit),)
        )
    if config.max_unload_bundles == 0:
        return Unloads(refusals=(refusal(Refuses.NONE_IN_A_PASS, name, saw=[0], limit=0),))

    # The heaviest bundles that fit into what is left to move.
    eligible = rows_by_broker(view, np.array([spread.broker]), context.eligible)[spread.broker]
    rows = heaviest_first(without_idle(eligible, load, config), load)
    proposals: list[Unload] = []
    left = need
    for row, value in zip(rows.tolist(), load[rows].tolist(), strict=True):
        if config.max_unload_bundles != -1 and len(proposals) >= config.max_unload_bundles:
            break
        if value <= _max_load(left, config):
            proposals.append(Unload(row, spread.broker, "Overloaded", rule, saw, limit, None, None))
            left -= int(value)
    if proposals:
        return Unloads(tuple(proposals))
    most = _max_load(need, config)
    return Unloads(refusals=(explain_none_chosen(view, spread.broker, eligible, load, most, unit),))


def _max_load(left: int, config: UniformLoadShedderConfig) -> int:
    """Return the most that the next bundle may carry: what is left to move, and the allowance.

    In 32 bits the sum overflows to a negative number.
    """
    total = left + config.uniform_need_allowance
    return total - 2**32 if config.uniform_need_overflow and total > INT_MAX else total
