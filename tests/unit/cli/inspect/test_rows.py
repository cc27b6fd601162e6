"""Rows of commands that list something: the same as a table, as JSON, as YAML and as CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording
from tests.unit.console.site import fleet

LISTS = (
    ["brokers"],
    ["brokers", "list"],
    ["clusters", "list"],
    ["commands"],
    ["decisions"],
    ["namespaces", "bundles", "shop/hot"],
    ["sql", "select cluster, bundle, explain from decisions"],
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows") / "tables"
    fleet(folder, more=2)
    return folder


def listed(tables: Path, command: list[str], *more: str) -> Result:
    result = lbctl(*command, *more, "--set", f"stream.tables={tables}", cwd=tables)
    assert result.code == 0, result.err
    return result


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_csv_has_the_rows_of_json_and_json_is_what_it_was(tables: Path, command: list[str]) -> None:
    rows = listed(tables, command, "--json").objects
    assert rows and listed(tables, command, "-o", "json").objects == rows
    read = list(csv.DictReader(io.StringIO(listed(tables, command, "--output", "csv").out)))
    assert [list(one) for one in read] == [list(row) for row in rows]
    for told, row in zip(read, rows, strict=True):
        assert {name: as_cell(value) for name, value in row.items()} == told


def test_no_name_is_a_formula_for_the_spreadsheet_that_opens_the_csv(tables: Path) -> None:
    """Whoever may write to a topic chooses names in rows of rejected records."""
    query = (
        "select '=1+1' as a, '@x' as b, '-x' as c, -5 as d, '-' as e, 'b=1' as f, "
        "chr(9) || '=1' as g"
    )
    out = listed(tables, ["sql", query], "-o", "csv").out
    (row,) = csv.DictReader(io.StringIO(out))
    assert list(row.values()) == ["'=1+1", "'@x", "'-x", "-5", "-", "b=1", "'\t=1"]


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_yaml_has_the_rows_of_json(tables: Path, command: list[str]) -> None:
    rows = listed(tables, command, "--json").objects
    assert rows and yaml.safe_load(listed(tables, command, "-o", "yaml").out) == rows


@pytest.mark.parametrize(
    ("command", "column"),
    (
        (["brokers"], "broker"),
        (["clusters", "list"], "cluster"),
        (["commands"], "id"),
        (["decisions"], "decision_id"),
        (["namespaces", "bundles", "shop/hot"], "bundle"),
        (["sql", "select bundle, cluster from decisions"], "bundle"),
    ),
    ids=str,
)
def test_names_are_one_column_of_the_rows(tables: Path, command: list[str], column: str) -> None:
    names = listed(tables, command, "-o", "name").out.splitlines()
    assert names and names == [row[column] for row in listed(tables, command, "--json").objects]


def test_a_name_that_is_missing_has_no_line(tables: Path) -> None:
    query = "select unnest([null, 'a'])"
    assert listed(tables, ["sql", query], "-o", "name").out == "a\n"


def as_cell(value: object) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def test_without_rows_nothing_is_printed_for_programs(tables: Path) -> None:
    assert listed(tables, ["commands", "--last", "0"], "-o", "csv").out == ""
    assert listed(tables, ["commands", "--last", "0"], "-o", "name").out == ""
    assert listed(tables, ["commands", "--last", "0"], "-o", "yaml").out == "[]\n"


def test_what_follows_is_no_csv_and_other_forms_are_refused_with_those_there_are(
    tables: Path,
) -> None:
    result = lbctl(
        "decisions", "--follow", "-o", "csv", "--set", f"stream.tables={tables}", cwd=tables
    )
    assert result.code == 2
    check_wording(result.err)
    result = lbctl("brokers", "-o", "toml", "--set", f"stream.tables={tables}", cwd=tables)
    assert result.code == 2 and "'table', 'json', 'yaml', 'csv', 'name'" in result.err
