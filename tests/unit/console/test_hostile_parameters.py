"""No parameter of an address or a form makes the console fail."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, quote_from_bytes

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.command_forms import COMMAND_FORMS, FORM_QUERIES
from lb_stream.console.queries import Query
from lb_stream.console.routes import SCREENS
from tests.unit.console.long_names import CLUSTER, write_long_names
from tests.unit.console.site import PASSWORD, Tags, client, log_in

pytestmark = pytest.mark.slow

VALUES = [
    "",
    "%00",
    quote_from_bytes(b"\xed\xa0\x80"),  # half a character
    quote_from_bytes(b"\xff\xfe"),
    quote("'; DROP TABLE rounds; --"),
    quote("$1"),
    quote("{cluster}{0.__class__}"),
    quote("../../../etc/passwd"),
    quote("<script>alert(1)</script>"),
    quote("\u202eevil\u2066"),
    "-1",
    "1e309",
    "9" * 400,
    "NaN",
    "x" * 2001,
    "x" * 20_001,
    quote("a=b\nc\r\nSet-Cookie: x=y"),
    quote("%s %d [/]"),
]
"""Values as an address has them."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder = tmp_path_factory.mktemp("hostile")
    write_long_names(folder / "tables")
    users = folder / "users.toml"
    users.write_text(user_lines("ann", PASSWORD, "admin", {}))
    made = client(folder / "tables", Access.load(users), lambda *_: None)
    log_in(made, "ann")
    return made


def models() -> Iterator[tuple[str, type[Query]]]:
    """The path of each page, answer and form, with the model of its parameters."""
    for screen in SCREENS:
        yield screen.path, screen.query
        yield f"/api/v1/{screen.name}", screen.query
    for name, query in FORM_QUERIES.items():
        yield f"/send/{name}", query


@pytest.mark.parametrize(("path", "query"), list(models()), ids=[path for path, _ in models()])
def test_no_parameter_makes_a_page_fail(site: TestClient, path: str, query: type[Query]) -> None:
    known = {"cluster": CLUSTER, "name": CLUSTER, "id": "eu-1:1:0", "proposals": "eu-1:2:p0"}
    for field in query.model_fields:
        others = {
            name: known.get(name, "b-1:80")
            for name, info in query.model_fields.items()
            if info.is_required() and name != field
        }
        begin = link(path.lstrip("/"), **others)
        for value in VALUES:
            address = f"{begin}{'&' if '?' in begin else '?'}{field}={value}"
            answer = site.get(address)
            assert answer.status_code < 500, address[:200]
            assert "set-cookie" not in answer.headers, address[:200]


@pytest.mark.parametrize("name", COMMAND_FORMS)
def test_no_field_makes_a_form_fail(site: TestClient, name: str) -> None:
    (token,) = [
        tag["value"]
        for tag in Tags(site.get("/").text).all("input")
        if tag.get("name") == "csrf_token"
    ]
    form = COMMAND_FORMS[name]
    fields = ["cluster", "command_id", *form.on, *form.asks]
    known = {"cluster": CLUSTER, "command_id": "c", "proposals": "eu-1:2:p0", "id": "eu-1:1:0"}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for field in fields:
        others = [f"{other}={quote(known.get(other, '1'))}" for other in fields if other != field]
        for value in VALUES:
            body = "&".join([f"csrf_token={token}", *others, f"{field}={value}"])
            answer = site.post(f"/send/{name}", content=body, headers=headers)
            assert answer.status_code < 500, (field, value[:60])
