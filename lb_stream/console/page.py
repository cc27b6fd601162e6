"""What all pages share: a view of the tables, rendering, and a cache for anonymous visitors."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lb_stream import __version__
from lb_stream.console.address import change_link, is_open, list_kept
from lb_stream.console.auth.visitor import access_of, find_visitor
from lb_stream.console.command_forms import list_offered_commands
from lb_stream.console.references import list_remedies
from lb_stream.console.sources.live import now_ms
from lb_stream.console.sources.page_cache import CachedPage
from lb_stream.console.sources.reader import Reader, TablesView
from lb_stream.console.templates import set_apart, template_environment
from lb_stream.io.messages.times import local_zone
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import (
    ClusterState,
    describe_unknown_cluster,
    read_cluster_states,
)

if TYPE_CHECKING:
    from lb_stream.query.health import ClusterFacts
    from lb_stream.query.lake import Lake

T = TypeVar("T")

PageHandler = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows. `data`: its figures, which the API answers, too.

    `page`: what only its HTML needs. The HTML has the fields of `data` where that is a mapping.
    """

    data: object
    page: Mapping[str, object] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Return the values of the page's template."""
        return {**(self.data if isinstance(self.data, Mapping) else {}), **self.page}


THEMES = ("dark", "light")
_NOW = re.compile(rb'(?<=<body data-now=")\d+')
"""The server's clock, for countdowns: it is set anew whenever a cached page is sent."""


def reader_of(request: Request) -> Reader:
    """Return the application's reader of the tables."""
    reader: Reader = request.app.state.reader
    return reader


class Page:
    """A request for a page, and the view of the tables that the page shows."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.view: TablesView = reader_of(request).current_view()

    def ask(self, key: Hashable, question: Callable[[Lake], T]) -> T:
        """Return a question's answer from the tables; a key is asked once. Raises QueryError."""
        return self.view.ask(key, question)

    def find_cluster_state(self, cluster: str) -> ClusterState | None:
        """Return a cluster's settings in force and its memory; None before its first round."""
        states = self.ask(("state", cluster), lambda lake: read_cluster_states(lake, cluster))
        return states[0] if states else None

    def require_cluster_facts(self, cluster: str) -> ClusterFacts:
        """Return what `lbctl status` knows of a cluster. Raises QueryError for an unknown one."""
        if self.view.lake is None:
            raise QueryError(self.view.error)
        known = self.view.facts.clusters
        for facts in known:
            if facts.cluster == cluster:
                return facts
        raise QueryError(describe_unknown_cluster(cluster, [facts.cluster for facts in known]), 2)


def render_page(page: Page, template: str, status: int = 200, **values: object) -> Response:
    """Return a page as HTML, rendered from a template.

    `live` among the values says whether the page refreshes itself; by default it does, unless its
    address names the end of a time range.
    """
    visitor = find_visitor(page.request)
    shared = {
        "theme": _find_theme(page.request),
        "here": partial(change_link, page.request),
        "visitor": visitor,
        "has_logins": access_of(page.request).by_password,
        "offered": partial(list_offered_commands, visitor),
        "remedies": partial(list_remedies, visitor),
        "verdict": page.view.verdict,
        "staleness": page.view.staleness,
        "demo_end": page.view.facts.demo_end,
        "now_ms": now_ms(),
        "read_ms": page.view.facts.now_ms,
        "zone": local_zone(),
        "version": __version__,
        "kept": partial(list_kept, page.request),
        "is_open": partial(is_open, page.request),
        "live": not (page.request.query_params.get("end") or page.request.query_params.get("to")),
    }
    begun_s = time.thread_time()
    html = template_environment().get_template(template).render(**{**shared, **values})
    page.view.cpu_s += time.thread_time() - begun_s
    return HTMLResponse(set_apart(html), status)


def _find_theme(request: Request) -> str:
    """Return the theme that the visitor has chosen; empty: that of the visitor's system."""
    theme = request.cookies.get("theme", "")
    return theme if theme in THEMES else ""


def cached(handler: PageHandler, for_all: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """Make a page once for all anonymous visitors, for each view of the tables.

    Pages of visitors who have logged in hold their commands and CSRF tokens, and are not cached.
    `for_all`: the answer doesn't depend on the visitor.
    """

    async def handle(request: Request) -> Response:
        if not for_all and find_visitor(request).name:
            return await run_in_threadpool(handler, request)
        key = (request.url.path, request.url.query, _find_theme(request))
        view = reader_of(request).find_fresh_view()
        page = None if view is None else view.pages.find(key)
        if page is not None:
            return _send(page, request)
        return await run_in_threadpool(_make, handler, request, key)

    return handle


def _make(handler: PageHandler, request: Request, key: Hashable) -> Response:
    """Make a page, or wait for the thread that makes it. Only pages with status 200 are kept."""
    failed: list[Response] = []

    def make() -> CachedPage | None:
        response = handler(request)
        if response.status_code == 200:
            return CachedPage(bytes(response.body), response.headers["content-type"])
        failed.append(response)
        return None

    pages = reader_of(request).current_view().pages
    page = pages.find(key) or pages.find_or_make(key, make)
    return failed[0] if page is None else _send(page, request)


def _send(page: CachedPage, request: Request) -> Response:
    """Return a cached page with the time of now, or status 304 where the visitor has it."""
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers={"ETag": page.tag})
    body = page.body
    if page.media_type.startswith("text/html"):
        body = _NOW.sub(b"%d" % now_ms(), body, count=1)
    return Response(body, headers={"ETag": page.tag, "Content-Type": page.media_type})
