"""`lbctl decisions`: what was decided, why, and what came of it."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any

import typer

from lb_stream.cli.options import BrokerConf, Cluster, ConfigFile, Effective, Json, Set, effective
from lb_stream.cli.output import clock, console, emit, emit_json, emit_rich, note, table

_QUERY = """
    FROM (
        SELECT decisions.*, outcome, detail, at_ms, took_ms, TRY_CAST(string_split(decision_id, ':')[-1] AS INT) AS ordinal
        FROM decisions LEFT JOIN outcomes USING (decision_id)
        WHERE $1 IS NULL OR decisions.cluster = $1
        ORDER BY issued_ms DESC, decisions.seq DESC, ordinal DESC LIMIT $2
    )
    ORDER BY issued_ms, seq, ordinal
"""


ROOM_BESIDE = 36
"""Columns that the others need beside the names of bundles, which stay in one piece where they can: they are copied and searched for."""


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("decisions", epilog="Example: lbctl decisions --follow --cluster eu-1")(decisions)


def decisions(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Read the topic and print decisions as they come; Ctrl-C ends it.")
    ] = False,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", help="How many decisions of the past.", min=0)] = 20,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show the last decisions with their reasons and outcomes from the tables, or follow the topic as agents see it."""
    given = effective(config, broker_conf, set_)
    if follow:
        _follow(given, cluster, last, json)
        return
    from lb_stream.cli.lake import open_lake, records, run

    rows = [_unpacked(row) for row in records(run(open_lake(given.tables), _QUERY, [cluster, last]))]
    if json:
        for row in rows:
            emit_json(row)
    elif not rows:
        note("none of the past: --last N" if last == 0 else "nothing has been decided yet" + (f" for cluster {cluster}" if cluster else ""))
    else:
        emit_rich(_table(rows))


def _unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the tables as the topic's record, with its outcome."""
    row = {name: value for name, value in row.items() if name != "ordinal"}
    return row | {"explain": json_.loads(row["explain"] or "{}")}


def _table(rows: list[dict[str, Any]]) -> Any:
    clusters = {row["cluster"] for row in rows}
    cells = []
    for row in rows:
        what = f"{row['kind']} {row['bundle']}\n{_way(row)}"
        where = f"{row['cluster']}\n" if len(clusters) > 1 else ""
        cells.append((where + clock(row["issued_ms"]), what, _why(row, "\n"), _outcome(row)))
    made: Any = table(("issued", "decision", "why", "outcome"), cells)
    longest = max(len(line) for _, what, *_ in cells for line in what.split("\n"))
    made.columns[1].no_wrap = longest <= console().width - ROOM_BESIDE
    return made


def _way(row: dict[str, Any]) -> str:
    if row["kind"] == "split":
        return f"at {row['source']}, {row['algorithm']}"
    return f"{row['source'] or 'nobody'} → {row['destination'] or 'to be found'}"


def _why(row: dict[str, Any], between: str = " ") -> str:
    explain = row.get("explain") or {}
    figures = [
        words + _figure(explain[name], explain.get("unit"))
        for name, words in (("saw", ""), ("limit", "limit "))
        if explain.get(name) is not None
    ]
    return row["rule"] + (between + ", ".join(figures) if figures else "")


def _figure(value: float, unit: str | None) -> str:
    return f"{value:.3f}" if unit in (None, "ratio") else f"{value:.4g} {unit}"


def _outcome(row: dict[str, Any]) -> str:
    if row["dry_run"]:
        return "dry run"
    if row["outcome"] is None:
        return "open"
    return f"[{'green' if row['outcome'] == 'confirmed' else 'red'}]{row['outcome']}[/]\nin {row['took_ms'] / 1000:.1f} s"


def _follow(given: Effective, cluster: str | None, last: int, json: bool) -> None:
    from pydantic import ValidationError

    from lb_stream.cli.follow import records
    from lb_stream.cli.options import kafka_at
    from lb_stream.contracts.decisions import read_decision

    bootstrap, topic = given.bootstrap, given.settings.topics.decisions
    with kafka_at(bootstrap):
        if not json:
            note(f"decisions on {topic} at {bootstrap}, as they come; Ctrl-C ends it")
        for record in records(given.client_options(bootstrap), topic, last, cluster):
            if record.value is None:
                continue
            try:
                decision = read_decision(record.value).model_dump(mode="json")
            except ValidationError as error:
                note(f"{topic} partition {record.partition} offset {record.offset} holds no decision: {error.errors()[0]['msg']}")
                continue
            if json:
                emit_json(decision)
            else:
                why = f"({_why(decision, ': ')})"
                emit(f"{clock(record.timestamp)} {decision['cluster']} {decision['kind']} {decision['bundle']} {_way(decision)} {why}\n")
