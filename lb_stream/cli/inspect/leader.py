"""`lbctl leader`: who leads. From the tables."""

from __future__ import annotations

import typer

from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Json, Set, effective
from lb_stream.cli.shared.output import emit_json, emit_line, note
from lb_stream.io.messages.times import ago, clock

_LEADER = """
    SELECT pipeline, epoch, host, pid, since_ms, (SELECT max(now_ms) FROM rounds) AS last_round_ms
    FROM leaders ORDER BY since_ms DESC, epoch DESC LIMIT 1
"""


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("leader", epilog="Example: lbctl leader")(leader)


def leader(config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False) -> None:
    """Show who leads: the job that was started last, its epoch, host and process, and since when."""
    given = effective(config, broker_conf, set_)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.lake import open_lake, records, run

    lake = open_lake(given.tables)
    rows = records(run(lake, _LEADER))
    if not rows:
        note("no job has been started yet")
        raise typer.Exit(1)
    row, dead = rows[0], warn_if_stale(given, lake)
    if json:
        emit_json(row)
        return
    who = f"{row['host']} (process {row['pid']})"
    emit_line(f"{who} {'led' if dead else 'leads'} {row['pipeline']}, epoch {row['epoch']}, since {clock(row['since_ms'])}")
    note(f"its last logged round: {ago(row['last_round_ms'])}")
