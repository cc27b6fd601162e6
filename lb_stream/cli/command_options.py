"""The options that all commands to the running balancer share, and the one way to send such a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from lb_stream.cli.options import Effective, cluster_name
from lb_stream.cli.output import CommandError

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
    str | None,
    typer.Option("--settings", metavar="FILE", help="Settings in a TOML file (elsewhere: --config).", rich_help_panel="Settings"),
]
DEFAULT_TIMEOUT_S = 120.0


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
        from lb_stream.cli.send import send

        send(self, kind, {name: value for name, value in fields.items() if value is not None})

    @property
    def key(self) -> str:
        """The record's key: the cluster, empty for all. Raises CommandError where it isn't clear which."""
        if self.all_clusters:
            if self.cluster is not None:
                raise CommandError("--cluster and --all-clusters: one of them", 2)
            return ""
        return only_cluster(self.given, self.cluster)


def only_cluster(given: Effective, named: str | None) -> str:
    """The cluster that is meant: the one that was named, or the only one in the tables, or the default one where there is none yet."""
    if named is not None:
        return named
    from lb_stream.cli.standing import known_clusters

    known = known_clusters(given.tables)
    if len(known) > 1:
        raise CommandError(f"which cluster? --cluster one of {', '.join(known)}", 2)
    return known[0] if known else given.settings.stream.default_cluster
