"""All commands of `lbctl`, with their options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from lb_stream.cli import main


def commands(among: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path of each command that `--help` lists, and the command."""
    context = among.make_context("lbctl", [], resilient_parsing=True)
    for name in among.list_commands(context):
        command, inside = among.get_command(context, name), (*path, name)
        if isinstance(command, TyperGroup):
            yield from commands(command, inside)
            if command.invoke_without_command:
                yield inside, command
        else:
            assert not command.hidden, "no command is hidden"
            yield inside, command


LBCTL = get_command(main.build_app())
COMMANDS = dict(commands(LBCTL))


def options(command: tuple[str, ...]) -> set[str]:
    """The names of a command's options, as they are given."""
    return {name for each in COMMANDS[command].params for name in each.opts}
