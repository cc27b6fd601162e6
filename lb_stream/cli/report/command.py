"""`lbctl report`: how a cluster was balanced, as one HTML file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import CommandError, emit_data, emit_json, note

MOST_CLUSTERS = 20


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("report", epilog="Example: lbctl report --out balance.html --hours 24")(report)


def report(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The file of the page; - is stdout."),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours",
            metavar="H",
            min=0.001,
            help="Only this many hours before the last round. Default: everything.",
        ),
    ] = None,
    within: Annotated[
        int,
        typer.Option(
            "--within",
            metavar="ROUNDS",
            min=1,
            help="A bundle that returns within this many rounds counts as thrashing.",
        ),
    ] = 100,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Write a report page: loads over time, imbalance, decisions, thrashing, bundles, reasons.

    It is one HTML file that needs nothing else. --json prints the figures instead.
    """
    if (out is None) != json:
        raise CommandError("expected either --out FILE, for the page, or --json", code=2)
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.report.page import page
    from lb_stream.query.lake import open_lake, records, run
    from lb_stream.query.past.report_figures import list_logged_clusters, load_cluster_figures
    from lb_stream.query.status_facts import gather_job_facts

    lake = open_lake(given.tables)
    known = list_logged_clusters(lake)
    if cluster is not None and cluster not in known:
        names = ", ".join(known[:MOST_CLUSTERS]) or "none: the log is empty"
        raise CommandError(f"--cluster {cluster}: expected one that the log has: {names}", code=2)
    chosen = [cluster] if cluster is not None else known[:MOST_CLUSTERS]
    if not chosen:
        raise CommandError("no round has been logged yet: there is nothing to report on")
    (last,) = records(run(lake, "SELECT max(now_ms) AS at_ms FROM rounds"))
    begin_ms = 0 if hours is None else int(last["at_ms"] - hours * 3_600_000)
    facts = gather_job_facts(lake, given.tables, given.settings)
    figures = [
        load_cluster_figures(lake, name, begin_ms, last["at_ms"], within, facts) for name in chosen
    ]
    if out is None:
        for cluster_report in figures:
            emit_json(cluster_report.to_dict())
        return
    left_out = len(known) - len(chosen) if cluster is None else 0
    _write(out, page(figures, left_out, time.time_ns() // 1_000_000), chosen)


def _write(out: Path, text: str, chosen: Sequence[str]) -> None:
    """Write the page. Raises CommandError for a file that can't be written."""
    if str(out) == "-":
        emit_data(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror}") from None
    note(f"wrote {out} ({len(text) // 1024} KB): {', '.join(chosen)}")
