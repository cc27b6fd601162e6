"""Queries out of files: parameters as `:name`, in the form that Spark takes and DuckDB doesn't."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lb_stream.query import QueryError

MACROS = (
    "CREATE MACRO get_json_object(json, path) AS json_extract_string(json, path)",
    "CREATE MACRO timestamp_millis(ms) AS epoch_ms(CAST(ms AS BIGINT))",
)
"""Spark's functions that DuckDB has under other names: with these, one text runs in both."""

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|(?<![\w:\]'"]):([A-Za-z_]\w*)""", re.DOTALL
)


def read_query(file: Path) -> str:
    """A file's text. Raises QueryError."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{file}: {getattr(error, 'strerror', None) or error}", code=2) from None


def parameter_values(given: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE each; numbers are numbers, everything else is text. Raises QueryError."""
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise QueryError(f"--param {text}: expected NAME=VALUE, such as cluster=eu-1", code=2)
        values[name] = _value(value)
    return values


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


def with_parameters(query: str, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The query in DuckDB's form, and the values that it needs.

    Raises QueryError for one that is missing, or that nobody asks for.
    """
    needed: list[str] = []

    def named(token: re.Match[str]) -> str:
        if token.group(1) is None:
            return token.group(0)
        needed.append(token.group(1))
        return f"${token.group(1)}"

    text = _TOKEN.sub(named, query)
    if missing := [name for name in dict.fromkeys(needed) if name not in values]:
        raise QueryError(
            "the query has parameters that were not given: "
            f"{' '.join(f'--param {name}=…' for name in missing)}",
            code=2,
        )
    if unused := [name for name in values if name not in needed]:
        raise QueryError(
            f"the query has no parameter {', '.join(unused)}: it has "
            f"{', '.join(dict.fromkeys(needed)) or 'none'}",
            code=2,
        )
    return text, values
