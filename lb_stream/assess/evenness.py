"""How even each resource is over a cluster's brokers, now and over the recorded span."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lb_stream.core.least_moves.capacities import BYTES_PER_KBIT, MIB, RESOURCES
from lb_stream.core.model.view import Bools, Floats

FEWEST = 2
"""A usage is compared where this many brokers have a limit of it that can be believed."""
_SCALES = {"bandwidth_in": BYTES_PER_KBIT, "bandwidth_out": BYTES_PER_KBIT, "direct_memory": MIB}
_LOADS = {
    "messages": ("rate_in_msgs_per_s", "rate_out_msgs_per_s"),
    "traffic": ("throughput_in_bytes_per_s", "throughput_out_bytes_per_s"),
}
"""Load that bundles cause, which is known whatever the limits are → its columns."""
_LOAD_UNITS = {"messages": "msg/s", "traffic": "bytes/s"}


@dataclass(frozen=True, slots=True)
class Evenness:
    """The evenness of one resource. Figures are in `unit`; `ratio` as unit: part of the limit.

    `max_over_mean` is 1 where all brokers are equal. None: nothing is used.
    """

    resource: str
    unit: str
    brokers: int  # that count
    mean: float
    max: float
    broker: str  # with the max
    max_over_mean: float | None
    median_over_span: float | None  # of max_over_mean
    worst_over_span: float | None
    worst_ms: int | None  # begin of that slot
    over_time: tuple[float | None, ...]  # max_over_mean of each slot


def measure_evenness(
    rows: pa.Table, brokers: Sequence[str], alive: Bools, believed: Bools
) -> tuple[tuple[Evenness, ...], tuple[int, ...]]:
    """Return the evenness of each resource, and the begin of each slot, ms.

    `rows`: of broker_history. `alive`: of `brokers`; others count only while they reported.
    `believed`: (brokers, RESOURCES), the limits that count.
    """
    slots, slot = np.unique(rows["slot_ms"].to_numpy(), return_inverse=True)
    place = {name: at for at, name in enumerate(brokers)}
    broker = np.array([place[name] for name in rows["broker"].to_pylist()], np.int64)

    def grid(*columns: str) -> Floats:
        """Return the sum of columns: slots × brokers; NaN where a broker has not reported."""
        found: Floats = np.full((len(slots), len(brokers)), np.nan)
        found[slot, broker] = sum(rows[name].fill_null(0.0).to_numpy() for name in columns)
        return found

    found = [
        _measure(name, unit, values, brokers, slots.tolist())
        for name, unit, values in _list_values(grid, believed)
        if np.count_nonzero(~np.isnan(values[-1])) >= FEWEST
    ]
    return tuple(found), tuple(slots.tolist())


def _list_values(grid: Callable[..., Floats], believed: Bools) -> Iterator[tuple[str, str, Floats]]:
    """Yield resource, unit and values: usage where limits are believed, else what is used."""
    for column, name in enumerate(RESOURCES):
        used, limit, known = grid(f"{name}_usage"), grid(f"{name}_limit"), believed[:, column]
        if np.count_nonzero(known) >= FEWEST:
            usage = np.divide(used, limit, out=np.full(used.shape, np.nan), where=limit > 0)
            yield name, "ratio", np.where(known, usage, np.nan)
        elif name in _SCALES and np.nanmax(used, initial=0.0) > 0:
            yield name, "bytes" if name == "direct_memory" else "bytes/s", used * _SCALES[name]
    for name, columns in _LOADS.items():
        yield name, _LOAD_UNITS[name], grid(*columns)


def _measure(
    name: str, unit: str, values: Floats, brokers: Sequence[str], slots: Sequence[int]
) -> Evenness:
    number = np.count_nonzero(~np.isnan(values), axis=1)
    mean = np.nansum(values, axis=1) / np.maximum(number, 1)
    highest = np.nanmax(np.where(np.isnan(values), -np.inf, values), axis=1)
    ratios = np.divide(highest, mean, out=np.full(len(mean), np.nan), where=mean > 0)
    known = ratios[~np.isnan(ratios)]
    worst = int(np.nanargmax(ratios)) if len(known) else None
    return Evenness(
        resource=name,
        unit=unit,
        brokers=int(number[-1]),
        mean=float(mean[-1]),
        max=float(highest[-1]),
        broker=brokers[int(np.nanargmax(values[-1]))],
        max_over_mean=None if np.isnan(ratios[-1]) else float(ratios[-1]),
        median_over_span=float(np.median(known)) if len(known) else None,
        worst_over_span=None if worst is None else float(ratios[worst]),
        worst_ms=None if worst is None else slots[worst],
        over_time=tuple(None if np.isnan(ratio) else round(ratio, 4) for ratio in ratios.tolist()),
    )


def usage_over_time(
    rows: pa.Table, chosen: Mapping[str, int], believed: Bools, slots: Sequence[int]
) -> dict[str, list[float | None]]:
    """Return broker → the highest believed usage in each slot; None: it had not reported.

    `chosen`: broker → its row of `believed`.
    """
    at = {slot_ms: number for number, slot_ms in enumerate(slots)}
    found: dict[str, list[float | None]] = {name: [None] * len(slots) for name in chosen}
    columns = [part for name in RESOURCES for part in (f"{name}_usage", f"{name}_limit")]
    for row in rows.select(["slot_ms", "broker", *columns]).to_pylist():
        if row["broker"] not in chosen:
            continue
        usages = [
            row[f"{name}_usage"] / row[f"{name}_limit"]
            for name, counts in zip(RESOURCES, believed[chosen[row["broker"]]], strict=True)
            if counts and row[f"{name}_limit"] > 0
        ]
        found[row["broker"]][at[row["slot_ms"]]] = max(usages, default=None)
    return found
