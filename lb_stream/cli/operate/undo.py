"""`lbctl undo`: takes back what was decided or ordered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, emit_rich, note, table
from lb_stream.cli.shared.sending import (
    DEFAULT_TIMEOUT_S,
    SendOptions,
    Timeout,
    choose_cluster,
    send_commands,
)
from lb_stream.cli.shared.spans import parse_duration

if TYPE_CHECKING:
    from lb_stream.core.commands.base import Operation
    from lb_stream.query.past.undo import Undo


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    example = "Example: lbctl undo eu-1:4711:1 · lbctl undo --since 10m --cluster eu-1"
    app.command(
        epilog=f"{example} · Exit codes: 0 all done, or only shown; 1 something was not; 2 wrong "
        "usage."
    )(undo)


def undo(
    name: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id of a decision or of a command.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="All moves and commands of the last so long, e.g. 90s, 10m, 1h.",
        ),
    ] = None,
    pin: Annotated[
        str,
        typer.Option(
            "--pin",
            metavar="TIME",
            help="How long balancing is to leave them where they then are; 0s: not at all.",
        ),
    ] = "1h",
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would be sent, and send nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    cluster: Cluster = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Take back a decision, a command, or all of the last minutes: bundles go back and are pinned,
    settings are what they were before.

    It says what can't be taken back, and why. What it sends are commands like any others (lbctl
    commands).
    """
    if (name is None) == (since is None):
        raise CommandError("expected one of: the ID of a decision or a command, --since TIME", 2)
    if json and not (yes or preview):
        raise CommandError("--json: expected --yes or --preview, too: what is asked is no JSON", 2)
    pin_ms = parse_duration("--pin", pin)
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.undo import plan_undo, plan_undo_since

    with open_lake(given.tables) as lake:
        if name is not None:
            found = plan_undo(lake, name, cluster)
        else:
            begin_ms = time.time_ns() // 1_000_000 - parse_duration("--since", str(since), least=1)
            found = plan_undo_since(lake, begin_ms, choose_cluster(given, cluster))
    steps = found.steps(pin_ms)
    if not json:
        _show(found, pin if pin_ms else None)
    wanted = bool(steps) and not preview
    if wanted and not yes and not typer.confirm(f"Send this to {found.cluster}?", err=True):
        note("nothing was sent")
        raise typer.Exit(1)
    how = SendOptions(given, found.cluster, False, False, timeout, None, json)
    done = _send(how, found, pin_ms) if wanted else preview
    if json:
        emit_json(found.to_dict() | ({"done": done} if wanted else {}))
    if not done:
        raise typer.Exit(1)


def _require_room_for_pins(found: Undo) -> None:
    """Raise CommandError where more bundles go back than may be pinned: nothing is sent then."""
    from lb_stream.contracts.commands import MOST_PINS

    if len(found.moves) > MOST_PINS:
        most = f"{MOST_PINS} of a cluster may be pinned"
        raise CommandError(
            f"--pin: {len(found.moves)} bundles go back, and {most}. Nothing was sent. "
            "--pin 0s sends them back without pins",
            2,
        )


def _send(how: SendOptions, found: Undo, pin_ms: int) -> bool:
    """Send what takes it back; whether all is done.

    Where something that was in force comes back beside moves, one round reads all: a broker whose
    drain ends has its bundles on their way back before balancing sees that it is empty. What would
    end publishing waits until the moves are done.
    """
    if pin_ms:
        _require_room_for_pins(found)
    groups = [[(kind, fields) for fields in several] for kind, several in found.steps(pin_ms)]
    if found.commands and found.moves:
        groups = [[command for group in groups for command in group]]
    groups += [[(kind, fields) for fields in several] for kind, several in found.last_steps()]
    return all(send_commands(how, group, at_once=len(group) > 1) for group in groups)


def _show(found: Undo, pinned: str | None) -> None:
    if not found.commands and not found.moves:
        emit_line(f"Nothing to send to {found.cluster}.")
    for command in found.commands:
        emit_line(_describe(command))
    if found.moves:
        rows = [(move["bundle"], move["from"], move["to"]) for move in found.moves]
        emit_rich(table(("bundle", "from", "back to"), rows), "")
        emit_line(
            "They are not pinned: balancing may move them again."
            if pinned is None
            else f"They are pinned there for {pinned}."
        )
    for command in found.afterwards:
        emit_line(f"{_describe(command)}, when they are back: it may end publishing")
    for what, why in found.left:
        emit_line(f"- {what}: {why}")


def _describe(command: Operation) -> str:
    given = command.given.items()
    fields = " ".join(f"{name}={value}" for name, value in given if name != "kind")
    return f"{command.kind} {fields}".rstrip()
