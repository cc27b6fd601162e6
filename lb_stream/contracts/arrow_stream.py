"""Arrow IPC streams of one record batch, read without trust in any length that they name.

Nothing is decompressed, and dictionaries, nested types, nulls and bytes behind the end are refused:
whoever may write to a topic chooses its bytes.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_SHOWN = 100
"""Characters of a wrong value that an error has."""


class ColumnarError(ValueError):
    """Bytes that are no roster, columnar report or delta.

    `field`: where; `value`: what is there; `expected`: what should be.
    """

    def __init__(self, field: str, value: str, expected: str) -> None:
        super().__init__(f"{field} = {value[:_SHOWN]}: expected {expected}")
        self.field, self.value, self.expected = field, value[:_SHOWN], expected


def write_stream(batch: pa.RecordBatch) -> bytes:
    """Return a stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_stream(
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
