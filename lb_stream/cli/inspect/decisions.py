"""`lbctl decisions`: the last decisions with their reasons and outcomes."""

from __future__ import annotations

import json as json_
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lb_stream.cli.shared.options import Format
from lb_stream.cli.shared.output import (
    CommandError,
    console,
    emit_line,
    emit_rich,
    note,
    styled,
    table,
)
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.wording import (
    NOTHING_DECIDED,
    TO_BE_FOUND,
    UNASSIGNED,
    describe_state,
    explain_outcome,
    is_confirmed,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from lb_stream.query.lake import Row

_QUERY = """
    FROM (
        SELECT decisions.*, outcome, detail, at_ms, took_ms,
               TRY_CAST(string_split(decision_id, ':')[-1] AS INT) AS ordinal
        FROM decisions LEFT JOIN outcomes USING (decision_id)
        WHERE $1 IS NULL OR decisions.cluster = $1
        ORDER BY issued_ms DESC, decisions.seq DESC, ordinal DESC LIMIT $2
    )
    ORDER BY issued_ms, seq, ordinal
"""


OTHER_COLUMNS_WIDTH = 36
"""Width of the columns beside that of bundles' names. Names stay on one line where they fit."""


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("decisions", epilog="Example: lbctl decisions --follow --cluster eu-1")(decisions)


@with_read_options()
def decisions(
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Read the topic and print decisions as they come; Ctrl-C ends it.",
        ),
    ] = False,
    last: Annotated[
        int,
        typer.Option("--last", "-n", metavar="N", help="How many past decisions are shown.", min=0),
    ] = 20,
    *,
    options: ReadOptions,
) -> None:
    """Show the last decisions with their reasons and outcomes, or follow the topic.

    The past comes from the tables; --follow shows what agents see.
    """
    if follow:
        if options.output is Format.csv:
            raise CommandError(
                "--follow --output csv: expected table, json, yaml or name: decisions are nested", 2
            )
        _follow(options, last)
        return
    from lb_stream.query.cluster_state import list_known_clusters
    from lb_stream.query.lake import records, run

    lake = options.open_lake()
    rows = [_build_record(row) for row in records(run(lake, _QUERY, [options.cluster, last]))]
    if options.emit_rows(rows, "decision_id"):
        return
    if not rows:
        of_cluster = f" for cluster {options.cluster}" if options.cluster else ""
        note("--last 0 shows no decisions" if last == 0 else f"{NOTHING_DECIDED}{of_cluster}")
    else:
        emit_rich(_build_table(rows, several=len(list_known_clusters(lake)) > 1))


def _build_record(row: Row) -> Row:
    """Build the topic's record, with its outcome, from a row of the tables."""
    row = {name: value for name, value in row.items() if name != "ordinal"}
    return row | {"explain": json_.loads(row["explain"] or "{}")}


def _build_table(rows: list[Row], several: bool) -> Table:
    """Build the table. `several`: there are several clusters, so each row names its own."""
    cells = []
    for row in rows:
        decision = styled(
            f"{row['kind']} {row['bundle']}", _describe_place(row), row["decision_id"]
        )
        cluster = [row["cluster"]] if several else []
        issued = styled(*cluster, clock(row["issued_ms"]))
        cells.append((issued, decision, styled(*_explain_rule(row)), _format_outcome(row)))
    built = cast("Table", table(("issued", "decision, id", "why", "outcome"), cells))
    longest = max(len(line) for _, decision, *_ in cells for line in decision.plain.split("\n"))
    built.columns[1].no_wrap = longest <= console().width - OTHER_COLUMNS_WIDTH
    return built


def _describe_place(row: Row) -> str:
    """Describe where a decision acts: at which broker, or from which broker to which."""
    if row["kind"] == "split":
        return f"at {row['source']}, {row['algorithm']}"
    if row["kind"] == "merge":
        return f"at {row['source']}, with {row['neighbour'].rpartition('/')[2]}"
    return f"{row['source'] or UNASSIGNED} → {row['destination'] or TO_BE_FOUND}"


def _explain_rule(row: Row) -> list[str]:
    """Return the rule, and a text with its figures if there are any."""
    explain = row.get("explain") or {}
    figures = [
        prefix + figure(explain[name], explain.get("unit"))
        for name, prefix in (("saw", ""), ("limit", "limit "))
        if explain.get(name) is not None
    ]
    return [row["rule"], *([", ".join(figures)] if figures else [])]


def _format_outcome(row: Row) -> Text:
    """Return the outcome in its colour, with the time that it took and its reason."""
    if row["dry_run"] or row["outcome"] is None:
        return styled(describe_state(row))
    colour = "green" if is_confirmed(row) else "red"
    took = f"in {row['took_ms'] / 1000:.1f} s"
    return styled((row["outcome"], colour), took, *filter(None, [explain_outcome(row)]))


def _follow(options: ReadOptions, last: int) -> None:
    from pydantic import ValidationError

    from lb_stream.cli.inspect.follow import follow_records
    from lb_stream.cli.shared.options import require_kafka, require_topics
    from lb_stream.contracts.decisions import read_decision
    from lb_stream.contracts.reads import is_reads

    given = options.given
    bootstrap, topic = given.bootstrap, given.settings.topics.decisions
    rights = given.rights("Read", topic)
    with require_kafka(bootstrap, given, rights):
        require_topics(bootstrap, given, rights)
        if options.output is Format.table:
            note(f"decisions on {topic} at {bootstrap}, as they come; Ctrl-C ends it")
        client = given.client_options(bootstrap)
        for record in follow_records(client, topic, last, options.cluster):
            if record.value is None or is_reads(record.headers):
                continue
            try:
                decision = read_decision(record.value).model_dump(mode="json")
            except ValidationError as error:
                note(
                    f"{topic} partition {record.partition} offset {record.offset} holds no "
                    f"decision: {error.errors()[0]['msg']}"
                )
                continue
            if not options.emit_rows([decision], "decision_id"):
                why = ": ".join(_explain_rule(decision))
                emit_line(
                    f"{clock(record.timestamp)} {decision['cluster']} {decision['decision_id']} "
                    f"{decision['kind']} {decision['bundle']} {_describe_place(decision)} ({why})"
                )
