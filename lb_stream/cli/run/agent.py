"""`lbctl agent`: agents of Apache Pulsar brokers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

import typer

from lb_stream.cli.run.agent_options import (
    AdminUrls,
    BrokerIds,
    HeartbeatInterval,
    ReportInterval,
    ServiceUrl,
    TopicSharesInterval,
)
from lb_stream.cli.run.own_balancing import own_balancing
from lb_stream.cli.shared.admin_access import (
    ActTimeout,
    AdminAccess,
    AnyAdminUrl,
    CaFile,
    CertFile,
    ConnectTimeout,
    KeyFile,
    ReadTimeout,
    Token,
    TokenFile,
    VerifyHostname,
    build_admin_clients,
    build_admin_settings,
    with_admin_access,
)
from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Json,
    Set,
    check_cluster_name,
    load_cli_settings,
    require_kafka,
    require_topics,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit,
    emit_json,
    emit_line,
    note,
)

if TYPE_CHECKING:
    from lb_stream.agent.agent import Agent
    from lb_stream.agent.obey import AgentVerdict
    from lb_stream.agent.pulsar.adapter import CompareSettings, PulsarAdapter
    from lb_stream.agent.pulsar.admin import AdminClient
    from lb_stream.agent.pulsar.load_topics import LoadDataTopics
    from lb_stream.contracts.decisions import Decision
    from lb_stream.core.splitting import Algorithms

app = typer.Typer(
    name="agent",
    no_args_is_help=True,
    help="Agents send brokers' load reports to Kafka and carry out the balancer's decisions. "
    "Start with `lbctl agent pulsar --check`, which changes nothing, then leave out --check. The "
    "balancer needs assign_unowned = on_lookup for such a cluster.",
)

app.command(
    "own-balancing",
    epilog="Example: lbctl agent own-balancing off --admin-url http://broker-1:8080",
)(own_balancing)

STEP_S = 0.2
SLOW_STATISTICS_S = 20.0
"""With statistics taken less often, reports may confirm a move only after it has expired."""


@app.callback()
def _group() -> None:
    """Agents of Apache Pulsar brokers."""


@app.command(
    epilog="Example: lbctl agent pulsar --admin-url http://broker-1:8080 --cluster eu-1 --kafka "
    "kafka-1:9092"
)
def pulsar(
    admin_url: AdminUrls,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="The cluster's name in the balancer.",
            callback=check_cluster_name,
        ),
    ],
    broker: BrokerIds = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka", metavar="HOST:PORT", help="Short for --set kafka.bootstrap_servers=…"
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Change nothing: show what must be changed before the agent can act."
        ),
    ] = False,
    service_url: ServiceUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    verify_hostname: VerifyHostname = True,
    report_interval: ReportInterval = None,
    heartbeat_interval: HeartbeatInterval = 5.0,
    topic_shares_interval: TopicSharesInterval = 60.0,
    connect_timeout: ConnectTimeout = 3.0,
    read_timeout: ReadTimeout = 5.0,
    act_timeout: ActTimeout = 20.0,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Run an agent of Pulsar brokers until Ctrl-C: send reports, carry out unloads and splits.

    An agent acts only while Pulsar's own shedding and splitting are off (lbctl agent
    own-balancing). It sends no heartbeat for a broker that doesn't answer. With --check the exit
    code is 1 if something must be changed first.
    """
    from lb_stream.cli.run.agent_settings import find_differing_keys

    given = load_cli_settings(
        config,
        broker_conf,
        [*(set_ or ()), *([f"kafka.bootstrap_servers={kafka}"] if kafka else ())],
    )

    # The brokers' admin APIs.
    settings = [
        build_admin_settings(
            url=url,
            token=token or None,
            token_file=token_file,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            verify_hostname=verify_hostname,
            connect_timeout_s=connect_timeout,
            read_timeout_s=read_timeout,
            act_timeout_s=act_timeout,
        )
        for url in admin_url
    ]
    if broker and len(broker) != len(settings):
        raise CommandError(
            f"--broker is given {len(broker)} times, --admin-url {len(settings)} times: expected "
            "--broker as often as --admin-url, or not at all",
            2,
        )

    # An adapter for each broker.
    clients = build_admin_clients(settings)
    load_data = _load_data(clients, service_url)
    algorithms = given.of_cluster(cluster).config.split_algorithms
    compare = partial(find_differing_keys, given, cluster)
    ids = broker or _broker_ids(clients)
    adapters = _adapters(clients, ids, load_data, algorithms, compare, topic_shares_interval)
    if len({adapter.name for adapter in adapters}) != len(adapters):
        raise CommandError("--admin-url or --broker: expected each broker once", 2)
    try:
        if check:
            raise typer.Exit(_check(adapters, given, cluster, json))
        _serve(adapters, given, cluster, (report_interval, heartbeat_interval), json)
    finally:
        load_data.close()


