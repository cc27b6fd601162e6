"""Operators' commands on the command line: what lbctl takes follows from the files of
`lb_stream/operations`."""

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

from lb_stream.cli.shared.output import CommandError
from lb_stream.cli.shared.sending import SendOptions, with_send_options

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo
    from typer._click.core import Command as ClickCommand
    from typer._click.core import Context

    from lb_stream.core.commands.base import Cli, CommandLine, Operation

PREVIEW_HELP = "Send nothing: show what would come of it, played from the present for half an hour."


class OperatorGroup(TyperGroup):
    """A group of lbctl with the commands that operators send, which are loaded when one of them is
    asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of its own commands, then of those that operators send."""
        return [*super().list_commands(ctx), *derived_commands(str(self.name))]

    def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
        """Return the command of that name."""
        own = super().get_command(ctx, cmd_name)
        return own or derived_commands(str(self.name)).get(cmd_name)


@cache
def derived_commands(group: str) -> Mapping[str, ClickCommand]:
    """Return the commands of a group that follow from operators' commands, by their names."""
    from lb_stream.core.commands.base import operations

    app = typer.Typer(rich_markup_mode="rich")
    app.callback()(lambda: None)  # a group, even of one
    for model in operations():
        for line in model.spec.lines:
            words = line.name.split()
            if words[0] == group and not line.handwritten:
                add = app.command(words[1], help=line.help, epilog=f"Example: lbctl {line.example}")
                add(_function(model, line))
    return get_group(app).commands


def _function(model: type[Operation], line: CommandLine) -> Callable[..., None]:
    """Return a function whose parameters are a command's options, and which sends the command."""
    form = line.form or model
    fields = own_fields(form)

    def run(*, send: SendOptions, preview: bool = False, **given: Any) -> None:
        values = _values(fields, given)
        wanted = _wire_fields(model, line, values, send)
        if line.must_be_known:
            _require_known(send)
        if preview:
            from lb_stream.cli.shared.prediction import preview_command

            preview_command(send, model, wanted)
        else:
            send(model.spec.kind, **wanted)

    parameters = [_parameter(name, field) for name, field in fields.items()]
    if line.preview:
        option = typer.Option("--preview", help=PREVIEW_HELP)
        parameters.append(_keyword("preview", Annotated[bool, option], False))
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_send_options(all_clusters=line.all_clusters, cluster=line.cluster)(run)


def own_fields(form: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields that people give, by their names: those that say how the command line takes
    them."""
    return {name: field for name, field in form.model_fields.items() if cli_of(field) is not None}


def cli_of(field: FieldInfo) -> Cli | None:
    """Return how the command line takes a field; None: it doesn't."""
    from lb_stream.core.commands.base import Cli

    return next((mark for mark in field.metadata if isinstance(mark, Cli)), None)


# --- a field as an option ---


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _parameter(name: str, field: FieldInfo) -> Parameter:
    cli = cli_of(field)
    assert cli is not None
    shown: dict[str, Any] = {"metavar": cli.metavar, "help": field.description}
    annotation = plain_type(field.annotation)
    if cli.parse is not None:
        annotation = str
    elif cli.is_json_file:
        annotation = Path
    else:
        shown |= {"min": _bound(field, Ge, "ge"), "max": _bound(field, Le, "le")}

    default: Any = Parameter.empty
    if not field.is_required():
        # an empty list is none: a list option that isn't given is left out
        default = field.default if field.default != [] else None
        annotation = annotation | None if default is None else annotation
    if cli.default is not None:
        default = cli.default
    mark = typer.Option(*cli.flags, **shown) if cli.flags else typer.Argument(**shown)
    return _keyword(name, Annotated[annotation, mark], default)


def _bound(field: FieldInfo, kind: type, name: str) -> Any:
    return next((getattr(mark, name) for mark in field.metadata if isinstance(mark, kind)), None)


def plain_type(annotation: Any) -> Any:
    """Return a field's type without what is annotated: text, numbers, lists and choices."""
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


# --- what was given as fields of the command ---


def _values(fields: Mapping[str, FieldInfo], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given, read. Raises CommandError."""
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
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: {error}", 2) from None


def _wire_fields(
    model: type[Operation], line: CommandLine, values: dict[str, Any], send: SendOptions
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
            wanted[name] = send.broker(value)
        elif isinstance(value, dict):
            wanted[name] = {send.broker(broker): other for broker, other in value.items()}
    return wanted


def _require_known(send: SendOptions) -> None:
    """Raise CommandError for a cluster that the tables, where there are any, don't know."""
    from lb_stream.query.cluster_state import describe_unknown_cluster, list_clusters

    known = list_clusters(send.given.tables)
    if known and send.cluster not in known:
        raise CommandError(describe_unknown_cluster(str(send.cluster), known), 2)
