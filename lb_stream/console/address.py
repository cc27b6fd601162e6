"""Addresses of pages. An address says all that its page shows, so that it can be shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from lb_stream.query.screens.lists import ListRequest
from lb_stream.query.screens.over_time import SPANS

MAX_CHARACTERS = 2_000
"""Length of one value of an address; names of bundles are shorter."""
MAX_NUMBER = 10**15
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""The host names of this machine."""


def host_name(header: str) -> str:
    """Return the name in a header `Host`, without its port."""
    has_port = ":" in header and not header.endswith("]")
    return (header.rpartition(":")[0] if has_port else header).lower()


def read_text(request: Request, name: str, default: str = "") -> str:
    """Return a value of the address. Raises HTTPException(400) when it is too long."""
    value = request.query_params.get(name, default)
    if len(value) > MAX_CHARACTERS:
        raise HTTPException(
            400, f"{name}: {len(value)} characters: expected {MAX_CHARACTERS} at most"
        )
    return value


def require_text(request: Request, name: str) -> str:
    """Return a value of the address. Raises HTTPException(400) when it is missing."""
    if not (value := read_text(request, name)):
        raise HTTPException(400, f"{name} is missing: expected {request.url.path}?{name}=…")
    return value


def read_number(request: Request, name: str) -> int | None:
    """Return a whole number of the address; None: it is missing. Raises HTTPException(400)."""
    value = read_text(request, name)
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and int(value) < MAX_NUMBER):
        raise HTTPException(400, f"{name} = {value}: expected a whole number")
    return int(value)


def read_choice(request: Request, name: str, choices: Iterable[str]) -> str:
    """Return one of some words; the first if it is missing. Raises HTTPException(400)."""
    words = tuple(choices)
    value = read_text(request, name, words[0])
    if value not in words:
        raise HTTPException(400, f"{name} = {value}: expected one of {', '.join(words)}")
    return value


def read_list_request(request: Request, sorts: Mapping[str, str]) -> ListRequest:
    """Return which part of a list an address names."""
    return ListRequest(
        read_text(request, "text"),
        read_choice(request, "sort", sorts),
        read_number(request, "page") or 1,
    )


def read_span(request: Request) -> tuple[str, int | None]:
    """Return a chart's length of time, and its end (ms since the epoch); None: now."""
    return read_choice(request, "span", SPANS), read_number(request, "end")


def link(page: str, /, **given: object) -> str:
    """Return the address of a page. Values that are None or empty are left out."""
    values = {name: value for name, value in given.items() if value not in (None, "")}
    return f"/{page}" + (f"?{urlencode(values, errors='replace')}" if values else "")


def change_link(request: Request, /, **changes: object) -> str:
    """Return this page's address with some values changed; None removes a value."""
    return link(request.url.path.lstrip("/"), **{**dict(request.query_params), **changes})
