"""`lbctl scenario from-tables` and `from-reports`: build a scenario of a cluster's past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import Json, Set, check_cluster_name, parse_time_range
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, note

if TYPE_CHECKING:
    from lb_stream.sim.scenario.from_history import ScenarioWithNotes

Tables = Annotated[
    str, typer.Argument(metavar="TABLES", help="The folder of a job's tables (stream.tables).")
]
Reports = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Load reports, one on a line, as brokers emit them or captured; also .gz.",
    ),
]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The scenario's folder, made or written anew.")
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Begin, as 2026-11-21T13:00. Default: where history begins."
    ),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="End. Default: where history ends.")
]
Tick = Annotated[
    float,
    typer.Option(
        "--tick",
        metavar="SECONDS",
        help="Length of a tick: the history's resolution is a multiple of it.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the scenario that is in DIR.")]


def check_free(folder: Path, force: bool) -> None:
    """Require a folder that may be written. Raises CommandError for one that holds something."""
    if folder.exists() and not (folder.is_dir() and (force or not any(folder.iterdir()))):
        raise CommandError(
            f"{folder}: there is something already; --force writes over a scenario", 2
        )


def register(app: typer.Typer) -> None:
    """Add the commands to `lbctl scenario`."""
    example = (
        "lbctl scenario from-tables .lb/tables friday --from 2026-11-20T08:00Z --to "
        "2026-11-20T20:00Z"
    )
    app.command("from-tables", epilog=f"Example: {example}")(from_tables)
    app.command(
        "from-reports", epilog="Example: lbctl scenario from-reports captured.jsonl.gz captured"
    )(from_reports)


def from_tables(
    tables: Tables,
    folder: Folder,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="Whose history; not needed for the only one.",
            callback=check_cluster_name,
        ),
    ] = None,
    from_: From = None,
    to: To = None,
    tick: Tick = 10.0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Build a scenario of a live cluster's past: loads, brokers that died, drains, policies.

    Loads and limits are those of the tables bundle_history and broker_history, which a job keeps
    for 7 days. Where brokers report topics' shares of load, bundles can be split. The cost of cpu
    is inferred, what isn't recorded is assumed; notes say so.
    """
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.tables import (
        build_lake_query,
        load_history,
        load_topic_shares,
        require_recorded_cluster,
    )
    from lb_stream.sim.scenario.from_history import LoadHistory, build_from_history
    from lb_stream.store import Store

    check_free(folder, force)
    with open_lake(Store.at(tables, setting="TABLES"), require_columns=False) as lake:
        ask = build_lake_query(lake)
        name = require_recorded_cluster(ask, cluster)
        past = LoadHistory(
            **load_history(ask, name, *parse_time_range(from_, to)),
            topics=load_topic_shares(ask, name),
        )
    _write(build_from_history(past, tick), folder, json)


def from_reports(
    file: Reports,
    folder: Folder,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="NAME", help="What to call it.", callback=check_cluster_name
        ),
    ] = "recorded",
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="HOST:PORT", help="The broker of reports that don't name one."
        ),
    ] = None,
    from_: From = None,
    to: To = None,
    resolution: Annotated[
        float,
        typer.Option("--resolution", metavar="SECONDS", help="How often loads change.", min=1.0),
    ] = 60.0,
    tick: Tick = 10.0,
    force: Force = False,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Build a scenario of recorded load reports.

    Reports don't show dead brokers, drains or policies: all brokers are up all the time. --set
    gives settings that stand for policies, as --set
    balancer.shedding_excluded_namespaces=shop/orders.
    """
    from lb_stream.cli.shared.options import load_cli_settings
    from lb_stream.query.past.reports import build_history
    from lb_stream.sim.scenario.from_history import LoadHistory, build_from_history

    check_free(folder, force)
    given = load_cli_settings(None, None, set_, uses_current=False)
    settings = given.settings.of_cluster(cluster)
    past = LoadHistory(
        **build_history(
            file, cluster, broker, round(resolution * 1000), *parse_time_range(from_, to), settings
        )
    )
    _write(build_from_history(past, tick), folder, json)


def _write(made: ScenarioWithNotes, folder: Path, json: bool) -> None:
    from lb_stream.sim.scenario.writing import write_scenario

    scenario = made.scenario
    write_scenario(scenario, folder)
    known = {
        "brokers": len(scenario.brokers),
        "bundles": len(scenario.bundles),
        "seconds": scenario.end_s,
    }
    if json:
        emit_json(
            {
                "scenario": str(folder),
                **known,
                "events": len(scenario.events),
                "notes": list(made.notes),
            }
        )
        return
    for line in made.notes:
        note(line)
    emit_line(
        f"{folder}: {known['brokers']} brokers, {known['bundles']:,} bundles, "
        f"{scenario.end_s:,.0f} s"
    )
