"""Builds lbctl's commands for operators from the operations in core."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Le
from typer.core import TyperGroup
from typer.main import get_group

from lb_stream.cli.shared.completion import (
    complete_brokers,
    complete_namespaces,
    complete_ranges,
    complete_rollouts,
)
from lb_stream.cli.shared.output import CommandError
from lb_stream.cli.shared.sending import SendOptions, send_commands, with_send_options

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo
    from typer._click.core import Command as ClickCommand
    from typer._click.core import Context

    from lb_stream.core.commands.base import Cli, CommandLine, Operation

_COMPLETIONS: Mapping[str, Callable[..., list[str]]] = {
    "TENANT/NAMESPACE": complete_namespaces,
    "RANGE": complete_ranges,
    "ID": complete_rollouts,
}
"""How values of a field are shown in --help → what offers them to the shell."""
PREVIEW_HELP = "Send nothing: simulate the next half hour with the command, and show the outcome."


class OperatorGroup(TyperGroup):
    """A group of lbctl with operators' commands, which are loaded when one of them is called."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of the group's own commands, then of operators' commands."""
        return [*super().list_commands(ctx), *derived_commands(str(self.name))]

    def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
        """Return the command with that name."""
        own = super().get_command(ctx, cmd_name)
        return own or derived_commands(str(self.name)).get(cmd_name)


@cache
def derived_commands(group: str) -> Mapping[str, ClickCommand]:
    """Return a group's commands that are built from operations, by their names."""
    from lb_stream.core.commands.base import operations

    app = typer.Typer(rich_markup_mode="rich")
    app.callback()(lambda: None)  # makes a group even of a single command
    for model in operations():
        for line in model.spec.lines:
            words = line.name.split()
            if words[0] == group and not line.handwritten:
                add = app.command(words[1], help=line.help, epilog=f"Example: lbctl {line.example}")
                add(_function(model, line))
    return get_group(app).commands


def _function(model: type[Operation], line: CommandLine) -> Callable[..., None]:
    """Return a function that sends a command; its parameters are the command's options."""
    form = line.form or model
    fields = own_fields(form)

    def run(*, options: SendOptions, preview: bool = False, **given: Any) -> None:
        values = _parse_values(fields, given)
        wanted = _build_fields(model, line, values, options)
        if line.must_be_known:
            _require_known_cluster(options)
        if preview:
            from lb_stream.cli.shared.prediction import preview_command

            preview_command(options, model, wanted)
        elif not send_commands(options, [(model.spec.kind, wanted)]):
            raise typer.Exit(1)

    parameters = [
        _parameter(name, field, _find_completion(model, name, field))
        for name, field in fields.items()
    ]
    if line.preview:
        option = typer.Option("--preview", help=PREVIEW_HELP)
        parameters.append(_keyword("preview", Annotated[bool, option], False))
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_send_options(all_clusters=line.all_clusters, cluster=line.cluster)(run)


def _find_completion(
    model: type[Operation], name: str, field: FieldInfo
) -> Callable[..., list[str]] | None:
    """Return what offers values for a field to the shell; None: nothing does."""
    if name in model.brokers:
        return complete_brokers
    cli = cli_of(field)
    return None if cli is None else _COMPLETIONS.get(str(cli.metavar))


def own_fields(form: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields that are options or arguments on the command line, by their names."""
    return {name: field for name, field in form.model_fields.items() if cli_of(field) is not None}


def cli_of(field: FieldInfo) -> Cli | None:
    """Return how a field is given on the command line; None: not at all."""
    from lb_stream.core.commands.base import Cli

    return next((mark for mark in field.metadata if isinstance(mark, Cli)), None)


# --- a field as an option ---


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _parameter(name: str, field: FieldInfo, complete: Callable[..., list[str]] | None) -> Parameter:
    cli = cli_of(field)
    assert cli is not None
    shown: dict[str, Any] = {
        "metavar": cli.metavar,
        "help": field.description,
        "autocompletion": complete,
    }
    annotation = plain_type(field.annotation)
    if cli.parse is not None:
        annotation = str
    elif cli.is_json_file:
        annotation = Path
    else:
        shown |= {"min": _bound(field, Ge, "ge"), "max": _bound(field, Le, "le")}

    default: Any = Parameter.empty
    if not field.is_required():
        # An empty list becomes None: a list option that isn't given is left out.
        default = field.default if field.default != [] else None
        annotation = annotation | None if default is None else annotation
    if cli.default is not None:
        default = cli.default
    mark = typer.Option(*cli.flags, **shown) if cli.flags else typer.Argument(**shown)
    return _keyword(name, Annotated[annotation, mark], default)


def _bound(field: FieldInfo, kind: type, name: str) -> Any:
    return next((getattr(mark, name) for mark in field.metadata if isinstance(mark, kind)), None)


def plain_type(annotation: Any) -> Any:
    """Return a field's type without its annotations."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return plain_type(arguments[0])
    if origin in (Union, types.UnionType):
        return Union[tuple(map(plain_type, arguments))]  # noqa: UP007 (known at run time only)
    if origin is list:
        return list[plain_type(arguments[0])]  # type: ignore[misc]
    if origin is Literal:
        return annotation
    return annotation


# --- given options as fields of the command ---


def _parse_values(fields: Mapping[str, FieldInfo], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the given options; those that were left out are missing.

    Raises CommandError.
    """
    values = {}
    for name, field in fields.items():
        value, cli = given[name], cli_of(field)
        assert cli is not None
        if value is None or value == []:
            continue
        if cli.is_json_file:
            value = _read_json(value)
        elif cli.parse is not None:
            try:
                value = cli.parse(value)
            except ValueError as error:
                raise CommandError(f"{cli.flags[0]} {value!r}: {error}", 2) from None
        values[name] = value
    return values


def _read_json(file: Path) -> Any:
    try:
        return json.loads(sys.stdin.read() if str(file) == "-" else file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise CommandError(f"{file}: {error}", 2) from None


def _build_fields(
    model: type[Operation], line: CommandLine, values: dict[str, Any], options: SendOptions
) -> dict[str, Any]:
    """Return the fields of the command, with brokers' whole names. Raises CommandError."""
    from lb_stream.core.commands.base import BadForm

    try:
        wanted = values if line.form is None else line.form(**values).fields()
        model.check_given(wanted)
    except BadForm as error:
        raise CommandError(str(error), 2) from None
    for name in model.brokers:
        value = wanted.get(name)
        if isinstance(value, str):
            wanted[name] = options.require_broker(value)
        elif isinstance(value, list):
            wanted[name] = [options.require_broker(broker) for broker in value]
        elif isinstance(value, dict):
            wanted[name] = {options.require_broker(broker): more for broker, more in value.items()}
    return wanted


def _require_known_cluster(options: SendOptions) -> None:
    """Raise CommandError if there are tables, and they don't have the cluster."""
    from lb_stream.query.cluster_state import describe_unknown_cluster, list_clusters

    known = list_clusters(options.given.tables)
    if known and options.cluster not in known:
        raise CommandError(describe_unknown_cluster(str(options.cluster), known), 2)
