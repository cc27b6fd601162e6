"""A job refuses tables of a format that it can't read, and names the versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from lb_stream import __version__
from lb_stream.contracts.tables import ROUNDS
from lb_stream.io.tables import formats
from lb_stream.io.tables.delta import TableMismatch, open_table
from lb_stream.io.tables.formats import FORMAT, FORMAT_KEY, VERSION_KEY, OtherFormat
from lb_stream.io.tables.log import RoundLog
from lb_stream.store import Store
from tests.support.wordings import check_wording


def open_log(folder: Path) -> RoundLog:
    return RoundLog(Store.at(folder), "p", Store.at(folder / "checkpoint"))


def properties(folder: Path) -> dict[str, str]:
    return DeltaTable(str(folder / "rounds")).metadata().configuration


def stamped(folder: Path, number: int | str, version: str) -> DeltaTable:
    """Make the log as a version made it that writes this format."""
    open_log(folder)
    table = DeltaTable(str(folder / "rounds"))
    wanted = {FORMAT_KEY: str(number), VERSION_KEY: version}
    table.alter.set_table_properties(wanted, raise_if_not_exists=False)
    return table


def test_a_job_writes_its_version_and_format_once(tmp_path: Path) -> None:
    open_log(tmp_path)
    found = properties(tmp_path)
    assert (found[FORMAT_KEY], found[VERSION_KEY]) == (str(FORMAT), __version__)
    version = DeltaTable(str(tmp_path / "rounds")).version()
    open_log(tmp_path)
    assert DeltaTable(str(tmp_path / "rounds")).version() == version


def test_tables_that_name_no_format_have_the_first_one(tmp_path: Path) -> None:
    open_table(Store.at(tmp_path), ROUNDS)
    assert FORMAT_KEY not in properties(tmp_path)
    open_log(tmp_path)
    assert properties(tmp_path)[FORMAT_KEY] == str(FORMAT)


def test_a_job_goes_on_with_another_versions_tables_of_its_format(tmp_path: Path) -> None:
    stamped(tmp_path, FORMAT, "9.9.9")
    open_log(tmp_path)
    assert properties(tmp_path)[VERSION_KEY] == __version__


@pytest.mark.parametrize("number", [FORMAT + 1, "next"])
def test_a_newer_format_is_refused_with_both_versions_and_stays_as_it_is(
    tmp_path: Path, number: int | str
) -> None:
    version = stamped(tmp_path, number, "9.9.9").version()
    with pytest.raises(OtherFormat) as refusal:
        open_log(tmp_path)
    for part in (f"format {number}", "lb_stream 9.9.9", f"lb_stream {__version__}"):
        assert part in str(refusal.value)
    with pytest.raises(OtherFormat):
        open_table(Store.at(tmp_path), ROUNDS)
    assert DeltaTable(str(tmp_path / "rounds")).version() == version
    assert properties(tmp_path)[VERSION_KEY] == "9.9.9"


def test_a_format_that_is_no_longer_read_is_refused_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped(tmp_path, 2, "0.2.0")
    monkeypatch.setattr(formats, "__version__", "0.9.0")
    monkeypatch.setattr(formats, "OLDEST_FORMAT", 3)
    monkeypatch.setattr(formats, "FORMAT", 4)
    with pytest.raises(OtherFormat) as refusal:
        open_log(tmp_path)
    check_wording(str(refusal.value).replace(str(tmp_path), "FOLDER"))


def test_a_log_without_a_column_is_refused_with_the_version_that_wrote_it(tmp_path: Path) -> None:
    table = stamped(tmp_path, FORMAT, "9.9.9")
    fields = [field for field in table.schema().fields if field.name != "memory"]
    other = tmp_path / "other"
    DeltaTable.create(str(other / "rounds"), schema=type(table.schema())(fields))
    stranger = DeltaTable(str(other / "rounds"))
    stranger.alter.set_table_properties({VERSION_KEY: "9.9.9"}, raise_if_not_exists=False)
    with pytest.raises(TableMismatch) as refusal:
        open_log(other)
    for part in ("'memory'", "lb_stream 9.9.9", f"lb_stream {__version__}"):
        assert part in str(refusal.value)
