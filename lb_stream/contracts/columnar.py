"""Columnar load reports: rosters and columns, each the bytes of an Arrow IPC stream.

A roster names a broker's bundles once. A columnar report refers to its roster by digest and has a
row of figures for each name, in the same order, as exact doubles. `schemas/README.md` says the same
for other languages. This module reads and writes both; it needs pyarrow, and no Spark.

    roster = read_roster(roster_record.value)
    report = read_columns(columns_record.value)
    assert report.roster == digest_of(roster_record.value)
    rates = dict(zip(roster.to_pylist(), report.columns["msgRateIn"].tolist(), strict=True))
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from lb_stream.contracts.base import MAX_AMOUNT, canonical_json
from lb_stream.contracts.reports import BundleStats

ROSTER = "roster"
"""Header `kind` of a roster."""
COLUMNS = "columns"
"""Header `kind` of a columnar report."""
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

_REPORT, _ROSTER = b"report", b"roster"
"""Keys of a columnar report's schema metadata."""
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_MAX_BITS = np.float64(MAX_AMOUNT).view(np.uint64)
_MAX_COUNT_BITS = np.uint64(2**63 - 1)
_SHOWN = 100
"""Characters of a wrong value that an error has."""


class ColumnarError(ValueError):
    """Bytes that are no roster or columnar report: the field, its value, and what was expected."""

    def __init__(self, field: str, value: str, expected: str) -> None:
        super().__init__(f"{field} = {value[:_SHOWN]}: expected {expected}")
        self.field, self.value, self.expected = field, value[:_SHOWN], expected


@dataclass(frozen=True, slots=True)
class ColumnarReport:
    """A columnar report as it was read.

    `fields`: JSON of the broker's own fields, which are those of a modular report without its
    bundles. `roster`: digest of the roster that names the rows. `columns`: the statistics of
    FIGURES. `measured`: which rows have statistics; None: all.
    """

    fields: bytes
    roster: str
    columns: Mapping[str, NDArray[Any]]
    measured: NDArray[np.bool_] | None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.columns[FIGURES[0]])


def digest_of(value: bytes) -> str:
    """Return a record's digest: the first 16 bytes of the SHA-256 of its value, in hex."""
    return sha256(value).hexdigest()[:32]


def write_roster(names: Iterable[str]) -> bytes:
    """Return the value of a roster that names these bundles."""
    ordered = sorted(set(names), key=str.encode)
    return _write(pa.record_batch([pa.array(ordered, pa.string())], schema=ROSTER_SCHEMA))


def write_columns(
    fields: Mapping[str, object],
    roster: str,
    columns: Mapping[str, ArrayLike],
    measured: ArrayLike | None = None,
) -> bytes:
    """Return the value of a columnar report.

    `fields`: the broker's own. `roster`: the digest of the roster with the rows' names. `columns`:
    of FIGURES. `measured`: which rows have statistics; None: all. Raises ValueError or TypeError for
    what is no exact number.
    """
    arrays = [_to_array(field, columns[field.name]) for field in COLUMNS_SCHEMA]
    schema = COLUMNS_SCHEMA
    if measured is not None:
        arrays.append(pa.array(measured, pa.bool_()))
        schema = schema.append(_MEASURED_FIELD)
    metadata = {_REPORT: canonical_json(fields).encode(), _ROSTER: roster.encode()}
    return _write(pa.record_batch(arrays, schema=schema.with_metadata(metadata)))


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
    _, batch = _read(value, ROSTER_SCHEMA)
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
    metadata, batch = _read(value, COLUMNS_SCHEMA, _MEASURED_FIELD)
    for key in (_REPORT, _ROSTER):
        if key not in metadata:
            raise ColumnarError(
                f"metadata {key.decode()}", "", "metadata of the schema with this key"
            )
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns: dict[str, NDArray[Any]] = {}
    for name in FIGURES:
        columns[name] = arrays[name].to_numpy(zero_copy_only=True)
        _require_amounts(name, columns[name])
    measured = None
    if MEASURED in arrays:
        measured = arrays[MEASURED].to_numpy(zero_copy_only=False)
    roster = metadata[_ROSTER].decode(errors="replace")
    if not re.fullmatch("[0-9a-f]{32}", roster):
        raise ColumnarError("roster", roster, "a roster's digest: 32 hex digits")
    return ColumnarReport(metadata[_REPORT], roster, columns, measured)


class ReportReader:
    """Turns the columnar reports of a topic into JSON reports, for programs that read those."""

    def __init__(self) -> None:
        # (key, digest) → names.
        self._rosters: dict[tuple[bytes, str], list[str]] = {}

    def take(self, key: bytes, kind: str, value: bytes) -> bytes | None:
        """Return the JSON of a columnar report; None of a roster, or if its roster is not known.

        `kind`: ROSTER or COLUMNS. Raises ColumnarError.
        """
        if kind == ROSTER:
            self._rosters[key, digest_of(value)] = read_roster(value).to_pylist()
            return None
        report = read_columns(value)
        names = self._rosters.get((key, report.roster))
        if names is None:
            return None
        return canonical_json(to_json_report(names, report)).encode()


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


