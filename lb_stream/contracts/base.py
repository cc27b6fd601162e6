"""Base classes of records, and canonical JSON."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_AMOUNT = 1e18
"""Limit of rates, throughputs and usages: an exabyte a second.

Sums and products of higher numbers could become infinite.
"""

NonNegative = Annotated[FiniteFloat, Field(ge=0, le=MAX_AMOUNT)]
"""A rate (messages/s) or throughput (bytes/s): finite and not negative."""

Signed = Annotated[FiniteFloat, Field(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
"""A usage or a limit."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
"""The five resources of a broker, in the order of the reports."""

CLUSTER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""Names of clusters and pipelines, which become parts of keys, paths and ids."""

NAME_PART = r"(?:[^/.]|\.[^/.]|\.\.[^/])[^/]*"
"""A tenant or a namespace's own name: neither `.` nor `..`, which mean folders in an address."""
_SOLID_PART = r"(?:[^/.\s]|\.[^/.\s]|\.\.[^/\s])[^/\s]*"
NAMESPACE_PATTERN = rf"^{_SOLID_PART}(/{_SOLID_PART}){{1,2}}$"
SERVED_NAMESPACE_PATTERN = rf"^{NAME_PART}/{NAME_PART}$"
BUNDLE_NAME_PATTERN = rf"^{_SOLID_PART}(/{_SOLID_PART}){{2,3}}$"
BOOTSTRAP_PATTERN = r"^[^,\s]+:\d+(,[^,\s]+:\d+)*$"
LISTEN_PATTERN = r"^(0?|[^\s/]+:\d{1,5})$"
COLLECTOR_PATTERN = r"^(https?://(\[[0-9a-fA-F:.]+\]|[^/\s?#@:\[\]]+)(:\d{1,5})?(/[^\s?#]*)?)?$"
SCOPES_PATTERN = r"^(\S+ )*openid( \S+)*$"
ISSUER_PATTERN = (
    r"^(https://[^\s?#@/]+(/[^\s?#]*)?"
    r"|http://(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?(/[^\s?#]*)?)?$"
)
USER_PATTERN = r"^[A-Za-z0-9._@+-]{1,128}$"

PATTERN_DESCRIPTIONS = {
    r"^\S+$": "text without white space",
    CLUSTER_PATTERN: "letters, digits, dots, dashes and underscores only",
    NAMESPACE_PATTERN: "<tenant>/<namespace>, such as shop/orders, no part of them . or ..",
    SERVED_NAMESPACE_PATTERN: "<tenant>/<namespace>, such as shop/orders, no part of them . or ..",
    BUNDLE_NAME_PATTERN: "<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH",
    BOOTSTRAP_PATTERN: "host:port, or several with commas between",
    LISTEN_PATTERN: 'host:port, or "" or 0 for nowhere',
    COLLECTOR_PATTERN: "http(s)://HOST[:PORT][/PATH], without user, password and query",
    ISSUER_PATTERN: "https://HOST[:PORT][/PATH], without user and query",
    SCOPES_PATTERN: "openid, and other scopes with spaces between",
    USER_PATTERN: "1 to 128 letters, digits, dots, dashes, underscores, @ or +",
}
"""Pattern of a field → what it asks for. Users are not shown the pattern itself."""

LARGEST_RECORD_BYTES = 10 * 1024 * 1024
"""Maximum size of a record: a report of 10 000 bundles has 2 to 3 MB."""

LONGEST_BROKER = 1_000
"""Characters of a broker's name. A host's name has 253 at most."""

LONGEST_NAMESPACE = 900
"""Characters of `<tenant>/<namespace>`, which is part of each record about its bundles.

A record that is too large for Kafka would block all other records of its batch.
"""

Millis = Annotated[int, Field(ge=0, le=2**63 - 1, description="milliseconds since the epoch, UTC")]


class PulsarRecord(BaseModel):
    """A record in Pulsar's form: camelCase, strict types, unknown fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        strict=True,
    )


class OwnRecord(BaseModel):
    """A record that this project defines: snake_case, strict types.

    Unknown fields are ignored, so that older readers can read newer writers' records.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    def to_json(self) -> str:
        """Return the record as canonical JSON: the same record always gives the same bytes."""
        return canonical_json(self.model_dump(mode="json"))


def describe_expected(error: ErrorDetails) -> str:
    """Describe what one of pydantic's errors asks for: its message, or a pattern's description.

    Patterns of a plug-in's settings have no description.
    """
    if error["type"] == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        return PATTERN_DESCRIPTIONS.get(pattern, f"a text of the form {pattern}")
    return error["msg"].removeprefix("Input should be ")


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spaces; the same value always gives the same bytes.

    Floats have the shortest form that is read back exactly. A dataclass becomes an object of those
    fields that differ from their default; `msgspec` reads it back. Raises ValueError for NaN.
    """
    return _CANONICAL.encode(value)


def non_default_fields(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their default."""
    names, values, defaults = _inspect(record.__class__)
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
"""Built once, because `json.dumps` builds one at each call."""


def dataclass_fields(record: DataclassInstance) -> dict[str, Any]:
    """Return all fields of a dataclass, without copying values as `asdict` does."""
    names, values, _ = _inspect(record.__class__)
    return dict(zip(names, values(record), strict=True))


@cache
def _inspect(
    kind: type[DataclassInstance],
) -> tuple[tuple[str, ...], attrgetter[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a dataclass's field names, the getter of their values, and their defaults.

    MISSING stands for no default.
    """
    names = tuple(field.name for field in fields(kind))
    defaults = tuple(
        field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kind)
    )
    return names, attrgetter(*names), defaults
