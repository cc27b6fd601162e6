"""The API of the console: the figures and commands of its pages, with the same checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.requests import Request
from starlette.routing import Route
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import COOKIE, CSRF_HEADER, Access
from lb_stream.console.command_forms import COMMAND_FORMS, FORM_BODIES
from lb_stream.console.page import Page
from lb_stream.console.queries import parse_query
from lb_stream.console.routes import SCREENS, build_document, build_routes, list_api
from lb_stream.console.rows import Answer
from tests.support.openapi import check_answer
from tests.unit.console.site import (
    BROKER,
    BUNDLE,
    PASSWORD,
    Tags,
    Topic,
    add_rollout,
    addresses,
    client,
    fleet,
    log_in,
)

API = "/api/v1"
ADDRESSES = [
    *(f"{API}{'/clusters' if address == '/' else address}" for address in addresses()),
    f"{API}/brokers?cluster=eu-1",
    f"{API}/chart?cluster=eu-1&span=15m",
    f"{API}/chart?cluster=eu-1&broker=b-1:80",
    f"{API}/chart?cluster=eu-1&by=tenant",
    f"{API}/chart?cluster=eu-1&by=bundle&namespace=shop/hot",
    f"{API}/command?cluster=eu-1&id=2f1d",
]
"""An address of each page, as the API has it."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "tables"
    fleet(folder, more=60)
    return folder


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.write_text(
        user_lines("alice", PASSWORD, "operator", {"us-1": "viewer"})
        + user_lines("root", PASSWORD, "admin", {})
        + user_lines("eve", PASSWORD, "viewer", {})
    )
    return path


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def site(tables: Path, users: Path, topic: Topic) -> TestClient:
    return client(tables, Access.load(users), topic)


def begin(site: TestClient, name: str) -> str:
    """Begin a session, whose token all later requests have; return the token."""
    app: Any = site.app
    token: str = app.state.access.begin_session(name)
    site.headers["Authorization"] = f"Bearer {token}"
    return token


def list_described() -> Iterator[tuple[str, str]]:
    """Yield method and path of everything that the document describes."""
    for path, methods in build_document()["paths"].items():
        for method in methods:
            yield method, path


# --- what there is ---


def test_every_page_has_its_json_and_every_action_of_a_page_is_one_of_the_api() -> None:
    api = set(list_described())
    routes = [route for route in build_routes(takes_commands=True) if isinstance(route, Route)]
    pages = {route.path for route in routes if not route.path.startswith(f"{API}/")}
    assert pages - {screen.path for screen in SCREENS} == {
        "/events",
        "/login",
        "/login/oidc",
        "/login/oidc/callback",
        "/logout",
        "/openapi.json",
        "/send/{name}",
    }
    assert {("get", f"{API}/{screen.name}") for screen in SCREENS} < api
    # every form sends a command, whatever page offers it
    posted = {route.path for route in routes if "POST" in (route.methods or ())}
    assert {path for path in posted if not path.startswith(API)} == {
        "/send/{name}",
        "/login",
        "/logout",
    }
    actions = {("post", f"{API}/send/{name}") for name in COMMAND_FORMS}
    actions |= {("post", f"{API}/session"), ("delete", f"{API}/session")}
    assert {entry for entry in api if entry[0] != "get"} == actions
    print(f"pages' actions that the JSON API has: {len(actions)} of {len(COMMAND_FORMS) + 2}")


def test_every_command_that_pages_offer_an_admin_is_one_of_the_api(
    tmp_path: Path, users: Path, topic: Topic
) -> None:
    fleet(tmp_path / "tables")
    site = client(tmp_path / "tables", Access.load(users), topic)
    log_in(site, "root")
    offered = set()
    for address in addresses():
        offered |= set(re.findall(r"/send/([a-z-]+)", site.get(address).text))
    assert len(offered) > 10 and offered <= FORM_BODIES.keys()


