"""The declaration of a setting: its default, unit, and Pulsar's name.

It also says whether a command may change the setting while the job runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from lb_stream.contracts.base import describe_expected

GivenSettings = Mapping[str, object]
"""Settings as they were given: key → a value of any type, which nothing has checked."""


class KeyModel(BaseModel):
    """Base class of every group of settings: frozen, without unknown keys, NaN and infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SettingError(ValueError):
    """A wrong setting: its key, its value, where it stands (if known), and what was expected."""

    def __init__(self, key: str, value: object, expected: str, origin: str = "") -> None:
        place = f" ({origin})" if origin else ""
        super().__init__(f"{key} = {value!r}{place}: expected {expected}")
        self.key, self.value, self.expected, self.origin = key, value, expected, origin


_YEARS_MS = 100 * 365 * 86_400_000
LONGEST = {
    "ms": _YEARS_MS,
    "s": _YEARS_MS // 1_000,
    "min": _YEARS_MS // 60_000,
    "hours": _YEARS_MS // 3_600_000,
}
"""Unit of time → the highest value of any setting in this unit.

It is a hundred years, so that a record's time plus a setting is still a time.
"""


class KeyMetadata(NamedTuple):
    """What the declaration of a setting says beside its type, default and description.

    `pulsar`: the name that broker.conf uses; None: Pulsar has no such setting. A value under that
    name is multiplied by `factor` (minutes to milliseconds: 60 000). `dynamic`: whether a command
    may change the setting while the job runs.
    """

    unit: str = ""
    pulsar: str | None = None
    factor: int = 1
    dynamic: bool = False


def key(
    default: object,
    doc: str,
    *,
    unit: str = "",
    pulsar: str | None = None,
    factor: int = 1,
    dynamic: bool = True,
    **limits: Any,
) -> Any:
    """Declare one setting; see `KeyMetadata`. `limits`: as pydantic's `Field` takes them."""
    if unit in LONGEST:
        limits.setdefault("le", LONGEST[unit])
    return Field(
        default,
        description=doc,
        json_schema_extra={"unit": unit, "pulsar": pulsar, "factor": factor, "dynamic": dynamic},
        **limits,
    )


def key_metadata(model: type[BaseModel], name: str) -> KeyMetadata:
    """Return the metadata of one declared setting."""
    extra: Any = model.model_fields[name].json_schema_extra
    return KeyMetadata(**extra) if isinstance(extra, Mapping) else KeyMetadata()


def pulsar_names(*models: type[BaseModel]) -> dict[str, tuple[str, int]]:
    """Return Pulsar's key → (our key, factor), over all given models."""
    found: dict[str, tuple[str, int]] = {}
    for model in models:
        for name in model.model_fields:
            extra = key_metadata(model, name)
            if extra.pulsar:
                found[extra.pulsar] = (name, extra.factor)
    return found


Model = TypeVar("Model", bound=KeyModel)


def build_settings(model: type[Model], given: GivenSettings, prefix: str = "") -> Model:
    """Build a group of settings from those given values that are its own.

    `prefix` stands before the key in an error. Raises SettingError.
    """
    try:
        return model(**{name: value for name, value in given.items() if name in model.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        # A validator of the model itself has found settings that exclude each other.
        if isinstance(own := first.get("ctx", {}).get("error"), SettingError):
            raise own from None
        name = prefix + ".".join(map(str, first["loc"]))
        raise SettingError(name, first["input"], describe_expected_setting(first)) from None


def describe_expected_setting(error: ErrorDetails) -> str:
    """Describe what one of pydantic's errors about a setting asks for."""
    for prefix, description in _EXPECTED.items():
        if error["type"].startswith(prefix):
            return description.format(**error.get("ctx", {}))
    return describe_expected(error)


_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string_type": "text",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "dict_type": "a section with keys in it",
    "mapping_type": "a section with keys in it",
    "model_type": "a section with keys in it",
}
"""Begin of the type of pydantic's error → what was expected."""


def split_text(value: object) -> object:
    """Split a text at its commas, as in broker.conf; other values stay as they are."""
    if not isinstance(value, str):
        return value
    return tuple(name.strip() for name in value.split(",") if name.strip())
