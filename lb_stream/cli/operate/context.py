"""`lbctl context`: files of settings by name, and the ones that commands use."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from lb_stream.cli.shared.completion import complete_contexts
from lb_stream.cli.shared.contexts import (
    CHOICE,
    NONE,
    load_contexts,
    place,
    save_contexts,
    use_context,
)
from lb_stream.cli.shared.options import Format, Json, Output
from lb_stream.cli.shared.output import (
    CommandError,
    emit_json,
    emit_line,
    emit_rich,
    emit_rows,
    note,
    table,
)

app = typer.Typer(
    name="context",
    no_args_is_help=True,
    help="Name files of settings, and choose those that all commands use.",
)
_FILES = ("config", "broker_conf")
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The context's name.", autocompletion=complete_contexts),
]


@app.callback()
def _group() -> None:
    """Name files of settings, and choose those that all commands use."""


@app.command("list", epilog="Example: lbctl context list")
def list_(json: Json = False, output: Output = Format.table) -> None:
    """Show all contexts, and which one is in use."""
    contexts = load_contexts()
    used = os.environ.get(CHOICE) or contexts.current
    rows = [
        {"context": name, "in_use": name == used, **asdict(own)}
        for name, own in sorted(contexts.known.items())
    ]
    if emit_rows(rows, output, json):
        return
    if not rows:
        note(f"no context in {place()}: lbctl run makes one, and lbctl context set")
        return
    cells = [
        (row["context"], "*" if row["in_use"] else "", *(row[key] or "-" for key in _FILES))
        for row in rows
    ]
    emit_rich(table(("context", "in use", "settings", "broker.conf"), cells))


@app.command(epilog="Example: lbctl context use eu-1")
def use(name: Name, json: Json = False) -> None:
    """Let all commands that name no files use this context's; `none`: no context's.

    LB_CONTEXT overrides it.
    """
    contexts = load_contexts()
    if name == NONE:
        save_contexts(replace(contexts, current=None))
    else:
        contexts.require(name)
        save_contexts(replace(contexts, current=name))
    _print_current(None if name == NONE else name, json)


@app.command("set", epilog="Example: lbctl context set eu-1 --config eu-1/lb.toml")
def set_(
    name: Name,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings in a TOML file."),
    ] = None,
    broker_conf: Annotated[
        Path | None,
        typer.Option("--broker-conf", metavar="FILE", help="A Pulsar broker.conf."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a context, or give it other files, and use it."""
    files = [file for file in (config, broker_conf) if file is not None]
    if not files:
        raise CommandError("expected --config, --broker-conf or both", 2)
    if missing := [file for file in files if not file.is_file()]:
        raise CommandError(f"{missing[0]}: expected a file; there is none", 2)
    use_context(name, config, broker_conf)
    _print_current(name, json)


def _print_current(name: str | None, json: bool) -> None:
    if json:
        emit_json({"current": name})
    else:
        used = "no context" if name is None else f"the context {name}"
        emit_line(f"commands use {used} from now on")


@app.command(epilog="Example: lbctl context delete eu-1")
def delete(name: Name, json: Json = False) -> None:
    """Forget a context; its files stay."""
    contexts = load_contexts()
    contexts.require(name)
    others = {other: own for other, own in contexts.known.items() if other != name}
    current = None if contexts.current == name else contexts.current
    save_contexts(replace(contexts, known=others, current=current))
    if json:
        emit_json({"deleted": name, "current": current})
    else:
        emit_line(f"the context {name} is forgotten; its files stay")
