"""Blocks as bytes: what was written is read, whatever its shape; what is damaged is told as
such."""

import pyarrow as pa
import pytest

from lb_stream.core.model.blocks import EVENT_SCHEMA, from_bytes, read_stream, to_bytes

EVENTS = pa.Table.from_pylist(
    [{"kind": "heartbeat", "broker": "b", "payload": "{}"}] * 3, EVENT_SCHEMA
)
TABLES = {
    "one batch": EVENTS,
    "no row": EVENTS.slice(0, 0),
    "two batches": pa.concat_tables([EVENTS, EVENTS]),
    "words of a dictionary": pa.table({"word": pa.array(["a", "b", "a"]).dictionary_encode()}),
    "nulls": pa.table({"nothing": pa.nulls(3), "some": pa.array([1, None, 3])}),
    "no column": pa.table({}),
}


def stream_of(table: pa.Table) -> pa.Buffer:
    """As `to_bytes`, its chunks left as they are."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def by_arrow(data: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


@pytest.mark.parametrize("shape", TABLES)
def test_a_stream_is_read_as_arrow_reads_it(shape: str) -> None:
    table = TABLES[shape]
    for _ in range(2):  # the second time its schema is known
        found = read_stream(stream_of(table))
        assert found.equals(table) and found.schema.equals(table.schema)
    assert from_bytes(to_bytes(table)).equals(table)


def test_a_stream_that_is_cut_off_or_begins_wrongly_is_read_as_arrow_does_or_is_damaged() -> None:
    whole = stream_of(EVENTS).to_pybytes()
    assert read_stream(pa.py_buffer(whole)).equals(EVENTS)
    flipped = [
        whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(8)
    ]  # where it says how long its schema is
    failures = 0
    for damaged in (*(whole[:at] for at in range(0, len(whole), 3)), *flipped):
        try:
            wanted = by_arrow(pa.py_buffer(damaged)).to_pylist()
        except (OSError, pa.ArrowException):
            failures += 1
            with pytest.raises(pa.ArrowInvalid):
                read_stream(pa.py_buffer(damaged))
        else:
            assert read_stream(pa.py_buffer(damaged)).to_pylist() == wanted
    assert failures > 8


@pytest.mark.parametrize("shape", TABLES)
def test_a_small_table_is_written_to_the_byte_as_arrow_writes_it(shape: str) -> None:
    for table in (TABLES[shape], TABLES[shape].slice(1, 2)):
        assert to_bytes(table) == stream_of(table.combine_chunks()).to_pybytes()
