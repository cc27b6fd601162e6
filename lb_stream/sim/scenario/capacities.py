"""What brokers can carry, inferred from what they have reported: limits as they said them, cpu from
how it followed their load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.sim.scenario.scenario import Bools, Floats, Ints

BYTES_OF_KBIT = 125.0
BYTES_OF_MIB = float(2**20)
ENDLESS = 1e15
"""The capacity of what a broker's load doesn't use up."""
FULL_RATIO = 0.97
"""A busier broker may have been asked for more than it delivered: such reports don't tell what its
cpu can do."""
FEW_REPORTS = 3
SPEEDS = (0.2, 5.0)
"""How much slower or faster than the others a broker is taken to be at most."""
ASSUMED = {
    "cpu_msgs_per_s": 320e3,
    "cpu_bytes_per_s": 320e6,
    "bandwidth": 1.25e9,
    "memory": 8 * 2.0**30,
    "direct_memory": 8 * 2.0**30,
}
"""What a broker has that says nothing."""


@dataclass(frozen=True, slots=True)
class Capacities:
    """Columns of `ScenarioBrokers`, one row for each broker, and lines on where they are from."""

    columns: dict[str, Floats]
    notes: tuple[str, ...]


def capacities(reports: pa.Table, broker: Ints, count: int) -> Capacities:
    """`reports`: rows of `broker_history` in order of time, each report once; `broker`: the row of
    each one's broker, 0..count-1."""
    columns: dict[str, Floats] = {}
    columns["cpu_msgs_per_s"], columns["cpu_bytes_per_s"], notes = _cpu(reports, broker, count)
    for way in ("in", "out"):
        columns[f"bandwidth_{way}_bytes_per_s"], more = _bandwidth(reports, broker, count, way)
        notes += more
    for memory in ("memory", "direct_memory"):
        columns[f"{memory}_bytes"], columns[f"{memory}_base_bytes"], more = _memory(
            reports, broker, count, memory
        )
        notes += more
    return Capacities(columns, tuple(notes))


def _column(reports: pa.Table, name: str) -> Floats:
    values: Floats = reports[name].fill_null(0.0).to_numpy().astype(np.float64)
    return values


def _last_limit(
    reports: pa.Table, broker: Ints, count: int, resource: str, otherwise: float
) -> tuple[Floats, Bools]:
    """Each broker's last limit above 0, in the report's unit; and whether it has said one."""
    limit = _column(reports, f"{resource}_limit")
    last = np.zeros(count)
    last[broker[limit > 0]] = limit[limit > 0]  # of several the last one stays
    return np.where(last > 0, last, otherwise), last > 0


def _unknown(known: Bools, what: str, assumed: str) -> list[str]:
    return (
        [f"{int((~known).sum())} brokers report no {what}: assumed {assumed}"]
        if not known.all()
        else []
    )


