"""Settings as they are given: spellings of keys, what lies over what, what is wrong with a value.

Nothing here needs a strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lb_stream.contracts.base import expected_by
from lb_stream.contracts.keys import KeyModel, SettingError, pulsar_names

Model = TypeVar("Model", bound=KeyModel)

OLD_SPELLINGS = {
    "loadBalancerBandwithInResourceWeight": "bandwidth_in_weight",
    "loadBalancerBandwithOutResourceWeight": "bandwidth_out_weight",
}
"""Pulsar's misspelt keys: they count as long as the right one is not given or 1."""


DRY_RUN = "dry_run"
"""Another way to say what the mode is: true stands for observe, false for act.

Beside a mode true goes over it, and false says nothing.
"""


@cache
def names_in(models: tuple[type[KeyModel], ...]) -> dict[str, tuple[str, int]]:
    """Every name of the models' keys, ours and Pulsar's → (our name, factor).

    The factor leads from the value given under that name to ours.
    """
    ours = {name: (name, 1) for model in models for name in model.model_fields}
    ours[DRY_RUN] = ("mode", 1)
    return ours | pulsar_names(*models) | {old: (name, 1) for old, name in OLD_SPELLINGS.items()}


def translate(
    values: Mapping[str, Any],
    known: Mapping[str, tuple[str, int]],
    read: Callable[[str, Any], Any] = lambda _name, value: value,
) -> dict[str, Any]:
    """The same settings under our names; `known` has all of theirs.

    `read`: (name, value) → our value, where that is not only a factor.
    """
    result: dict[str, Any] = {}
    for name, value in sorted(values.items(), key=lambda item: item[0] == DRY_RUN):
        ours, factor = known[name]
        if name == DRY_RUN:
            # Whatever their order: a log's settings are sorted.
            if (mode := _mode_of(value)) == "observe" or ours not in result:
                result[ours] = mode
        elif name not in OLD_SPELLINGS:
            result[ours] = read(name, _times(name, value, factor))
    for old, ours in OLD_SPELLINGS.items():
        if old in values and _is_one(result.get(ours, 1)):
            result[ours] = values[old]
    return result


def lay_over(
    own: Mapping[str, Any], over: Mapping[str, Any], commanded: Mapping[str, Any]
) -> dict[str, Any]:
    """What was commanded over a cluster's own settings, both under our names.

    `commanded`: the same as `over`, under the names that the commands gave. The end of a dry run
    lifts no need for approval that was given: only another mode does.
    """
    if own.get("mode") == "approve" and over.get("mode") == "act" and "mode" not in commanded:
        over = {name: value for name, value in over.items() if name != "mode"}
    return {**own, **over}


def _mode_of(dry_run: Any) -> str:
    try:
        return "observe" if TypeAdapter(bool).validate_python(dry_run) else "act"
    except ValidationError:
        raise SettingError(DRY_RUN, dry_run, "true or false") from None


def _is_one(value: Any) -> bool:
    try:
        return float(value) == 1.0
    except (TypeError, ValueError, OverflowError):
        return False


def _times(name: str, value: Any, factor: int) -> Any:
    if factor == 1:
        return value
    try:
        scaled = float(value) * factor
    except (TypeError, ValueError, OverflowError):
        raise SettingError(name, value, "a number") from None
    return int(scaled) if scaled.is_integer() else scaled


def build(model: type[Model], given: Mapping[str, Any], prefix: str = "") -> Model:
    """A group of settings from those given values that are its own. Raises SettingError."""
    try:
        return model(**{name: value for name, value in given.items() if name in model.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(said := first.get("ctx", {}).get("error"), SettingError):
            raise said from None  # of settings that don't go together
        name = prefix + ".".join(map(str, first["loc"]))
        raise SettingError(name, first["input"], expected(first)) from None


def expected(error: Any) -> str:
    """What one of pydantic's errors asks for, in words for a user."""
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
