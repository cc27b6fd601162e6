"""Sends operators' commands to the running job, and waits for results; their shared options."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lb_stream.cli.shared.completion import complete_clusters
from lb_stream.cli.shared.grouped_options import CliCommand, group_options, read_parameters
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
from lb_stream.cli.shared.output import CommandError, emit, emit_json, emit_line, note

if TYPE_CHECKING:
    from lb_stream.contracts.commands import Command, CommandResult
    from lb_stream.io.kafka.commands import ResultReader

_PANEL = "Sending"
ToCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="The cluster; not needed where there is only one.",
        callback=check_cluster_name,
        autocompletion=complete_clusters,
        rich_help_panel=_PANEL,
    ),
]
AllClusters = Annotated[
    bool,
    typer.Option(
        "--all-clusters",
        help="Send the command to every cluster that the balancer knows.",
        rich_help_panel=_PANEL,
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait/--wait",
        help="Send the command, and don't wait for its result.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="S",
        min=0.1,
        help="Seconds to wait for the result.",
        rich_help_panel=_PANEL,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="The command's id. A command that is sent twice with one id is done once.",
        rich_help_panel=_PANEL,
    ),
]
ClusterArgument = Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster.")]
ClusterArgumentOrAll = Annotated[
    str | None,
    typer.Argument(metavar="[CLUSTER]", help="The cluster; not needed where there is only one."),
]
DEFAULT_TIMEOUT_S = 120.0
OTHER_CLUSTERS_S = 1.0
"""How long after the first cluster's result the others' are waited for: one transaction has all."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How a command is to be sent. `cluster` None: the only one there is, or all of them."""

    given: CliSettings
    cluster: str | None
    all_clusters: bool
    no_wait: bool
    timeout_s: float
    command_id: str | None
    json: bool

    def require_broker(self, given: str) -> str:
        """Return a broker's whole name, of which a part may be given.

        Raises CommandError if no broker has it, or several have.
        """
        from lb_stream.cli.shared.broker_names import require_broker_name

        return require_broker_name(self.given, None if self.all_clusters else self.cluster, given)

    @property
    def key(self) -> str:
        """The record's key: the cluster, or empty for all clusters.

        Raises CommandError if it isn't clear which cluster is meant.
        """
        if self.all_clusters:
            if self.cluster is not None:
                raise CommandError("expected --cluster or --all-clusters, both are given", 2)
            return ""
        return choose_cluster(self.given, self.cluster)


def with_send_options(
    *, all_clusters: bool = False, cluster: Literal["option", "argument"] = "option"
) -> Callable[[CliCommand], CliCommand]:
    """Replace a command's parameter `options` by the command line's options of sending.

    That parameter gets the SendOptions that they make. `all_clusters`: the command may go to all of
    them. `cluster`: how a cluster is named.
    """

    def decorate(command: CliCommand) -> CliCommand:
        shared = read_parameters(_read_options)
        if not all_clusters:
            del shared["all_clusters"]
        first = {}
        if cluster == "argument":  # it comes before the command's own
            first["cluster"] = shared["cluster"].replace(
                annotation=ClusterArgumentOrAll if all_clusters else ClusterArgument,
                default=None if all_clusters else Parameter.empty,
            )
        return group_options(command, "options", _read_options, shared, first)

    return decorate


