"""The tables of Pulsar's broker monitor, line by line: modular, simple, extensible, all brokers.

Units: rates messages/s, throughputs bytes/s (shown as KB/s, ÷ 1024), usages per cent. A missing
value (None) is a blank cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Literal, NamedTuple

import numpy as np

from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.reports import (
    ModularLoadReport,
    ResourceUsage,
    SimpleLoadReport,
    SystemResourceUsage,
)
from lb_stream.core.model.resources import percent

Value = str | int | float | None
UsageProfile = Literal["4.0", "2.x"]

SYSTEM = ("CPU %", "MEMORY %", "DIRECT %", "BW IN %", "BW OUT %", "MAX %")
COUNT = ("TOPIC", "BUNDLE", "PRODUCER", "CONSUMER", "BUNDLE +", "BUNDLE -")
MESSAGES = ("MSG/S IN", "MSG/S OUT", "TOTAL", "KB/S IN", "KB/S OUT", "TOTAL")
HEADINGS = {
    **dict.fromkeys(("SYSTEM", "RAW SYSTEM", "ALLOC SYSTEM"), SYSTEM),
    "COUNT": COUNT,
    **dict.fromkeys(("LATEST", "SHORT", "LONG", "RAW MSG", "ALLOC MSG"), MESSAGES),
}
"""The column headings that go with each row's label."""

ALL_BROKERS = ("BROKER", "BUNDLE", "MSG/S", "LONG/S", "KB/S", "MAX %")
BROKER_WIDTHS = (14,) * 7
ALL_WIDTHS = (60, 12, 12, 12, 12, 12)

_CENT = Decimal("0.01")
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)  # digits enough for any double


class Four(NamedTuple):
    """Message rates and throughputs of a broker, latest or averaged."""

    throughput_in: float
    throughput_out: float
    rate_in: float
    rate_out: float


class BrokerRow(NamedTuple):
    """One broker's row among all brokers.

    `long_rate`: the long-term rate; of a simple report, the allocated one.
    """

    broker: str
    bundles: int | None
    rate: float | None
    long_rate: float | None
    throughput: float | None
    max_percent: float | None


def two_decimals(value: float) -> str:
    """Return a number with two decimals, as Pulsar's broker monitor prints it.

    It is rounded half up on its shortest decimal form.
    """
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{Decimal(repr(value)).quantize(_CENT, context=_EXACT):f}"


def broker_table(rows: Iterable[Sequence[Value]]) -> list[str]:
    """Return a broker's table. A row: a label of HEADINGS, and six values."""
    lines = []
    for label, *values in rows:
        lines += [
            _line((label, *HEADINGS[str(label)]), BROKER_WIDTHS),
            _line(("", *values), BROKER_WIDTHS),
        ]
    return _framed(lines, "=", BROKER_WIDTHS)


def modular_table(
    report: ModularLoadReport,
    short: Four | None,
    long: Four | None,
    usage_profile: UsageProfile = "4.0",
) -> list[str]:
    """Return a modular broker's table: its report, and its averages (None: unknown)."""
    latest = Four(
        report.msg_throughput_in, report.msg_throughput_out, report.msg_rate_in, report.msg_rate_out
    )
    counts = (report.num_topics, report.num_bundles, report.num_producers, report.num_consumers)
    return broker_table(
        [
            ("SYSTEM", *_system(report, usage_profile)),
            ("COUNT", *counts, len(report.last_bundle_gains), len(report.last_bundle_losses)),
            ("LATEST", *_messages(latest)),
            ("SHORT", *_messages(short)),
            ("LONG", *_messages(long)),
        ]
    )


def simple_table(report: SimpleLoadReport) -> list[str]:
    """Return a simple broker's table.

    Counts and rates come from its bundles' statistics. Heap memory always counts in MAX %.
    """
    stats, system = report.bundle_stats.values(), report.system_resource_usage
    counts = (
        sum(s.topics for s in stats),
        len(stats),
        sum(s.producer_count for s in stats),
        sum(s.consumer_count for s in stats),
    )
    rates = (sum((s.msg_rate_in for s in stats), 0.0), sum((s.msg_rate_out for s in stats), 0.0))
    allocated = Four(
        report.allocated_bandwidth_in,
        report.allocated_bandwidth_out,
        report.allocated_msg_rate_in,
        report.allocated_msg_rate_out,
    )
    cpu, memory, bandwidth_in, bandwidth_out = shares = (
        allocated_percent(report.allocated_cpu, system.cpu),
        allocated_percent(report.allocated_memory, system.memory),
        allocated_percent(report.allocated_bandwidth_in, system.bandwidth_in),
        allocated_percent(report.allocated_bandwidth_out, system.bandwidth_out),
    )
    return broker_table(
        [
            ("COUNT", *counts, len(report.bundle_gains), len(report.bundle_losses)),
            ("RAW SYSTEM", *_system(system, "2.x")),
            ("ALLOC SYSTEM", cpu, memory, None, bandwidth_in, bandwidth_out, max(shares)),
            (
                "RAW MSG",
                *_messages(Four(system.bandwidth_in.usage, system.bandwidth_out.usage, *rates)),
            ),
            ("ALLOC MSG", *_messages(allocated)),
        ]
    )


