"""Read queries from files: turn Spark's parameters, `:name`, into DuckDB's, `$name`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from lb_stream.query import QueryError

MACROS = (
    "CREATE MACRO get_json_object(json, path) AS json_extract_string(json, path)",
    "CREATE MACRO timestamp_millis(ms) AS epoch_ms(CAST(ms AS BIGINT))",
)
"""Spark's functions that DuckDB has under other names: with these macros a query runs in both."""

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|(?<![\w:\]'"]):([A-Za-z_]\w*)""", re.DOTALL
)


def read_query(file: Path) -> str:
    """Return the text of a file. Raises QueryError where it can't be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{file}: {getattr(error, 'strerror', None) or error}", code=2) from None


def parse_parameters(given: Iterable[str]) -> dict[str, object]:
    """Return name → value of texts NAME=VALUE: a number, or else a text.

    Raises QueryError for a text of another form.
    """
    values: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise QueryError(f"--param {text}: expected NAME=VALUE, such as cluster=eu-1", code=2)
        values[name] = _parse_value(value)
    return values


def _parse_value(text: str) -> int | float | str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


def convert_parameters(query: str, values: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return the query with DuckDB's parameters, and their values.

    Raises QueryError for a value that is missing, or that the query doesn't use.
    """
    needed: list[str] = []

    def convert(token: re.Match[str]) -> str:
        if token.group(1) is None:
            return token.group(0)
        needed.append(token.group(1))
        return f"${token.group(1)}"

    text = _TOKEN.sub(convert, query)
    if missing := [name for name in dict.fromkeys(needed) if name not in values]:
        options = " ".join(f"--param {name}=…" for name in missing)
        raise QueryError(f"the query has parameters that were not given: {options}", code=2)
    if unused := [name for name in values if name not in needed]:
        known = ", ".join(dict.fromkeys(needed)) or "none"
        raise QueryError(f"the query has no parameter {', '.join(unused)}: it has {known}", code=2)
    return text, values
