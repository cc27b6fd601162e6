"""How a setting is declared: its default, unit, the name that Pulsar gives it, and whether it may
change while the job runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


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


def split_text(value: Any) -> Any:
    """A list of names may be written as one text with commas, as in broker.conf."""
    return (
        tuple(name.strip() for name in value.split(",") if name.strip())
        if isinstance(value, str)
        else value
    )
