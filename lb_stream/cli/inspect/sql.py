"""`lbctl sql`: queries of the tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    ConfigFile,
    Format,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    console,
    emit,
    emit_csv,
    emit_rich,
    emit_rows,
    note,
    styled,
    table,
)
from lb_stream.io.messages.shown import shown

if TYPE_CHECKING:
    import duckdb

SHOWN_ROWS = 1_000
"""Rows of a table for people, at most; the other formats give all rows."""


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command(
        "sql",
        epilog='Example: lbctl sql "select outcome, count(*) as n from outcomes group by all" · '
        "Tables: docs/tables.md",
    )(sql)


def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="A query in DuckDB's SQL; - reads it from stdin."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="A query in a file, such as those in docs/queries."
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A value for :NAME in the query."),
    ] = None,
    describe: Annotated[
        str | None,
        typer.Option("--describe", metavar="TABLE", help="Describe a table's columns instead."),
    ] = None,
    output: Annotated[
        Format,
        typer.Option(
            "--output",
            "-o",
            "--format",
            help="A table, JSON (one object a line), YAML, CSV, or the first column alone.",
        ),
    ] = Format.table,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Query the tables in SQL: rounds, decisions, outcomes, ownership and more (docs/tables.md).

    Each table NAME has a view NAME_at, in which times are timestamps: issued_at instead of
    issued_ms.
    """
    from lb_stream.query.lake import add_views, open_lake, run
    from lb_stream.query.sql_file import convert_parameters, parse_parameters, read_query

    if [query, file, describe].count(None) != 2:
        raise CommandError(
            "give a query, a file that holds one: --file FILE, or a table to describe: --describe "
            "TABLE",
            code=2,
        )
    if describe is not None:
        _describe(describe, "json" if json else output)
        return
    # the query, and the values of its parameters
    text = str(query)
    if file is not None:
        text = read_query(file)
    elif query == "-":
        text = sys.stdin.read()
    # In an ASCII locale other bytes are read as surrogates.
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    text, values = convert_parameters(text, parse_parameters(param or ()))
    # the answer
    lake = open_lake(load_cli_settings(config, broker_conf, set_).tables, require_columns=False)
    add_views(lake)
    result = run(lake, text, values)
    columns = [column[0] for column in result.description or []]
    if output is Format.csv and not json:
        emit_csv([columns])
        for row in _fetch_rows(result):
            emit_csv([row])
        return
    rows = (dict(zip(columns, row, strict=True)) for row in _fetch_rows(result))
    if not emit_rows(rows, output, json):
        _show(columns, result)


def _describe(name: str, form: str) -> None:
    from lb_stream.query.lake import list_columns

    rows = list_columns(name)
    columns = ("column", "type", "meaning")
    if not emit_rows((dict(zip(columns, row, strict=True)) for row in rows), form):
        emit_rich(table(columns, rows))


def _fetch_rows(result: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    while fetched := result.fetchmany(10_000):
        yield from fetched


def _show(columns: list[str], result: duckdb.DuckDBPyConnection) -> None:
    rows = result.fetchmany(SHOWN_ROWS)
    numbers = [
        name
        for index, name in enumerate(columns)
        if rows and all(isinstance(row[index], int | float | None) for row in rows)
    ]
    cells = [[_format_cell(value) for value in row] for row in rows]
    width = sum(
        max(len(line) for row in [columns, *cells] for line in row[index].split("\n")) + 2
        for index in range(len(columns))
    )
    if width - 2 <= console().width:
        emit_rich(
            table(
                columns,
                [[styled(*cell.split("\n")) for cell in row] for row in cells],
                right=numbers,
            )
        )
    else:
        _show_upright(columns, cells)
    more = 0 if len(rows) < SHOWN_ROWS else sum(1 for _ in _fetch_rows(result))
    note(
        f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
        + (f", {more} more: add a limit, or --format csv" if more else "")
    )


def _show_upright(columns: list[str], cells: list[list[str]]) -> None:
    """Show rows that are wider than the screen: one column a line, and a line between rows."""
    room = max(map(len, columns))
    lines = []
    for number, row in enumerate(cells, start=1):
        lines.append(
            f"-- {number} " + "-" * max(0, min(console().width, 80) - len(str(number)) - 4)
        )
        lines += [f"{name:<{room}}  {value}" for name, value in zip(columns, row, strict=True)]
    emit("\n".join(lines) + "\n" if lines else "")


def _format_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, list):
        return ", ".join(map(_format_cell, value))
    return shown(str(value), "\n")
