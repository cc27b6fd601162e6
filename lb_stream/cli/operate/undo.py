"""`lbctl undo`: takes back decisions and commands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.completion import complete_decisions_and_commands
from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit_json,
    emit_line,
    emit_rich,
    note,
    note_whole_id,
    table,
)
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
        str | None,
        typer.Argument(
            metavar="ID",
            help="The id of a decision or of a command, or its begin.",
            autocompletion=complete_decisions_and_commands,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Take back all moves and commands of the last 90s, 10m or 1h, for example.",
        ),
    ] = None,
    pin: Annotated[
        str,
        typer.Option(
            "--pin",
            metavar="TIME",
            help="How long balancing may not move the bundles again; 0s: it may at once.",
        ),
    ] = "1h",
    preview: Annotated[
        bool, typer.Option("--preview", help="Send nothing: show what would be sent.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    cluster: Cluster = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Take back a decision, a command, or everything of the last minutes.

    Bundles move back and are pinned; settings get their earlier values. It shows what can't be
    taken back, and why. It sends ordinary commands (lbctl commands).
    """
    if (name is None) == (since is None):
        raise CommandError("expected one of: the ID of a decision or a command, --since TIME", 2)
    if json and not (yes or preview):
        raise CommandError("--json: expected --yes or --preview, too: a question is no JSON", 2)
    pin_ms = parse_duration("--pin", pin)
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.names import find_decision_or_command
    from lb_stream.query.past.undo import plan_undo, plan_undo_since

    with open_lake(given.tables) as lake:
        if name is not None:
            whole = find_decision_or_command(lake, name, cluster) or name
            note_whole_id(name, whole)
            found = plan_undo(lake, whole, cluster)
        else:
            begin_ms = time.time_ns() // 1_000_000 - parse_duration("--since", str(since), least=1)
            found = plan_undo_since(lake, begin_ms, choose_cluster(given, cluster))
    steps = found.steps(pin_ms)
    if not json:
        _show(found, pin if pin_ms else None)
    wanted = bool(steps) and not preview
    if (
        wanted
        and not yes
        and not typer.confirm(f"Send these commands to {found.cluster}?", err=True)
    ):
        note("nothing was sent")
        raise typer.Exit(1)
    options = SendOptions(given, found.cluster, False, False, timeout, None, json)
    done = _send(options, found, pin_ms) if wanted else preview
    if json:
        emit_json(found.to_dict() | ({"done": done} if wanted else {}))
    if not done:
        raise typer.Exit(1)


def _require_room_for_pins(found: Undo) -> None:
    """Raise CommandError if more bundles move back than may be pinned."""
    from lb_stream.contracts.commands import MOST_PINS

    if len(found.moves) > MOST_PINS:
        raise CommandError(
            f"--pin: {len(found.moves)} bundles move back, and {MOST_PINS} of a cluster may be "
            "pinned. Nothing was sent. --pin 0s moves them back without pins",
            2,
        )


def _send(options: SendOptions, found: Undo, pin_ms: int) -> bool:
    """Send the commands that take it back; return whether all are done.

    If there are moves and other commands, one round reads them all: a broker whose drain ends gets
    its bundles back before balancing sees that it is empty. Commands that may end publishing wait
    until the moves are done.
    """
    if pin_ms:
        _require_room_for_pins(found)
    groups = [[(kind, fields) for fields in several] for kind, several in found.steps(pin_ms)]
    if found.commands and found.moves:
        groups = [[command for group in groups for command in group]]
    groups += [[(kind, fields) for fields in several] for kind, several in found.last_steps()]
    return all(send_commands(options, group, in_one_round=len(group) > 1) for group in groups)


def _show(found: Undo, pinned: str | None) -> None:
    if not found.commands and not found.moves:
        emit_line(f"Nothing to send to {found.cluster}.")
    for command in found.commands:
        emit_line(_describe(command))
    if found.moves:
        rows = [(move["bundle"], move["from"], move["to"]) for move in found.moves]
        emit_rich(table(("bundle", "from", "back to"), rows), "")
        emit_line(
            "They are not pinned: balancing may move them again at once."
            if pinned is None
            else f"They are pinned there for {pinned}."
        )
    for command in found.afterwards:
        emit_line(f"{_describe(command)}, once the bundles are back: it may end publishing")
    for subject, reason in found.left:
        emit_line(f"- {subject}: {reason}")


def _describe(command: Operation) -> str:
    given = command.given.items()
    fields = " ".join(f"{name}={value}" for name, value in given if name != "kind")
    return f"{command.kind} {fields}".rstrip()
