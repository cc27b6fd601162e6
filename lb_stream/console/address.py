"""What a page's address says, and addresses of pages: everything that a page shows stands in its
address, so that a link shows the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from lb_stream.query.screens.lists import ListRequest
from lb_stream.query.screens.over_time import SPANS

LONGEST = 2_000
"""Characters of one value: names of bundles are shorter."""
GREATEST = 10**15
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""This machine's own."""


def host_name(head: str) -> str:
    """The name in a head `Host`, without its port."""
    name = head if head.endswith("]") else head.rpartition(":")[0] if ":" in head else head
    return name.lower()


def read_text(request: Request, name: str, default: str = "") -> str:
    """One value of the address. Raises HTTPException(400) when it is too long."""
    value = request.query_params.get(name, default)
    if len(value) > LONGEST:
        raise HTTPException(400, f"{name}: {len(value)} characters: expected {LONGEST} at most")
    return value


def require_text(request: Request, name: str) -> str:
    """One that a page can't do without. Raises HTTPException(400)."""
    if not (value := read_text(request, name)):
        raise HTTPException(400, f"{name} is missing: expected {request.url.path}?{name}=…")
    return value


def read_number(request: Request, name: str) -> int | None:
    """A whole number of the address, None without one. Raises HTTPException(400)."""
    value = read_text(request, name)
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and int(value) < GREATEST):
        raise HTTPException(400, f"{name}={value}: expected a whole number")
    return int(value)


def read_choice(request: Request, name: str, choices: Mapping[str, Any] | tuple[str, ...]) -> str:
    """One of some words; the first one without any. Raises HTTPException(400)."""
    value = read_text(request, name, next(iter(choices)))
    if value not in choices:
        raise HTTPException(400, f"{name}={value}: expected one of {', '.join(choices)}")
    return value


def read_list_request(request: Request, sorts: Mapping[str, str]) -> ListRequest:
    """Which part of a list."""
    return ListRequest(
        read_text(request, "text"),
        read_choice(request, "sort", sorts),
        read_number(request, "page") or 1,
    )


def read_span(request: Request) -> tuple[str, int | None]:
    """A length of time, and its end if it is not now."""
    return read_choice(request, "span", SPANS), read_number(request, "end")


def link(page: str, /, **given: Any) -> str:
    """The address of a page; what is None or empty is left out."""
    values = {name: value for name, value in given.items() if value not in (None, "")}
    return f"/{page}" + (f"?{urlencode(values, errors='replace')}" if values else "")


def change_link(request: Request, /, **changes: Any) -> str:
    """This page's address with some values changed (None: without them)."""
    return link(request.url.path.lstrip("/"), **{**dict(request.query_params), **changes})
