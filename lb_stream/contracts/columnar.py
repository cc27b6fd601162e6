"""Columnar load reports: rosters, columns and deltas, each the bytes of an Arrow IPC stream.

A roster names a broker's bundles once. A columnar report refers to its roster by digest and has a
row of figures for each name, in the same order, as exact doubles. A delta refers to a columnar
report, its base, and has only the rows that differ from it; bundles may have come and gone since,
so it has a roster of its own. `schemas/README.md` says the same for other languages. This module
reads and writes all three; it needs pyarrow, and no Spark.

    roster = read_roster(roster_record.value)
    report = read_columns(columns_record.value)
    assert report.roster == digest_of(roster_record.value)
    rates = dict(zip(roster.to_pylist(), report.columns["msgRateIn"].tolist(), strict=True))
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from lb_stream.contracts.arrow_stream import ColumnarError, read_stream, write_stream
from lb_stream.contracts.base import MAX_AMOUNT, canonical_json
from lb_stream.contracts.reports import BundleStats

ROSTER = "roster"
"""Header `kind` of a roster."""
COLUMNS = "columns"
"""Header `kind` of a columnar report."""
DELTA = "delta"
"""Header `kind` of a delta."""
COLUMNAR_KINDS = (ROSTER, COLUMNS, DELTA)
CONTENT_TYPE = "application/vnd.apache.arrow.stream"

ROSTER_SCHEMA = pa.schema([pa.field("name", pa.string(), nullable=False)])
_INTEGERS = ("consumerCount", "producerCount", "topics", "cacheSize")
FIGURES: tuple[str, ...] = tuple(
    field.alias or name for name, field in BundleStats.model_fields.items()
)
"""A bundle's statistics, with the names that they have in JSON reports."""
MEASURED = "measured"
"""The optional column that says which bundles have been measured; without it all have."""
COLUMNS_SCHEMA = pa.schema(
    [
        pa.field(name, pa.int64() if name in _INTEGERS else pa.float64(), nullable=False)
        for name in FIGURES
    ]
)
_MEASURED_FIELD = pa.field(MEASURED, pa.bool_(), nullable=False)
ROW = "row"
"""The column of a delta that says which rows of its roster it has."""
DELTA_SCHEMA = pa.schema([pa.field(ROW, pa.int32(), nullable=False), *COLUMNS_SCHEMA])

_REPORT, _ROSTER, _IS_BASE, _BASE = b"report", b"roster", b"is_base", b"base"
"""Keys of the schema metadata of columnar reports and deltas."""
_TRUE = b"true"
_PLACES = {name: place for place, name in enumerate(FIGURES)}
_IS_COUNT = np.array([pa.types.is_integer(field.type) for field in COLUMNS_SCHEMA])
_TYPES = [np.dtype(np.int64 if is_count else np.float64) for is_count in _IS_COUNT]
_MOST_BITS = np.where(_IS_COUNT, np.uint64(2**63 - 1), np.float64(MAX_AMOUNT).view(np.uint64))
"""The highest number of each figure, as bits."""

FindNames = Callable[[str], pa.Array]
"""Returns the names of the roster with a digest."""
_Rows = NDArray[np.int64] | slice


@dataclass(frozen=True, slots=True, eq=False)
class Figures(Mapping[str, NDArray[Any]]):
    """The statistics of FIGURES, a column of each, with a value for each row of a report.

    `bits`: of their numbers, of shape (figures, rows). So a step of all columns is one step.
    """

    bits: NDArray[np.uint64]

    @staticmethod
    def of(columns: Mapping[str, NDArray[Any]]) -> Figures:
        """Return columns that are of the right types."""
        bits = np.empty((len(FIGURES), len(columns[FIGURES[0]])), np.uint64)
        for place, name in enumerate(FIGURES):
            bits[place] = columns[name].view(np.uint64)
        return Figures(bits)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.bits.shape[1])

    def __getitem__(self, name: str) -> NDArray[Any]:
        place = _PLACES[name]
        column: NDArray[Any] = self.bits[place].view(_TYPES[place])
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(FIGURES)

    def __len__(self) -> int:
        return len(FIGURES)


