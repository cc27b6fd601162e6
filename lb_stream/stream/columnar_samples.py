"""The samples of a task's columnar reports: columns that stay columns, and are joined once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.contracts.columnar import ColumnarReport
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.blocks import SAMPLE_SCHEMA
from lb_stream.stream.rosters import Roster

STATS_COLUMNS = {
    "latest_throughput_in_bytes_per_s": "msg_throughput_in",
    "latest_throughput_out_bytes_per_s": "msg_throughput_out",
    "latest_rate_in_msgs_per_s": "msg_rate_in",
    "latest_rate_out_msgs_per_s": "msg_rate_out",
    "topics": "topics",
    "producers": "producer_count",
    "consumers": "consumer_count",
    "cache_size_bytes": "cache_size",
}
"""Column of SAMPLE_SCHEMA → field of a bundle's statistics."""
HASH = "hash"
"""A column beside those of SAMPLE_SCHEMA: the hash of each name, as `name_hashes` gives it."""

_FIGURES = {
    column: str(BundleStats.model_fields[name].alias or name)
    for column, name in STATS_COLUMNS.items()
}
"""Column of SAMPLE_SCHEMA → column of a columnar report."""


class _Part(NamedTuple):
    """The samples of one report, in the order in which its JSON would have them.

    `report`: its row. `measured`: how many of them have statistics; they come first.
    """

    report: int
    names: pa.Array
    hashes: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    measured: int


@dataclass(slots=True)
class ColumnarSamples:
    """The samples of columnar reports, one report after another."""

    _parts: list[_Part] = field(default_factory=list)
    _shares: dict[int, bytes] = field(default_factory=dict)
    _rows: int = 0

    def __len__(self) -> int:
        return len(self._parts)

    def add(
        self,
        report: int,
        roster: Roster,
        columns: ColumnarReport,
        shares: Mapping[str, bytes],
    ) -> None:
        """Add the samples of a report; `shares`: packed shares of topics of some bundles."""
        part = _Part(report, roster.names, roster.hashes, columns.columns, len(roster))
        if columns.measured is not None and not columns.measured.all():
            part = _measured_first(part, columns.measured)
        for name, packed in shares.items():
            place = pc.index(part.names, pa.scalar(name)).as_py()
            self._shares[self._rows + place] = packed
        self._parts.append(part)
        self._rows += len(roster)

    def to_table(self) -> pa.Table:
        """Return the samples as rows of SAMPLE_SCHEMA, with the column HASH."""
        parts = self._parts
        sizes = [len(part.names) for part in parts]
        reports = np.array([part.report for part in parts], np.int32)
        has_stats = np.ones(self._rows, np.bool_)
        if any(part.measured < size for part, size in zip(parts, sizes, strict=True)):
            place = np.arange(self._rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            has_stats = place < np.repeat([part.measured for part in parts], sizes)
        arrays: dict[str, pa.Array | NDArray[Any]] = {
            "name": pa.concat_arrays([part.names for part in parts]),
            "report": np.repeat(reports, sizes),
            "has_stats": has_stats,
            "topic_shares": pa.nulls(self._rows, pa.binary()),
            HASH: np.concatenate([part.hashes for part in parts]),
        }
        if self._shares:
            shares = [self._shares.get(at) for at in range(self._rows)]
            arrays["topic_shares"] = pa.array(shares, pa.binary())
        for column, figure in _FIGURES.items():
            arrays[column] = np.concatenate([part.columns[figure] for part in parts])
        return pa.table(arrays, schema=SAMPLE_SCHEMA.append(pa.field(HASH, pa.int64())))


def _measured_first(part: _Part, measured: NDArray[np.bool_]) -> _Part:
    """Return the samples with the measured bundles first; the others have zeros as statistics."""
    order = np.argsort(~measured, kind="stable")
    count = int(measured.sum())
    columns: dict[str, NDArray[Any]] = {}
    for name, values in part.columns.items():
        columns[name] = values[order]
        columns[name][count:] = 0
    return _Part(part.report, part.names.take(pa.array(order)), part.hashes[order], columns, count)