def extensible_table(
    resources: ModularLoadReport | SystemResourceUsage,
    bundles: int | None,
    latest: Four | None,
    usage_profile: UsageProfile = "4.0",
) -> list[str]:
    """Return an extensible broker's table. The number of bundles is the only known count."""
    return broker_table(
        [
            ("SYSTEM", *_system(resources, usage_profile)),
            ("COUNT", None, bundles, None, None, None, None),
            ("LATEST", *_messages(latest)),
        ]
    )


def all_brokers_table(rows: Sequence[BrokerRow]) -> list[str]:
    """Return the table of all brokers, with a row of their TOTAL: sums, and the max of MAX %."""
    total = BrokerRow(
        "TOTAL",
        sum(row.bundles or 0 for row in rows),
        sum((row.rate or 0.0 for row in rows), 0.0),
        sum((row.long_rate or 0.0 for row in rows), 0.0),
        sum((row.throughput or 0.0 for row in rows), 0.0),
        max((row.max_percent for row in rows if row.max_percent is not None), default=None),
    )
    shown = [row._replace(throughput=_kilobytes(row.throughput)) for row in (*rows, total)]
    return _framed([_line(cells, ALL_WIDTHS) for cells in (ALL_BROKERS, *shown)], "*", ALL_WIDTHS)


def max_percent(
    resources: ModularLoadReport | SystemResourceUsage, usage_profile: UsageProfile = "4.0"
) -> float:
    """Return the max usage in per cent: of all resources under 2.x, without heap under 4.0."""
    return max(
        value
        for name, value in _percents(resources).items()
        if name != "memory" or usage_profile == "2.x"
    )


def allocated_percent(allocated: float, resource: ResourceUsage) -> float:
    """Return the allocated share of a resource's limit in per cent, at most 100.

    Bandwidths are bytes/s ÷ kbit/s, unconverted, as in Pulsar's broker monitor.
    """
    return (
        100 * min(1.0, allocated / resource.limit) if resource.limit > 0 and allocated >= 0 else 0.0
    )


def _percents(resources: ModularLoadReport | SystemResourceUsage) -> dict[str, float]:
    pairs: list[ResourceUsage] = [getattr(resources, name) for name in RESOURCES]
    found = percent(
        np.array([pair.usage for pair in pairs], float),
        np.array([pair.limit for pair in pairs], float),
    )
    return dict(zip(RESOURCES, found.tolist(), strict=True))


def _system(
    resources: ModularLoadReport | SystemResourceUsage, usage_profile: UsageProfile
) -> tuple[float, ...]:
    return (*_percents(resources).values(), max_percent(resources, usage_profile))


def _messages(four: Four | None) -> tuple[float | None, ...]:
    """Return rates and KB/s, each in, out and total. Sums are taken before rounding."""
    if four is None:
        return (None,) * 6
    throughputs = (
        four.throughput_in,
        four.throughput_out,
        four.throughput_in + four.throughput_out,
    )
    return (
        four.rate_in,
        four.rate_out,
        four.rate_in + four.rate_out,
        *map(_kilobytes, throughputs),
    )


def _kilobytes(throughput: float | None) -> float | None:
    return None if throughput is None else throughput / 1024


def _text(value: Value) -> str:
    if value is None:
        return ""
    return two_decimals(value) if isinstance(value, float) else str(value)


def _line(values: Iterable[Value], widths: Sequence[int]) -> str:
    """Return a line of cells, cut and padded to their widths, with a space after each."""
    cells = (
        f"{_text(value)[:width]:<{width}} " for value, width in zip(values, widths, strict=True)
    )
    return f"||{'|'.join(cells)}||"


def _framed(lines: list[str], border: str, widths: Sequence[int]) -> list[str]:
    edge = border * (sum(widths) + 2 * len(widths) + 3)
    return [edge, *lines, edge]