def test_the_routes_are_those_that_the_document_describes(site: TestClient) -> None:
    app: Any = site.app
    served = {
        (method.lower(), route.path)
        for route in app.routes
        if isinstance(route, Route) and route.path.startswith(f"{API}/")
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert served == set(list_described())
    assert site.get("/openapi.json").json() == build_document()


def test_without_users_there_are_figures_and_neither_sessions_nor_commands(tables: Path) -> None:
    site = client(tables)
    for route in list_api():
        path = route.operation.path
        if route.for_users:
            answer = site.request(route.operation.method, path)
            assert answer.status_code == 404, path
            assert answer.headers["content-type"] == "application/problem+json"
    assert site.get(f"{API}/clusters").status_code == 200


# --- figures ---


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_answer_fits_its_schema(site: TestClient, address: str) -> None:
    answer = site.get(address)
    assert answer.status_code == 200, answer.text
    check_answer(build_document(), address.partition("?")[0], 200, answer.json())


def test_the_addresses_of_this_test_are_those_of_all_pages() -> None:
    tried = {address.partition("?")[0] for address in ADDRESSES}
    assert {f"{API}/{screen.name}" for screen in SCREENS} - tried == {f"{API}/what-if/chart"}


LEFT_OUT = {
    "Entry": {
        "explain",
        "decision_id",
        "issued_ms",
        "reason",
        "log_seq",
        "epoch",
        "ordinal",
        "ended_seq",
    }
    | {"expected_owner", "expected_version", "children", "boundaries", "algorithm", "neighbour"}
    | {"unload_children", "approved_by", "proposal_id"},
    "DecisionRow": {"log_seq", "ordinal"},
}
"""Columns of rows that the API leaves out: a decision's page has what its entry has not."""


def find_left_out(model: type[BaseModel], data: object) -> Iterator[tuple[str, str]]:
    """Yield the model and the name of each field of the data that a model does not have."""
    answer = data if not isinstance(data, Mapping) else dict(data)
    if isinstance(answer, dict):
        for name in answer.keys() - model.model_fields.keys():
            yield model.__name__, name
    for name, field in model.model_fields.items():
        value = answer.get(name) if isinstance(answer, dict) else getattr(answer, name)
        (inner,) = [
            part for part in (field.annotation, *_parts(field.annotation)) if _is_answer(part)
        ][:1] or [None]
        if inner is None or value is None:
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            yield from find_left_out(inner, item)


def _parts(annotation: Any) -> Iterator[Any]:
    for part in getattr(annotation, "__args__", ()):
        yield part
        yield from _parts(part)


def _is_answer(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, Answer)


@pytest.mark.parametrize("address", [one for one in ADDRESSES if "/search" not in one])
def test_an_answer_has_every_figure_that_its_page_has(site: TestClient, address: str) -> None:
    path, _, query = address.removeprefix(API).partition("?")
    (screen,) = (screen for screen in SCREENS if f"/{screen.name}" == path)
    scope = {"type": "http", "path": path, "query_string": query.encode(), "headers": []}
    request = Request(scope | {"app": site.app})
    shown = screen.show(Page(request), parse_query(request, screen.query))
    left_out = {
        (model, name)
        for model, name in find_left_out(screen.answer, shown.data)
        if name not in LEFT_OUT.get(model, ())
    }
    assert left_out == set()


def test_a_page_and_its_json_have_the_same_figures_and_pages_of_lists(site: TestClient) -> None:
    query = {"cluster": "eu-1", "text": "more-", "sort": "broker", "page": "2"}
    listed = site.get(f"{API}/brokers", params=query).json()
    html = site.get(link("cluster", **query | {"name": "eu-1"})).text
    assert (listed["total"], listed["pages"], listed["page"]) == (60, 2, 2)
    names = [row["broker"] for row in listed["rows"]]
    assert names == [f"more-{number:03}:80" for number in range(50, 60)]
    links = [tag["href"] for tag in Tags(html).all("a") if tag.get("class") == "name"]
    assert [link("broker", cluster="eu-1", name=name) in links for name in names] == [True] * 10


def test_the_verdict_is_that_of_the_page(site: TestClient) -> None:
    found = site.get(f"{API}/clusters").json()
    text = Tags(site.get("/").text).text
    described = [finding["description"] in text for finding in found["verdict"]["findings"]]
    assert described and all(described), "as on the page"
    assert [row["cluster"] for row in found["clusters"]] == ["eu-1"]


def test_a_rollout_is_answered_with_its_brokers_in_order(
    tmp_path: Path, users: Path, topic: Topic
) -> None:
    from lb_stream.core.model.rollout import BrokerProgress
    from tests.support.table_rows import NOW

    fleet(tmp_path / "tables")
    brokers = {BROKER: BrokerProgress("empty", since_ms=NOW), "b-2:80": BrokerProgress()}
    add_rollout(tmp_path / "tables", brokers, ("b-2:80",))
    site = client(tmp_path / "tables", Access.load(users), topic)
    found = site.get(f"{API}/rollout?cluster=eu-1").json()
    assert [row["broker"] for row in found["rollout"]["brokers"]] == [BROKER, "b-2:80"]
    assert (found["untold"], found["past"][0]["outcome"]) == ([BROKER], "ended")


def test_who_has_an_answer_gets_status_304(site: TestClient) -> None:
    first = site.get(f"{API}/clusters")
    again = site.get(f"{API}/clusters", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("address", "field", "expected"),
    [
        ("/cluster", "name", "a value"),
        ("/cluster?name=eu-1&sort=colour", "sort", "one of usage, broker"),
        ("/cluster?name=eu-1&page=-1", "page", "a whole number"),
        ("/cluster?name=eu-1&page=", "page", "a whole number"),
        ("/cluster?name=eu-1&clustr=eu-1", "clustr", "one of kinds"),
        ("/cluster?name=eu-1&page=1&page=2", "page", "one value"),
        (f"/search?q={'x' * 2001}", "q", "2000 characters at most"),
        ("/what-if?cluster=eu-1&changes=faster", "changes", "KEY=VALUE"),
        ("/what-if?cluster=eu-1&minutes=31", "minutes", "one of 30, 60, 240"),
        ("/plan?cluster=eu-1&strategy=Guess", "strategy", "one of "),
    ],
)
def test_a_wrong_parameter_is_named_with_its_value_and_what_was_expected(
    site: TestClient, address: str, field: str, expected: str
) -> None:
    answer = site.get(API + address)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["field"]) == (422, 422, field)
    assert problem["expected"].startswith(expected)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/cluster?name=nowhere", 404),
        ("/decision?id=nowhere", 404),
        ("/nothing", 404),
    ],
)
def test_an_unknown_thing_is_a_problem(site: TestClient, address: str, status: int) -> None:
    answer = site.get(API + address)
    assert answer.status_code == answer.json()["status"] == status
    check_answer(build_document(), f"{API}/cluster", status, answer.json())
    assert answer.headers["content-type"] == "application/problem+json"


