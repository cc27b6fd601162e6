"""Rosters and columnar reports as bytes: what is written is read, and what is wrong is named."""

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.contracts.columnar import (
    COLUMNS_SCHEMA,
    FIGURES,
    ROSTER_SCHEMA,
    ColumnarError,
    ReportReader,
    digest_of,
    read_columns,
    read_roster,
    write_columns,
    write_roster,
)
from lb_stream.contracts.schemas import FOLDER

NAMES = ["t/n/0x80000000_0xffffffff", "t/n/0x00000000_0x80000000"]
DIGEST = "0" * 32


def figures(**changes: Any) -> dict[str, Any]:
    """Columns of two rows."""
    return {name: [1, 2] for name in FIGURES} | changes


def stream(*arrays: Any, schema: pa.Schema, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    """Return a stream of one batch with any columns."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(list(arrays), schema=schema)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def refused(value: bytes, read: Any = read_columns) -> tuple[str, str]:
    """Return the field and the value that a reader names."""
    with pytest.raises(ColumnarError) as error:
        read(value)
    assert error.value.expected
    return error.value.field, error.value.value


def test_a_roster_is_read_sorted_by_utf_8_bytes_and_each_name_once() -> None:
    written = write_roster([*NAMES, NAMES[0], "t/\U0001f600/x", "t/\uffff/x"])
    assert read_roster(written).to_pylist() == [
        *sorted(NAMES),
        "t/\uffff/x",
        "t/\U0001f600/x",
    ]


def test_a_roster_may_be_empty() -> None:
    assert len(read_roster(write_roster([]))) == 0


def test_columns_are_read_as_they_were_written_to_the_bit() -> None:
    rates = [0.1 + 0.2, 5e-324]
    written = write_columns(
        {"lastUpdate": 7}, DIGEST, figures(msgRateIn=rates, topics=[2**63 - 1, 0]), [True, False]
    )
    report = read_columns(written)
    assert report.fields == b'{"lastUpdate":7}'
    assert report.roster == DIGEST and report.rows == 2
    assert report.columns["msgRateIn"].tobytes() == np.array(rates).tobytes()
    assert report.columns["topics"].tolist() == [2**63 - 1, 0]
    assert report.measured is not None and report.measured.tolist() == [True, False]


def test_without_the_column_measured_all_rows_are() -> None:
    assert read_columns(write_columns({}, DIGEST, figures())).measured is None


def test_a_reader_of_json_gets_the_report_that_columns_stand_for() -> None:
    roster = write_roster(NAMES)
    own = {"loadReportType": "LocalBrokerData", "numBundles": 2}
    columns = write_columns(own, digest_of(roster), figures(msgRateIn=[0.1, 7.0]), [True, False])
    reader = ReportReader()
    assert reader.take(b"eu/b", "columns", columns) is None, "its roster is not known"
    assert reader.take(b"eu/b", "roster", roster) is None
    assert reader.take(b"eu/c", "columns", columns) is None, "it is another broker's"
    found = json.loads(reader.take(b"eu/b", "columns", columns) or b"")
    stats = found.pop("lastStats")
    assert found == own | {"bundles": sorted(NAMES)}
    assert stats.keys() == {sorted(NAMES)[0]} and stats[sorted(NAMES)[0]]["msgRateIn"] == 0.1


@pytest.mark.parametrize("values", [[0.5, 1], ["1", "2"], [True, False], [None, 1]])
def test_nothing_but_whole_numbers_is_written_as_counts(values: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_columns(write_columns({}, DIGEST, figures(topics=values)))


def test_the_examples_of_the_contract_belong_together() -> None:
    roster = (FOLDER / "examples" / "roster.arrow").read_bytes()
    report = read_columns((FOLDER / "examples" / "columnar-report.arrow").read_bytes())
    names = read_roster(roster).to_pylist()
    assert report.roster == digest_of(roster)
    assert dict(zip(names, report.columns["msgRateIn"].tolist(), strict=True)) == {
        "shop/carts/0x40000000_0x80000000": 2_000.0,
        "shop/orders/0x00000000_0x80000000": 4_500.0,
    }


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 1.1e18])
def test_numbers_have_the_limits_of_those_in_json(number: float) -> None:
    written = write_columns({}, DIGEST, figures(msgThroughputOut=[3.0, number]))
    assert refused(written) == ("msgThroughputOut of row 1", str(np.float64(number)))


def test_a_negative_count_is_refused() -> None:
    written = write_columns({}, DIGEST, figures(topics=[-5, 1]))
    assert refused(written) == ("topics of row 0", "-5")


@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], ["\U0001f600", "\uffff"]])
def test_names_out_of_order_or_twice_are_refused(names: list[str]) -> None:
    value = stream(pa.array(names), schema=ROSTER_SCHEMA)
    assert refused(value, read_roster) == ("name", names[1])


def test_names_that_are_no_utf_8_are_refused() -> None:
    value = write_roster(["tenant"]).replace(b"tenant", b"ten\xff\xfet")
    assert refused(value, read_roster)[0] == "value"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, 2.0], pa.float32()),
        pa.array([1.0, None], pa.float64()),
        pa.array(["1", "2"]).dictionary_encode(),
        pa.array([[1.0], [2.0]]),
        pa.array([{"x": 1.0}, {"x": 2.0}]),
    ],
    ids=["float32", "null", "dictionary", "list", "struct"],
)
def test_columns_of_other_types_are_refused(column: pa.Array) -> None:
    schema = pa.schema(
        [pa.field("msgRateIn", column.type), *[COLUMNS_SCHEMA.field(at) for at in range(1, 8)]]
    ).with_metadata({"report": "{}", "roster": DIGEST})
    others = [pa.array([1, 2], field.type) for field in list(schema)[1:]]
    field, value = refused(stream(column, *others, schema=schema))
    assert (field, value.partition(":")[0]) in (("schema", "msgRateIn"), ("msgRateIn", "1 nulls"))


def test_a_column_too_many_too_few_or_twice_is_refused() -> None:
    arrays = [pa.array([1, 2], field.type) for field in COLUMNS_SCHEMA]
    more = COLUMNS_SCHEMA.append(pa.field("other", pa.int64()))
    assert refused(stream(*arrays, arrays[4], schema=more)) == ("schema", "9 columns")
    fewer = pa.schema(list(COLUMNS_SCHEMA)[:7])
    assert refused(stream(*arrays[:7], schema=fewer)) == ("schema", "7 columns")
    twice = pa.schema([*list(COLUMNS_SCHEMA)[:7], COLUMNS_SCHEMA.field("topics")])
    assert refused(stream(*arrays, schema=twice))[0] in ("schema", "value")


def test_compressed_buffers_are_refused_before_they_are_read() -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    value = stream(pa.array(["x" * 4_000_000]), schema=ROSTER_SCHEMA, options=options)
    assert len(value) < 2_000
    assert refused(value, read_roster) == ("record batch", "compressed")
    # A length that nobody could allocate is not looked at either.
    body = value.index((4_000_000).to_bytes(8, "little"))
    bomb = value[:body] + struct.pack("<q", 2**60) + value[body + 8 :]
    assert refused(bomb, read_roster) == ("record batch", "compressed")


def test_no_cut_off_stream_is_taken_but_the_end_may_be_missing() -> None:
    value = write_columns({}, DIGEST, figures())
    for length in range(0, len(value) - 8, 3):
        refused(value[:length])
    assert read_columns(value[:-8]).rows == 2


def test_no_changed_byte_leads_to_another_error() -> None:
    value = write_columns({"lastUpdate": 7}, DIGEST, figures())
    for at in range(len(value)):
        for byte in (0, 0x7F, 0xFF):
            changed = value[:at] + bytes([byte]) + value[at + 1 :]
            try:
                read_columns(changed)
            except ColumnarError as error:
                assert error.field and error.expected


def test_what_follows_the_batch_is_refused() -> None:
    value = write_columns({}, DIGEST, figures())
    assert refused(value + b"x")[0] == "value"
    assert refused(value[:-8] + value)[0] == "value"


def test_metadata_is_required_and_a_digest_has_32_digits() -> None:
    arrays = [pa.array([1, 2], field.type) for field in COLUMNS_SCHEMA]
    assert refused(stream(*arrays, schema=COLUMNS_SCHEMA)) == ("metadata report", "")
    assert refused(write_columns({}, "../../etc/passwd", figures()))[0] == "roster"
