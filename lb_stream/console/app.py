"""The console as an ASGI application: its routes, what each answer says to browsers, and how errors
look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lb_stream.console import acting, address, details, login, pages, what_if
from lb_stream.console.acting import SendOrder
from lb_stream.console.address import LOCAL_NAMES, host_name
from lb_stream.console.auth.visitor import NO_ACCESS, Access
from lb_stream.console.page import Page, shared, show
from lb_stream.console.sources.live import Hub, Listener
from lb_stream.console.sources.reader import Reader
from lb_stream.console.sources.trials import Trials
from lb_stream.console.templates import template_environment
from lb_stream.query import QueryError
from lb_stream.query.lake import Row
from lb_stream.query.screens.feed import WHAT

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
    "'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ALIVE_S = 15.0
"""An open stream says something at least so often, or whatever is between takes it for dead."""


def console(
    reader: Reader,
    names: tuple[str, ...] = LOCAL_NAMES,
    access: Access = NO_ACCESS,
    send: SendOrder | None = None,
) -> Starlette:
    """The application.

    `names`: hosts that it answers to; another name is a page of somebody else's that leads here.

    `access`: who may act; `send` puts their commands on the topic.
    """
    of_tables = {
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
        "/cost": pages.cost_page,
    }
    read: dict[str, Callable[[Request], Any]] = {
        path: shared(answer) for path, answer in of_tables.items()
    } | {
        "/events": events,
        "/command": acting.command_page,
        "/plan": what_if.plan_page,
        "/what-if": what_if.what_if_page,
        "/what-if/chart": what_if.what_if_chart_answer,
    }
    acts = [
        Route("/act/{name}", acting.act_page, methods=["GET"]),
        Route("/act/{name}", acting.act, methods=["POST"]),
        Route("/login", login.login_page, methods=["GET"]),
        Route("/login", login.log_in, methods=["POST"]),
        Route("/logout", login.log_out, methods=["POST"]),
    ]
    made = Starlette(
        routes=[
            *(Route(path, answer, methods=["GET"]) for path, answer in read.items()),
            *(acts if access.users is not None and send is not None else ()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(HostGuard, names=names)],
        exception_handlers={
            QueryError: _query_failed,
            HTTPException: _http_error,
            Exception: _unexpected_error,
        },
    )
    made.state.reader, made.state.hub = reader, Hub(entry_html)
    made.state.access, made.state.send, made.state.trials = access, send, Trials()
    return made


def entry_html(row: Row) -> str:
    """An entry of the feed as it stands in pages."""
    return template_environment().get_template("entry.html").render(row=row)


# --- live ---


async def events(request: Request) -> Response:
    """Entries of the feed as they come (server-sent events)."""
    cluster, text = address.read_text(request, "cluster"), address.read_text(request, "text")
    hub: Hub = request.app.state.hub
    listener = Listener(
        cluster, address.read_choice(request, "what", WHAT), text, asyncio.get_running_loop()
    )
    if not hub.join(listener):
        raise HTTPException(503, "too many pages listen: close some")
    return StreamingResponse(
        _event_stream(hub, listener),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


async def _event_stream(hub: Hub, listener: Listener) -> AsyncIterator[str]:
    try:
        yield "retry: 3000\n\n"
        while True:
            told = None
            with suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_S):
                    told = await listener.waiting.get()
            yield ": alive\n\n" if told is None else f"event: entry\ndata: {told}\n\n"
    finally:
        hub.leave(listener)


# --- errors ---


def _query_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueryError)
    return _message(request, 404 if error.code == 2 else 503, str(error))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _message(request, error.status_code, str(error.detail))


def _unexpected_error(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{type(error).__name__}: the console's log says more\n", 500)


def _message(request: Request, status: int, text: str) -> Response:
    return show(Page(request), "message.html", status, text=text, code=status)


# --- what each answer says to browsers ---


class HostGuard:
    """Answers to its own names only, and gives every answer the headers that keep a browser from
    loading or showing anything else."""

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault(
                    "Cache-Control",
                    "no-cache" if scope["path"].startswith("/static/") else "no-store",
                )
            await send(message)

        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app
        if not self._known(Request(scope).headers.get("host", "")):
            known = ", ".join(self._names)
            answer = PlainTextResponse(
                f"this console answers to {known}: say its name when it is started, --name NAME\n",
                421,
            )
        await answer(scope, receive, guarded)

    def _known(self, host: str) -> bool:
        return host_name(host) in self._names
