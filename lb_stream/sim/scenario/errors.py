"""The error of a scenario, or of the file that one is built from: one line."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from lb_stream.contracts.keys import describe_expected_setting

MISSING = object()
"""The value of a field that is missing."""

LONGEST_VALUE = 80


class ScenarioError(ValueError):
    """An error in a scenario: its file, field, value, and what was expected, on one line.

    An empty `field` means the file as a whole.
    """

    def __init__(self, file: str | Path, field: str, value: object, expected: str) -> None:
        self.file, self.field, self.value, self.expected = str(file), field, value, expected
        text = "is missing" if value is MISSING else f"= {_short(value)}"
        place = f"{field} {text}: " if field else ""
        super().__init__(" ".join(f"{self.file}: {place}expected {expected}".splitlines()))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def field_path(parts: tuple[int | str, ...]) -> str:
    """Return the path of a value in nested lists and objects, such as `brokers[3].name`."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts
    ).removeprefix(".")


def build_scenario_error(
    file: str | Path, model: type[BaseModel], error: ValidationError
) -> ScenarioError:
    """Build a ScenarioError from the first of pydantic's errors."""
    first = error.errors()[0]
    kind, context = first["type"], first.get("ctx", {})
    place, around = _place(model, first["loc"])
    if kind.startswith("union_tag"):  # `kind` is missing or unknown
        value = (
            first["input"].get("kind", MISSING)
            if isinstance(first["input"], dict)
            else first["input"]
        )
        return ScenarioError(
            file,
            field_path((*place, "kind")),
            value,
            f"one of {context.get('expected_tags', 'the known kinds')}",
        )
    if kind == "missing":
        return ScenarioError(file, field_path(place), MISSING, "it: every key is needed")
    if kind == "extra_forbidden":
        known = list(around.model_fields)
        near = get_close_matches(str(place[-1]), known, n=3) or known
        return ScenarioError(
            file,
            field_path(place),
            first["input"],
            f"one of the known keys; nearest: {', '.join(near)}",
        )
    limit, text = _LIMITS.get(kind, ("", ""))
    wanted = text.format(context[limit]) if limit else text or describe_expected_setting(first)
    return ScenarioError(
        file,
        field_path(place),
        first["input"],
        wanted.replace("a section with keys in it", "an object with keys in it"),
    )


_LIMITS = {
    "greater_than": ("gt", "more than {:g}"),
    "greater_than_equal": ("ge", "{:g} or more"),
    "less_than_equal": ("le", "{:g} or less"),
    "too_short": ("", "at least one of them"),
    "string_too_short": ("", "some text"),
    "list_type": ("", "a list"),
}
"""Type of an error → the name of its limit, and a text on what was expected."""


def _place(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[tuple[int | str, ...], type[BaseModel]]:
    """Return a value's path without pydantic's names of union members, and its object's model."""
    place: list[int | str] = []
    annotation: object = model
    for number, part in enumerate(loc):
        if (
            isinstance(part, str)
            and number < len(loc) - 1
            and (tagged := _tagged(annotation, part))
        ):
            annotation = tagged
            continue
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
        place.append(part)
        annotation = _held(
            model.model_fields[part].annotation
            if isinstance(part, str) and part in model.model_fields
            else annotation
        )
    return tuple(place), model


def _tagged(annotation: object, kind: str) -> type[BaseModel] | None:
    """Find the member of a union of models that has this `kind`."""
    members = [
        member
        for member in get_args(annotation)
        if isinstance(member, type) and issubclass(member, BaseModel)
    ]
    return (
        next(
            (
                member
                for member in members
                if kind in get_args(member.model_fields["kind"].annotation)
            ),
            None,
        )
        if len(members) > 1
        else None
    )


def _held(annotation: object) -> object:
    """Return the type within lists and annotations; a union of models stays as it is."""
    while (
        get_origin(annotation) is not None
        and get_origin(annotation) is not Literal
        and get_args(annotation)
    ):
        members = get_args(annotation)
        if (
            sum(isinstance(member, type) and issubclass(member, BaseModel) for member in members)
            > 1
        ):
            return annotation
        annotation = members[0]
    return annotation
