"""`lbctl sim`: runs simulated brokers against a real Kafka."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Json,
    Set,
    check_cluster_name,
    load_cli_settings,
    require_kafka,
)
from lb_stream.cli.shared.output import CommandError, note

if TYPE_CHECKING:
    from lb_stream.agent import AgentConfig
    from lb_stream.sim.cluster import SimCluster
    from lb_stream.sim.live import Status


class Workload(StrEnum):
    """Workloads; `lb_stream.sim.workload` describes them."""

    hot_spot = "hot_spot"
    skewed = "skewed"
    steady = "steady"


class ReportForm(StrEnum):
    "The load manager whose form the reports have."

    modular = "modular"
    simple = "simple"
    extensible = "extensible"


ClusterName = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="The cluster that the brokers form.",
        callback=check_cluster_name,
    ),
]
Brokers = Annotated[int, typer.Option(min=1, help="How many brokers are simulated.")]
Bundles = Annotated[
    int, typer.Option(min=1, help="How many bundles, which the brokers get in turn.")
]
WorkloadName = Annotated[
    Workload,
    typer.Option(
        help="hot_spot: one broker has three times its share of load; skewed: a few bundles have "
        "most of the load; steady: load doesn't change."
    ),
]
HotAt = Annotated[
    float,
    typer.Option("--hot-at-s", metavar="S", min=0, help="Seconds after which hot_spot begins."),
]
Interval = Annotated[
    float,
    typer.Option("--interval-s", metavar="S", min=0.01, help="Seconds between a broker's reports."),
]
Heartbeat = Annotated[
    float,
    typer.Option("--heartbeat-s", metavar="S", min=0.01, help="Seconds between heartbeats."),
]
FormName = Annotated[ReportForm, typer.Option(help="The load manager whose form the reports have.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same cluster.")]
Minutes = Annotated[
    float, typer.Option(metavar="M", min=0, help="Minutes after which it stops; 0: it doesn't.")
]
Goodbye = Annotated[
    bool,
    typer.Option(
        "--goodbye", help="At the end, send the brokers' goodbyes: they leave on purpose."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no line for each decision.")]
Sparing = Annotated[
    bool,
    typer.Option(
        "--sparing",
        help="Leave out reports that differ little from the last one, as Pulsar's brokers do.",
    ),
]
Stopped = Annotated[
    Path | None,
    typer.Option(
        "--stopped",
        metavar="FOLDER",
        help="A broker is stopped while this folder has a file with its name: touch stops it, rm "
        "starts it again.",
        file_okay=False,
    ),
]
EPILOG = (
    "Example: lbctl sim --cluster test --brokers 10 --bundles 200 --hot-at-s 30 · "
    "Exit codes: 0 stopped or time is up, 1 Kafka, a topic or a right is missing."
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("sim", epilog=EPILOG)(sim)


def sim(
    cluster: ClusterName = "demo",
    brokers: Brokers = 6,
    bundles: Bundles = 96,
    workload: WorkloadName = Workload.hot_spot,
    hot_at: HotAt = 0.0,
    interval: Interval = 1.0,
    heartbeat: Heartbeat = 5.0,
    form: FormName = ReportForm.modular,
    seed: Seed = 1,
    minutes: Minutes = 0.0,
    goodbye: Goodbye = False,
    quiet: Quiet = False,
    sparing: Sparing = False,
    stopped: Stopped = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Run a cluster of simulated brokers, which send load reports and act, until Ctrl-C.

    The topics must exist: lbctl topics create.
    """
    given = load_cli_settings(config, broker_conf, set_, uses_current=False)
    from lb_stream.agent import AgentConfig, ReportThrottle, SplitWatch
    from lb_stream.contracts.reports import ReportConfig
    from lb_stream.io.kafka.signing import check_decisions, job_name
    from lb_stream.io.telemetry.opening import open_telemetry
    from lb_stream.settings.resolve import resolve
    from lb_stream.settings.signing import load_signer
    from lb_stream.sim.brokers import wall_clock_ms
    from lb_stream.sim.cluster import build_cluster
    from lb_stream.sim.live import Status

    bootstrap, topics = given.bootstrap, given.settings.topics
    make_split_watch = None
    if form is ReportForm.extensible:
        make_split_watch = SplitWatch.for_cluster(resolve({"load_manager": "extensible"}).config)
    agent = AgentConfig(
        bootstrap_servers=bootstrap,
        cluster=cluster,
        reports_topic=topics.reports,
        decisions_topic=topics.decisions,
        ownership_topic=topics.ownership,
        make_split_watch=make_split_watch,
        make_throttle=(lambda: ReportThrottle(ReportConfig())) if sparing else None,
        report_interval_s=interval,
        heartbeat_interval_s=heartbeat,
        client_options=given.settings.kafka.options,
        telemetry=open_telemetry(given.settings.otel, "lb-stream-agent", {"lb.cluster": cluster}),
        signer=load_signer(given.settings.security),
        check_decisions=partial(check_decisions, given.settings.security),
        job=job_name(given.stream.pipeline_id),
        min_columns=given.of_cluster(cluster).reporting.report_columns_bundles,
    )
    simulated = build_cluster(brokers, bundles, workload.value, seed, wall_clock_ms(), hot_at)
    note(
        f"{brokers} brokers with {bundles} bundles, cluster {cluster}, at {bootstrap}; Ctrl-C ends "
        "it"
    )
    _run(given, simulated, form, agent, Status(quiet, json), minutes, goodbye, stopped)


def _run(
    given: CliSettings,
    simulated: SimCluster,
    form: ReportForm,
    agent: AgentConfig,
    status: Status,
    minutes: float,
    goodbye: bool,
    stopped: Path | None,
) -> None:
    """Run until the time is up or Ctrl-C. Raises CommandError."""
    from lb_stream.agent import AgentError
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.sim.live import run

    with StopRequest() as stop, require_kafka(agent.bootstrap_servers, given):
        seconds = minutes * 60 or float("inf")
        try:
            failure = run(
                simulated, form.value, agent, status, seconds, goodbye, lambda: bool(stop), stopped
            )
        except AgentError as error:
            raise CommandError(str(error), error.code) from error
        finally:
            agent.telemetry.close()
    if failure is not None:
        raise CommandError(f"the brokers' agent ended: {failure}")
