"""Infers brokers' capacities from their load reports.

Limits are taken as reported; those that no report states are assumed, and stay unreported. The
capacity of cpu follows from how cpu usage followed the load, and so does the cpu that brokers take
without any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.sim.scenario.scenario import JUDGED, LIMITS, Bools, Floats, Ints, StatedLimit

BYTES_PER_KBIT = 125.0
BYTES_PER_MIB = float(2**20)
UNLIMITED = 1e15
"""The capacity where a broker's load doesn't take any of the resource."""
FITTED = 3
"""Figures that are fitted to the cpu of reports."""
PASSES = 3
"""How often costs and speeds are fitted, each by what is known of the other."""
FULL_RATIO = 0.97
"""Reports with a higher cpu usage are left out: the broker may not deliver its whole load."""
UNSEEN = 0.5
"""With less reported use for their bundles' traffic, brokers don't measure all of it."""
FEW_REPORTS = 3
"""With fewer reports a broker counts as fast as the others."""
SPEEDS = (0.2, 5.0)
"""Limits of a broker's slowness, relative to the others."""
VARIED, MISSED = 0.2, 0.01
"""Cpu without load is looked for where reports' loads vary by this part of their mean, and a fit
without it misses the usages by this part. Else it would be that of noise."""
CLEAR = 3.0
"""A broker's own speed, and cpu without load, count from this many standard errors on: a few noisy
reports would give each of several equal brokers another speed."""
ASSUMED = {
    "cpu_msgs_per_s": 320e3,
    "cpu_bytes_per_s": 320e6,
    "bandwidth": 1.25e9,
    "memory": 8 * 2.0**30,
    "direct_memory": 8 * 2.0**30,
}
"""Capacities of a broker that reports none."""


@dataclass(frozen=True, slots=True)
class Capacities:
    """Columns of `ScenarioBrokers`, a row for each broker, and notes on how they were inferred."""

    columns: dict[str, Floats]
    notes: tuple[str, ...]
    # what reports state in place of limits that they don't know: 0 for those brokers
    stated: dict[StatedLimit, Floats]
    cpu_base: Floats | None  # ratio of cpu that no bundle causes; None: 0
    # by how much this misses the usages in reports (root mean square, a ratio); None: none shows it
    error: float | None


def infer_capacities(reports: pa.Table, broker: Ints, count: int) -> Capacities:
    """Infer the capacities of `count` brokers.

    `reports`: rows of `broker_history`, ordered by time, each report once. `broker`: the row of
    each report's broker, 0 to count - 1.
    """
    columns: dict[str, Floats] = {}
    cpu = _cpu(reports, broker, count)
    columns["cpu_msgs_per_s"], columns["cpu_bytes_per_s"] = cpu.msgs_per_s, cpu.bytes_per_s
    notes, parts = cpu.notes, [cpu.explained]
    for direction in ("in", "out"):
        columns[f"bandwidth_{direction}_bytes_per_s"], more, part = _bandwidth(
            reports, broker, count, direction
        )
        notes += more
        parts.append(part)
    for memory in ("memory", "direct_memory"):
        columns[f"{memory}_bytes"], columns[f"{memory}_base_bytes"], more, part = _memory(
            reports, broker, count, memory
        )
        notes += more
    parts.append(part)  # of direct memory: the heap isn't judged
    stated: dict[StatedLimit, Floats] = {}
    for limit, column in LIMITS.items():
        _, known = _last_limit(reports, broker, count, limit, 0.0)
        if not known.all():
            stated[limit] = np.where(known, columns[column], 0.0)
    error = _error(reports, parts, cpu.usable)
    return Capacities(columns, tuple(notes), stated, cpu.base, error)


def _column(reports: pa.Table, name: str) -> Floats:
    values: Floats = reports[name].fill_null(0.0).to_numpy().astype(np.float64)
    return values


def _last_limit(
    reports: pa.Table, broker: Ints, count: int, resource: str, otherwise: float
) -> tuple[Floats, Bools]:
    """Find each broker's last limit above 0, in the report's unit, and whether there is one."""
    limit = _column(reports, f"{resource}_limit")
    last = np.zeros(count)
    last[broker[limit > 0]] = limit[limit > 0]  # of several values the last one stays
    return np.where(last > 0, last, otherwise), last > 0


def _describe_unknown(known: Bools, limit: str, assumed: str) -> list[str]:
    return (
        [f"{int((~known).sum())} brokers report no {limit}: assumed {assumed}"]
        if not known.all()
        else []
    )


