"""The console as an ASGI application: its routes, its error pages, and its security headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lb_stream.console import address, details, login, pages, sending, what_if
from lb_stream.console.address import LOCAL_NAMES, host_name
from lb_stream.console.auth.visitor import READ_ONLY, Access
from lb_stream.console.page import Page, PageHandler, cached, render_page
from lb_stream.console.sending import SendCommand
from lb_stream.console.sources.computations import Computations
from lb_stream.console.sources.live import Hub, Listener
from lb_stream.console.sources.reader import Reader
from lb_stream.console.templates import template_environment
from lb_stream.query import QueryError
from lb_stream.query.lake import Row
from lb_stream.query.screens.feed import ENTRY_KINDS

STATIC = Path(__file__).parent / "static"
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
KEEP_ALIVE_S = 15.0
"""Time between two messages of a stream, at most; proxies close streams that are silent."""
CACHED_PAGES: dict[str, PageHandler] = {
    "/": pages.fleet_page,
    "/cluster": pages.cluster_page,
    "/groups": pages.groups_page,
    "/bundles": pages.bundles_page,
    "/history": pages.history_page,
    "/search": pages.search_page,
    "/chart": pages.chart_answer,
    "/broker": details.broker_page,
    "/bundle": details.bundle_page,
    "/namespace": details.namespace_page,
    "/tenant": details.tenant_page,
    "/decision": details.decision_page,
    "/round": details.round_page,
    "/proposals": pages.proposals_page,
    "/rollout": pages.rollout_page,
    "/cost": pages.cost_page,
}
"""Pages that follow from the tables alone."""


def build_console(
    reader: Reader,
    names: tuple[str, ...] = LOCAL_NAMES,
    access: Access = READ_ONLY,
    send: SendCommand | None = None,
) -> Starlette:
    """Return the application.

    `names`: the host names that it answers to; a foreign page may give it another one. `access`
    says who may send commands, `send` puts them on the topic.
    """
    routes = [Route(path, cached(handler)) for path, handler in CACHED_PAGES.items()]
    routes += [
        Route("/events", events),
        Route("/command", sending.command_page),
        Route("/plan", what_if.plan_page),
        Route("/what-if", what_if.what_if_page),
        Route("/what-if/chart", what_if.what_if_chart_answer),
    ]
    if access.users is not None and send is not None:
        routes += [
            Route("/send/{name}", sending.form_page),
            Route("/send/{name}", sending.send, methods=["POST"]),
            Route("/login", login.login_page),
            Route("/login", login.log_in, methods=["POST"]),
            Route("/logout", login.log_out, methods=["POST"]),
        ]
    app = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(HostGuard, names=names)],
        exception_handlers={
            QueryError: _query_failed,
            HTTPException: _http_error,
            Exception: _unexpected_error,
        },
    )
    app.state.reader = reader
    app.state.hub = Hub(render_entry)
    app.state.access = access
    app.state.send = send
    app.state.computations = Computations()
    return app


def render_entry(row: Row) -> str:
    """Return an entry of the feed as HTML."""
    return template_environment().get_template("entry.html").render(row=row)


# --- live entries ---


async def events(request: Request) -> Response:
    """Stream new entries of the feed to an open page (server-sent events)."""
    listener = Listener(
        address.read_text(request, "cluster"),
        address.read_choice(request, "kinds", ENTRY_KINDS),
        address.read_text(request, "text"),
        asyncio.get_running_loop(),
    )
    hub: Hub = request.app.state.hub
    if not hub.add(listener):
        raise HTTPException(503, "too many pages are open: close some")
    return StreamingResponse(
        _event_stream(hub, listener),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


async def _event_stream(hub: Hub, listener: Listener) -> AsyncIterator[str]:
    try:
        yield "retry: 3000\n\n"
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    message = await listener.queue.get()
            except TimeoutError:
                yield ": keep-alive\n\n"
            else:
                yield f"event: entry\ndata: {message}\n\n"
    finally:
        hub.remove(listener)


# --- errors ---


def _query_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueryError)
    return _error_page(request, 404 if error.code == 2 else 503, str(error))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error_page(request, error.status_code, str(error.detail))


def _unexpected_error(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{type(error).__name__}: see the console's log\n", 500)


def _error_page(request: Request, status: int, text: str) -> Response:
    return render_page(Page(request), "message.html", status, text=text, code=status)


# --- security headers ---


class HostGuard:
    """Refuses requests for other host names, and adds SECURITY_HEADERS to every answer."""

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                is_static = scope["path"].startswith("/static/")
                headers.setdefault("Cache-Control", "no-cache" if is_static else "no-store")
            await send(message)

        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app
        if host_name(Request(scope).headers.get("host", "")) not in self._names:
            names = ", ".join(self._names)
            answer = PlainTextResponse(
                f"this console answers to {names}: start it with --name NAME to add a name\n", 421
            )
        await answer(scope, receive, send_with_headers)