def _require_amounts(name: str, column: NDArray[Any]) -> None:
    """Raise ColumnarError unless all values are rates or counts as in JSON."""
    if not len(column):
        return
    is_count = column.dtype.kind == "i"
    # As numbers without a sign, bits are in the order of the values that are allowed; those of
    # negative ones and NaN are higher. So one pass tells, except that -0.0 is allowed, too.
    if np.maximum.reduce(column.view(np.uint64)) <= (_MAX_COUNT_BITS if is_count else _MAX_BITS):
        return
    if column.min() >= 0 and (is_count or column.max() <= MAX_AMOUNT):  # false for NaN
        return
    at = int(np.argmin((column >= 0) & (column <= (2**63 - 1 if is_count else MAX_AMOUNT))))
    most = "2^63 - 1" if is_count else f"{MAX_AMOUNT:.0e}"
    raise ColumnarError(f"{name} of row {at}", str(column[at]), f"a number from 0 to {most}")


def _write(batch: pa.RecordBatch) -> bytes:
    """Return a stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(
    value: bytes, schema: pa.Schema, optional: pa.Field | None = None
) -> tuple[dict[bytes, bytes], pa.RecordBatch]:
    """Return metadata and content of a stream with one batch of a schema. Raises ColumnarError.

    `optional`: a column that it may have. Nothing is decompressed: Kafka's client does that.
    """
    try:
        source = pa.BufferReader(value)
        message = pa.ipc.read_message(source)
        _require_kind(message, "schema")
        if _is_big_endian(message.metadata.to_pybytes()):
            raise ColumnarError("schema", "big-endian", "little-endian numbers")
        found = pa.ipc.read_schema(message)
        _require_schema(found, schema, optional)
        message = pa.ipc.read_message(source)
        _require_kind(message, "record batch")
        if _is_compressed(message.metadata.to_pybytes()):
            raise ColumnarError(
                "record batch", "compressed", "buffers as they are: Kafka compresses records"
            )
        batch = pa.ipc.read_record_batch(message, found)
        batch.validate(full=True)
        rest = value[source.tell() :]
    except ColumnarError:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error) as error:
        raise ColumnarError("value", repr(value[:20]), f"an Arrow IPC stream ({error})") from None
    if rest not in (b"", _END_OF_STREAM):
        raise ColumnarError("value", f"{len(rest)} more bytes", "a stream of one batch")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise ColumnarError(name, f"{column.null_count} nulls", "a value in each row")
    return dict(found.metadata or {}), batch


def _require_kind(message: pa.Message, kind: str) -> None:
    if message.type != kind:
        raise ColumnarError("value", str(message.type), f"a message with a {kind}")


def _require_schema(found: pa.Schema, schema: pa.Schema, optional: pa.Field | None) -> None:
    """Raise ColumnarError unless the columns are these, in any order."""
    if found.equals(schema):
        return
    expected = {field.name: field.type for field in schema}
    if optional is not None and optional.name in found.names:
        expected[optional.name] = optional.type
    text = ", ".join(f"{name}: {kind}" for name, kind in expected.items())
    if len(found) != len(expected) or len({*found.names}) < len(found):
        raise ColumnarError("schema", f"{len(found)} columns", f"the columns {text}")
    for field in found:
        if expected.get(field.name) != field.type:
            raise ColumnarError("schema", f"{field.name}: {field.type}", f"the columns {text}")


def _is_big_endian(message: bytes) -> bool:
    """Return whether a schema says that its numbers are big-endian."""
    place = _find_header_field(message, 0)
    return bool(place) and struct.unpack_from("<h", message, place) != (0,)


def _is_compressed(message: bytes) -> bool:
    """Return whether the buffers of a record batch are compressed."""
    return _find_header_field(message, 3) != 0


def _find_header_field(message: bytes, field: int) -> int:
    """Return where a field of a message's header is; 0: it is missing.

    `message`: a flatbuffer of Arrow's format, which Arrow has verified.
    """
    (root,) = struct.unpack_from("<I", message)
    header = _find_field(message, root, 2)
    (offset,) = struct.unpack_from("<I", message, header)
    return _find_field(message, header + int(offset), field)


def _find_field(message: bytes, table: int, field: int) -> int:
    """Return where a field of a flatbuffer's table is; 0: it is missing."""
    (back,) = struct.unpack_from("<i", message, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", message, vtable)
    entry = 4 + 2 * field
    if entry >= size:
        return 0
    (offset,) = struct.unpack_from("<H", message, vtable + entry)
    return table + int(offset) if offset else 0