def fit_non_negative(first: Floats, second: Floats, wanted: Floats) -> tuple[float, float]:
    """Fit a·first + b·second = wanted by least squares, with a and b 0 or more.

    Returns (a, b); (0, 0) where both columns are 0. Columns in proportion to each other share what
    they explain.
    """
    value, two, cross = float(first @ first), float(second @ second), float(first @ second)
    to_one, to_two = float(first @ wanted), float(second @ wanted)
    if value <= 0 or two <= 0:
        return (
            max(to_one / value, 0.0) if value > 0 else 0.0,
            max(to_two / two, 0.0) if two > 0 else 0.0,
        )
    determinant = value * two - cross * cross
    if determinant < 1e-6 * value * two:
        return max(to_one / value / 2, 0.0), max(to_two / two / 2, 0.0)
    a, b = (
        (to_one * two - to_two * cross) / determinant,
        (to_two * value - to_one * cross) / determinant,
    )
    if a >= 0 and b >= 0:
        return a, b
    return (0.0, max(to_two / two, 0.0)) if a < 0 else (max(to_one / value, 0.0), 0.0)


class _Cpu(NamedTuple):
    """Capacities of cpu and the part of it that no bundle causes; what explains the reports.

    `explained`: the cpu that this gives each report; `usable`: the reports that show it.
    """

    msgs_per_s: Floats
    bytes_per_s: Floats
    base: Floats | None
    explained: Floats
    usable: Bools
    notes: list[str]


def _cpu(reports: pa.Table, broker: Ints, count: int) -> _Cpu:
    """Infer cpu capacities: the cost of messages and bytes, then each broker's speed.

    The cost is fitted over all brokers together, and so is the cpu without load. A broker's speed
    is relative to that, where reports show clearly that it is unlike the others.
    """
    used, limit = _column(reports, "cpu_usage"), _column(reports, "cpu_limit")
    rate = _column(reports, "rate_in_msgs_per_s") + _column(reports, "rate_out_msgs_per_s")
    throughput = _column(reports, "throughput_in_bytes_per_s") + _column(
        reports, "throughput_out_bytes_per_s"
    )
    usable = (limit > 0) & (used > 0) & (used < FULL_RATIO * limit) & (rate > 0)
    each, known = _last_limit(reports, broker, count, "cpu", 100.0)
    row, slowness = broker[usable], np.ones(count)
    for _ in range(PASSES):  # a slow broker hides cpu without load, until its speed is known
        own = slowness[row]
        a, b, base = _fit_cpu(own * rate[usable], own * throughput[usable], used[usable])
        predicted = a * rate + b * throughput
        slowness = _find_slowness(predicted[usable], used[usable] - base, row, count)
    if a + b <= 0:
        note = (
            f"cpu: no report shows how it follows load: assumed {ASSUMED['cpu_msgs_per_s']:g} "
            f"msg/s, {ASSUMED['cpu_bytes_per_s']:g} bytes/s"
            + (f"; {base:.3g} hundredths of a core are used without load" if base > 0 else "")
        )
        msgs, size = (np.full(count, ASSUMED[f"cpu_{name}_per_s"]) for name in ("msgs", "bytes"))
        slowness = np.ones(count)
        explained = each[broker] * (rate / msgs[broker] + throughput / size[broker]) + base
    else:
        explained = predicted * slowness[broker] + base
        note = _describe_cpu(a, b, base, (explained - used)[usable] / limit[usable])
        with np.errstate(divide="ignore"):
            msgs, size = (
                np.minimum(each / np.float64(coefficient) / slowness, UNLIMITED)
                for coefficient in (a, b)
            )
    notes = [note, *_describe_unknown(known, "cpu limit", "one core")]
    return _Cpu(msgs, size, base / each if base > 0 else None, explained, usable, notes)


def _fit_cpu(rate: Floats, throughput: Floats, used: Floats) -> tuple[float, float, float]:
    """Fit the cost of messages and of bytes, and the cpu without load: 0 if none is clear."""
    a, b = fit_non_negative(rate, throughput, used)
    left, load = len(used) - FITTED, a * rate + b * throughput
    squares = float(np.sum((used - load) ** 2))
    if left <= 0 or squares < MISSED**2 * float(used @ used) or load.std() < VARIED * load.mean():
        return a, b, 0.0
    flatter = fit_non_negative(*(column - column.mean() for column in (rate, throughput, used)))
    rest = used - flatter[0] * rate - flatter[1] * throughput
    base = float(rest.mean())
    gained = squares - float(np.sum((rest - base) ** 2))
    # the gain is that of one more figure, in units of the variance that is left
    is_clear = base > 0 and gained * left > CLEAR**2 * (squares - gained)
    return (*flatter, base) if is_clear else (a, b, 0.0)


def _find_slowness(predicted: Floats, used: Floats, broker: Ints, count: int) -> Floats:
    """Find each broker's cpu for its load ÷ that of all; 1 where no difference is clear."""
    squares, seen = np.bincount(broker, predicted**2, count), np.bincount(broker, minlength=count)
    has_load = squares > 0
    found = np.divide(
        np.bincount(broker, predicted * used, count), squares, out=np.ones(count), where=has_load
    )
    left = max(len(used) - FITTED, 1)
    variance = float(np.sum((used - predicted * found[broker]) ** 2)) / left
    error = np.sqrt(np.divide(variance, squares, out=np.zeros(count), where=has_load))
    is_clear = (seen >= FEW_REPORTS) & (np.abs(found - 1.0) > CLEAR * error)
    return np.where(is_clear, np.clip(found, *SPEEDS), 1.0)


