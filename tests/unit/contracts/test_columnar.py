"""Rosters and columnar reports as bytes: what is written is read, and what is wrong is named."""

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.contracts.arrow_stream import ColumnarError
from lb_stream.contracts.columnar import (
    COLUMNS_SCHEMA,
    DELTA_SCHEMA,
    FIGURES,
    ROSTER_SCHEMA,
    ColumnarDelta,
    ColumnarReport,
    FindNames,
    ReportReader,
    SharedRows,
    digest_of,
    find_changes,
    read_columns,
    read_delta,
    read_roster,
    to_columns,
    write_columns,
    write_delta,
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


# Deltas.


def whole_of(
    delta: ColumnarDelta, base: ColumnarReport, find_names: FindNames | None = None
) -> ColumnarReport:
    """Return a delta's whole report; no names are needed where the base has the same roster."""
    return delta.compose(base, SharedRows.of(base, delta.roster, find_names or pytest.fail))


def delta(rows: Any = (1,), base: str = DIGEST, roster: str = DIGEST, **changes: Any) -> bytes:
    """Return a delta in which all figures of these rows are 7."""
    columns: dict[str, Any] = {name: [7] * len(rows) for name in FIGURES}
    return write_delta({"lastUpdate": 8}, roster, base, rows, columns | changes)


def test_a_delta_and_its_base_are_the_whole_report_to_the_bit() -> None:
    rates = [-0.0, 5e-324, 0.1 + 0.2]
    columns = {name: [1, 2, 3] for name in FIGURES} | {"msgRateIn": rates}
    base = read_columns(write_columns({"lastUpdate": 7}, DIGEST, columns, is_base=True))
    assert base.is_base
    read = read_delta(delta([0, 2], msgRateIn=[0.0, 0.3], topics=[2**63 - 1, 7]))
    assert read.base == DIGEST and read.rows.tolist() == [0, 2]
    whole = whole_of(read, base)
    assert whole.fields == b'{"lastUpdate":8}' and whole.roster == DIGEST
    expected = np.array([0.0, 5e-324, 0.3])
    assert whole.columns["msgRateIn"].tobytes() == expected.tobytes()
    assert whole.columns["topics"].tolist() == [2**63 - 1, 2, 7]
    assert base.columns["topics"].tolist() == [1, 2, 3], "the base stays as it is"
    assert whole.measured is None and not whole.is_base


def test_a_delta_without_rows_repeats_its_base() -> None:
    base = read_columns(write_columns({}, DIGEST, figures()))
    whole = whole_of(read_delta(delta([])), base)
    assert {name: column.tolist() for name, column in whole.columns.items()} == {
        name: [1, 2] for name in FIGURES
    }


@pytest.mark.parametrize(
    ("base", "given", "whole"),
    [
        (None, [False], [True, False]),
        ([True, False], None, [True, True]),
        ([False, True], [True], [False, True]),
    ],
)
def test_a_delta_says_of_its_rows_whether_they_are_measured(
    base: list[bool] | None, given: list[bool] | None, whole: list[bool]
) -> None:
    value = write_delta({}, DIGEST, DIGEST, [1], {name: [7] for name in FIGURES}, given)
    found = whole_of(read_delta(value), read_columns(write_columns({}, DIGEST, figures(), base)))
    assert found.measured is not None and found.measured.tolist() == whole


def test_rows_that_differ_are_found_to_the_bit() -> None:
    base = read_columns(write_columns({}, DIGEST, figures(msgRateIn=[0.0, 1.0])))
    columns = to_columns(figures(msgRateIn=[0.0, 1.0]))
    assert find_changes(base, SharedRows.of_same_roster(2), columns, None).tolist() == []
    assert find_changes(
        base, SharedRows.of_same_roster(2), columns, np.array([True, False])
    ).tolist() == [1]
    columns = to_columns(figures(msgRateIn=[-0.0, 1.0 + 2**-52]))
    assert find_changes(base, SharedRows.of_same_roster(2), columns, None).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [([3, 1], "1"), ([2, 2], "2"), ([-1, 2], "-1"), ([-(2**31), 2**31 - 1], "-2147483648")],
)
def test_row_numbers_out_of_order_twice_or_negative_are_refused(
    rows: list[int], wrong: str
) -> None:
    assert refused(delta(rows), read_delta) == ("row", wrong)


def test_a_row_that_the_base_lacks_is_refused() -> None:
    base = read_columns(write_columns({}, DIGEST, figures()))
    with pytest.raises(ColumnarError) as error:
        whole_of(read_delta(delta([1, 2])), base)
    assert (error.value.field, error.value.value) == ("row", "2")


ROSTERS = {"1" * 32: ["a", "c", "e"], "2" * 32: ["b", "c", "d", "e"], "3" * 32: []}


def names_of(roster: str) -> pa.Array:
    return pa.array(ROSTERS[roster], pa.string())


def of_roster(roster: str, rates: list[float], measured: list[bool] | None = None) -> Any:
    columns = {name: [1] * len(rates) for name in FIGURES} | {"msgRateIn": rates}
    return read_columns(write_columns({}, roster, columns, measured))