@dataclass(frozen=True, slots=True)
class ColumnarReport:
    """A columnar report as it was read.

    `fields`: JSON of the broker's own fields, which are those of a modular report without its
    bundles. `roster`: digest of the roster that names the rows. `measured`: which rows have
    statistics; None: all. `is_base`: deltas of it may follow.
    """

    fields: bytes
    roster: str
    columns: Figures
    measured: NDArray[np.bool_] | None
    is_base: bool = False

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.columns.rows


class SharedRows(NamedTuple):
    """The bundles that a report has in common with a base.

    `rows`: how many the report has. `own`: those of them that the base has, and `base`: where.
    `names`: those of the report; None: its roster is the base's.
    """

    rows: int
    own: _Rows
    base: _Rows
    names: pa.Array | None = None

    @staticmethod
    def of_same_roster(rows: int) -> SharedRows:
        """Return those of two reports of one roster."""
        return SharedRows(rows, slice(None), slice(None))

    @staticmethod
    def find(base_names: pa.Array, names: pa.Array) -> SharedRows:
        """Return those of two rosters."""
        found = pc.index_in(names, value_set=base_names)
        places: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
        own = np.flatnonzero(places >= 0)
        return SharedRows(len(names), own, places[own], names)

    @staticmethod
    def of(base: ColumnarReport, roster: str, find_names: FindNames) -> SharedRows:
        """Return those of a base and a report with this roster. Raises ColumnarError.

        `find_names`: is asked where the base has another roster; what it raises is passed on.
        """
        if roster == base.roster:
            return SharedRows.of_same_roster(base.rows)
        base_names, names = find_names(base.roster), find_names(roster)
        if len(base_names) != base.rows:
            raise ColumnarError("base", f"{base.rows} rows", f"{len(base_names)} rows")
        return SharedRows.find(base_names, names)

    def require_all(self, rows: NDArray[np.int32]) -> None:
        """Raise ColumnarError unless the base has all rows but these, which are in a delta."""
        if len(rows) and rows[-1] >= self.rows:
            expected = f"row numbers below {self.rows}, the number of names"
            raise ColumnarError(ROW, str(rows[-1]), expected)
        if self.names is None:
            return
        is_there = np.zeros(self.rows, np.bool_)
        is_there[self.own] = True
        is_there[rows] = True
        if not is_there.all():
            expected = f"{self.names[int(np.argmin(is_there))]}, which its base lacks, too"
            raise ColumnarError(ROW, f"{len(rows)} rows", expected)

    def replace(
        self, values: NDArray[Any], rows: NDArray[np.int32], replaced: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the report's values: those of some rows, and else the base's. Rows are last."""
        if self.names is None:
            whole = values.copy()
        else:
            whole = np.empty((*values.shape[:-1], self.rows), values.dtype)
            whole[..., self.own] = values[..., self.base]
        whole[..., rows] = replaced
        return whole


@dataclass(frozen=True, slots=True)
class ColumnarDelta:
    """A delta as it was read: the rows in which a report differs from its base.

    `rows`: their numbers, ascending. `base`: the digest of the columnar report that has the other
    rows, maybe in a different roster. Other fields are as in ColumnarReport, of these rows.
    """

    fields: bytes
    roster: str
    base: str
    rows: NDArray[np.int32]
    columns: Figures
    measured: NDArray[np.bool_] | None

    def compose(self, base: ColumnarReport, shared: SharedRows) -> ColumnarReport:
        """Return the whole report. Raises ColumnarError if the delta can't be of this base.

        `shared`: of the base, with this delta's roster.
        """
        shared.require_all(self.rows)
        bits = shared.replace(base.columns.bits, self.rows, self.columns.bits)
        measured = None
        if base.measured is not None or self.measured is not None:
            own = _flags(self.measured, len(self.rows))
            measured = shared.replace(_flags(base.measured, base.rows), self.rows, own)
        return ColumnarReport(self.fields, self.roster, Figures(bits), measured)


def find_changes(
    base: ColumnarReport, shared: SharedRows, columns: Figures, measured: Any
) -> NDArray[np.int32]:
    """Return the rows in which a report differs from a base, to the bit, or which that one lacks.

    `measured`: which rows of the report have statistics; None: all.
    """
    changed = np.ones(shared.rows, np.bool_)
    flags = _flags(measured, shared.rows)
    differs = _flags(base.measured, base.rows)[shared.base] != flags[shared.own]
    bits = base.columns.bits[:, shared.base] != columns.bits[:, shared.own]
    changed[shared.own] = differs | bits.any(axis=0)
    return np.flatnonzero(changed).astype(np.int32)


def _flags(measured: NDArray[np.bool_] | None, rows: int) -> NDArray[np.bool_]:
    """Return for each row whether it has statistics."""
    return np.ones(rows, np.bool_) if measured is None else measured


def digest_of(value: bytes) -> str:
    """Return a record's digest: the first 16 bytes of the SHA-256 of its value, in hex."""
    return sha256(value).hexdigest()[:32]


def write_roster(names: Iterable[str]) -> bytes:
    """Return the value of a roster that names these bundles."""
    ordered = sorted(set(names), key=str.encode)
    return write_stream(pa.record_batch([pa.array(ordered, pa.string())], schema=ROSTER_SCHEMA))


def to_columns(values: Mapping[str, ArrayLike]) -> Figures:
    """Return the values of FIGURES as columns of a report.

    Raises ValueError or TypeError for what is no exact number.
    """
    arrays = {field.name: _to_array(field, values[field.name]) for field in COLUMNS_SCHEMA}
    return Figures.of({name: array.to_numpy() for name, array in arrays.items()})


def write_columns(
    fields: Mapping[str, object],
    roster: str,
    columns: Mapping[str, ArrayLike],
    measured: ArrayLike | None = None,
    is_base: bool = False,
) -> bytes:
    """Return the value of a columnar report.

    `fields`: the broker's own. `roster`: the digest of the roster with the rows' names. `columns`:
    of FIGURES. `measured`: which rows have statistics; None: all. `is_base`: deltas of it may
    follow. Raises ValueError or TypeError for what is no exact number.
    """
    metadata = _metadata(fields, roster) | ({_IS_BASE: _TRUE} if is_base else {})
    return _write(COLUMNS_SCHEMA, columns, measured, metadata)


def write_delta(
    fields: Mapping[str, object],
    roster: str,
    base: str,
    rows: ArrayLike,
    columns: Mapping[str, ArrayLike],
    measured: ArrayLike | None = None,
) -> bytes:
    """Return the value of a delta.

    `base`: the digest of its base. `rows`: the numbers of the rows that differ or that the base
    lacks, ascending. `columns` and `measured`: of these rows. Other arguments and errors as in
    `write_columns`.
    """
    metadata = _metadata(fields, roster) | {_BASE: base.encode()}
    return _write(DELTA_SCHEMA, {ROW: rows, **columns}, measured, metadata)


def _metadata(fields: Mapping[str, object], roster: str) -> dict[bytes, bytes]:
    return {_REPORT: canonical_json(fields).encode(), _ROSTER: roster.encode()}


def _write(
    schema: pa.Schema,
    columns: Mapping[str, ArrayLike],
    measured: ArrayLike | None,
    metadata: Mapping[bytes, bytes],
) -> bytes:
    """Return a stream with these columns, and `measured` if it is given."""
    arrays = [_to_array(field, columns[field.name]) for field in schema]
    if measured is not None:
        arrays.append(pa.array(measured, pa.bool_()))
        schema = schema.append(_MEASURED_FIELD)
    return write_stream(pa.record_batch(arrays, schema=schema.with_metadata(metadata)))


def _to_array(field: pa.Field, values: ArrayLike) -> pa.Array:
    """Return a column of a report. Raises ValueError: Arrow would cut fractions of counts off."""
    array = pa.array(values)
    is_exact = pa.types.is_integer(array.type) or (
        pa.types.is_floating(field.type) and pa.types.is_floating(array.type)
    )
    if len(array) and not is_exact:
        raise ValueError(f"{field.name} has values of type {array.type}, expected {field.type}")
    return array.cast(field.type)


def read_roster(value: bytes) -> pa.Array:
    """Return the names of a roster. Raises ColumnarError."""
    _, batch = read_stream(value, ROSTER_SCHEMA)
    names = batch.column(0)
    if len(names) > 1:
        ascending = pc.greater(names.slice(1), names.slice(0, len(names) - 1))
        if not pc.all(ascending).as_py():
            at = pc.index(ascending, pa.scalar(False)).as_py() + 1
            raise ColumnarError(
                "name", str(names[at]), f"names in ascending order: it follows {names[at - 1]}"
            )
    return names


def read_columns(value: bytes) -> ColumnarReport:
    """Return a columnar report. Raises ColumnarError.

    Its figures obey the limits of those in JSON: finite, not negative, at most 1e18 or 2^63-1.
    """
    metadata, batch = read_stream(value, COLUMNS_SCHEMA, _MEASURED_FIELD)
    fields = _require_metadata(metadata, _REPORT)
    roster = _require_digest(metadata, _ROSTER)
    columns = _read_figures(batch, None)
    is_base = metadata.get(_IS_BASE) == _TRUE
    return ColumnarReport(fields, roster, columns, _read_measured(batch), is_base)


def read_delta(value: bytes) -> ColumnarDelta:
    """Return a delta. Raises ColumnarError.

    Its figures obey the same limits. Whether the row numbers are those of its base, `compose` says.
    """
    metadata, batch = read_stream(value, DELTA_SCHEMA, _MEASURED_FIELD)
    fields = _require_metadata(metadata, _REPORT)
    roster, base = (_require_digest(metadata, key) for key in (_ROSTER, _BASE))
    rows = batch.column(ROW).to_numpy(zero_copy_only=True)
    _require_row_numbers(rows)
    columns = _read_figures(batch, rows)
    return ColumnarDelta(fields, roster, base, rows, columns, _read_measured(batch))


def _require_metadata(metadata: Mapping[bytes, bytes], key: bytes) -> bytes:
    """Return a value of a schema's metadata. Raises ColumnarError if it is missing."""
    if key not in metadata:
        expected = "metadata of the schema with this key"
        raise ColumnarError(f"metadata {key.decode()}", "", expected)
    return metadata[key]


def _require_digest(metadata: Mapping[bytes, bytes], key: bytes) -> str:
    """Return a digest of a schema's metadata. Raises ColumnarError if it is none."""
    digest = _require_metadata(metadata, key).decode(errors="replace")
    if not re.fullmatch("[0-9a-f]{32}", digest):
        name = key.decode()
        raise ColumnarError(name, digest, f"a {name}'s digest: 32 hex digits")
    return digest


def _require_row_numbers(rows: NDArray[np.int32]) -> None:
    """Raise ColumnarError unless row numbers ascend from 0 or more."""
    if not len(rows):
        return
    wrong = np.flatnonzero(rows[1:] <= rows[:-1])
    if len(wrong):
        at = int(wrong[0])
        expected = f"row numbers in ascending order, each once: it follows {rows[at]}"
        raise ColumnarError(ROW, str(rows[at + 1]), expected)
    if rows[0] < 0:
        raise ColumnarError(ROW, str(rows[0]), "row numbers from 0")


def _read_figures(batch: pa.RecordBatch, rows: NDArray[np.int32] | None) -> Figures:
    """Return the statistics of FIGURES. `rows`: the numbers that errors name; None: 0, 1, …"""
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = Figures.of({name: arrays[name].to_numpy() for name in FIGURES})
    # As numbers without a sign, bits are in the order of the values that are allowed; those of
    # negative ones and NaN are higher. So one pass tells, except that -0.0 is allowed, too.
    if columns.rows and (columns.bits.max(axis=1) > _MOST_BITS).any():
        for name, column in columns.items():
            _require_amounts(name, column, rows)
    return columns


def _read_measured(batch: pa.RecordBatch) -> NDArray[np.bool_] | None:
    if MEASURED not in batch.schema.names:
        return None
    measured: NDArray[np.bool_] = batch.column(MEASURED).to_numpy(zero_copy_only=False)
    return measured


class ReportReader:
    """Turns the columnar reports of a topic into JSON reports, for programs that read those."""

    def __init__(self) -> None:
        # (key, digest) → names.
        self._rosters: dict[tuple[bytes, str], pa.Array] = {}
        # Key → digest and content of the last base.
        self._bases: dict[bytes, tuple[str, ColumnarReport]] = {}

    def take(self, key: bytes, kind: str, value: bytes) -> bytes | None:
        """Return the JSON of a columnar report or delta.

        None of a roster, or if its roster or base is not known. `kind`: of COLUMNAR_KINDS. Raises
        ColumnarError.
        """
        if kind == ROSTER:
            self._rosters[key, digest_of(value)] = read_roster(value)
            return None
        try:
            report = self._read(key, kind, value)
            names = self._rosters[key, report.roster]
        except KeyError:
            return None
        return canonical_json(to_json_report(names.to_pylist(), report)).encode()

    def _read(self, key: bytes, kind: str, value: bytes) -> ColumnarReport:
        """Return a whole report. Raises ColumnarError; KeyError: its base isn't known."""
        if kind == DELTA:
            delta = read_delta(value)
            digest, base = self._bases[key]
            if digest != delta.base:
                raise KeyError(delta.base)
            find_names = partial(self._find_names, key)
            return delta.compose(base, SharedRows.of(base, delta.roster, find_names))
        report = read_columns(value)
        if report.is_base:
            self._bases[key] = digest_of(value), report
        return report

    def _find_names(self, key: bytes, roster: str) -> pa.Array:
        """Return a roster's names. Raises KeyError."""
        return self._rosters[key, roster]


def to_json_report(names: Sequence[str], report: ColumnarReport) -> dict[str, Any]:
    """Return the modular report that a columnar one stands for. Raises ColumnarError.

    `names`: those of its roster.
    """
    if len(names) != report.rows:
        raise ColumnarError("columns", f"{report.rows} rows", f"{len(names)} rows")
    try:
        own = json.loads(report.fields)
    except (ValueError, RecursionError) as error:
        raise ColumnarError("metadata report", repr(report.fields), f"JSON ({error})") from None
    if not isinstance(own, dict):
        raise ColumnarError("metadata report", repr(report.fields), "a JSON object")
    rows = zip(*(column.tolist() for column in report.columns.values()), strict=True)
    stats = {
        name: dict(zip(report.columns, row, strict=True))
        for at, (name, row) in enumerate(zip(names, rows, strict=True))
        if report.measured is None or report.measured[at]
    }
    return own | {"lastStats": stats, "bundles": list(names)}


def _require_amounts(name: str, column: NDArray[Any], rows: NDArray[np.int32] | None) -> None:
    """Raise ColumnarError unless all values are rates or counts as in JSON."""
    is_count = column.dtype.kind == "i"
    if column.min() >= 0 and (is_count or column.max() <= MAX_AMOUNT):  # false for NaN
        return
    at = int(np.argmin((column >= 0) & (column <= (2**63 - 1 if is_count else MAX_AMOUNT))))
    most = "2^63 - 1" if is_count else f"{MAX_AMOUNT:.0e}"
    row = at if rows is None else rows[at]
    raise ColumnarError(f"{name} of row {row}", str(column[at]), f"a number from 0 to {most}")
