"""`lbctl audit`: who commanded what, with which right, and whether the rows are as written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lb_stream.cli.shared.options import parse_time_range
from lb_stream.cli.shared.output import CommandError, emit_line, emit_rich, note, styled, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from lb_stream.query.lake import Row
    from lb_stream.query.past.audit import Anchor, ChainReport

app = typer.Typer(
    name="audit",
    invoke_without_command=True,
    help="Show who commanded what, with which key and right, what it changed, and the answer. The "
    "command verify finds changed and removed rows.",
    epilog="Example: lbctl audit --by alice --refused",
)


@app.callback()
@with_read_options()
def audit(
    context: typer.Context,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", help="How many rows are shown.", min=0)
    ] = 20,
    by: Annotated[
        str, typer.Option("--by", metavar="TEXT", help="A part of the sender's name or key.")
    ] = "",
    kind: Annotated[
        str, typer.Option("--kind", metavar="TEXT", help="A part of the command's kind: drain.")
    ] = "",
    what: Annotated[
        str,
        typer.Option(
            "--what",
            metavar="TEXT",
            help="A part of what it names: broker, bundle, namespace, setting, id.",
        ),
    ] = "",
    refused: Annotated[
        bool, typer.Option("--refused", help="Only commands that were refused.")
    ] = False,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Begin, as 2026-11-21T13:00.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End, as 2026-11-21T14:00.")
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Without a command: show the last rows of the audit."""
    if context.invoked_subcommand is not None:
        return
    from lb_stream.query.screens.audit import AuditFilter, list_audit_rows

    begin_ms, end_ms = parse_time_range(from_, to)
    wanted = AuditFilter(options.cluster, by, kind, what, refused, begin_ms, end_ms)
    lake = options.open_lake()
    rows = list(list_audit_rows(lake, wanted, rows=last).rows[::-1]) if last else []
    if options.emit_rows(rows, "command_id"):
        return
    if rows:
        emit_rich(_build_table(rows))
    else:
        note(f"no row of the audit fits{options.in_cluster}")


def _build_table(rows: list[Row]) -> Table:
    cells = [
        (
            styled(clock(row["now_ms"]), row["cluster"], f"row {row['number']}"),
            styled(_format_sender(row), f"key {row['key_id'] or 'none'}"),
            styled(row["kind"], *row["objects"][:3], *_describe_change(row)),
            _format_answer(row),
        )
        for row in rows
    ]
    return cast("Table", table(("answered", "by", "command", "answer"), cells))


def _format_sender(row: Row) -> str:
    return f"{row['by'] or 'unknown'}{' (unproven)' if row['by_unproven'] else ''}"


def _describe_change(row: Row) -> list[str]:
    if row["new_value"] is None:
        return []
    return [f"{_short(row['old_value'])} → {_short(row['new_value'])}"]


def _short(value: object) -> str:
    from lb_stream.contracts.base import canonical_json

    text = canonical_json(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _format_answer(row: Row) -> Text:
    colour = {"done": "green", "accepted": "yellow"}.get(row["outcome"], "red")
    again = " (again)" if row["repeated"] else ""
    right = [f"right: {row['right']}"] if row["right"] else []
    ids = row["decision_ids"]
    decisions = [f"{len(ids)} decisions, from {ids[0]}"] if ids else []
    return styled((row["outcome"] + again, colour), row["text"] or "", *right, *decisions)


@app.command(
    epilog="Example: lbctl audit verify --anchor /srv/anchors.jsonl · Exit codes: 0 it holds; 1 it "
    "doesn't; 2 wrong usage."
)
@with_read_options(watch=False)
def verify(
    anchor: Annotated[
        list[Path] | None,
        typer.Option(
            "--anchor",
            metavar="FILE",
            help="A file of lbctl audit anchor: without one, rows that were cut off at the end are "
            "not seen. May be given several times.",
        ),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Check each cluster's chain of rows, and say from which row on it doesn't hold."""
    from lb_stream.query.past.audit import verify_audit

    anchors = [found for path in anchor or () for found in _read_anchors(path)]
    lake = options.open_lake(may_be_stale=True)
    reports = verify_audit(lake, anchors, options.cluster)
    rows = [asdict(report) | {"holds": report.holds} for report in reports]
    if not options.emit_rows(rows, "cluster"):
        for report in reports:
            _describe(report)
        if not reports:
            note("the audit has no row yet")
        elif not anchors:
            note("without an anchor, rows that were cut off at the end are not seen")
    if not all(report.holds for report in reports):
        raise typer.Exit(1)


def _read_anchors(path: Path) -> list[Anchor]:
    """Return the anchors of a file. Raises CommandError, QueryError."""
    from lb_stream.query.past.audit import parse_anchors

    try:
        return parse_anchors(path.read_text(encoding="utf-8"), f"--anchor {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--anchor {path}: {error}: expected a file of anchors", 2) from None


def _describe(report: ChainReport) -> None:
    """Write what was found in a cluster's chain."""
    rows = f"{report.rows} rows, {report.first or 0} to {report.last or 0}"
    state = "holds" if report.holds else f"does not hold from row {report.faults[0].number} on"
    emit_line(f"{report.cluster}: {state}: {rows}, last hash {report.hash or 'none'}")
    if report.deleted:
        emit_line(f"  {report.deleted}")
    if report.unchecked:
        emit_line(f"  anchors of deleted rows, which can't be checked: {report.unchecked}")
    for fault in report.faults:
        emit_line(f"  row {fault.number} {fault.what}: {fault.text}")


@app.command(epilog="Example: lbctl audit anchor --out /srv/anchors.jsonl")
@with_read_options(watch=False)
def anchor(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Append the anchors to this file."),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Show each cluster's last row and its hash, to keep where nobody can change it.

    verify takes the lines of --json, or the file of --out.
    """
    from lb_stream.query.past.audit import find_audit_heads

    rows = find_audit_heads(options.open_lake(may_be_stale=True), options.cluster)
    if out is not None:
        _append(out, rows)
    if options.emit_rows(rows, "cluster"):
        return
    if not rows:
        note("the audit has no row yet")
    elif out is None:
        cells = [(row["cluster"], row["number"], clock(row["at_ms"]), row["hash"]) for row in rows]
        emit_rich(table(("cluster", "row", "written", "hash"), cells))
    else:
        emit_line(f"{len(rows)} anchors appended to {out}")


def _append(path: Path, rows: Iterable[Row]) -> None:
    """Append anchors to a file, a line of JSON each. Raises CommandError."""
    from lb_stream.contracts.base import canonical_json

    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{canonical_json(row)}\n" for row in rows)
    except OSError as error:
        raise CommandError(
            f"--out {path}: {error.strerror}: expected a file to append to"
        ) from None