def test_a_delta_may_have_another_roster_than_its_base() -> None:
    base = of_roster("1" * 32, [1.0, -0.0, 5.0], [False, False, True])
    found = whole_of(read_delta(delta([0, 2], roster="2" * 32)), base, names_of)
    assert found.roster == "2" * 32
    assert found.columns["msgRateIn"].tobytes() == np.array([7.0, -0.0, 7.0, 5.0]).tobytes()
    assert found.columns["topics"].tolist() == [7, 1, 7, 1]
    assert found.measured is not None and found.measured.tolist() == [True, False, True, True]
    empty = whole_of(read_delta(delta([], roster="3" * 32)), base, names_of)
    assert empty.rows == 0 and empty.columns["topics"].tolist() == []
    grown = read_delta(delta([0, 1, 2], roster="1" * 32))
    assert whole_of(grown, of_roster("3" * 32, []), names_of).rows == 3


@pytest.mark.parametrize(
    ("rows", "roster", "base_rows", "wrong"),
    [
        ([0], "2", 3, ("row", "1 rows")),
        ([0, 2, 4], "2", 3, ("row", "4")),
        ([0, 4], "2", 3, ("row", "4")),
        ([0], "3", 3, ("row", "0")),
        ([0, 2], "2", 2, ("base", "2 rows")),
    ],
    ids=["one is nowhere", "too large", "nowhere and too large", "empty", "not of its roster"],
)
def test_a_delta_that_does_not_fit_its_rosters_is_refused(
    rows: list[int], roster: str, base_rows: int, wrong: tuple[str, str]
) -> None:
    base = of_roster("1" * 32, [1.0] * base_rows)
    with pytest.raises(ColumnarError) as error:
        whole_of(read_delta(delta(rows, roster=roster * 32)), base, names_of)
    assert (error.value.field, error.value.value) == wrong


def test_rows_that_the_base_lacks_count_as_changed() -> None:
    base = of_roster("1" * 32, [1.0, 3.0, 5.0])
    shared = SharedRows.find(names_of("1" * 32), names_of("2" * 32))
    columns = of_roster("2" * 32, [1.0, 3.0, 1.0, 5.5]).columns
    assert find_changes(base, shared, columns, None).tolist() == [0, 2, 3]
    flags = np.array([True, False, True, True])
    assert find_changes(base, shared, columns, flags).tolist() == [0, 1, 2, 3]


def test_a_delta_without_the_digest_of_a_base_is_refused() -> None:
    assert refused(delta(base="../../etc/passwd"), read_delta) == ("base", "../../etc/passwd")
    arrays = [pa.array([1], field.type) for field in DELTA_SCHEMA]
    metadata = {"report": "{}", "roster": DIGEST}
    value = stream(*arrays, schema=DELTA_SCHEMA.with_metadata(metadata))
    assert refused(value, read_delta) == ("metadata base", "")


def test_a_wrong_figure_of_a_delta_is_named_by_the_row_of_its_base() -> None:
    value = delta([4, 9], msgThroughputOut=[3.0, -1.0])
    assert refused(value, read_delta) == ("msgThroughputOut of row 9", "-1.0")


def test_columns_are_no_delta_and_a_delta_is_no_columns() -> None:
    assert refused(write_columns({}, DIGEST, figures()), read_delta) == ("schema", "8 columns")
    assert refused(delta()) == ("schema", "9 columns")


def test_no_changed_byte_of_a_delta_leads_to_another_error() -> None:
    value = delta([0, 1])
    base = read_columns(write_columns({}, DIGEST, figures()))
    for at in range(len(value)):
        for byte in (0, 0x7F, 0xFF):
            changed = value[:at] + bytes([byte]) + value[at + 1 :]
            try:
                whole_of(read_delta(changed), base)
            except ColumnarError as error:
                assert error.field and error.expected


def test_the_example_of_a_delta_is_of_the_example_of_a_columnar_report() -> None:
    base = (FOLDER / "examples" / "columnar-report.arrow").read_bytes()
    example = read_delta((FOLDER / "examples" / "delta.arrow").read_bytes())
    assert read_columns(base).is_base and example.base == digest_of(base)
    whole = whole_of(example, read_columns(base))
    assert whole.columns["msgRateIn"].tolist() == [2_000.0, 5_000.0]


def test_a_reader_of_json_gets_the_report_that_a_delta_stands_for() -> None:
    roster = write_roster(NAMES)
    base = write_columns({}, digest_of(roster), figures(), is_base=True)
    other = write_columns({"numBundles": 2}, digest_of(roster), figures(), is_base=True)
    given = delta([1], digest_of(base), digest_of(roster))
    reader = ReportReader()
    reader.take(b"eu/b", "roster", roster)
    assert reader.take(b"eu/b", "delta", given) is None, "its base is not known"
    reader.take(b"eu/b", "columns", base)
    found = json.loads(reader.take(b"eu/b", "delta", given) or b"")
    rates = [found["lastStats"][name]["msgRateIn"] for name in sorted(NAMES)]
    assert rates == [1.0, 7.0] and found["lastUpdate"] == 8
    moved = write_roster([NAMES[1], "t/n/0xffffffff_0xffffffff"])
    given = delta([1], digest_of(base), digest_of(moved))
    assert reader.take(b"eu/b", "delta", given) is None, "its roster is not known"
    reader.take(b"eu/b", "roster", moved)
    found = json.loads(reader.take(b"eu/b", "delta", given) or b"")["lastStats"]
    assert {name: stats["topics"] for name, stats in found.items()} == {
        NAMES[1]: 1,
        "t/n/0xffffffff_0xffffffff": 7,
    }
    reader.take(b"eu/b", "columns", other)
    assert reader.take(b"eu/b", "delta", given) is None, "its base is the last but one"
