"""`lbctl brokers`: brokers as the last round saw them. Core's operations add the other commands."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import typer

from lb_stream.cli.shared.command_lines import OperatorGroup
from lb_stream.cli.shared.output import emit_rich, note, styled, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.core.model.followed_profile import describe_versions
from lb_stream.io.messages.times import ago

if TYPE_CHECKING:
    from rich.text import Text

    from lb_stream.query.health import ClusterFacts
    from lb_stream.query.lake import Row

_FOUR = (
    "latest_throughput_in_bytes_per_s",
    "latest_throughput_out_bytes_per_s",
    "latest_rate_in_msgs_per_s",
    "latest_rate_out_msgs_per_s",
)
_OTHERS = ("alive", "active", "usage_ratio", "bundles", "topics")
_TIMES = ("seen_ms", "reported_ms", "seq", "now_ms")
_QUERY = """
    SELECT cluster, broker, alive, active, usage_ratio,
           latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s,
           latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s AS msgs_per_s, bundles,
           topics, seen_ms, reported_ms, seq, now_ms
    FROM ({newest}) ORDER BY cluster, broker
"""
_COLUMNS = ("broker", "alive", "usage", "MB/s", "msg/s", "bundles", "seen")


app = typer.Typer(
    name="brokers",
    cls=OperatorGroup,
    invoke_without_command=True,
    help="Show each broker's latest load: usage, throughput, message rate, bundles, and when it "
    "last sent a record. The commands drain a broker and end a drain.",
    epilog="Example: lbctl brokers --cluster eu-1",
)


@app.callback()
@with_read_options()
def brokers(context: typer.Context, options: ReadOptions) -> None:
    """Without a command: as `lbctl brokers list`."""
    if context.invoked_subcommand is None:
        _show(options)


@app.command("list", epilog="Example: lbctl brokers list --cluster eu-1")
@with_read_options()
def list_(options: ReadOptions) -> None:
    """Show each broker's latest load: usage, throughput, message rate, bundles, last record."""
    _show(options)


def _show(options: ReadOptions) -> None:
    from lb_stream.query.lake import records, run
    from lb_stream.query.status_facts import build_latest_loads_query, load_cluster_facts

    lake = options.open_lake()
    newest = build_latest_loads_query(*_OTHERS, *_TIMES, *_FOUR, where="$1 IS NULL OR cluster = $1")
    query = _QUERY.format(newest=newest)
    clusters = {facts.cluster: facts for facts in load_cluster_facts(lake)}
    rows = [
        row | {"state": _state(clusters.get(row["cluster"]), row)}
        for row in records(run(lake, query, [options.cluster]))
    ]
    if options.emit_rows(rows, "broker"):
        return
    if not rows:
        note(f"no broker has reported yet{options.in_cluster}")
    for name, group in groupby(rows, key=lambda row: row["cluster"]):
        members = list(group)
        emit_rich(
            _summary(name, members, clusters.get(name)),
            table(_COLUMNS, [_cells(row) for row in members], right=_COLUMNS[2:6]),
            "",
        )


def _state(facts: ClusterFacts | None, row: Row) -> str:
    return "" if facts is None else facts.state_of(row["broker"])


def _cells(row: Row) -> tuple[str | Text, ...]:
    dead = not row["alive"] or row["state"] == "silent"
    alive = styled(
        (", ".join(filter(None, ("no" if dead else "yes", row["state"]))), "red" if dead else "")
    )
    figures = (
        f"{row['usage_ratio'] or 0:.0%}",
        f"{(row['bytes_per_s'] or 0) / 1e6:.2f}",
        f"{row['msgs_per_s'] or 0:.0f}",
        str(row["bundles"]),
    )
    return (row["broker"], alive, *figures, ago(row["seen_ms"]))


def _summary(cluster: str, rows: list[Row], facts: ClusterFacts | None) -> Text:
    """Return how many brokers are alive, and how even the active ones' loads are (1.00: even)."""
    alive = [row for row in rows if row["alive"] and row["state"] != "silent"]
    rates = [row["bytes_per_s"] or 0.0 for row in alive if row["active"]]
    mean = sum(rates) / len(rates) if rates else 0.0
    evenness = f", busiest ÷ mean {max(rates) / mean:.2f} by throughput" if mean else ""
    bundles = sum(row["bundles"] or 0 for row in rows)
    counts = f": {len(alive)} of {len(rows)} brokers alive, {bundles} bundles{evenness}"
    versions = "" if facts is None else describe_versions(facts.profile.versions)
    if versions:
        counts += f"; versions: {versions}"
    return styled((cluster, "bold")).append(counts)
