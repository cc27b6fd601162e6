"""What can be commanded on a page: forms that follow from the commands in lb_stream/operations, and
undo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from annotated_types import Ge, Le

from lb_stream.console.address import link
from lb_stream.console.auth.users import Role
from lb_stream.console.auth.visitor import Visitor
from lb_stream.contracts.commands import LONGEST_PIN_MS
from lb_stream.core.commands.base import (
    BadForm,
    Button,
    Operation,
    operations,
    parse_hours,
)

Step = tuple[str, dict[str, Any]]
"""A command's kind and fields."""
HOURS = (1, 6, 24, 168)
"""How long a pin or a rejection may hold."""
WITH_CHOICES = ("hours", "why", "destination")
"""Fields that the page has something to say about: choices, or who reads it."""


@dataclass(frozen=True, slots=True)
class Input:
    """A field of a form that is typed in."""

    name: str
    help: str
    is_required: bool
    is_number: bool
    least: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class CommandForm:
    """One thing to command.

    `on`: what it is about, in the address and in the form. `asks`: other fields.

    `model` None: taking back is what was done before.
    """

    title: str
    sentence: str  # with the fields of `on`
    role: Role
    on: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    model: type[Operation] | None = None
    fields: Mapping[str, Any] | None = None  # what the form sends beside these


def _act(model: type[Operation], button: Button) -> CommandForm:
    typed = tuple(_input(model, name) for name in button.asks if name not in WITH_CHOICES)
    return CommandForm(
        button.title,
        button.sentence,
        model.spec.role,
        button.on,
        button.asks,
        typed,
        model,
        button.fields,
    )


def _input(model: type[Operation], name: str) -> Input:
    field = model.model_fields[name]
    least: list[Any] = [mark.ge for mark in field.metadata if isinstance(mark, Ge)]
    most: list[Any] = [mark.le for mark in field.metadata if isinstance(mark, Le)]
    return Input(
        name,
        field.description or "",
        field.is_required(),
        bool(least or most),
        least[0] if least else None,
        most[0] if most else None,
    )


COMMAND_FORMS: dict[str, CommandForm] = {
    button.name: _act(model, button) for model in operations() for button in model.spec.buttons
} | {"undo": CommandForm("Undo", "Take back {id}.", "operator", ("id",), ("hours",))}

MODES = {"observe": "dry-run", "approve": "ask-first", "act": "publish"}
"""A cluster's mode → the act that brings it about."""


def list_offered_commands(
    visitor: Visitor, cluster: str, names: Iterable[str], /, **on: str
) -> list[tuple[str, str]]:
    """Return titles and addresses of those that a visitor may command there."""
    return [
        (COMMAND_FORMS[name].title, link(f"act/{name}", cluster=cluster, **on))
        for name in names
        if visitor.may(COMMAND_FORMS[name].role, cluster)
    ]


def build_step(name: str, given: Mapping[str, str]) -> Step:
    """Return the command of an act, from the fields of its form. Not of `undo`. Raises BadForm."""
    act = COMMAND_FORMS[name]
    assert act.model is not None
    if act.fields:
        return act.model.spec.kind, dict(act.fields)
    fields = act.model.fields_from_form(given)
    for field in act.inputs:
        if field.is_number and field.name in fields:
            fields[field.name] = _number(field, fields[field.name])
    return act.model.spec.kind, fields


def _number(field: Input, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadForm(f"{field.name}={text}: expected a whole number")
    return int(text)


def parse_pin_ms(given: Mapping[str, str]) -> int:
    """Return how long what is taken back stays pinned, in ms; 0: not at all. Raises BadForm."""
    return parse_hours(given, LONGEST_PIN_MS)
