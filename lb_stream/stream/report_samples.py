"""The samples of a task's reports: each report's columns stay as they are, and are joined once."""

from __future__ import annotations

import struct
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, starmap
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple
from numpy.typing import NDArray

from lb_stream.contracts.columnar import ColumnarReport
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.blocks import SAMPLE_SCHEMA
from lb_stream.stream.records import STATS_FIELDS
from lb_stream.stream.report_names import ReportNames

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
"""A column beside those of SAMPLE_SCHEMA: the hash of each name, as `name_hashes` gives it.

It is -1 where a cluster has one shard.
"""

_FIGURES = {
    column: str(BundleStats.model_fields[name].alias or name)
    for column, name in STATS_COLUMNS.items()
}
"""Column of SAMPLE_SCHEMA → column of a columnar report."""
_PLACES = {column: STATS_FIELDS.index(name) for column, name in STATS_COLUMNS.items()}
"""Column of SAMPLE_SCHEMA → place among the statistics."""
_COUNTS = {place for name, place in _PLACES.items() if SAMPLE_SCHEMA.field(name).type == pa.int64()}
_ROW = struct.Struct(
    "=" + "".join("q" if place in _COUNTS else "d" for place in range(len(STATS_FIELDS)))
)
"""A bundle's statistics as bytes: each of them has eight."""


class _Part(NamedTuple):
    """The samples of one report, in the order in which its JSON has them.

    `report`: its row. `order`: rows of `names`; None: all, in their order. `figures`: rows of
    _ROW, or the columns of STATS_COLUMNS. `measured`: how many have statistics; they come first.
    `shares`: packed shares of topics, by the sample's place.
    """

    report: int
    names: ReportNames
    order: NDArray[np.int64] | None
    figures: bytes | Mapping[str, NDArray[Any]]
    measured: int
    shares: Mapping[int, bytes]

    def ordered_names(self) -> pa.Array:
        """Return the name of each sample."""
        names = self.names.names
        return names if self.order is None else names.take(pa.array(self.order))

    def hashes(self) -> NDArray[np.int64]:
        """Return the hash of each sample's name."""
        return self.names.hashes if self.order is None else self.names.hashes[self.order]


@dataclass(slots=True)
class ReportSamples:
    """The samples of reports of any form, one report after another."""

    _parts: list[_Part] = field(default_factory=list)

    def add(
        self,
        report: int,
        names: ReportNames,
        stats: Collection[msgspec.Struct],
        shares: Mapping[int, bytes],
    ) -> None:
        """Add the samples of a JSON report.

        `stats`: the statistics of the first names; the other bundles have none. `shares`: packed
        shares of topics, by the name's place.
        """
        packed = _pack(stats, len(names))
        self._parts.append(_Part(report, names, None, packed, len(stats), shares))

    def add_columns(
        self,
        report: int,
        names: ReportNames,
        columns: ColumnarReport,
        shares: Mapping[str, bytes],
    ) -> None:
        """Add the samples of a columnar report; `shares`: packed shares of topics, by name."""
        figures = {column: columns.columns[figure] for column, figure in _FIGURES.items()}
        measured, order = len(names), None
        if columns.measured is not None and not columns.measured.all():
            order = np.argsort(~columns.measured, kind="stable")
            measured = int(columns.measured.sum())
            figures = {column: values[order] for column, values in figures.items()}
            for values in figures.values():
                values[measured:] = 0
        part = _Part(report, names, order, figures, measured, {})
        if shares:
            of_samples = part.ordered_names()
            places = {pc.index(of_samples, pa.scalar(name)).as_py(): name for name in shares}
            part = part._replace(shares={place: shares[name] for place, name in places.items()})
        self._parts.append(part)

    def malformed(self) -> Iterable[tuple[int, str]]:
        """Yield the reports that name a malformed bundle, and the first such name of each."""
        for part in self._parts:
            if part.names.malformed is not None:
                yield part.report, str(part.names.names[part.names.malformed])

    def to_table(self, dropped: Container[int], hashed: Container[int]) -> pa.Table:
        """Return the samples as rows of SAMPLE_SCHEMA.

        `dropped`: reports without samples. `hashed`: reports whose names' hashes are needed; if
        there are such, the table has the column HASH.
        """
        parts = [part for part in self._parts if part.report not in dropped]
        if not parts:
            return SAMPLE_SCHEMA.empty_table()
        sizes = [len(part.names) for part in parts]
        begins, rows = np.cumsum(sizes) - sizes, sum(sizes)
        has_stats = np.ones(rows, np.bool_)
        if any(part.measured < size for part, size in zip(parts, sizes, strict=True)):
            place = np.arange(rows) - np.repeat(begins, sizes)
            has_stats = place < np.repeat([part.measured for part in parts], sizes)
        arrays: dict[str, pa.Array | NDArray[Any]] = {
            "name": pa.concat_arrays([part.ordered_names() for part in parts]),
            "report": np.repeat(np.array([part.report for part in parts], np.int32), sizes),
            "has_stats": has_stats,
            "topic_shares": pa.nulls(rows, pa.binary()),
        }
        shares = {
            begin + place: packed
            for begin, part in zip(begins.tolist(), parts, strict=True)
            for place, packed in part.shares.items()
        }
        if shares:
            arrays["topic_shares"] = pa.array([shares.get(at) for at in range(rows)], pa.binary())
        figures = list(_join_figures(part.figures for part in parts))
        for column in STATS_COLUMNS:
            arrays[column] = np.concatenate([columns[column] for columns in figures])
        schema = SAMPLE_SCHEMA
        if any(part.report in hashed for part in parts):
            schema = schema.append(pa.field(HASH, pa.int64()))
            arrays[HASH] = np.concatenate(
                [
                    part.hashes() if part.report in hashed else np.full(size, -1)
                    for part, size in zip(parts, sizes, strict=True)
                ]
            )
        return pa.table(arrays, schema=schema)


def _pack(stats: Collection[msgspec.Struct], rows: int) -> bytes:
    """Return statistics as rows of _ROW, with zeros up to `rows`.

    That takes half as long as an array of each column, and is exact for counts.
    """
    packed = b"".join(starmap(_ROW.pack, map(astuple, stats)))
    return packed.ljust(rows * _ROW.size, b"\0")


def _join_figures(
    parts: Iterable[bytes | Mapping[str, NDArray[Any]]],
) -> Iterator[Mapping[str, NDArray[Any]]]:
    """Yield the columns of STATS_COLUMNS, of all packed parts that follow one another at once."""
    for is_packed, some in groupby(parts, lambda part: isinstance(part, bytes)):
        if not is_packed:
            yield from cast("Iterator[Mapping[str, NDArray[Any]]]", some)
            continue
        words = np.frombuffer(b"".join(cast("Iterator[bytes]", some)), np.int64)
        as_counts = words.reshape(-1, len(STATS_FIELDS))
        as_amounts = as_counts.view(np.float64)  # the same bytes
        yield {
            column: (as_counts if place in _COUNTS else as_amounts)[:, place]
            for column, place in _PLACES.items()
        }
