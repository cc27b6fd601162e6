"""Commands to the running balancer: the options that they share, and the one way to send one and to
wait for its answers."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
        help="Which cluster; not needed where there is only one.",
        callback=check_cluster_name,
        rich_help_panel=_PANEL,
    ),
]
AllClusters = Annotated[
    bool,
    typer.Option(
        "--all-clusters", help="Every cluster that the balancer knows.", rich_help_panel=_PANEL
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait", help="Send it, and don't wait for what comes of it.", rich_help_panel=_PANEL
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="S",
        min=0.1,
        help="Seconds to wait for what comes of it.",
        rich_help_panel=_PANEL,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="The command's id: one that is sent again with the same id isn't done twice.",
        rich_help_panel=_PANEL,
    ),
]
ClusterArgument = Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster.")]
ClusterArgumentOrAll = Annotated[
    str | None,
    typer.Argument(metavar="[CLUSTER]", help="The cluster; not needed where there is only one."),
]
DEFAULT_TIMEOUT_S = 120.0
OTHERS_S = 1.0
"""Clusters that answer the same command do so in one transaction: after the first of them the
others aren't long in coming."""

CliCommand = Callable[..., None]


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

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send the command and print what came of it.

        Raises typer.Exit(1) when that isn't what was wanted.
        """
        send(self, kind, {name: value for name, value in fields.items() if value is not None})

    def broker(self, given: str) -> str:
        """A broker's whole name, which may be given short.

        Raises CommandError where none fits, or several do.
        """
        from lb_stream.cli.shared.broker_names import require_broker_name

        return require_broker_name(self.given, None if self.all_clusters else self.cluster, given)

    @property
    def key(self) -> str:
        """The record's key: the cluster, empty for all.

        Raises CommandError where it isn't clear which.
        """
        if self.all_clusters:
            if self.cluster is not None:
                raise CommandError("--cluster and --all-clusters: one of them", 2)
            return ""
        return choose_cluster(self.given, self.cluster)


def with_send_options(
    *, all_clusters: bool = False, cluster: Literal["option", "argument"] = "option"
) -> Callable[[CliCommand], CliCommand]:
    """Give a command the options by which commands are sent, in place of its parameter `send`.

    That parameter gets the SendOptions that they make. `all_clusters`: the command may go to all of
    them. `cluster`: how one is named.
    """

    def decorate(command: CliCommand) -> CliCommand:
        own = dict(signature(command, eval_str=True).parameters)
        own.pop("send", None)
        shared = dict(signature(_sending, eval_str=True).parameters)
        if not all_clusters:
            del shared["all_clusters"]
        first = {}
        if cluster == "argument":  # it comes before the command's own
            first["cluster"] = shared["cluster"].replace(
                annotation=ClusterArgumentOrAll if all_clusters else ClusterArgument,
                default=None if all_clusters else Parameter.empty,
            )

        @wraps(command)
        def with_options(**given: Any) -> None:
            send = _sending(**{name: given.pop(name) for name in shared})
            command(**given, send=send)

        parameters = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in (first | own | shared | first).values()
        ]
        with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
        return with_options

    return decorate


def _sending(
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
    return SendOptions(
        load_cli_settings(config, broker_conf, set_),
        cluster,
        all_clusters,
        no_wait,
        timeout,
        command_id,
        json,
    )


def choose_cluster(given: CliSettings, named: str | None) -> str:
    """The cluster that is meant: the one that was named, or the only one in the tables, or the
    default one where there is none yet."""
    if named is not None:
        return named
    from lb_stream.query.cluster_state import list_clusters

    known = list_clusters(given.tables)
    if len(known) > 1:
        raise CommandError(f"--cluster: expected one of {', '.join(known)}", 2)
    return known[0] if known else given.settings.stream.default_cluster


# --- sending ---


def send(how: SendOptions, kind: str, fields: dict[str, Any]) -> None:
    """Send a command and print what came of it.

    Raises typer.Exit(1) when it was refused, failed, or didn't end in time.
    """
    if not send_each(how, kind, [fields]):
        raise typer.Exit(1)


def send_each(how: SendOptions, kind: str, several: Sequence[dict[str, Any]]) -> bool:
    """Send commands one after the other, then print what came of each; whether all are done.

    Raises CommandError for no answer in time.
    """
    return send_commands(how, [(kind, fields) for fields in several])


def send_commands(
    how: SendOptions, several: Sequence[tuple[str, dict[str, Any]]], at_once: bool = False
) -> bool:
    """Send commands (kind, fields), then print what came of each; whether all are done.

    `at_once`: one round is to read them all. Raises CommandError for no answer in time.
    """
    commands = [_command(how, kind, fields) for kind, fields in several]
    key, bootstrap, topics = how.key, how.given.bootstrap, how.given.settings.topics
    options = how.given.client_options(bootstrap)
    done = True
    given = how.given
    from lb_stream.io.kafka.commands import ResultReader, send_command
    from lb_stream.io.kafka.commands import send_together as send_in_one_append

    rights = [*given.rights("Write", topics.commands), *given.rights("Read", topics.results)]
    with require_kafka(bootstrap, given, rights), ExitStack() as open_:
        require_topics(bootstrap, given, rights)
        if (absence := _find_absence(given, bootstrap)) and not how.no_wait:
            raise CommandError(
                f"no job answers: {absence}. Nothing was sent. Start it (lbctl balance, with its "
                "settings; lbctl status says more), then send the command again; --no-wait sends "
                "it all the same: a job that starts within five minutes does it"
            )
        if absence:
            note(f"no job answers now: {absence}. One that starts within five minutes does it")
        answers = [
            open_.enter_context(closing(ResultReader(options, topics.results, command.id)))
            for command in commands
        ]
        if at_once:
            send_in_one_append(options, topics.commands, key, commands)
        for command in commands:
            if not at_once:
                send_command(options, topics.commands, key, command)
            if how.no_wait and how.json:
                sent = {"id": command.id, "cluster": key or None, "kind": command.kind}
                emit_json(sent | {"outcome": "sent"})
            elif how.no_wait:
                emit(f"sent: {command.id}\n")
        for command, heard in zip(commands, answers if not how.no_wait else (), strict=False):
            last = _wait(how, command, heard, _progress(how, command, key))
            for answer in last.values():
                _print(how, answer, alone=len(last) == 1)
            done &= all(answer.outcome == "done" for answer in last.values())
    return done


def _find_absence(given: CliSettings, bootstrap: str) -> str:
    """Why no job would answer; empty: one does, or it can't be told."""
    from lb_stream.access.refusals import REFUSED
    from lb_stream.io.leadership.liveness import describe_absence
    from lb_stream.query import QueryError

    kafka = given.settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
    there = given.settings.model_copy(update={"kafka": kafka, "stream": given.stream})
    try:
        return describe_absence(there)
    except (QueryError, *REFUSED):  # whoever may write commands need not be allowed to read them
        return ""