def test_problems_have_one_shape_also_for_methods_hosts_and_missing_tables(
    site: TestClient, tmp_path: Path
) -> None:
    answers = [
        site.put(f"{API}/clusters"),
        site.get(f"{API}/clusters", headers={"Host": "evil.example"}),
        client(tmp_path / "none").get(f"{API}/cluster?name=eu-1"),
    ]
    assert [answer.status_code for answer in answers] == [405, 421, 503]
    assert set(answers[0].headers["allow"].split(", ")) == {"GET", "HEAD"}
    for answer in answers:
        assert answer.json()["status"] == answer.status_code


# --- who may ---


def test_a_session_is_known_by_its_token_until_it_ends(site: TestClient) -> None:
    assert site.get(f"{API}/session").json()["name"] == ""
    begun = site.post(f"{API}/session", json={"name": "alice", "password": PASSWORD})
    assert begun.status_code == 201
    site.headers["Authorization"] = f"Bearer {begun.json()['token']}"
    session = site.get(f"{API}/session").json()
    assert (session["name"], session["role"], session["clusters"], session["token"]) == (
        "alice",
        "operator",
        {"us-1": "viewer"},
        None,
    )
    assert site.delete(f"{API}/session").status_code == 204
    assert site.get(f"{API}/session").json()["name"] == ""
    assert site.delete(f"{API}/session").status_code == 401


