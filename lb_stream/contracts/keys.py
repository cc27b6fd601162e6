"""How a setting is declared: its default, unit, the name that Pulsar gives it, and whether it may
change while the job runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lb_stream.contracts.base import expected_by


class KeyModel(BaseModel):
    """Base of every group of settings: frozen, no unknown keys, no number that is none or
    infinite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SettingError(ValueError):
    """A setting that can't be: says the key, the value, where it stands (if known) and what was
    expected."""

    def __init__(self, key: str, value: object, expected: str, origin: str = "") -> None:
        super().__init__(
            f"{key} = {value!r}{f' ({origin})' if origin else ''}: expected {expected}"
        )
        self.key, self.value, self.expected, self.origin = key, value, expected, origin


_YEARS_MS = 100 * 365 * 86_400_000
LONGEST = {
    "ms": _YEARS_MS,
    "s": _YEARS_MS // 1_000,
    "min": _YEARS_MS // 60_000,
    "hours": _YEARS_MS // 3_600_000,
}
"""Unit of time → the most that any setting in it may be, a hundred years: added to a record's time
it is still a time."""


def key(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    pulsar: str | None = None,
    factor: int = 1,
    dynamic: bool = True,
    **limits: Any,
) -> Any:
    """Declare one setting.

    `pulsar` is the name that broker.conf uses; a value given under that name is multiplied by
    `factor` (minutes to milliseconds: 60 000). `dynamic` says whether a command may change it while
    the job runs.
    """
    if unit in LONGEST:
        limits.setdefault("le", LONGEST[unit])
    return Field(
        default,
        description=doc,
        json_schema_extra={"unit": unit, "pulsar": pulsar, "factor": factor, "dynamic": dynamic},
        **limits,
    )


def metadata(model: type[BaseModel], name: str) -> dict[str, Any]:
    """The unit, pulsar, factor and dynamic of one declared setting."""
    extra = model.model_fields[name].json_schema_extra
    return (
        dict(extra)
        if isinstance(extra, Mapping)
        else {"unit": "", "pulsar": None, "factor": 1, "dynamic": False}
    )


def pulsar_names(*models: type[BaseModel]) -> dict[str, tuple[str, int]]:
    """Pulsar's key → (our key, factor), over all given models."""
    found: dict[str, tuple[str, int]] = {}
    for model in models:
        for name in model.model_fields:
            extra = metadata(model, name)
            if extra["pulsar"]:
                found[extra["pulsar"]] = (name, extra["factor"])
    return found


Model = TypeVar("Model", bound=KeyModel)


def build(model: type[Model], given: Mapping[str, Any], prefix: str = "") -> Model:
    """Build a group of settings from those given values that are its own.

    `prefix` stands before the key in an error. Raises SettingError.
    """
    try:
        return model(**{name: value for name, value in given.items() if name in model.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(own := first.get("ctx", {}).get("error"), SettingError):
            raise own from None  # of settings that don't go together
        name = prefix + ".".join(map(str, first["loc"]))
        raise SettingError(name, first["input"], expected(first)) from None


def expected(error: Any) -> str:
    """Say what one of pydantic's errors asks for."""
    kind, context = str(error["type"]), error.get("ctx", {})
    for prefix, words in _EXPECTED.items():
        if kind.startswith(prefix):
            return words.format(**context)
    return expected_by(error)


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
"""Beginning of an error's type → what was expected."""


def split_text(value: Any) -> Any:
    """A list of names may be written as one text with commas, as in broker.conf."""
    return (
        tuple(name.strip() for name in value.split(",") if name.strip())
        if isinstance(value, str)
        else value
    )