def _read_options(
    cluster: ToCluster = None,
    all_clusters: AllClusters = False,
    no_wait: NoWait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    command_id: Id = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> SendOptions:
    given = load_cli_settings(config, broker_conf, set_)
    return SendOptions(given, cluster, all_clusters, no_wait, timeout, command_id, json)


def choose_cluster(given: CliSettings, named: str | None) -> str:
    """Return the named cluster, else the only one in the tables, else the default one.

    Raises CommandError if none is named and the tables have several.
    """
    if named is not None:
        return named
    from lb_stream.query.cluster_state import list_clusters

    known = list_clusters(given.tables)
    if len(known) > 1:
        raise CommandError(f"--cluster: expected one of {', '.join(known)}", 2)
    return known[0] if known else given.settings.stream.default_cluster


# --- sending ---


def send_commands(
    options: SendOptions,
    wanted: Sequence[tuple[str, Mapping[str, object]]],
    in_one_round: bool = False,
) -> bool:
    """Send commands (kind, fields) and print their results; return whether all are done.

    One that must be forced ends the program with exit code 2.

    `in_one_round`: one round is to read them all. Raises CommandError if a result doesn't come in
    time.
    """
    from lb_stream.core.commands.base import ABSURD

    all_done, must_be_forced = True, False
    for by_cluster in request_results(options, wanted, in_one_round):
        for result in by_cluster.values():
            _print(options, result, alone=len(by_cluster) == 1)
            must_be_forced |= result.rule == ABSURD
        all_done &= all(result.outcome == "done" for result in by_cluster.values())
    if must_be_forced:
        raise typer.Exit(2)
    return all_done


def request_results(
    options: SendOptions,
    wanted: Sequence[tuple[str, Mapping[str, object]]],
    in_one_round: bool = False,
    until_done: bool = True,
) -> Iterator[dict[str, CommandResult]]:
    """Send commands (kind, fields), and yield cluster → last result for each, in their order.

    With --no-wait it prints what was sent, and yields nothing. `until_done` False: the first result
    counts, also that a command is accepted. Raises CommandError if a result doesn't come in time.
    """
    from lb_stream.io.kafka.commands import ResultReader, send_command, send_together
    from lb_stream.settings.signing import load_signer

    commands = [_build_command(options, kind, fields) for kind, fields in wanted]
    given, key = options.given, options.key
    bootstrap, topics = given.bootstrap, given.settings.topics
    client_options, signer = given.client_options(bootstrap), load_signer(given.settings.security)
    rights = [*given.rights("Write", topics.commands), *given.rights("Read", topics.results)]
    with require_kafka(bootstrap, given, rights), ExitStack() as readers:
        # Is there a job that would read them?
        require_topics(bootstrap, given, rights)
        _check_job(options, bootstrap)

        # Readers of results start before the commands are sent.
        results = [
            readers.enter_context(closing(ResultReader(client_options, topics.results, command.id)))
            for command in commands
        ]
        if in_one_round:
            send_together(client_options, topics.commands, key, commands, signer)
        for command in commands:
            if not in_one_round:
                send_command(client_options, topics.commands, key, command, signer)
            if options.no_wait:
                _print_sent(options, command, key)
        if options.no_wait:
            return

        # Results, in the order of the commands.
        for command, reader in zip(commands, results, strict=True):
            progress = _progress(options, command, key)
            yield _wait(options, command, reader, progress, until_done)


def _check_job(options: SendOptions, bootstrap: str) -> None:
    """Raise CommandError if no job would answer; with --no-wait only note that."""
    absence = _explain_absence(options.given, bootstrap)
    if absence and not options.no_wait:
        raise CommandError(
            f"no job answers: {absence}. Nothing was sent. Start it (lbctl balance, with its "
            "settings; lbctl status says more), then send the command again; --no-wait sends "
            "it all the same: a job that starts within five minutes does it"
        )
    if absence:
        note(f"no job answers now: {absence}. A job that starts within five minutes does it")


def _explain_absence(given: CliSettings, bootstrap: str) -> str:
    """Return why no job would answer; empty: a job does, or that can't be found out."""
    from lb_stream.access.refusals import REFUSED
    from lb_stream.io.leadership.liveness import describe_absence
    from lb_stream.query import QueryError

    kafka = given.settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
    settings = given.settings.model_copy(update={"kafka": kafka, "stream": given.stream})
    try:
        return describe_absence(settings)
    except (QueryError, *REFUSED):  # who may write commands may lack the right to read them
        return ""


def _build_command(options: SendOptions, kind: str, fields: Mapping[str, object]) -> Command:
    from lb_stream.io.kafka.commands import InvalidCommand, build_command

    try:
        return build_command(kind, fields, principal(options.given), options.command_id)
    except InvalidCommand as error:
        raise CommandError(str(error), 2) from None


def principal(given: CliSettings) -> str:
    """Return who sends: the name of the key that signs, the Kafka principal, or without either
    this machine's user. Raises SettingError.
    """
    from lb_stream.access.principal import ANONYMOUS, principal_of
    from lb_stream.settings.signing import load_own_name, load_signer

    if (signer := load_signer(given.settings.security)) is not None:
        return load_own_name(given.settings.security, signer)
    user = principal_of(given.settings.kafka.options)
    return f"{getpass.getuser()}@{socket.gethostname()}" if user == ANONYMOUS else user


def _progress(options: SendOptions, command: Command, key: str) -> Callable[[], None]:
    """Return what notes a command's progress while its result is waited for."""
    if command.kind == "rollout-next":
        from lb_stream.cli.shared.rollout_watch import RolloutWatch

        return RolloutWatch(options.given.tables, key).look
    if command.kind != "drain-broker":
        return lambda: None
    from lb_stream.cli.shared.drain_watch import DrainWatch
    from lb_stream.core.commands.base import broker_of

    return DrainWatch(options.given.tables, key, broker_of(command.arguments["broker"])).look


def _wait(
    options: SendOptions,
    command: Command,
    reader: ResultReader,
    progress: Callable[[], None],
    until_done: bool,
) -> dict[str, CommandResult]:
    """Return cluster → its last result.

    Raises CommandError if none comes in time, or if a command is not done in time.
    """
    last: dict[str, CommandResult] = {}
    end = time.monotonic() + options.timeout_s
    complete_at = 0.0  # when the other clusters' results are there too; 0: no result yet
    while (left := end - time.monotonic()) > 0:
        for result in reader.poll(min(left, 0.5)):
            if not complete_at:
                wait_s = OTHER_CLUSTERS_S if options.all_clusters else 0.0
                complete_at = time.monotonic() + wait_s
            last[result.cluster] = result
            if result.outcome == "accepted" and until_done:
                by = f" by {result.cluster}" if options.all_clusters else ""
                note(f"accepted{by}: {result.text}")
        if last:
            progress()
        has_all = bool(last) and time.monotonic() >= complete_at
        open_ones = until_done and any(result.outcome == "accepted" for result in last.values())
        if has_all and not open_ones:
            return dict(sorted(last.items()))
    if last:
        waiting = sorted(name for name, result in last.items() if result.outcome == "accepted")
        raise CommandError(
            f"{', '.join(waiting)}: not done after {options.timeout_s:g} s; it goes on: lbctl "
            f"commands --id {command.id}"
        )
    raise CommandError(
        f"no result after {options.timeout_s:g} s: is the job running (lbctl status), and does it "
        f"know the cluster? The command {command.id} stays on the topic and is done when the job "
        "reads it"
    )


def _print_sent(options: SendOptions, command: Command, key: str) -> None:
    if options.json:
        sent = {"id": command.id, "cluster": key or None, "kind": command.kind}
        emit_json(sent | {"outcome": "sent"})
    else:
        emit(f"sent: {command.id}\n")


def _print(options: SendOptions, result: CommandResult, alone: bool) -> None:
    if options.json:
        emit_json(result.model_dump(mode="json"))
        return
    rule = f" ({result.rule})" if result.rule and result.outcome != "done" else ""
    cluster = "" if alone else f"{result.cluster}: "
    emit_line(f"{cluster}{result.outcome}{rule}: {result.text}")
