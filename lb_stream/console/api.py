"""The JSON of the console: answers, problems, commands, sessions."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lb_stream.console import sending
from lb_stream.console.address import API
from lb_stream.console.answers import Problem, SentAnswer, SentCommand, SessionAnswer
from lb_stream.console.auth.users import ANONYMOUS
from lb_stream.console.auth.visitor import (
    COOKIE,
    Visitor,
    access_of,
    find_token,
    find_visitor,
    read_body,
    require_login,
)
from lb_stream.console.command_forms import FORM_BODIES
from lb_stream.console.login import LoginFailed, begin_session, require_logins
from lb_stream.console.page import Page, Shown
from lb_stream.console.queries import (
    EventsQuery,
    InvalidField,
    Name,
    Query,
    build_invalid_field,
    parse_query,
)
from lb_stream.console.sending import MissingRight
from lb_stream.console.sources.live import Hub, Listener
from lb_stream.contracts.openapi import JSON
from lb_stream.contracts.verbs import find_role

PROBLEM = "application/problem+json"
KEEP_ALIVE_S = 15.0
"""Time between two messages of a stream, at most; proxies close streams that are silent."""

Show = Callable[[Page, Any], Shown]
Endpoint = Callable[[Request], Response | Awaitable[Response]]
Body = TypeVar("Body", bound=BaseModel)


# --- answers ---


def answer_shown(query: type[Query], show: Show, answer: Any) -> Callable[[Request], Response]:
    """Return the function that answers with the figures of a page. `answer`: their model."""
    adapter: TypeAdapter[Any] = TypeAdapter(answer)

    def handle(request: Request) -> Response:
        page = Page(request)
        shown = show(page, parse_query(request, query, only_known=True))
        begun_s = time.thread_time()
        content = adapter.dump_json(adapter.validate_python(shown.data, from_attributes=True))
        page.view.cpu_s += time.thread_time() - begun_s
        return Response(content, media_type=JSON)

    return handle


def _json(content: BaseModel, status: int = 200) -> Response:
    return Response(content.model_dump_json(), status, media_type=JSON)


# --- problems ---


def is_api(request: Request) -> bool:
    """Return whether a request is one of the API."""
    return request.url.path.startswith(f"/{API}/") or request.url.path == "/openapi.json"


def answer_problem(error: HTTPException) -> Response:
    """Return the answer that says why a request failed."""
    status, more = error.status_code, dict[str, Any]()
    if isinstance(error, MissingRight):
        more = {"right": error.right.describe(), "role": find_role(error.right.verb)}
    if isinstance(error, InvalidField):
        status = 422
        if error.name:
            more = {"field": error.name, "value": error.value, "expected": error.expected}
    problem = Problem(
        title=HTTPStatus(status).phrase, status=status, detail=str(error.detail), **more
    )
    content = problem.model_dump_json(exclude_none=True)
    return Response(content, status, error.headers, media_type=PROBLEM)


# --- what is sent ---


async def _read(request: Request, model: type[Body]) -> Body:
    """Read the body of a request. Raises HTTPException."""
    content = await read_body(request, JSON)
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise InvalidField("", "", "", f"the body is no JSON: {first['msg']}") from None
        if not first["loc"]:
            raise InvalidField("", "", "", "expected an object of JSON") from None
        raise build_invalid_field(first, model) from None


def send_form(name: str) -> Endpoint:
    """Return the function that sends the commands of a form."""
    model = FORM_BODIES[name]

    async def handle(request: Request) -> Response:
        visitor = require_login(request)
        body = await _read(request, model)
        given = body.fields() | {"command_id": body.command_id or str(uuid.uuid4())}
        commands = await run_in_threadpool(sending.send_commands, request, visitor, name, given)
        answer = SentAnswer(
            cluster=body.cluster,
            id=given["command_id"],
            commands=[
                SentCommand(id=command.id, kind=command.kind, arguments=command.arguments)
                for command in commands
            ],
            result=f"/{API}{sending.find_result(given)}",
        )
        return _json(answer, 202)

    return handle


# --- sessions ---


class LoginBody(BaseModel):
    """A user's name and password."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name
    password: SecretStr = Field(max_length=1_000)


def show_session(request: Request) -> Response:
    """Say who makes the request, and what this visitor may do."""
    parse_query(request, Query, only_known=True)
    return _json(_describe_session(find_visitor(request)))


async def log_in(request: Request) -> Response:
    """Begin a session."""
    require_logins(request)
    body = await _read(request, LoginBody)
    try:
        token = await begin_session(request, body.name, body.password.get_secret_value())
    except LoginFailed as error:
        raise HTTPException(error.status, str(error)) from None
    access = access_of(request)
    user = (access.users and access.users.find(body.name)) or ANONYMOUS
    csrf_token, rights = access.sessions.csrf_token(token), access.find_rights()
    visitor = Visitor(body.name, user, csrf_token, rights=rights)
    return _json(_describe_session(visitor, token), 201)


async def log_out(request: Request) -> Response:
    """End the session."""
    require_logins(request)
    require_login(request)
    access_of(request).sessions.end(find_token(request) or request.cookies.get(COOKIE, ""))
    return Response(status_code=204)


def _describe_session(visitor: Visitor, token: str | None = None) -> SessionAnswer:
    return SessionAnswer(
        name=visitor.name,
        role=visitor.role_in(),
        clusters={cluster: visitor.role_in(cluster) for cluster in visitor.user.clusters},
        csrf_token=visitor.csrf_token,
        token=token,
    )


# --- live entries ---


async def page_events(request: Request) -> Response:
    """Stream new entries of the feed, as HTML, to an open page."""
    return _stream(request, parse_query(request, EventsQuery), as_html=True)


async def events(request: Request) -> Response:
    """Stream new decisions and answers to commands (server-sent events, each with JSON)."""
    return _stream(request, parse_query(request, EventsQuery, only_known=True), as_html=False)


def _stream(request: Request, query: EventsQuery, as_html: bool) -> Response:
    loop = asyncio.get_running_loop()
    listener = Listener(query.cluster, query.kinds, query.text, loop, as_html)
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
