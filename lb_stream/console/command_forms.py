"""Forms that send commands. They follow from the commands in lb_stream/operations; plus undo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from lb_stream.console.address import link
from lb_stream.console.auth.visitor import Visitor
from lb_stream.console.queries import MAX_ID_CHARACTERS, ClusterName, ClusterQuery, Name, Text
from lb_stream.contracts.commands import LONGEST_PIN_MS, LONGEST_WHY
from lb_stream.contracts.verbs import ALL, BuiltInRole, RequiredRight, Verb, find_role
from lb_stream.core.commands.base import (
    HOUR_MS,
    BadForm,
    Button,
    Cli,
    Operation,
    operations,
    parse_hours,
)

CommandFields = tuple[str, dict[str, object]]
"""A command's kind, and its fields."""
LONGEST_ID = 128
"""Characters of a command's id."""
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
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class CommandForm:
    """A form that sends a command.

    `on`: fields that the address gives, such as the broker; `asks`: fields that users fill in;
    `inputs`: those of `asks` that users type; `fields`: fields with a fixed value. `sentence` says
    what the command does, with the fields of `on`. `model` and `verb` None: undo sends other
    commands.
    """

    title: str
    sentence: str
    verb: Verb | None
    on: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    inputs: tuple[TextInput, ...] = ()
    model: type[Operation] | None = None
    fields: Mapping[str, object] | None = None

    @property
    def role(self) -> BuiltInRole:
        """The first built-in role that may send the form."""
        return "operator" if self.verb is None else find_role(self.verb)

    def required_rights(self, on: Mapping[str, str]) -> tuple[RequiredRight, ...]:
        """Return the rights that the form requires, about what `on` names; none for undo."""
        if self.verb is None:
            return ()
        namespace = on.get("bundle", "").rpartition("/")[0] or ALL
        broker = on.get("broker") or on.get("destination") or ALL
        return (RequiredRight(self.verb, broker, namespace),)

    def is_offered(self, visitor: Visitor, cluster: str, on: Mapping[str, str]) -> bool:
        """Return whether a visitor may send the form, about what `on` names."""
        return visitor.has_verb(cluster, self.verb) and visitor.may(
            cluster, self.required_rights(on)
        )


def _build_form(model: type[Operation], button: Button) -> CommandForm:
    typed = tuple(name for name in button.asks if name not in FIELDS_WITH_OWN_INPUT)
    return CommandForm(
        button.title,
        button.sentence,
        model.spec.verb,
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
        is_flag=field.annotation in (bool, bool | None),
        is_list="list[" in str(field.annotation),
    )


def _label(field: FieldInfo, name: str) -> str:
    """Return the field's title; without one the words of its option, or of its name."""
    if field.title:
        return field.title
    flags = [flag for mark in field.metadata if isinstance(mark, Cli) for flag in mark.flags]
    text = (flags[0] if flags else name).removeprefix("--")
    return text.replace("-", " ").replace("_", " ").capitalize()


COMMAND_FORMS: dict[str, CommandForm] = {
    button.name: _build_form(model, button)
    for model in operations()
    for button in model.spec.buttons
} | {"undo": CommandForm("Undo", "Take {id} back.", None, ("id",), ("hours",))}
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
        if COMMAND_FORMS[name].is_offered(visitor, cluster, on)
    ]


def parse_form(name: str, given: Mapping[str, str]) -> CommandFields:
    """Parse the fields of a form, other than undo's, to a command's fields. Raises BadForm."""
    form = COMMAND_FORMS[name]
    assert form.model is not None
    if form.fields and not form.on:
        return form.model.spec.kind, dict(form.fields)
    fields = form.model.fields_from_form(given) | dict(form.fields or {})
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


# --- what programs give ---


def build_form_query(form: CommandForm) -> type[ClusterQuery]:
    """Build the model of the address of a form: the cluster, and what the command is about."""
    fields: dict[str, Any] = {name: (Name, _describe_subject(name)) for name in form.on}
    if "proposals" in form.on:
        ids = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS)]
        fields["proposals"] = (ids, _describe_subject("proposals"))
    if "destination" in form.asks:
        fields["destination"] = (Text, Field("", description="the broker that the form offers"))
    model = create_model("FormQuery", __base__=ClusterQuery, **fields)
    model.repeated = tuple(name for name in form.on if name == "proposals")
    return model


def build_form_body(name: str, form: CommandForm) -> type[FormBody]:
    """Build the model of what a program sends instead of a form."""
    fields: dict[str, Any] = {field: (Name, _describe_subject(field)) for field in form.on}
    if "proposals" in form.on:
        ids = Field(min_length=1, description="ids of proposals")
        fields["proposals"] = (list[Name], ids)
    if "hours" in form.asks:
        hours = Field(0, ge=0, le=LONGEST_PIN_MS // HOUR_MS, description="for how many hours")
        fields["hours"] = (int, hours)
    if "why" in form.asks:
        fields["why"] = (Name, Field(max_length=LONGEST_WHY, description="the reason"))
    if "destination" in form.asks:
        destination = Field(None, description="default: chosen by the placement strategy")
        fields["destination"] = (Name | None, destination)
    for given in form.inputs:
        fields[given.name] = _describe_input(given)
    title = "".join(part.capitalize() for part in name.split("-"))
    return create_model(f"{title}Body", __base__=FormBody, __doc__=form.title, **fields)


def _describe_subject(name: str) -> Any:
    text = {"proposals": "ids of proposals, with spaces between", "id": "of the command"}
    return Field(description=text.get(name, f"the {name}"))


def _describe_input(given: TextInput) -> Any:
    """Return type and description of a field that users type, or tick."""
    kind: Any = Name
    limits: dict[str, Any] = {}
    if given.is_flag:
        return (bool, Field(False, description=given.help))
    if given.is_number:
        kind, limits = int, {"ge": given.min, "le": given.max}
    elif given.is_list:
        kind = list[Name]
    if given.is_required:
        return (kind, Field(description=given.help, **limits))
    return (kind | None, Field(None, description=given.help, **limits))


def _to_text(value: object) -> str:
    """Return a value as a form gives it."""
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, bool):
        return "true" if value else ""
    return "" if value is None else str(value)


class FormBody(BaseModel):
    """What every command of the API has."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    cluster: ClusterName
    command_id: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST_ID,
        description="the command's id; a command that is sent twice with one id is carried out "
        "once; default: a new one",
    )

    def fields(self) -> dict[str, str]:
        """Return the fields as a form gives them; those without a value are left out."""
        return {name: text for name, value in self if (text := _to_text(value))}


FORM_QUERIES = {name: build_form_query(form) for name, form in COMMAND_FORMS.items()}
FORM_BODIES = {name: build_form_body(name, form) for name, form in COMMAND_FORMS.items()}
