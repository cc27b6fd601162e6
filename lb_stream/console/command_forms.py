"""Forms that send commands. They follow from the commands in lb_stream/operations; plus undo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from lb_stream.console.address import link
from lb_stream.console.auth.users import Role
from lb_stream.console.auth.visitor import Visitor
from lb_stream.contracts.commands import LONGEST_PIN_MS
from lb_stream.core.commands.base import (
    BadForm,
    Button,
    Cli,
    Operation,
    operations,
    parse_hours,
)

CommandFields = tuple[str, dict[str, object]]
"""A command's kind, and its fields."""
HOURS = (1, 6, 24, 168)
"""Choices for how long a pin or a rejection holds."""
FIELDS_WITH_OWN_INPUT = ("hours", "why", "destination")
"""Fields for which the form's template has an input of its own, such as a choice of brokers."""


@dataclass(frozen=True, slots=True)
class TextInput:
    """A field that users type, or tick. `min` and `max` bound a number."""

    name: str
    label: str
    help: str
    is_required: bool
    is_number: bool
    min: int | None
    max: int | None
    is_flag: bool = False


@dataclass(frozen=True, slots=True)
class CommandForm:
    """A form that sends a command.

    `on`: fields that the address gives, such as the broker; `asks`: fields that users fill in;
    `inputs`: those of `asks` that users type; `fields`: fields with a fixed value. `sentence` says
    what the command does, with the fields of `on`. `model` None: undo sends other commands.
    """

    title: str
    sentence: str
    role: Role
    on: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    inputs: tuple[TextInput, ...] = ()
    model: type[Operation] | None = None
    fields: Mapping[str, object] | None = None


def _build_form(model: type[Operation], button: Button) -> CommandForm:
    typed = tuple(name for name in button.asks if name not in FIELDS_WITH_OWN_INPUT)
    return CommandForm(
        button.title,
        button.sentence,
        model.spec.role,
        button.on,
        button.asks,
        tuple(_build_input(model, name) for name in typed),
        model,
        button.fields,
    )


def _build_input(model: type[Operation], name: str) -> TextInput:
    field = model.model_fields[name]
    lower: list[Any] = [mark.ge for mark in field.metadata if isinstance(mark, Ge)]
    upper: list[Any] = [mark.le for mark in field.metadata if isinstance(mark, Le)]
    return TextInput(
        name,
        label=_label(field, name),
        help=field.description or "",
        is_required=field.is_required(),
        is_number=bool(lower or upper),
        min=lower[0] if lower else None,
        max=upper[0] if upper else None,
        is_flag=field.annotation is bool,
    )


def _label(field: FieldInfo, name: str) -> str:
    """Return the words of the command line's option; where it has none, of the field's name."""
    flags = [flag for mark in field.metadata if isinstance(mark, Cli) for flag in mark.flags]
    text = (flags[0] if flags else name).removeprefix("--")
    return text.replace("-", " ").replace("_", " ").capitalize()


COMMAND_FORMS: dict[str, CommandForm] = {
    button.name: _build_form(model, button)
    for model in operations()
    for button in model.spec.buttons
} | {"undo": CommandForm("Undo", "Undo {id}.", "operator", ("id",), ("hours",))}
"""The forms by the names in their addresses."""

MODE_FORMS = {"observe": "dry-run", "approve": "ask-first", "act": "publish"}
"""A cluster's mode → the form that sets it."""


def list_offered_commands(
    visitor: Visitor, cluster: str, names: Iterable[str], /, **on: str
) -> list[tuple[str, str]]:
    """Return title and address of each of these forms that the visitor may send."""
    return [
        (COMMAND_FORMS[name].title, link(f"send/{name}", cluster=cluster, **on))
        for name in names
        if visitor.may(COMMAND_FORMS[name].role, cluster)
    ]


def parse_form(name: str, given: Mapping[str, str]) -> CommandFields:
    """Parse the fields of a form, other than undo's, to a command's fields. Raises BadForm."""
    form = COMMAND_FORMS[name]
    assert form.model is not None
    if form.fields:
        return form.model.spec.kind, dict(form.fields)
    fields = form.model.fields_from_form(given)
    for field in form.inputs:
        if field.is_number and field.name in fields:
            fields[field.name] = _parse_number(field.name, str(fields[field.name]))
    return form.model.spec.kind, fields


def _parse_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadForm(f"{name} = {text}: expected a whole number")
    return int(text)


def parse_pin_ms(given: Mapping[str, str]) -> int:
    """Return for how long bundles that undo moves back are pinned, in ms. Raises BadForm."""
    return parse_hours(given, LONGEST_PIN_MS)
