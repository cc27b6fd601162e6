"""`lbctl monitor`: live tables of brokers and of what the balancer does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import CommandError, console, emit, emit_json, emit_rich, note
from lb_stream.query import QueryError

if TYPE_CHECKING:
    from lb_stream.cli.monitor.classic import BrokerAverages, BrokerFormat, Key
    from lb_stream.query.snapshot import Snapshot
    from lb_stream.store import Store

_FOUR = (
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
)
_AVERAGES = (
    "alive",
    "seen_ms",
    *(f"{span}_{value}" for span in ("short", "long") for value in _FOUR),
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command(
        "monitor", epilog="Example: lbctl monitor · Ctrl-C ends it · piped, it prints once"
    )(monitor)


def monitor(
    classic: Annotated[
        bool,
        typer.Option(
            "--classic",
            help="Show the tables of Pulsar's broker monitor: a broker's at each change, all each "
            "minute.",
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print the tables once, then end.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="S", min=0.2, help="Seconds between two reads of the tables."
        ),
    ] = 2.0,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show brokers, averages, pending moves, decisions, refusals and the job's timings, live.

    They are shown once when piped, or with --json.
    """
    given = load_cli_settings(config, broker_conf, set_)
    if classic and json:
        raise CommandError(
            "--classic prints tables for people; lbctl monitor --json has the figures", code=2
        )
    if classic:
        _show_classic(given, cluster, once)
        return
    from lb_stream.cli.monitor.dashboard import render

    if json:
        emit_json(_load_snapshot(given, cluster).to_dict())
        return
    screen = console()
    if screen.is_terminal and not screen.is_dumb_terminal and not once:
        _show_live(given, cluster, interval)
        return
    lines = render(
        _load_snapshot(given, cluster), screen.width, None, _has_unicode(screen.encoding)
    )
    if screen.is_terminal:
        emit_rich(*lines)
    else:
        emit("".join(f"{line.plain.rstrip()}\n" for line in lines))


def _load_snapshot(given: CliSettings, cluster: str | None) -> Snapshot:
    """Read the tables as they are now, and whether they are up to date. Raises CommandError."""
    from lb_stream.query.cluster_state import describe_unknown_cluster
    from lb_stream.query.health import explain_staleness
    from lb_stream.query.lake import open_lake
    from lb_stream.query.snapshot import read_snapshot
    from lb_stream.query.status_facts import gather_table_facts

    tables = given.tables
    with open_lake(tables) as lake:
        snapshot = read_snapshot(lake, cluster)
        facts = gather_table_facts(lake, tables, given.settings)
    states = tuple(state for state in facts.clusters if cluster in (None, state.cluster))
    if cluster and not states:
        known = [state.cluster for state in facts.clusters]
        raise CommandError(describe_unknown_cluster(cluster, known), code=2)
    staleness = explain_staleness(facts)
    if staleness and facts.demo_end is None:
        staleness = f"NOT UP TO DATE: {staleness}"
    # the state of each broker, such as draining
    by_cluster = {state.cluster: state for state in states}
    brokers = []
    for row in snapshot.brokers:
        state = by_cluster.get(row["cluster"])
        brokers.append(row | {"state": "" if state is None else state.state_of(row["broker"])})
    return replace(snapshot, states=states, brokers=brokers, trouble=staleness)


def _has_unicode(encoding: str) -> bool:
    return encoding.lower().startswith("utf")


def _show_live(given: CliSettings, cluster: str | None, interval_s: float) -> None:
    """Show the dashboard on the whole screen until Ctrl-C.

    It follows the screen's size at once, and reads the tables every `interval_s`.
    """
    from deltalake.exceptions import DeltaError
    from rich.console import ConsoleDimensions, Group
    from rich.live import Live

    from lb_stream.cli.monitor.dashboard import render
    from lb_stream.io.local.signals import StopRequest

    screen = console()
    unicode = _has_unicode(screen.encoding)
    snapshot = _load_snapshot(given, cluster)
    read_s, size = time.monotonic(), ConsoleDimensions(0, 0)
    with StopRequest() as stop, Live(console=screen, screen=True, auto_refresh=False) as live:
        while not stop:
            due = time.monotonic() - read_s >= interval_s
            if due:
                try:
                    snapshot = _load_snapshot(given, cluster)
                # Upkeep may delete a file that is just being read.
                except (CommandError, QueryError, DeltaError, OSError) as error:
                    first_line = str(error).splitlines()[0]
                    trouble = f"the tables can't be read just now: {first_line}"
                    snapshot = replace(snapshot, trouble=trouble)
                read_s = time.monotonic()
            if due or size != screen.size:
                size = screen.size
                lines = render(snapshot, size.width, size.height, unicode)
                live.update(Group(*lines), refresh=True)
            time.sleep(min(0.1, interval_s))


# --- the documented tables ---


def _show_classic(given: CliSettings, cluster: str | None, once: bool) -> None:
    from lb_stream.cli.monitor.classic import ClassicMonitor, follow_reports, read_reports
    from lb_stream.cli.shared.options import require_kafka, require_topics
    from lb_stream.io.local.signals import StopRequest

    settings, bootstrap, tables = given.settings, given.bootstrap, given.tables
    topic, default_cluster = settings.topics.reports, settings.stream.default_cluster
    balancer = given.of_cluster(cluster or default_cluster).config.balancer
    since_ms = int(time.time() * 1000) - balancer.report_timeout_ms
    rights = given.rights("Read", topic)
    with require_kafka(bootstrap, given, rights), StopRequest() as stop:
        require_topics(bootstrap, given, rights)
        options = given.client_options(bootstrap)
        read = read_reports(options, topic, since_ms, default_cluster, cluster)
        classic_monitor = ClassicMonitor(lambda name: _find_format(given, name))
        follow_reports(
            classic_monitor,
            takewhile(lambda _: not stop, read),
            lambda: _read_averages(tables),
            _print_table,
            note,
            once,
        )
        if not classic_monitor.brokers():
            of_cluster = f" from cluster {cluster}" if cluster else ""
            note(f"no broker has reported on {topic} at {bootstrap} recently{of_cluster}")


def _print_table(lines: list[str]) -> None:
    emit("\n".join(lines) + "\n")


def _find_format(given: CliSettings, cluster: str) -> BrokerFormat:
    """Return how a cluster's brokers are shown, which its settings decide."""
    from lb_stream.cli.monitor.classic import BrokerFormat

    balancer = given.of_cluster(cluster).config.balancer
    return BrokerFormat(balancer.usage_profile, balancer.load_manager == "extensible")


def _read_averages(tables: Store) -> Mapping[Key, BrokerAverages]:
    """Read averages from the tables; there are none before the job's first run."""
    from lb_stream.cli.monitor.classic import BrokerAverages
    from lb_stream.cli.monitor.documented_tables import Four
    from lb_stream.query.lake import open_lake, run
    from lb_stream.query.status_facts import build_latest_loads_query

    try:
        rows = run(open_lake(tables), build_latest_loads_query(*_AVERAGES)).fetchall()
    except QueryError:  # no tables yet: the job hasn't run
        return {}
    return {
        (row[0], row[1]): BrokerAverages(Four(*row[4:8]), Four(*row[8:12]), row[2], row[3] or 0)
        for row in rows
    }
