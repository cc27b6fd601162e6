"""What every page has: the look at the tables that it shows, its banner, its address, its theme."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lb_stream import __version__
from lb_stream.console.acts import list_offered_commands
from lb_stream.console.address import change_link
from lb_stream.console.auth.visitor import access_of, find_visitor
from lb_stream.console.sources.live import now_ms
from lb_stream.console.sources.reader import Reader, TablesView
from lb_stream.console.sources.shared import Shared
from lb_stream.console.templates import template_environment
from lb_stream.io.messages.times import local_zone
from lb_stream.query.cluster_state import ClusterState, read_cluster_states

T = TypeVar("T")

THEMES = ("dark", "light")
_NOW = re.compile(rb'(?<=<body data-now=")\d+')
"""The server's clock, which countdowns go by: a shared page gets the time at which it is sent."""


def reader_of(request: Request) -> Reader:
    """The app's."""
    found: Reader = request.app.state.reader
    return found


class Page:
    """One request for a page."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.view: TablesView = reader_of(request).current_view()

    def ask(self, key: Hashable, question: Callable[[Any], T]) -> T:
        """A figure out of the tables. Raises QueryError."""
        return self.view.ask(key, question)

    def find_cluster_state(self, cluster: str) -> ClusterState | None:
        """What is in force there."""
        found = self.ask(("standing", cluster), lambda lake: read_cluster_states(lake, cluster))
        return found[0] if found else None


def show(page: Page, template: str, status: int = 200, **figures: Any) -> Response:
    """The page as HTML.

    `live` among the figures says whether it follows what happens; without it, it does unless a time
    is held.
    """
    who = find_visitor(page.request)
    given = {
        "theme": _theme(page.request),
        "here": partial(change_link, page.request),
        "who": who,
        "logs_in": access_of(page.request).by_password,
        "offered": partial(list_offered_commands, who),
        "verdict": page.view.verdict,
        "stale": page.view.stale,
        "demo_end": page.view.facts.demo_end,
        "now_ms": now_ms(),
        "read_ms": page.view.facts.now_ms,
        "zone": local_zone(),
        "version": __version__,
        "live": not page.request.query_params.get("end"),
    }
    begun_s = time.thread_time()
    html = template_environment().get_template(template).render(**{**given, **figures})
    page.view.spent_s += time.thread_time() - begun_s
    return HTMLResponse(html, status)


def _theme(request: Request) -> str:
    """The one that was chosen; empty: as the system is."""
    theme = request.cookies.get("theme", "")
    return theme if theme in THEMES else ""


def shared(answer: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """A page that follows from the tables alone: made once for all who look at the same, of each
    look at the tables.

    Whoever has logged in gets one of their own: it says what they may, and holds what their forms
    prove.
    """

    async def asked(request: Request) -> Response:
        if find_visitor(request).name:
            return await run_in_threadpool(answer, request)
        key = (request.url.path, request.url.query, _theme(request))
        look = reader_of(request).find_fresh_view()
        found = None if look is None else look.pages.there(key)
        return (
            _sent(found, request)
            if found is not None
            else await run_in_threadpool(_made, answer, request, key)
        )

    return asked


def _made(answer: Callable[[Request], Response], request: Request, key: Hashable) -> Response:
    others: list[Response] = []

    def make() -> Shared | None:
        given = answer(request)
        if given.status_code == 200:
            return Shared(bytes(given.body), given.headers["content-type"])
        others.append(given)
        return None

    pages = reader_of(request).current_view().pages
    found = pages.there(key) or pages.page(key, make)
    return others[0] if found is None else _sent(found, request)


def _sent(page: Shared, request: Request) -> Response:
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers={"ETag": page.tag})
    html = page.media_type.startswith("text/html")
    body = _NOW.sub(b"%d" % now_ms(), page.body, count=1) if html else page.body
    return Response(body, headers={"ETag": page.tag, "Content-Type": page.media_type})
