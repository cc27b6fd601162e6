"""Addresses of pages. An address says all that its page shows, so that it can be shared."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request

API = "api/v1"
CHART, WHAT_IF_CHART = f"{API}/chart", f"{API}/what-if/chart"
"""Where the lines of charts are."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""The host names of this machine."""


def host_name(header: str) -> str:
    """Return the name in a header `Host`, without its port."""
    has_port = ":" in header and not header.endswith("]")
    return (header.rpartition(":")[0] if has_port else header).lower()


def link(page: str, /, **given: object) -> str:
    """Return the address of a page. Values that are None or empty are left out."""
    values = {name: value for name, value in given.items() if value not in (None, "")}
    return f"/{page}" + (f"?{urlencode(values, errors='replace')}" if values else "")


def change_link(request: Request, /, **changes: object) -> str:
    """Return this page's address with some values changed; None removes a value."""
    return link(request.url.path.lstrip("/"), **{**dict(request.query_params), **changes})


def list_kept(request: Request, *changed: str) -> list[tuple[str, str]]:
    """List this page's parameters without some: a form keeps them beside its own fields."""
    return [(name, value) for name, value in request.query_params.items() if name not in changed]


def is_open(request: Request, name: str) -> bool:
    """Return whether this page's address names an element `details` as open."""
    return name in request.query_params.get("open", "").split(",")
