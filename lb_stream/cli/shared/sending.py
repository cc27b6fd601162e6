"""The options that all commands to the running balancer share, and the one way to send such a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Effective, Json, Set, cluster_name, effective
from lb_stream.cli.shared.output import CommandError

_PANEL = "Sending"
ToCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Which cluster; not needed where there is only one.",
        callback=cluster_name,
        rich_help_panel=_PANEL,
    ),
]
AllClusters = Annotated[bool, typer.Option("--all-clusters", help="Every cluster that the balancer knows.", rich_help_panel=_PANEL)]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Send it, and don't wait for what comes of it.", rich_help_panel=_PANEL)]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="S", min=0.1, help="Seconds to wait for what comes of it.", rich_help_panel=_PANEL)
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id", metavar="ID", help="The command's id: one that is sent again with the same id isn't done twice.", rich_help_panel=_PANEL
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="Settings in a TOML file (elsewhere: --config).", rich_help_panel="Settings"),
]
DEFAULT_TIMEOUT_S = 120.0


Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Sending:
    """How a command is to be sent. `cluster` None: the only one there is, or all of them."""

    given: Effective
    cluster: str | None
    all_clusters: bool
    no_wait: bool
    timeout_s: float
    command_id: str | None
    json: bool

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send the command and print what came of it. Raises typer.Exit(1) when that isn't what was wanted."""
        from lb_stream.cli.shared.send import send

        send(self, kind, {name: value for name, value in fields.items() if value is not None})

    @property
    def key(self) -> str:
        """The record's key: the cluster, empty for all. Raises CommandError where it isn't clear which."""
        if self.all_clusters:
            if self.cluster is not None:
                raise CommandError("--cluster and --all-clusters: one of them", 2)
            return ""
        return only_cluster(self.given, self.cluster)


def sends(*, all_clusters: bool = False, cluster: Any = ToCluster, config: Any = ConfigFile) -> Callable[[Command], Command]:
    """Give a command the options by which commands are sent, in place of its parameter `send`, which gets the Sending that they make.

    `all_clusters`: it may go to all of them. `cluster`: an argument in place of the option; `config`: the same option, spelled otherwise.
    """

    def decorate(command: Command) -> Command:
        own = {name: each for name, each in signature(command, eval_str=True).parameters.items() if name != "send"}
        shared = dict(signature(_sending, eval_str=True).parameters)
        shared["config"] = shared["config"].replace(annotation=config)
        if cluster is not ToCluster:
            shared["cluster"] = Parameter("cluster", Parameter.KEYWORD_ONLY, annotation=cluster)
        if not all_clusters:
            del shared["all_clusters"]

        @wraps(command)
        def with_options(**given: Any) -> None:
            send = _sending(**{name: given.pop(name) for name in shared})
            command(**given, send=send)

        parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (own | shared).values()]
        with_options.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
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
) -> Sending:
    return Sending(effective(config, broker_conf, set_), cluster, all_clusters, no_wait, timeout, command_id, json)


def only_cluster(given: Effective, named: str | None) -> str:
    """The cluster that is meant: the one that was named, or the only one in the tables, or the default one where there is none yet."""
    if named is not None:
        return named
    from lb_stream.query.cluster_state import known_clusters

    known = known_clusters(given.tables)
    if len(known) > 1:
        raise CommandError(f"which cluster? --cluster one of {', '.join(known)}", 2)
    return known[0] if known else given.settings.stream.default_cluster