def test_a_wrong_password_is_refused_and_many_make_the_name_wait(site: TestClient) -> None:
    wrong = {"name": "alice", "password": "guess"}
    answers = [site.post(f"{API}/session", json=wrong) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 2
    assert COOKIE not in site.cookies
    unknown = site.post(f"{API}/session", json=wrong | {"name": "nobody"})
    assert unknown.json() == answers[0].json()


def test_who_has_logged_in_on_a_page_needs_the_csrf_token(site: TestClient, topic: Topic) -> None:
    log_in(site, "alice")
    body, path = {"cluster": "eu-1"}, f"{API}/send/pause"
    assert site.post(path, json=body).status_code == 403
    assert site.post(path, json=body, headers={CSRF_HEADER: "guess"}).status_code == 403
    assert topic.sent == []
    token = site.get(f"{API}/session").json()["csrf_token"]
    assert site.post(path, json=body, headers={CSRF_HEADER: token}).status_code == 202
    assert [command.by for _, command in topic.sent] == ["alice"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Authorization": "Bearer guess"}, 401),
        ({"Authorization": ""}, 401),
    ],
)
def test_what_another_site_could_send_is_refused(
    site: TestClient, topic: Topic, headers: dict[str, str], status: int
) -> None:
    begin(site, "alice")
    sent = {"Content-Type": "application/json"} | headers
    answer = site.post(f"{API}/send/pause", content='{"cluster": "eu-1"}', headers=sent)
    assert (answer.status_code, topic.sent) == (status, [])


def test_a_command_of_another_role_names_the_role_that_is_missing(
    site: TestClient, topic: Topic
) -> None:
    missing = {}
    for name in ("eve", "alice", "root"):
        begin(site, name)
        for form in ("pause", "dry-run"):
            for answer in (
                site.get(f"{API}/send/{form}?cluster=eu-1"),
                site.post(f"{API}/send/{form}", json={"cluster": "eu-1"}),
            ):
                missing[name, form] = answer.json().get("role") if answer.is_error else None
                assert answer.status_code in (200, 202, 403)
    assert missing == {
        ("eve", "pause"): "operator",
        ("eve", "dry-run"): "admin",
        ("alice", "pause"): None,
        ("alice", "dry-run"): "admin",
        ("root", "pause"): None,
        ("root", "dry-run"): None,
    }
    assert [(command.kind, command.by) for _, command in topic.sent] == [
        ("pause-cluster", "alice"),
        ("pause-cluster", "root"),
        ("set-config", "root"),
    ]


# --- commands ---

FIELDS: dict[str, dict[str, Any]] = {
    "approve": {"proposals": ["eu-1:1:p0", "eu-1:1:p1"]},
    "reject": {"proposals": ["eu-1:1:p0"], "why": "not today", "hours": 6},
    "create-namespace": {"namespace": "shop/new", "bundles": 4},
    "delete-namespace": {"namespace": "shop/old"},
    "unset": {"key": "max_moves_in_flight"},
    "declare-dead": {"broker": BROKER},
    "drain": {"broker": BROKER},
    "undrain": {"broker": BROKER},
    "pin": {"bundle": BUNDLE, "hours": 24},
    "unpin": {"bundle": BUNDLE},
    "rollout-settle": {"broker": BROKER},
    "rollout-start": {"of": [BROKER, "b-2:80"], "at_most": 2, "continues": True},
    "split": {"bundle": BUNDLE},
    "unload": {"bundle": BUNDLE, "destination": "b-2:80"},
    "undo": {"id": "eu-1:1:0"},
}
"""Form → the fields of its command. The others have none."""


def type_in(value: object) -> str:
    """Return a field's value as somebody types it in the form."""
    if isinstance(value, list):
        return " ".join(value)
    return "true" if value is True else str(value)


@pytest.mark.parametrize("name", [name for name in COMMAND_FORMS if name != "undo"])
def test_the_api_sends_the_record_that_the_form_sends(
    site: TestClient, topic: Topic, name: str
) -> None:
    fields = FIELDS.get(name, {})
    session = begin(site, "root")
    answer = site.post(
        f"{API}/send/{name}", json={"cluster": "eu-1", "command_id": "same", **fields}
    )
    assert answer.status_code == 202, answer.text
    given = answer.json()
    assert (given["id"], given["result"]) == (
        "same",
        f"{API}{link('command', cluster='eu-1', id='same')}",
    )
    # the same by the form
    del site.headers["Authorization"]
    site.cookies.set(COOKIE, session)
    token = site.get(f"{API}/session").json()["csrf_token"]
    typed = {field: type_in(value) for field, value in fields.items()}
    form = {"cluster": "eu-1", "command_id": "same", "csrf_token": token, **typed}
    assert site.post(f"/send/{name}", data=form).status_code == 303
    by_api, by_form = (
        (cluster, command.model_dump(exclude={"sent_ms"})) for cluster, command in topic.sent
    )
    assert by_api == by_form
    assert given["commands"] == [
        {"id": "same", "kind": by_form[1]["kind"], "arguments": topic.sent[0][1].arguments}
    ]


