"""The console as an ASGI application: its routes, its error pages, and its security headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lb_stream.console.address import LOCAL_NAMES, host_name
from lb_stream.console.api import answer_problem, is_api
from lb_stream.console.auth.visitor import BODY_TIMEOUT_S, READ_ONLY, Access
from lb_stream.console.page import Page, render_page
from lb_stream.console.routes import build_routes
from lb_stream.console.rows import Entry
from lb_stream.console.sending import SendCommand
from lb_stream.console.sources.computations import Computations
from lb_stream.console.sources.live import Hub
from lb_stream.console.sources.reader import Reader
from lb_stream.console.templates import set_apart, template_environment
from lb_stream.query import QueryError
from lb_stream.query.lake import Row

HSTS = "max-age=31536000"
"""Over TLS: for how long (s) browsers use no plain HTTP for this host name."""
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
    takes_commands = access.takes_commands and send is not None
    app = Starlette(
        routes=[
            *build_routes(takes_commands),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(HostGuard, names=names)],
        exception_handlers={
            QueryError: _query_failed,
            HTTPException: _http_error,
            Exception: _unexpected_error,
        },
    )
    app.state.reader = reader
    app.state.hub = Hub(render_entry, encode_entry)
    app.state.access = access
    app.state.send = send
    app.state.computations = Computations()
    app.state.body_timeout_s = BODY_TIMEOUT_S
    return app


def render_entry(row: Row) -> str:
    """Return an entry of the feed as HTML."""
    return set_apart(template_environment().get_template("entry.html").render(row=row))


def encode_entry(row: Row) -> str:
    """Return an entry of the feed as JSON."""
    return Entry.model_validate(row).model_dump_json()


# --- errors ---


def _query_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueryError)
    return _answer_error(request, HTTPException(404 if error.code == 2 else 503, str(error)))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer_error(request, error)


def _answer_error(request: Request, error: HTTPException) -> Response:
    if is_api(request):
        return answer_problem(error)
    text, status = str(error.detail), error.status_code
    answer = render_page(Page(request), "message.html", status, text=text, code=status)
    answer.headers.update(error.headers or {})
    return answer


def _unexpected_error(request: Request, error: Exception) -> Response:
    text = f"{type(error).__name__}: see the console's log"
    if is_api(request):
        return answer_problem(HTTPException(500, text))
    return PlainTextResponse(f"{text}\n", 500)


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
                if scope["scheme"] == "https":
                    headers["Strict-Transport-Security"] = HSTS
                is_static = scope["path"].startswith("/static/")
                headers.setdefault("Cache-Control", "no-cache" if is_static else "no-store")
            await send(message)

        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app
        if host_name(Request(scope).headers.get("host", "")) not in self._names:
            names = ", ".join(self._names)
            text = f"this console answers to {names}: start it with --name NAME to add a name"
            answer = PlainTextResponse(f"{text}\n", 421)
            if is_api(Request(scope)):
                answer = answer_problem(HTTPException(421, text))
        await answer(scope, receive, send_with_headers)
