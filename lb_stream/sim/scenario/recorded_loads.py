"""Builds loads over time from rows of `bundle_history`, and finds each bundle's first owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.names import are_system_bundles, parse_bundle
from lb_stream.sim.scenario.scenario import Floats, Ints

COLUMNS = (
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
)
"""Columns of `bundle_history`, in the order of `scenario.LOADS`."""
COUNTS = ("topics", "producers", "consumers")


@dataclass(frozen=True, slots=True)
class RecordedLoads:
    """Bundles, sorted by name, and what they carried."""

    names: tuple[str, ...]
    loads: NDArray[np.float32]  # LOADS × bundles × steps
    owner: Ints  # row of each bundle's first broker, -1: none
    counts: dict[str, Ints]  # topics, producers, consumers: means over time
    notes: tuple[str, ...] = ()


def build_recorded_loads(
    rows: pa.Table, brokers: Sequence[str], from_ms: int, step_ms: int, steps: int
) -> RecordedLoads:
    """Build the loads of `steps` steps from rows of `bundle_history`, which are ordered by time.

    In each step a bundle has the loads of its last row until then; before its first row it has
    none. System bundles are left out.
    """
    rows = rows.filter(pc.less(rows["slot_ms"], from_ms + steps * step_ms))
    rows = rows.filter(pa.array(~are_system_bundles(rows["bundle"])))
    encoded = rows["bundle"].combine_chunks().dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    place = np.empty(len(order), np.int64)
    place[order.to_numpy()] = np.arange(len(order))
    bundle = place[encoded.indices.to_numpy()]
    step = np.maximum((rows["slot_ms"].to_numpy() - from_ms) // step_ms, 0)
    step[step <= step.min(initial=0)] = 0
    row = np.full((len(order), steps), -1, np.int64)
    row[bundle, step] = np.arange(len(rows))  # of several rows in one step the last stays
    np.maximum.accumulate(row, axis=1, out=row)  # a later row has a higher number
    owners = (
        pc.index_in(rows["owner"], value_set=pa.array(brokers, pa.string()))
        .fill_null(-1)
        .to_numpy()
        .astype(np.int64)
    )
    loads = np.stack(
        [np.append(rows[name].to_numpy(), 0).astype(np.float32)[row] for name in COLUMNS]
    )
    found = RecordedLoads(
        tuple(encoded.dictionary.take(order).to_pylist()),
        loads,
        _first_owner(row[:, 0], bundle, owners),
        _counts(rows, row),
    )
    return _without_parents(found, np.append(owners, -1)[row] >= 0)


def _first_owner(row: Ints, bundle: Ints, owners: Ints) -> Ints:
    """Find each bundle's owner at the beginning, or else the first one that it has later.

    `row`: the row that counts at the beginning, -1: none.
    """
    first = np.append(owners, -1)[row]
    later = np.flatnonzero((owners >= 0) & (np.arange(len(owners)) > row[bundle]))[::-1]
    after = np.full(len(row), -1, np.int64)
    after[bundle[later]] = owners[later]  # of several rows the earliest stays
    return np.where(first >= 0, first, after)


def _counts(rows: pa.Table, row: Ints) -> dict[str, Ints]:
    known = np.maximum((row >= 0).sum(axis=1), 1)
    return {
        name: np.rint(
            np.append(rows[name].fill_null(0).to_numpy(), 0)[row].sum(axis=1) / known
        ).astype(np.int64)
        for name in COUNTS
    }


def _without_parents(found: RecordedLoads, owned: NDArray[np.bool_]) -> RecordedLoads:
    """Replace bundles that were split by their last children.

    A child carries its share of the parent's load, by hash range, while the parent had an owner.
    """
    parts = _parts([parse_bundle(name) for name in found.names])
    if not parts:
        return found
    loads, owner = found.loads.copy(), found.owner.copy()
    for parent, (leaves, shares) in sorted(parts.items()):
        loads[:, leaves] += (found.loads[:, parent] * owned[parent])[:, None, :] * shares[
            :, None
        ].astype(np.float32)
        owner[leaves] = np.where(found.owner[parent] >= 0, found.owner[parent], owner[leaves])
    kept = np.array([row not in parts for row in range(len(found.names))])
    return replace(
        found,
        names=tuple(name for name, keep in zip(found.names, kept.tolist(), strict=True) if keep),
        loads=loads[:, kept],
        owner=owner[kept],
        counts={name: values[kept] for name, values in found.counts.items()},
        notes=(
            f"{len(parts)} bundles were split: their parts carry their load from the beginning, by "
            "their shares of the hash range",
        ),
    )


def _parts(ranges: Sequence[tuple[str, int, int]]) -> dict[int, tuple[Ints, Floats]]:
    """Return row of a split bundle → the rows of its last children, and their shares of it."""
    inside: dict[int, list[int]] = {}
    above: list[int] = []  # the bundles that contain this one
    for row in sorted(
        range(len(ranges)), key=lambda row: (ranges[row][0], ranges[row][1], -ranges[row][2])
    ):
        namespace, lower, _ = ranges[row]
        while above and (ranges[above[-1]][0] != namespace or ranges[above[-1]][2] <= lower):
            above.pop()
        for parent in above:
            inside.setdefault(parent, []).append(row)
        above.append(row)
    found = {}
    for parent, rows in inside.items():
        leaves = [row for row in rows if row not in inside]
        widths = np.array([ranges[row][2] - ranges[row][1] for row in leaves], np.float64)
        found[parent] = (np.array(leaves, np.int64), widths / widths.sum())
    return found
