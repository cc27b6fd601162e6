"""Base classes of the wire models, the one way to write canonical JSON, and the one way to match
expressions that others give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from pydantic.alias_generators import to_camel

MAX_AMOUNT = 1e18
"""What no rate, throughput or usage reaches: an exabyte a second.

Sums and products of greater numbers would be no numbers any more.
"""

NonNegative = Annotated[FiniteFloat, Field(ge=0, le=MAX_AMOUNT)]
"""A rate (messages/s) or throughput (bytes/s): finite and not negative."""

Signed = Annotated[FiniteFloat, Field(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
"""A usage or a limit."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
"""The five resources of a broker, in the order of the reports."""

CLUSTER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""Names of clusters and pipelines: they become parts of keys, paths and ids."""

NAMESPACE_PATTERN = r"^[^/\s]+(/[^/\s]+){1,2}$"
SERVED_NAMESPACE_PATTERN = r"^[^/]+/[^/]+$"
BUNDLE_NAME_PATTERN = r"^[^/\s]+(/[^/\s]+){2,3}$"
BOOTSTRAP_PATTERN = r"^[^,\s]+:\d+(,[^,\s]+:\d+)*$"
LISTEN_PATTERN = r"^(0?|[^\s/]+:\d{1,5})$"
USER_PATTERN = r"^[A-Za-z0-9._@+-]{1,128}$"

PATTERN_DESCRIPTIONS = {
    CLUSTER_PATTERN: "letters, digits, dots, dashes and underscores only",
    NAMESPACE_PATTERN: "<tenant>/<namespace>, such as shop/orders",
    SERVED_NAMESPACE_PATTERN: "<tenant>/<namespace>, such as shop/orders",
    BUNDLE_NAME_PATTERN: "<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH",
    BOOTSTRAP_PATTERN: "host:port, or several with commas between",
    LISTEN_PATTERN: 'host:port, or "" or 0 for nowhere',
    USER_PATTERN: "1 to 128 letters, digits, dots, dashes, underscores, @ or +",
}
"""What each pattern of a field asks for, in words: a user is never shown the expression itself."""

LARGEST_RECORD_BYTES = 10 * 1024 * 1024
"""What a record may have: a report of 10 000 bundles is 2–3 MB."""

LONGEST_BROKER = 1_000
"""Characters of a broker's name: a host's has 253 at most."""

LONGEST_NAMESPACE = 900
"""Characters of `<tenant>/<namespace>`: bundles named after it are in every record about them, and
a record that is too large for Kafka would keep back all others of its batch."""

LONGEST_EXPRESSION = 1_000
"""Characters of a regular expression."""

Millis = Annotated[int, Field(ge=0, le=2**63 - 1, description="milliseconds since the epoch, UTC")]


class PulsarRecord(BaseModel):
    """A record in the broker's own words: camelCase, unknown fields ignored, missing ones
    defaulted, types strict."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        strict=True,
    )


class OwnRecord(BaseModel):
    """A record that this project defines: snake_case, unknown fields ignored (so that old readers
    survive new writers)."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    def to_json(self) -> str:
        """Canonical JSON of the record: the same record always gives the same bytes."""
        return canonical_json(self.model_dump(mode="json"))


def describe_expected(error: Mapping[str, Any]) -> str:
    """What one of pydantic's errors asks for: its message, or the words for a field's pattern.

    A plug-in's settings may have patterns that have no words.
    """
    if error["type"] == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        return PATTERN_DESCRIPTIONS.get(pattern, f"a text of the form {pattern}")
    return str(error["msg"]).removeprefix("Input should be ")


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces; the same value always gives the same bytes.

    Floats are in their shortest form that reads back exactly. A dataclass is an object of those of
    its fields that don't have their default; `msgspec` reads it back. Raises ValueError for NaN.
    """
    return _CANONICAL.encode(value)


def non_default_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that don't have their default."""
    names, values, defaults = _stored(record.__class__)
    return {
        name: value
        for name, value, default in zip(names, values(record), defaults, strict=True)
        if value != default
    }


_CANONICAL = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    default=non_default_fields,
)
"""Made once: `json.dumps` would make one for each value."""


def dataclass_fields(record: Any) -> dict[str, Any]:
    """Return all fields of a slotted dataclass. `asdict` would copy each value."""
    names, values, _ = _stored(record.__class__)
    return dict(zip(names, values(record), strict=True))


@cache
def _stored(
    kind: type[Any],
) -> tuple[tuple[str, ...], attrgetter[tuple[Any, ...]], tuple[Any, ...]]:
    """A dataclass's fields, what gets their values, and their defaults; MISSING: there is none."""
    names = tuple(field.name for field in fields(kind))
    defaults = tuple(
        field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kind)
    )
    return names, attrgetter(*names), defaults


@lru_cache(maxsize=1 << 14)
def find_pattern_error(pattern: str) -> str | None:
    """What is wrong with an expression, by itself or as it is matched; None: nothing."""
    if len(pattern) > LONGEST_EXPRESSION:
        return f"it has {len(pattern)} characters, {LONGEST_EXPRESSION} are allowed"
    import pyarrow as pa  # noqa: PLC0415 (it takes its time to be loaded, and few need it)
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        for one in (pattern, _whole(pattern)):
            pc.match_substring_regex(pa.array([""]), one)
    except pa.ArrowInvalid as error:
        hint = (
            "look-around, back-references and possessive repetition aren't taken, as they can't "
            "be matched in linear time"
        )
        return f"{str(error).removeprefix('Invalid regular expression: ')} ({hint})"
    return None


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def matches_whole(pattern: str, text: str) -> bool:
    """Whether an expression matches all of a text, in time linear in both: Arrow's engine is RE2,
    whose port to Java Pulsar uses.

    Raises ArrowInvalid for what is no expression of RE2's kind.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    return bool(pc.match_substring_regex(pa.array([text]), _whole(pattern))[0].as_py())