def _describe_cpu(a: float, b: float, base: float, error: Floats) -> str:
    cost = " + ".join(
        [
            *([f"messages ÷ {1 / a:.4g}/s"] if a > 0 else []),
            *([f"bytes ÷ {1 / b:.4g}/s"] if b > 0 else []),
            *([f"{base:.3g} without load"] if base > 0 else []),
        ]
    )
    return (
        f"cpu: {cost}, in hundredths of a core, explains {len(error)} reports to "
        f"{100 * float(np.sqrt(np.mean(error**2))):.2g} % of a broker (root mean square)"
    )


def _error(reports: pa.Table, parts: Sequence[Floats], usable: Bools) -> float | None:
    """Return by how much the explained usage of the scarcest resource misses the reported one.

    `parts`: what explains the use of each of JUDGED in each report, in its unit.
    """
    explained, reported = np.zeros(len(usable)), np.zeros(len(usable))
    for resource, part in zip(JUDGED, parts, strict=True):
        limit = _column(reports, f"{resource}_limit")
        for usage, use in ((explained, part), (reported, _column(reports, f"{resource}_usage"))):
            share = np.divide(use, limit, out=np.zeros(len(use)), where=limit > 0)
            np.maximum(usage, share, out=usage)
    # a report whose cpu says nothing shows nothing
    rows = (usable | (_column(reports, "cpu_limit") <= 0)) & (reported > 0)
    if not rows.any():
        return None
    return float(np.sqrt(np.mean((explained - reported)[rows] ** 2)))


def _bandwidth(
    reports: pa.Table, broker: Ints, count: int, direction: str
) -> tuple[Floats, list[str], Floats]:
    """Infer the bandwidth that is left for bundles, bytes/s, and what explains the reported use.

    Other traffic on the network is assumed to grow in proportion to the bundles' traffic.
    """
    used = _column(reports, f"bandwidth_{direction}_usage") * BYTES_PER_KBIT
    carried = _column(reports, f"throughput_{direction}_bytes_per_s")
    each, known = _last_limit(
        reports, broker, count, f"bandwidth_{direction}", ASSUMED["bandwidth"] / BYTES_PER_KBIT
    )
    usable = (used > 0) & (carried > 0)
    factor = fit_non_negative(carried[usable], np.zeros(int(usable.sum())), used[usable])[0] or 1.0
    notes = []
    if not 0.95 < factor < 1.05:
        notes.append(
            f"bandwidth {direction}: brokers use {factor:.3g} times what their bundles carry"
            + (", so that it limits little" if factor < UNSEEN else "")
        )
    notes += _describe_unknown(
        known, f"limit of bandwidth {direction}", f"{ASSUMED['bandwidth']:g} bytes/s"
    )
    return each * BYTES_PER_KBIT / factor, notes, factor * carried / BYTES_PER_KBIT


def _memory(
    reports: pa.Table, broker: Ints, count: int, memory: str
) -> tuple[Floats, Floats, list[str], Floats]:
    """Infer the limit of a kind of memory and its base usage, both in bytes; what explains the use.

    The base usage of direct memory is the mean without a second of inbound traffic; that of the
    heap is the mean.
    """
    used = np.maximum(_column(reports, f"{memory}_usage") * BYTES_PER_MIB, 0.0)
    beside = (
        _column(reports, "throughput_in_bytes_per_s")
        if memory == "direct_memory"
        else np.zeros(len(used))
    )
    seen = np.bincount(broker, minlength=count)
    base = np.divide(
        np.bincount(broker, np.maximum(used - beside, 0.0), count),
        seen,
        out=np.zeros(count),
        where=seen > 0,
    )
    each, known = _last_limit(reports, broker, count, memory, ASSUMED[memory] / BYTES_PER_MIB)
    return (
        each * BYTES_PER_MIB,
        base,
        _describe_unknown(
            known, f"limit of {memory.replace('_', ' ')}", f"{ASSUMED[memory]:g} bytes"
        ),
        (base[broker] + beside) / BYTES_PER_MIB,
    )


def deduplicate_reports(reports: pa.Table) -> pa.Table:
    """Drop rows of `broker_history` that repeat a report; `reports` are ordered by time."""
    keys = pc.binary_join_element_wise(
        reports["broker"], reports["reported_ms"].cast(pa.string()), " "
    ).combine_chunks()
    first = np.unique(keys.dictionary_encode().indices.to_numpy(), return_index=True)[1]
    return reports.take(pa.array(np.sort(first)))
