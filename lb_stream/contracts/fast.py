"""The same contract for the hot path: msgspec structs made from the pydantic models, field by
field.

A record that a struct takes, its model takes too, as far as fields go that somebody reads (in
others text that isn't UTF-8, or is nested deep, isn't noticed). One that it refuses is shown to the
model, whose error names the field, the value and what was expected. So there is one contract, and
it is decoded at a million bundles a second.
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
    """A msgspec struct with the model's attribute names, JSON names, types, limits and defaults.

    `extra` names JSON fields that the model doesn't have but whose presence must be seen; they
    decode to their raw bytes.
    """
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for name, info in model.model_fields.items():
        fields.append((name, _limited(info), _default(info)))
        names[name] = info.alias or name
    fields += [(name, msgspec.Raw, msgspec.field(default=msgspec.Raw())) for name in extra]
    return msgspec.defstruct(model.__name__, fields, rename=names, gc=False, kw_only=True)


def _limited(info: FieldInfo) -> Any:
    limits = {
        name: getattr(limit, name)
        for limit in info.metadata
        for name in ("ge", "le")
        if getattr(limit, name, None) is not None
    }
    kind = _type(info.annotation)
    return Annotated[kind, msgspec.Meta(**limits)] if limits else kind


def _type(annotation: Any) -> Any:
    """The struct's type for a model's: nested models become structs, limits inside annotations stay
    with their field."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        # which one it is, is checked by whoever tells reports apart; None (a default only) when it
        # isn't there
        return str
    if origin in (Union, types.UnionType):
        # - built at run time
        return Union[tuple(_type(argument) for argument in arguments)]  # noqa: UP007
    if origin in (dict, list):
        return origin[tuple(_type(argument) for argument in arguments)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return build_struct(annotation)
    return annotation


def _default(info: FieldInfo) -> Any:
    value = info.default
    annotation = info.annotation
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


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return build_struct(type(value))(
            **{name: _plain(getattr(value, name)) for name in type(value).model_fields}
        )
    return value