@app.command(epilog="Example: lbctl agent namespaces --admin-url http://broker-1:8080 --json")
@with_admin_access
def namespaces(
    admin_url: AnyAdminUrl,
    access: AdminAccess,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show a Pulsar cluster's namespaces, isolation policies and failure domains."""
    from lb_stream.agent.adapter import BrokerError

    load_cli_settings(config, broker_conf, set_)
    try:
        found = _adapters([access.connect(admin_url)])[0].namespaces()
    except BrokerError as error:
        raise CommandError(str(error)) from None
    if json:
        emit_json(found.model_dump(mode="json"))
        return
    for namespace in found.namespaces:
        group = (
            f", anti-affinity group {namespace.anti_affinity_group}"
            if namespace.anti_affinity_group
            else ""
        )
        emit(f"{namespace.name}: {len(namespace.bundles)} bundles{group}\n")
    for policy in found.isolation:
        secondary = f", else {', '.join(policy.secondary)}" if policy.secondary else ""
        emit(
            f"isolation {policy.name}: {', '.join(policy.namespaces)} on "
            f"{', '.join(policy.primary)}{secondary}\n"
        )
    for name, domain in found.failure_domains.items():
        emit(f"failure domain {domain}: {name}\n")


def _adapters(
    clients: Sequence[AdminClient],
    brokers: Sequence[str | None] | None = None,
    load_data: LoadDataTopics | None = None,
    algorithms: Algorithms | None = None,
    compare: CompareSettings | None = None,
    topic_shares_s: float = 0.0,
) -> list[PulsarAdapter]:
    from lb_stream.agent.pulsar.adapter import PulsarAdapter

    return [
        PulsarAdapter(
            client,
            name,
            load_data,
            algorithms=algorithms,
            compare=compare,
            topic_shares_s=topic_shares_s,
        )
        for client, name in zip(clients, brokers or repeat(None, len(clients)), strict=True)
    ]


def _broker_ids(clients: Sequence[AdminClient]) -> list[str | None]:
    """Return the id of each broker as its report gives it; None: that of its address holds."""
    from lb_stream.agent.pulsar.report import find_broker_id

    return [find_broker_id(client) for client in clients]


def _load_data(clients: Sequence[AdminClient], service_url: str | None) -> LoadDataTopics:
    from lb_stream.agent.pulsar.load_topics import LoadDataTopics, find_service_url

    return LoadDataTopics(lambda: service_url or find_service_url(clients), clients[0].settings)


def _check(adapters: Sequence[PulsarAdapter], given: CliSettings, cluster: str, json: bool) -> int:
    """Print what must be changed at each broker; return the exit code.

    Settings that differ from those here are printed, and don't change the exit code.
    """
    has_troubles = False
    shown, advice = set[str](), dict[str, None]()
    for adapter in adapters:
        row = _check_broker(adapter, given, cluster)
        has_troubles |= bool(row["troubles"])
        if json:
            emit_json(row)
            continue

        # Whether the agent may act.
        state = "unknown"
        if "manager" in row:
            version = f", Pulsar {row['version']}" if "version" in row else ""
            state = f"{row['manager']} manager of cluster {row['cluster']}{version}"
        verdict = "must be changed" if row["troubles"] else "ok"
        emit_line(f"{adapter.name}: {state}: {verdict}")
        for trouble in row["troubles"]:
            emit_line(f"  {trouble}")

        # What should be set otherwise; what holds for several brokers, once.
        late_s = row.get("statistics_every_s", 0)
        if late_s > SLOW_STATISTICS_S:
            emit_line(
                f"  reports show a move up to {late_s:.0f} s late: the balancer's "
                f"unloading_timeout_ms should be {2500 * late_s:.0f} or more"
            )
        lines = dict.fromkeys((*row.get("notes", ()), *row.get("settings", {}).values()))
        for line in lines:
            if line not in shown:
                emit_line(f"  {line}")
        shown |= lines.keys()
        advice |= dict.fromkeys(row.get("advice", ()))
    for line in advice:
        emit_line(line)
    return int(has_troubles)


class BrokerCheck(TypedDict):
    """What --check found at a broker; what it could not read is missing."""

    broker: str
    alive: bool
    troubles: list[str]
    cluster: NotRequired[str]
    manager: NotRequired[str]
    statistics_every_s: NotRequired[float]
    version: NotRequired[str]
    profile: NotRequired[str]  # the one here, or that of the broker's release
    settings: NotRequired[dict[str, str]]  # those that differ: Pulsar's key → description
    notes: NotRequired[list[str]]  # what else doesn't fit
    advice: NotRequired[list[str]]  # what to do about both


def _check_broker(adapter: PulsarAdapter, given: CliSettings, cluster: str) -> BrokerCheck:
    """Return what must be changed at a broker, and its settings that differ from those here."""
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.cli.run.agent_settings import check_settings

    row: BrokerCheck = {"broker": adapter.name, "alive": adapter.alive(), "troubles": []}
    try:
        row["cluster"] = adapter.pulsar_cluster
        row["manager"] = adapter.manager
        row["troubles"] = adapter.guard.explain_conflicts()
        row["statistics_every_s"] = adapter.statistics_s
        version = adapter.version
        if version is not None:
            row["version"] = version
        runtime, dynamic = adapter.guard.runtime(), adapter.guard.dynamic_keys()
        found = check_settings(runtime, dynamic, version, given, cluster)
        row["profile"], row["settings"] = found.profile, dict(found.settings)
        row["notes"], row["advice"] = list(found.notes), list(found.advice)
        adapter.report()
    except BrokerError as error:
        row["troubles"].append(str(error))
    return row


def _serve(
    adapters: Sequence[PulsarAdapter],
    given: CliSettings,
    cluster: str,
    intervals_s: tuple[float | None, float],
    json: bool,
) -> None:
    """Run agents until a signal comes, or one of them ends.

    Each broker has an agent of its own: a broker that hangs delays no other.
    """
    import logging

    from lb_stream.agent.agent import Agent
    from lb_stream.agent.config import AgentConfig, AgentError
    from lb_stream.agent.report_throttle import ReportThrottle
    from lb_stream.agent.splits import SplitWatch
    from lb_stream.cli.run.agent_settings import load_hooks
    from lb_stream.io.kafka.signing import check_decisions, job_name
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.io.telemetry.opening import open_telemetry
    from lb_stream.settings.signing import load_signer

    resolved = given.of_cluster(cluster)
    balancing, reporting = resolved.config, resolved.reporting
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")

    def make_watch() -> SplitWatch:
        return SplitWatch(balancing.splitting, balancing.split_algorithms)

    # For every load manager of the balancer: the adapter has statistics of bundles only if the
    # broker's own manager is the extensible one.
    make_split_watch = make_watch if balancing.splitting.split_enabled else None

    bootstrap, topics = given.bootstrap, given.settings.topics
    with require_kafka(bootstrap, given):
        read = given.rights("Read", topics.decisions, topics.ownership)
        require_topics(bootstrap, given, [*given.rights("Write", topics.reports), *read])
    config = AgentConfig(
        bootstrap_servers=bootstrap,
        cluster=cluster,
        reports_topic=topics.reports,
        decisions_topic=topics.decisions,
        ownership_topic=topics.ownership,
        make_throttle=ReportThrottle.for_manager(reporting, balancing.balancer),
        make_split_watch=make_split_watch,
        report_interval_s=intervals_s[0] or reporting.report_min_interval_ms / 1000,
        heartbeat_interval_s=intervals_s[1],
        client_options=given.settings.kafka.options,
        hooks=load_hooks(given),
        telemetry=open_telemetry(given.settings.otel, "lb-stream-agent", {"lb.cluster": cluster}),
        signer=load_signer(given.settings.security),
        check_decisions=partial(check_decisions, given.settings.security),
        job=job_name(given.stream.pipeline_id),
        min_columns=reporting.report_columns_bundles,
    )
    agents: list[Agent] = []
    with StopRequest() as stop:
        try:
            for adapter in adapters:
                _warn(adapter)
                agent = Agent(config, [adapter], on_decision=partial(_print_decision, json=json))
                agents.append(agent)
                agent.start()
            names = ", ".join(adapter.name for adapter in adapters)
            note(f"the agent of {names} runs in cluster {cluster}; Ctrl-C ends it")
            while not stop and all(agent.running for agent in agents):
                time.sleep(STEP_S)
        except AgentError as error:
            raise CommandError(str(error), error.code) from None
        finally:
            for agent in agents:
                agent.stop()
            config.telemetry.close()
    failures = [str(agent.failure) for agent in agents if agent.failure is not None]
    if failures:
        raise CommandError(f"an agent ended: {'; '.join(failures)}")


def _warn(adapter: PulsarAdapter) -> None:
    """Note why a broker's agent will refuse to act; it sends reports all the same."""
    from lb_stream.agent.adapter import BrokerError

    try:
        for trouble in adapter.guard.explain_conflicts():
            note(f"warning: {adapter.name} only reports until this is changed: {trouble}")
    except BrokerError as error:
        note(f"warning: {adapter.name}: {error}; the agent tries again")


def _print_decision(
    decision: Decision, broker: str | None, verdict: AgentVerdict | None, json: bool
) -> None:
    """Print a line for a decision that the agent has carried out or refused."""
    if broker is None or verdict is None or verdict.action == "ignore":
        return
    if json:
        fields = ("decision_id", "kind", "bundle", "source", "destination")
        emit_json(
            {"broker": broker, "action": verdict.action, "reason": verdict.reason}
            | {name: getattr(decision, name) for name in fields}
        )
        return
    outcome = {
        "release": "has unloaded",
        "acquire": "has",
        "split": "has split",
        "merge": "has merged",
    }.get(verdict.action)
    if outcome is None:
        outcome = f"refuses to {decision.kind}"
    elif verdict.reason:
        outcome = f"could not {decision.kind}"
    to = f" to {decision.destination}" if decision.destination else ""
    if verdict.action != "release":
        to = ""
    reason = f": {verdict.reason}" if verdict.reason else ""
    emit_line(f"{broker} {outcome} {decision.bundle}{to}{reason}")