def fitted(first: Floats, second: Floats, wanted: Floats) -> tuple[float, float]:
    """Least squares of a·first + b·second = wanted with neither below 0; 0, 0 where nothing is to
    be learned.

    Columns that go together share what they explain.
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


def _cpu(reports: pa.Table, broker: Ints, count: int) -> tuple[Floats, Floats, list[str]]:
    """How much cpu messages and bytes take, of all brokers together; then how fast each is beside
    the others."""
    used, limit = _column(reports, "cpu_usage"), _column(reports, "cpu_limit")
    rate = _column(reports, "rate_in_msgs_per_s") + _column(reports, "rate_out_msgs_per_s")
    throughput = _column(reports, "throughput_in_bytes_per_s") + _column(
        reports, "throughput_out_bytes_per_s"
    )
    tells = (limit > 0) & (used > 0) & (used < FULL_RATIO * limit) & (rate > 0)
    each, known = _last_limit(reports, broker, count, "cpu", 100.0)
    a, b = fitted(rate[tells], throughput[tells], used[tells])
    if a + b <= 0:
        note = (
            f"cpu: no report tells what it follows: assumed {ASSUMED['cpu_msgs_per_s']:g} "
            f"msg/s, {ASSUMED['cpu_bytes_per_s']:g} bytes/s"
        )
        return (
            np.full(count, ASSUMED["cpu_msgs_per_s"]),
            np.full(count, ASSUMED["cpu_bytes_per_s"]),
            [note],
        )
    predicted, of = a * rate[tells] + b * throughput[tells], broker[tells]
    squares, seen = np.bincount(of, predicted**2, count), np.bincount(of, minlength=count)
    slowness = np.divide(
        np.bincount(of, predicted * used[tells], count),
        squares,
        out=np.ones(count),
        where=squares > 0,
    )
    slowness = np.where(seen >= FEW_REPORTS, np.clip(slowness, *SPEEDS), 1.0)
    wrong = (predicted * slowness[of] - used[tells]) / limit[tells]
    explained = (
        f"{int(tells.sum())} reports to {100 * float(np.sqrt(np.mean(wrong**2))):.2g} % of "
        "a broker (root mean square)"
    )
    takes = " + ".join(
        [
            *([f"messages ÷ {1 / a:.4g}/s"] if a > 0 else []),
            *([f"bytes ÷ {1 / b:.4g}/s"] if b > 0 else []),
        ]
    )
    notes = [
        f"cpu: {takes} for a hundredth of a core explains {explained}",
        *_unknown(known, "cpu limit", "one core"),
    ]
    with np.errstate(divide="ignore"):
        msgs, size = (
            np.minimum(each / np.float64(coefficient) / slowness, ENDLESS) for coefficient in (a, b)
        )
    return msgs, size, notes


def _bandwidth(reports: pa.Table, broker: Ints, count: int, way: str) -> tuple[Floats, list[str]]:
    """What is left for the bundles: a network that also carries other traffic is taken to carry
    more of it as they do."""
    used = _column(reports, f"bandwidth_{way}_usage") * BYTES_OF_KBIT
    carried = _column(reports, f"throughput_{way}_bytes_per_s")
    each, known = _last_limit(
        reports, broker, count, f"bandwidth_{way}", ASSUMED["bandwidth"] / BYTES_OF_KBIT
    )
    tells = (used > 0) & (carried > 0)
    factor = fitted(carried[tells], np.zeros(int(tells.sum())), used[tells])[0] or 1.0
    notes = (
        [f"bandwidth {way}: brokers use {factor:.3g} times what their bundles carry"]
        if not 0.95 < factor < 1.05
        else []
    )
    return each * BYTES_OF_KBIT / factor, [
        *notes,
        *_unknown(known, f"limit of bandwidth {way}", f"{ASSUMED['bandwidth']:g} bytes/s"),
    ]


def _memory(
    reports: pa.Table, broker: Ints, count: int, memory: str
) -> tuple[Floats, Floats, list[str]]:
    """Limit and what is used in any case: of direct memory without a second of inbound traffic, of
    the heap all on average."""
    used = np.maximum(_column(reports, f"{memory}_usage") * BYTES_OF_MIB, 0.0)
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
    each, known = _last_limit(reports, broker, count, memory, ASSUMED[memory] / BYTES_OF_MIB)
    return (
        each * BYTES_OF_MIB,
        base,
        _unknown(known, f"limit of {memory.replace('_', ' ')}", f"{ASSUMED[memory]:g} bytes"),
    )


def each_once(reports: pa.Table) -> pa.Table:
    """Rows of `broker_history` in order of time, a report that several slots have found only
    once."""
    keys = pc.binary_join_element_wise(
        reports["broker"], reports["reported_ms"].cast(pa.string()), " "
    ).combine_chunks()
    first = np.unique(keys.dictionary_encode().indices.to_numpy(), return_index=True)[1]
    return reports.take(pa.array(np.sort(first)))