def _command(how: SendOptions, kind: str, fields: dict[str, Any]) -> Command:
    from lb_stream.io.kafka.commands import InvalidCommand, build_command

    try:
        return build_command(kind, fields, principal(how.given), how.command_id)
    except InvalidCommand as error:
        raise CommandError(str(error), 2) from None


def principal(given: CliSettings) -> str:
    """Who sends: the Kafka principal where one logs in, else the user of this machine."""
    from lb_stream.access.principal import ANONYMOUS, principal_of

    user = principal_of(given.settings.kafka.options)
    return f"{getpass.getuser()}@{socket.gethostname()}" if user == ANONYMOUS else user


def _progress(how: SendOptions, command: Command, key: str) -> Callable[[], None]:
    """What shows how a command gets on that takes its time."""
    if command.kind != "drain-broker":
        return lambda: None
    from lb_stream.cli.shared.drain_watch import DrainWatch
    from lb_stream.core.commands.base import broker_of

    return DrainWatch(how.given.tables, key, broker_of(command.arguments["broker"])).look


def _wait(
    how: SendOptions, command: Command, answers: ResultReader, progress: Callable[[], None]
) -> dict[str, CommandResult]:
    """Cluster → its last answer.

    Raises CommandError when none comes, or one is still open, at the end of the time.
    """
    last: dict[str, CommandResult] = {}
    end, others = time.monotonic() + how.timeout_s, 0.0
    while (left := end - time.monotonic()) > 0:
        for answer in answers.poll(min(left, 0.5)):
            others = others or time.monotonic() + (OTHERS_S if how.all_clusters else 0.0)
            last[answer.cluster] = answer
            if answer.outcome == "accepted":
                note(
                    f"accepted{' by ' + answer.cluster if how.all_clusters else ''}: {answer.text}"
                )
        if last:
            progress()
        if (
            last
            and time.monotonic() >= others
            and all(answer.outcome != "accepted" for answer in last.values())
        ):
            return dict(sorted(last.items()))
    if last:
        waiting = sorted(name for name, answer in last.items() if answer.outcome == "accepted")
        raise CommandError(
            f"{', '.join(waiting)}: not done after {how.timeout_s:g} s; it goes on: lbctl commands "
            f"--id {command.id}"
        )
    raise CommandError(
        f"no answer after {how.timeout_s:g} s: is the job running (lbctl status), and does it know "
        "the cluster? "
        f"The command {command.id} stays on the topic and is done when the job reads it"
    )


def _print(how: SendOptions, answer: CommandResult, alone: bool) -> None:
    if how.json:
        emit_json(answer.model_dump(mode="json"))
        return
    rule = f" ({answer.rule})" if answer.rule and answer.outcome != "done" else ""
    emit_line(f"{'' if alone else answer.cluster + ': '}{answer.outcome}{rule}: {answer.text}")
