"""Builds msgspec structs from the pydantic models, to decode a million bundles a second.

A struct accepts what its model accepts in the fields that are read; in other fields it does not
notice text that isn't UTF-8, or is nested deeply. A record that a struct rejects is given to the
model, whose error names the field, its value and what was expected. So there is one contract.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo


@cache
def build_struct(model: type[BaseModel], extra: tuple[str, ...] = ()) -> type[Any]:
    """Build a struct with the model's attribute names, JSON names, types, limits and defaults.

    `extra`: JSON fields that the model lacks and whose presence matters; they are decoded to their
    raw bytes.
    """
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for name, info in model.model_fields.items():
        fields.append((name, _limited(info), _default(info)))
        names[name] = info.alias or name
    fields += [(name, msgspec.Raw, msgspec.field(default=msgspec.Raw())) for name in extra]
    return msgspec.defstruct(model.__name__, fields, rename=names, gc=False, kw_only=True)


def _limited(info: FieldInfo) -> Any:
    """Return a field's type with its limits."""
    limits = {
        name: getattr(limit, name)
        for limit in info.metadata
        for name in ("ge", "le")
        if getattr(limit, name, None) is not None
    }
    kind = _type(info.annotation)
    return Annotated[kind, msgspec.Meta(**limits)] if limits else kind


def _type(annotation: Any) -> Any:
    """Return the struct's type for a model's: nested models become structs.

    Limits inside of annotations stay with their field. A value of any type stays raw bytes.
    """
    if annotation is object:
        return msgspec.Raw
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        # The value is checked where kinds of reports are distinguished; None: the field is missing.
        return str
    if origin in (Union, types.UnionType):
        members = tuple(_type(argument) for argument in arguments)
        return Union[members]  # noqa: UP007 (it is built at run time)
    if origin in (dict, list):
        return origin[tuple(_type(argument) for argument in arguments)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return build_struct(annotation)
    return annotation


def _default(info: FieldInfo) -> object:
    """Return a field's default as msgspec takes it."""
    value = info.default
    annotation = info.annotation
    if annotation is object:
        return msgspec.Raw()
    if get_origin(annotation) is Literal:
        return None
    if isinstance(value, BaseModel):
        values = {name: getattr(value, name) for name in type(value).model_fields}
        struct = build_struct(type(value))
        return msgspec.field(
            default_factory=lambda: struct(**{name: _plain(item) for name, item in values.items()})
        )
    if isinstance(value, (dict, list)):
        return msgspec.field(default_factory=type(value))
    return value


def _plain(value: object) -> object:
    """Return a value with models replaced by structs."""
    if isinstance(value, BaseModel):
        return build_struct(type(value))(
            **{name: _plain(getattr(value, name)) for name in type(value).model_fields}
        )
    return value
