"""Requests: forms, bodies and addresses of the console, and lookups over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from functools import cache
from typing import Any, TypeVar
from unittest.mock import Mock
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request

from lb_stream.console.api import JSON, _read
from lb_stream.console.auth.visitor import FORM_TYPE, read_form
from lb_stream.console.command_forms import COMMAND_FORMS, FORM_BODIES, parse_form, parse_pin_ms
from lb_stream.console.queries import Query, parse_query
from lb_stream.core.commands.base import BadForm
from lb_stream.io.kafka.commands import InvalidCommand, build_command
from lb_stream.io.lookup.client import Lookup, LookupConfig
from lb_stream.io.lookup.server import _answer
from tests.fuzz.registry import require_message, target

T = TypeVar("T")


def _request(path: bytes, body: bytes, kind: str, origin: bytes = b"") -> Request:
    """Return a request of this console's own page, or of the page at `origin`."""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"host", b"console"), (b"content-type", kind.encode())]
    if origin:
        headers.append((b"origin", origin))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": path,
        "headers": headers,
        "app": Mock(state=Mock(body_timeout_s=10.0)),
    }
    return Request(scope, receive)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _finish(steps: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns."""
    return _loop().run_until_complete(steps)


@target(
    "console.auth.visitor",
    "console.command_forms",
    "console.sending",
    "core.commands.base",
    "operations.set_policies",
    words=(
        "cluster=eu-1&",
        "broker=a%3A1&",
        "hours=2&",
        "namespace=t%2Fn&",
        "fields=&",
        "http://[",
    ),
)
def console_form(data: bytes) -> bool:
    """A form that a page sends, after a line with the header origin, to every command's form."""
    origin, _, body = data.partition(b"\n")
    try:
        fields = _finish(read_form(_request(b"", body, FORM_TYPE, origin)))
    except HTTPException as error:
        assert 400 <= error.status_code < 500
        return False
    taken = False
    for name, form in COMMAND_FORMS.items():
        if not all(fields.get(field) for field in form.on):
            continue  # the page requires these before it parses the others
        try:
            if name == "undo":
                parse_pin_ms(fields)
                continue
            kind, given = parse_form(name, fields)
            command = build_command(kind, given, "ann", "1")
        except (BadForm, InvalidCommand) as error:
            require_message(error)
            continue
        command.to_json().encode(errors="replace")
        taken = True
    return taken


@target(
    "console.api",
    words=('{"cluster":"eu-1"', '"command_id":"1"', '"broker":"a:1"', '"proposals":['),
)
def console_body(data: bytes) -> bool:
    """The body of a request to the console's API, for every command's form."""
    taken = False
    for model in FORM_BODIES.values():
        try:
            _finish(_read(_request(b"", data, JSON), model))
            taken = True
        except HTTPException as error:
            assert 400 <= error.status_code < 500 and error.detail
    return taken


def _query_models(model: type[Query] = Query) -> Iterator[type[Query]]:
    for kind in model.__subclasses__():
        yield kind
        yield from _query_models(kind)


@target(
    "console.queries",
    words=("cluster=eu-1&", "from=2026-01-01T00%3A00&", "to=", "page=", "sort=", "n=1&n=2", "%ff"),
    max_bytes=1_024,
)
def console_address(data: bytes) -> bool:
    """The query of an address, for every page and for the API."""
    request = _request(data.replace(b" ", b"+"), b"", JSON)
    taken = False
    for model in _query_models():
        for only_known in (False, True):
            try:
                parse_query(request, model, only_known)
                taken = True
            except HTTPException as error:
                assert 400 <= error.status_code < 500 and error.detail
    return taken


@target(
    "io.lookup.server",
    words=("/lookup?topic=", "persistent://t/n/x", "&cluster=eu-1", "/health", "topic%3A//", "["),
    max_bytes=1_024,
)
def lookup_address(data: bytes) -> bool:
    """The path of a lookup over HTTP."""
    lookup = Lookup(LookupConfig("nowhere:1", commands_topic=None))
    lookup._read_at = lookup._clock()
    path = unquote_to_bytes(data).decode("latin-1")
    answer = _answer(lookup, Mock(return_value=None), path)
    assert answer.status in (200, 202, 400, 404, 503)
    json.loads(answer.content)
    return answer.status < 400
