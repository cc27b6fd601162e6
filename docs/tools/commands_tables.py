"""Tables of docs/commands.md: operators' commands, from their files in lb_stream/operations."""

from __future__ import annotations

from lb_stream.cli.shared.command_lines import cli_of, own_fields
from lb_stream.core.commands.base import CommandLine, Operation, operations


def commands_table(*groups: str) -> str:
    """Return the commands whose first command line is of one of these groups of lbctl.

    The empty group: those that only programs send.
    """
    rows = [
        f"| {_synopsis(model)} | `{model.spec.kind}` | {model.spec.effect} | {_right(model)} |"
        for model in operations()
        if _group(model) in groups
    ]
    head = ["| command | on the topic | what it does | right, role |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def _right(model: type[Operation]) -> str:
    """Return the verb that a command needs, and the first built-in role that has it."""
    return f"`{model.spec.verb}`, {model.spec.role}"


def _group(model: type[Operation]) -> str:
    return model.spec.lines[0].name.split()[0] if model.spec.lines else ""


def _synopsis(model: type[Operation]) -> str:
    """Return the command lines that send a command; those with a preview say so."""
    lines = [f"`{_line(model, line)}`{_preview(line)}" for line in model.spec.lines]
    return ", ".join(lines) or "–"


def _line(model: type[Operation], line: CommandLine) -> str:
    words = [f"lbctl {line.name}"]
    if line.cluster == "argument":
        words.append("[CLUSTER]" if line.all_clusters else "CLUSTER")
    for field in own_fields(line.form or model).values():
        cli = cli_of(field)
        if cli is not None and not cli.flags:
            words.append(str(cli.metavar).replace("|", " or "))
        elif cli is not None and field.is_required() and cli.default is None:
            words.append(f"{cli.flags[-1]} {cli.metavar}")
    if line.arguments:
        words.insert(1, line.arguments)
    return " ".join(words)


def _preview(line: CommandLine) -> str:
    return " ([preview](#preview))" if line.preview else ""