def test_what_a_command_would_do_is_shown_before_it_is_sent(site: TestClient, topic: Topic) -> None:
    begin(site, "alice")
    shown = site.get(f"{API}/send/drain", params={"cluster": "eu-1", "broker": BROKER}).json()
    assert (shown["about"]["broker"]["broker"], shown["about"]["bundles"]) == (BROKER, 1)
    assert (shown["role"], BROKER in shown["sentence"], topic.sent) == ("operator", True, [])


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("drain", {}, "cluster"),
        ("drain", {"cluster": "eu-1"}, "broker"),
        ("drain", {"cluster": "eu-1", "broker": BROKER, "why": "x"}, "why"),
        ("drain", {"cluster": "eu-1", "broker": 7}, "broker"),
        ("pin", {"cluster": "eu-1", "bundle": BUNDLE, "hours": 10_000}, "hours"),
        ("pin", {"cluster": "eu-1", "bundle": BUNDLE, "hours": "6"}, "hours"),
        ("unload", {"cluster": "eu-1", "bundle": "x"}, "namespace"),
        ("rollout-start", {"cluster": "eu-1", "at_most": 0}, "at_most"),
        ("reject", {"cluster": "eu-1", "proposals": [], "why": "x"}, "proposals"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_sent(
    site: TestClient, topic: Topic, name: str, body: dict[str, Any], field: str
) -> None:
    begin(site, "root")
    answer = site.post(f"{API}/send/{name}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert answer.json()["expected"] and topic.sent == []


@pytest.mark.parametrize("content", ["", "[]", "7", "{", '{"cluster": NaN}', "\ud800"])
def test_a_body_that_is_no_object_is_refused(site: TestClient, topic: Topic, content: str) -> None:
    begin(site, "root")
    headers = {"Content-Type": "application/json"}
    sent = content.encode("utf-8", "surrogatepass")
    answer = site.post(f"{API}/send/pause", content=sent, headers=headers)
    assert (answer.status_code, topic.sent) == (422, [])


def test_a_command_that_kafka_does_not_take_and_one_that_is_too_large_are_problems(
    site: TestClient, topic: Topic
) -> None:
    begin(site, "root")
    topic.away = True
    answer = site.post(f"{API}/send/pause", json={"cluster": "eu-1"})
    assert (answer.status_code, "not sent" in answer.json()["detail"]) == (503, True)
    large = {"cluster": "eu-1", "proposals": ["x" * 1_000] * 100}
    assert site.post(f"{API}/send/approve", json=large).status_code == 413
    assert site.post(f"{API}/send/pause", json={"cluster": "nowhere"}).status_code == 404


def test_undo_sends_what_takes_a_command_back_or_says_that_nothing_is_left(
    site: TestClient, topic: Topic
) -> None:
    begin(site, "alice")
    answer = site.post(f"{API}/send/undo", json={"cluster": "eu-1", **FIELDS["undo"]})
    assert (answer.status_code, topic.sent) == (409, []), "the decision was refused"


def test_a_user_whom_a_proxy_names_needs_the_csrf_token(
    tables: Path, users: Path, topic: Topic
) -> None:
    access = Access.load(users, "X-User")
    access = Access(
        access.users, "X-User", frozenset({"testclient"}), access.sessions, access.attempts
    )
    site = client(tables, access, topic)
    site.headers["X-User"] = "alice"
    body = {"cluster": "eu-1"}
    assert site.post(f"{API}/session", json={"name": "a", "password": "b"}).status_code == 404
    assert site.post(f"{API}/send/pause", json=body).status_code == 403
    token = site.get(f"{API}/session").json()["csrf_token"]
    headers = {CSRF_HEADER: token}
    assert site.post(f"{API}/send/pause", json=body, headers=headers).status_code == 202
