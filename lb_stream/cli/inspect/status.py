"""`lbctl status`: whether the job is up and healthy, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lb_stream.cli.shared.output import emit, emit_rich, styled, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.times import ago, clock

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from lb_stream.query.health import ClusterFacts, Facts, StandbyFacts

COLOURS = {"healthy": "green", "ended": "", "degraded": "yellow", "down": "red"}
CLUSTER_COLOURS = {
    **dict.fromkeys(("SUSPENDED", "failing"), "red"),
    **dict.fromkeys(("paused", "held"), "yellow"),
    **dict.fromkeys(("live", "approving"), "green"),
    "dry run": "",
}


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command(
        "status",
        epilog="Example: lbctl status · "
        "Exit codes: 0 healthy, or the tables' demo has ended; 1 degraded; 2 down",
    )(status)


@with_read_options(cluster=False)
def status(options: ReadOptions) -> None:
    """Say whether the job is up and its clusters are healthy, and what to do.

    The facts come from the tables, from Kafka and from the job's process.
    """
    from lb_stream.query.health import EXIT_CODES, judge
    from lb_stream.query.status_facts import gather_facts

    given = options.given
    facts = gather_facts(given.tables, given.settings, given.bootstrap)
    found = judge(facts)
    if not options.emit_rows([found.to_dict() | {"facts": asdict(facts)}], "state"):
        emit_rich(styled((found.sentence, COLOURS[found.state])), "")
        emit("".join(f"{name:<10}{value}\n" for name, value in _describe_job(facts)))
        if facts.clusters:
            emit_rich("", clusters_table(facts.clusters))
        if found.findings:
            emit(
                "\n"
                + "".join(
                    f"{finding.state + ':':<10}{finding.description}\n{'':<10}{finding.advice}\n"
                    for finding in found.findings
                )
            )
    if EXIT_CODES[found.state]:
        raise typer.Exit(EXIT_CODES[found.state])


def _describe_job(facts: Facts) -> list[tuple[str, str]]:
    """Return the lines about the job, Kafka and the disk: names and texts."""
    job = facts.job
    lines = [("pipeline", job.pipeline)]
    if facts.demo_end is not None:
        lines.append(("demo", f"{facts.demo_end.sentence}; its job and its Kafka have ended, too"))
    elif job.epoch is not None:
        up = {True: "up", False: "NOT RUNNING", None: "unknown"}[job.running]
        lines += [
            ("job", f"{up}: {job.evidence}"),
            (
                "leader",
                f"{job.host}, process {job.pid}, epoch {job.epoch}, since {clock(job.since_ms)}",
            ),
            (
                "batch",
                f"the last one in the tables began {ago(job.last_batch_ms)}; lag "
                f"{job.lag_records or 0} records",
            ),
        ]
    if facts.standbys:
        lines.append(("standbys", describe_standbys(facts.standbys)))
    if facts.demo_end is None:
        lines.append(("kafka", facts.kafka or "answers"))
    if facts.disk_free is not None:
        lines.append(("disk", f"{facts.disk_free / 2**30:.1f} GiB free where the tables are"))
    return lines


def describe_standbys(standbys: Iterable[StandbyFacts]) -> str:
    """Describe the standby jobs."""
    return (
        ", ".join(
            f"{standby.instance}{'' if standby.warm else ' (not warm yet)'}" for standby in standbys
        )
        or "none"
    )


def clusters_table(clusters: tuple[ClusterFacts, ...]) -> RenderableType:
    """Build a table with a row for each cluster."""
    columns = ("cluster", "state", "profile", "brokers", "bundles", "pending", "last round")
    rows = [
        (
            cluster.cluster,
            describe_state(cluster),
            cluster.profile.text,
            describe_brokers(cluster),
            cluster.bundles,
            cluster.pending,
            f"{cluster.seq}, {ago(cluster.last_round_ms)}",
        )
        for cluster in clusters
    ]
    return table(columns, rows, right=columns[4:6])


def describe_state(cluster: ClusterFacts) -> Text:
    """Describe a cluster's state, in its colour."""
    return styled((cluster.state, CLUSTER_COLOURS[cluster.state]))


def describe_brokers(cluster: ClusterFacts) -> str:
    """Describe how many brokers are alive, of how many, and what keeps others from that."""
    others = [
        f"{len(names)} {state}"
        for names, state in (
            (cluster.silent, "silent"),
            (cluster.restarting, "restarting"),
            (cluster.drained, "drained"),
        )
        if names
    ]
    return ", ".join([f"{cluster.brokers_alive}/{cluster.brokers}", *others])
