"""Tables, checkpoint and topics of an earlier version (tests/data/old_state): read, replayed, written anew as they were."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lb_stream.contracts.commands import CommandResult
from lb_stream.contracts.decisions import Decision, Ownership
from lb_stream.contracts.tables import (
    BACKTESTS,
    HISTORY_TABLES,
    MERGE_ADVICE,
    PROPOSALS,
    ROUNDS,
    SHADOW_DECISIONS,
    SHADOW_ROUNDS,
    TABLES,
)
from lb_stream.io.tables.delta import check_columns, existing_table, open_table
from lb_stream.io.tables.log import RoundLog
from lb_stream.store import Store
from tests.old_state import BEFORE, PIPELINE, read_records, unpack, without_changes
from tests.support.lbctl_runner import Result, lbctl

NEW = (*HISTORY_TABLES, SHADOW_ROUNDS, SHADOW_DECISIONS, BACKTESTS, MERGE_ADVICE, PROPOSALS)
"""Tables that the earlier version didn't have."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked folder, to read."""
    folder = tmp_path_factory.mktemp("old-state")
    unpack(folder)
    return folder


def ask(old: Path, *arguments: str) -> Result:
    """One call of lbctl about the old tables."""
    places = (f"stream.{name}={old / name}" for name in ("tables", "checkpoint"))
    return lbctl(*arguments, *(part for place in places for part in ("--set", place)), cwd=old)


def rows(old: Path, name: str) -> list[str]:
    """A table's rows, in an order of their own."""
    (spec,) = (spec for spec in TABLES if spec.name == name)
    table = existing_table(Store.at(old / "tables"), spec)
    if spec in NEW and table is None:
        return []
    assert table is not None
    known = [name for name in spec.schema.names if name not in spec.added]
    return sorted(map(repr, table.to_pyarrow_table().select(known).to_pylist()))


@pytest.mark.parametrize(
    "spec", [spec for spec in TABLES if spec not in NEW], ids=lambda spec: spec.name
)
def test_an_old_table_has_todays_columns_but_for_those_that_were_added_and_rows_in_it(
    old: Path, spec
) -> None:
    table = existing_table(Store.at(old / "tables"), spec)
    assert table is not None
    names = [field.name for field in table.schema().fields]
    assert [name for name in names if name not in spec.added] == [
        name for name in spec.schema.names if name not in spec.added
    ]
    assert rows(old, spec.name)


def test_an_old_log_gets_the_columns_that_were_added_empty_and_once(tmp_path: Path) -> None:
    unpack(tmp_path)
    before, root = rows(tmp_path, "rounds"), Store.at(tmp_path / "tables")
    assert "shadows" not in [
        field.name for field in DeltaTable(root.uri + "/rounds").schema().fields
    ]
    versions = [open_table(root, ROUNDS).version() for _ in range(2)]
    assert versions[0] == versions[1]
    check_columns(open_table(root, ROUNDS), ROUNDS)
    added = open_table(root, ROUNDS).to_pyarrow_table().select(list(ROUNDS.added))
    assert (rows(tmp_path, "rounds"), set(map(tuple, map(dict.values, added.to_pylist())))) == (
        before,
        {(None,) * len(ROUNDS.added)},
    )
    log = RoundLog(root, PIPELINE, Store.at(tmp_path / "checkpoint"))
    assert log.memories and set(log.shadow_memories.values()) == {"{}"}


def test_every_old_round_is_decided_again_to_the_same_bytes(old: Path) -> None:
    replayed = ask(old, "replay", "--json")
    for one in replayed.objects:
        assert one["result"] in ("equal", "different")
        assert [name for name, both in one["differences"].items() if _differ(both)] == []
    assert len(replayed.objects) == len(rows(old, "rounds")) > 20


def _differ(both: Mapping[str, str]) -> bool:
    """Whether a round's column differs in more than what has changed on purpose."""
    return bool(without_changes(both["logged"]) != without_changes(both["replayed"]))


def test_old_tables_written_anew_from_the_old_log_are_as_they_were(
    old: Path, tmp_path: Path
) -> None:
    unpack(tmp_path)
    rebuilt = ask(tmp_path, "tables", "rebuild", "--json")
    names = [spec.name for spec in TABLES if spec.from_log]
    assert [one["table"] for one in rebuilt.objects] == names
    assert {name: rows(tmp_path, name) for name in names} == {
        name: rows(old, name) for name in names
    }


def test_what_operators_laid_down_is_told_from_the_old_log(old: Path) -> None:
    states = {
        (row["cluster"], row["broker"]): row["state"]
        for row in ask(old, "brokers", "list", "--json").objects
    }
    assert {place for place, state in states.items() if "draining" in state} == {
        ("east", "b3:8080")
    }
    outcomes = {
        (row["kind"], row["outcome"])
        for row in ask(old, "commands", "--json", "--last", "50").objects
    }
    assert outcomes >= {
        ("unload", "refused"),
        ("split", "done"),
        ("drain-broker", "accepted"),
        ("create-namespace", "done"),
    }


@pytest.mark.parametrize(
    ("topic", "model"),
    [("decisions", Decision), ("ownership", Ownership), ("results", CommandResult)],
)
def test_an_old_record_is_read_and_would_be_written_as_it_was(topic: str, model) -> None:
    values = [
        record.value
        for record in read_records(BEFORE)
        if record.topic == topic and record.value is not None
    ]
    assert values
    assert [model.model_validate_json(value).to_json() for value in values] == values
