"""Sending commands from pages: who may, what is sent, and that no other site can."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.attempts import FREE_ATTEMPTS_OF_ALL
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import COOKIE, Access
from lb_stream.console.command_forms import COMMAND_FORMS
from lb_stream.core.commands.base import make
from lb_stream.query.past.undo import Undo
from tests.unit.console.site import BROKER, BUNDLE, PASSWORD, Tags, Topic, client, fleet, log_in

MOVED = "eu-1:1:0"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.write_text(
        user_lines("alice", PASSWORD, "operator", {"us-1": "viewer"})
        + user_lines("root", PASSWORD, "admin", {})
        + user_lines("eve", PASSWORD, "viewer", {})
    )
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("acting") / "tables"
    fleet(folder)
    return folder


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def site(tables: Path, users: Path, topic: Topic) -> TestClient:
    return client(tables, Access.load(users), topic)


def form_on(site: TestClient, name: str, **on: str) -> dict[str, Any]:
    """Return the hidden fields of a form."""
    answer = site.get(link(f"send/{name}", cluster="eu-1", **on))
    assert answer.status_code == 200, answer.text
    return {
        tag["name"]: tag.get("value") or ""
        for tag in Tags(answer.text).all("input")
        if tag.get("type") == "hidden"
    }


# --- who may ---


def test_without_a_file_of_users_there_are_no_forms_and_no_logins(
    tables: Path, topic: Topic
) -> None:
    site = client(tables, send=topic)
    assert (
        "/login" not in site.get("/").text
        and "/send/" not in site.get(link("cluster", name="eu-1")).text
    )
    for answer in (
        site.get("/login"),
        log_in(site, "alice"),
        site.get(link("send/pause", cluster="eu-1")),
        site.post("/send/pause"),
    ):
        assert answer.status_code == 404


def test_a_page_of_a_user_is_sent_to_no_other_visitor(
    site: TestClient,
) -> None:
    address = link("broker", cluster="eu-1", name=BROKER)
    before = site.get(address)
    log_in(site, "alice")
    own = site.get(address)
    assert "alice" in own.text and "alice" not in before.text and "ETag" not in own.headers
    site.cookies.clear()
    assert "alice" not in site.get(address).text


def test_a_login_sets_a_strict_cookie_and_leads_back_to_the_page_before(
    site: TestClient,
) -> None:
    answer = log_in(site, "alice", following="/cluster?name=eu-1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/cluster?name=eu-1")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    page = site.get("/cluster?name=eu-1").text
    assert (
        "alice" in page
        and "/send/pause" in page
        and "/login" not in page
        and "/send/dry-run" not in page
    )


@pytest.mark.parametrize(
    "following",
    [
        "https://elsewhere.example/",
        "//elsewhere.example",
        "/\\elsewhere.example",
        "/a\nSet-Cookie: x=y",
    ],
)
def test_a_login_leads_to_no_other_site(site: TestClient, following: str) -> None:
    assert log_in(site, "alice", following=following).headers["location"] == "/"


def test_a_wrong_password_is_answered_like_a_wrong_name_and_many_make_the_name_wait(
    site: TestClient,
) -> None:
    answers = [log_in(site, name, "wrong") for name in ("alice", "nobody")]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert len({re.sub(r"alice|nobody|\d", "", answer.text) for answer in answers}) == 1
    for _ in range(5):
        log_in(site, "alice", "wrong")
    answer = log_in(site, "alice")
    assert (
        answer.status_code == 429 and "try again in" in answer.text and COOKIE not in site.cookies
    )
    assert log_in(site, "root").status_code == 303, "only this name waits"


def test_a_viewer_sees_no_commands_and_may_send_none(site: TestClient, topic: Topic) -> None:
    log_in(site, "alice")
    form = form_on(site, "pause")
    log_in(site, "eve")
    assert "/send/" not in site.get(link("cluster", name="eu-1")).text
    assert site.get(link("send/pause", cluster="eu-1")).status_code == 403
    proof = Tags(site.get("/").text).all("input")
    own = next(tag["value"] for tag in proof if tag.get("name") == "csrf_token")
    answer = site.post("/send/pause", data=form | {"csrf_token": own})
    assert answer.status_code == 403 and "the role operator" in answer.text
    assert topic.sent == []


def test_an_operator_may_not_send_what_requires_an_admin(site: TestClient, topic: Topic) -> None:
    for name in ("alice", "root"):
        log_in(site, name)
        answer = site.get(link("send/dry-run", cluster="eu-1"))
        assert answer.status_code == (200 if name == "root" else 403)
    assert site.post("/send/dry-run", data=form_on(site, "dry-run")).status_code == 303
    assert [
        (cluster, command.kind, command.by, command.arguments) for cluster, command in topic.sent
    ] == [("eu-1", "set-config", "root", {"values": {"mode": "observe"}})]


def test_after_logging_out_the_same_cookie_and_form_do_nothing(
    site: TestClient, topic: Topic
) -> None:
    log_in(site, "alice")
    form, token = form_on(site, "pause"), site.cookies[COOKIE]
    assert site.post("/logout", data={"csrf_token": "wrong"}).status_code == 403
    assert site.post("/logout", data={"csrf_token": form["csrf_token"]}).status_code == 303
    site.cookies.set(COOKIE, token)
    assert site.post("/send/pause", data=form).status_code == 403
    assert topic.sent == [] and "Log in" in site.get("/").text


def test_a_user_who_is_removed_from_the_file_may_send_nothing_at_once(
    tables: Path, tmp_path: Path, topic: Topic
) -> None:
    path = tmp_path / "users.toml"
    path.write_text(user_lines("alice", PASSWORD, "operator", {}))
    site = client(tables, Access.load(path), topic)
    log_in(site, "alice")
    form = form_on(site, "pause")
    path.write_text("damaged")
    assert site.post("/send/pause", data=form).status_code == 401
    assert site.get("/").status_code == 200, "everybody still reads"
    path.write_text("")
    assert site.post("/send/pause", data=form).status_code == 403
    path.write_text(user_lines("alice", PASSWORD, "operator", {}))
    assert site.post("/send/pause", data=form).status_code == 403, "the session has ended"
    assert topic.sent == []


def test_another_password_ends_all_sessions_of_its_user_and_another_role_none(
    tables: Path, tmp_path: Path, topic: Topic
) -> None:
    path = tmp_path / "users.toml"
    alice, root = (user_lines(name, PASSWORD, "operator", {}) for name in ("alice", "root"))
    path.write_text(alice + root)
    access = Access.load(path)
    phone, laptop, other = (client(tables, access, topic) for _ in range(3))
    for site, name in ((phone, "alice"), (laptop, "alice"), (other, "root")):
        assert log_in(site, name).status_code == 303
    path.write_text(alice.replace('"operator"', '"viewer"') + root)
    assert "Log out" in phone.get("/").text
    path.write_text(user_lines("alice", "another", "operator", {}) + root)
    assert ["Log out" in site.get("/").text for site in (phone, laptop, other)] == [
        False,
        False,
        True,
    ]


def test_an_address_that_tries_many_names_waits_and_a_proxy_tells_addresses_apart(
    tables: Path, users: Path, topic: Topic
) -> None:
    access = replace(Access.load(users), proxies=frozenset({"testclient"}))
    site = client(tables, access, topic)
    assert log_in(site, "eve").status_code == 303, "without the header no address is counted"

    def status_from(forwarded: str, name: str, password: str) -> int:
        site.headers["X-Forwarded-For"] = forwarded
        return log_in(site, name, password).status_code

    for number in range(FREE_ATTEMPTS_OF_ALL):
        assert status_from("10.0.0.2, 10.0.0.1", f"user-{number}", "wrong") == 401
    assert status_from("10.0.0.1", "root", PASSWORD) == 429
    assert status_from("10.0.0.1, 10.0.0.2", "root", PASSWORD) == 303, "the last one counts"
    assert status_from("10.0.0.1, made up", "root", PASSWORD) == 303


# --- a proxy that names its user ---


def test_a_user_header_is_accepted_from_a_proxy_only(
    tables: Path, users: Path, topic: Topic
) -> None:
    for proxies, code in ((("testclient",), None), (("127.0.0.1",), 401)):
        if code is None:
            access = Access.load(users, "X-User")
            access = Access(
                access.users, "X-User", frozenset(proxies), access.sessions, access.attempts
            )
        else:
            access = Access.load(users, "X-User", proxies)
        site = client(tables, access, topic)
        site.headers["X-User"] = "alice"
        answer = site.get(link("send/pause", cluster="eu-1"))
        assert answer.status_code == (code or 200)
        assert site.get("/login").status_code == 404
    assert topic.sent == []


def test_a_user_header_that_comes_twice_is_ignored(tables: Path, users: Path, topic: Topic) -> None:
    access = Access.load(users, "X-User")
    site = client(
        tables,
        Access(access.users, "X-User", frozenset({"testclient"}), access.sessions, access.attempts),
        topic,
    )
    answer = site.get(
        link("send/pause", cluster="eu-1"), headers=[("X-User", "eve"), ("X-User", "root")]
    )
    assert answer.status_code == 401


# --- forms of other sites ---


@pytest.mark.parametrize(
    ("headers", "without", "code"),
    [
        ({"Origin": "https://elsewhere.example"}, None, 403),
        ({"Sec-Fetch-Site": "cross-site"}, None, 403),
        ({"Sec-Fetch-Site": "same-site"}, None, 403),
        ({"Content-Type": "text/plain"}, None, 415),
        ({}, "csrf_token", 403),
        ({}, "command_id", 400),
        ({}, "cluster", 400),
        ({}, None, 303),
    ],
)
def test_a_form_that_was_not_made_for_this_session_sends_nothing(
    site: TestClient, topic: Topic, headers: dict[str, str], without: str | None, code: int
) -> None:
    log_in(site, "alice")
    form = {name: value for name, value in form_on(site, "pause").items() if name != without}
    assert site.post("/send/pause", data=form, headers=headers).status_code == code
    assert len(topic.sent) == (code == 303)


def test_a_token_of_another_session_sends_nothing_and_a_huge_form_is_not_read(
    site: TestClient, topic: Topic
) -> None:
    log_in(site, "root")
    form = form_on(site, "pause")
    log_in(site, "alice")
    assert site.post("/send/pause", data=form).status_code == 403
    assert site.post("/send/pause", data=form | {"cluster": "x" * 100_000}).status_code == 413
    assert topic.sent == []


# --- what is sent ---


@pytest.mark.parametrize(
    ("name", "on", "more", "kind", "arguments"),
    [
        ("pause", {}, {}, "pause-cluster", {}),
        ("resume", {}, {}, "resume-cluster", {}),
        ("drain", {"broker": BROKER}, {}, "drain-broker", {"broker": BROKER}),
        ("undrain", {"broker": BROKER}, {}, "undrain-broker", {"broker": BROKER}),
        ("declare-dead", {"broker": BROKER}, {}, "declare-dead", {"broker": BROKER}),
        ("rollout-settle", {"broker": BROKER}, {}, "rollout-settle", {"broker": BROKER}),
        (
            "unload",
            {"bundle": BUNDLE},
            {},
            "unload",
            {"namespace": "shop/hot", "bundle": "0x00000000_0x10000000"},
        ),
        (
            "unload",
            {"bundle": BUNDLE},
            {"destination": "b-2:80"},
            "unload",
            {"namespace": "shop/hot", "bundle": "0x00000000_0x10000000", "destination": "b-2:80"},
        ),
        (
            "split",
            {"bundle": BUNDLE},
            {},
            "split",
            {
                "namespace": "shop/hot",
                "bundle": "0x00000000_0x10000000",
                "boundaries": [],
                "unload": False,
            },
        ),
        (
            "pin",
            {"bundle": BUNDLE},
            {"hours": "6"},
            "pin-bundles",
            {"bundles": [BUNDLE], "for_ms": 6 * 3_600_000},
        ),
        ("unpin", {"bundle": BUNDLE}, {}, "pin-bundles", {"bundles": [BUNDLE], "for_ms": 0}),
        ("publish", {}, {}, "set-config", {"values": {"mode": "act"}}),
        ("ask-first", {}, {}, "set-config", {"values": {"mode": "approve"}}),
    ],
)
def test_each_form_sends_a_command_with_the_name_of_its_sender(
    site: TestClient,
    topic: Topic,
    name: str,
    on: dict[str, str],
    more: dict[str, str],
    kind: str,
    arguments: dict[str, Any],
) -> None:
    log_in(site, "root")
    form = form_on(site, name, **on)
    answer = site.post(f"/send/{name}", data=form | more)
    assert answer.status_code == 303, answer.text
    ((cluster, command),) = topic.sent
    assert (cluster, command.kind, command.by, command.id, command.arguments) == (
        "eu-1",
        kind,
        "root",
        form["command_id"],
        arguments,
    )
    assert answer.headers["location"] == link("command", cluster="eu-1", id=command.id)
    assert "The next round answers it" in site.get(answer.headers["location"]).text


FORMS: dict[str, tuple[dict[str, str], str, dict[str, Any]]] = {
    "create-namespace": (
        {"namespace": "t/new", "bundles": "4"},
        "create-namespace",
        {"namespace": "t/new", "bundles": 4},
    ),
    "delete-namespace": ({"namespace": "t/n"}, "delete-namespace", {"namespace": "t/n"}),
    "unset": ({"key": "min_brokers"}, "delete-config", {"key": "min_brokers"}),
    "forget": ({}, "forget-cluster", {}),
    "rollout-start": (
        {
            "of": "b-1 b-2:80",
            "in_order": "",
            "canary": "",
            "at_most": "2",
            "version": "5.0.1",
            "continues": "true",
        },
        "rollout-start",
        {
            "of": ["b-1", "b-2:80"],
            "in_order": [],
            "at_most": 2,
            "version": "5.0.1",
            "continues": True,
            "even_if_full": False,
        },
    ),
    "rollout-next": ({}, "rollout-next", {}),
    "rollout-pause": ({}, "rollout-pause", {}),
    "rollout-resume": ({}, "rollout-resume", {"continues": False}),
    "rollout-abort": ({}, "rollout-abort", {}),
}
"""Form → what is typed in, the kind of the command, its arguments."""


@pytest.mark.parametrize("name", FORMS)
def test_typed_fields_of_a_form_are_fields_of_the_command(
    site: TestClient, topic: Topic, name: str
) -> None:
    typed, kind, arguments = FORMS[name]
    log_in(site, "root")
    answer = site.post(f"/send/{name}", data=form_on(site, name) | typed)
    assert answer.status_code == 303, answer.text
    ((_, command),) = topic.sent
    assert (command.kind, command.arguments) == (kind, arguments)


def test_every_form_has_a_test() -> None:
    tried = {
        "pause",
        "resume",
        "drain",
        "undrain",
        "declare-dead",
        "rollout-settle",
        "unload",
        "split",
        "pin",
        "unpin",
        "publish",
        "ask-first",
        "dry-run",
        "undo",
        *FORMS,
    }
    assert set(COMMAND_FORMS) == tried | {"approve", "reject"}, "the last two: test_proposals"


def test_a_form_that_is_sent_twice_is_one_command(site: TestClient, topic: Topic) -> None:
    log_in(site, "alice")
    form = form_on(site, "pause")
    assert [site.post("/send/pause", data=form).status_code for _ in range(2)] == [303, 303]
    assert len({command.id for _, command in topic.sent}) == 1, "the balancer does one id once"
    assert form_on(site, "pause")["command_id"] != form["command_id"]


@pytest.mark.parametrize(
    ("name", "on", "more", "words"),
    [
        (
            "pin",
            {"bundle": BUNDLE},
            {"hours": "-1"},
            "hours = -1: expected a whole number of hours",
        ),
        (
            "pin",
            {"bundle": BUNDLE},
            {"hours": "99999999"},
            "hours = 99999999: expected a whole number of hours",
        ),
        ("unload", {"bundle": BUNDLE}, {"bundle": "no bundle"}, "namespace = "),
        ("drain", {"broker": BROKER}, {"broker": "x" * 3_000}, "broker: 3000 characters"),
    ],
)
def test_an_invalid_field_is_named(
    site: TestClient, topic: Topic, name: str, on: dict[str, str], more: dict[str, str], words: str
) -> None:
    log_in(site, "alice")
    answer = site.post(f"/send/{name}", data=form_on(site, name, **on) | more)
    assert answer.status_code == 400 and words in Tags(answer.text).text and topic.sent == []


def test_an_unknown_command_an_unknown_cluster_and_a_silent_kafka_are_errors(
    site: TestClient, topic: Topic
) -> None:
    log_in(site, "alice")
    assert site.get(link("send/conquer", cluster="eu-1")).status_code == 404
    assert site.get(link("send/pause", cluster="nowhere")).status_code == 404
    topic.away = True
    answer = site.post("/send/pause", data=form_on(site, "pause"))
    assert (
        answer.status_code == 503
        and "the command was not sent: " in (text := Tags(answer.text).text)
        and "no broker answers" in text
    )


# --- undo ---


def test_the_form_of_undo_lists_commands_moves_and_what_is_left(
    site: TestClient, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = {"bundle": BUNDLE, "from": "b-2:80", "to": BROKER, "decisions": [MOVED]}
    undo = Undo(
        "eu-1", [make("undrain-broker", broker=BROKER)], [move], [], [("c-7", "it did nothing")]
    )
    monkeypatch.setattr("lb_stream.console.sending.plan_undo", lambda *_: undo)
    log_in(site, "alice")
    form = form_on(site, "undo", id=MOVED)
    text = Tags(site.get(link("send/undo", cluster="eu-1", id=MOVED)).text).text
    text = " ".join(text.split())
    assert f"alice {make('undrain-broker', broker=BROKER).describe()}" in text
    assert "Moves back" in text and "What stays c-7: it did nothing" in text
    answer = site.post("/send/undo", data=form | {"hours": "0"})
    assert answer.status_code == 303, answer.text
    assert [command.kind for _, command in topic.sent] == ["undrain-broker", "unload"]
    assert [command.id for _, command in topic.sent] == [
        f"{form['command_id']}-{number}" for number in (1, 2)
    ]


def test_a_command_is_shown_by_its_id_with_those_that_were_sent_with_it(site: TestClient) -> None:
    log_in(site, "alice")
    page = Tags(site.get(link("history", cluster="eu-1", kinds="commands")).text)
    shown = [
        tag["href"] for tag in page.all("a") if (tag.get("href") or "").startswith("/command?")
    ]
    assert shown
    answer = site.get(shown[0])
    assert (
        answer.status_code == 200
        and "Result" in answer.text
        and "The next round" not in answer.text
    )
