"""The console where a file of rights says who may do what: buttons, forms, the API, groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import API, link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.contracts.settings import SecuritySettings
from lb_stream.core.commands.base import make
from lb_stream.query.past.undo import Undo
from lb_stream.settings.rights import RightsFile
from tests.support.lbctl_runner import lbctl
from tests.unit.console.site import BROKER, BUNDLE, PASSWORD, Topic, client, fleet, log_in

FILE = f"""
[[grants]]
to = ["alice"]
verbs = ["drain"]
brokers = ["{BROKER}"]

[[grants]]
to = ["group:shop"]
verbs = ["move", "pin"]
namespaces = ["shop/*"]

[[grants]]
to = ["ann"]
role = "operator"
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rights") / "tables"
    fleet(folder)
    return folder


@pytest.fixture
def rights(tmp_path: Path) -> Path:
    path = tmp_path / "rights.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def proxied(tables: Path, rights: Path, topic: Topic) -> TestClient:
    """A console behind a proxy that names users and groups; no file of users."""
    file = RightsFile(SecuritySettings(rights=str(rights)))
    access = Access.load(None, "X-User", (), "X-Groups", file)
    return client(tables, replace(access, proxies=frozenset({"testclient"})), topic)


def become(site: TestClient, name: str, groups: str = "") -> None:
    site.headers["X-User"] = name
    site.headers["X-Groups"] = groups
    site.headers["X-CSRF-Token"] = site.get(f"{API}/session").json()["csrf_token"]


def forms_on(site: TestClient, address: str) -> set[str]:
    """The commands that a page offers."""
    text = site.get(address).text
    return {part.partition("?")[0] for part in text.split('href="/send/')[1:]}


@pytest.mark.parametrize(
    ("name", "groups", "of_broker", "of_bundle"),
    [
        ("alice", "", {"drain"}, set()),
        ("eve", "shop, bar", set(), {"unload", "pin"}),
        ("eve", "shopping", set(), set()),
        ("eve", "", set(), set()),
        ("ann", "", {"drain"}, {"unload", "pin", "split"}),
    ],
)
def test_pages_offer_what_the_file_allows(
    proxied: TestClient, name: str, groups: str, of_broker: set[str], of_bundle: set[str]
) -> None:
    become(proxied, name, groups)
    assert forms_on(proxied, link("broker", cluster="eu-1", name=BROKER)) == of_broker
    assert forms_on(proxied, link("bundle", cluster="eu-1", name=BUNDLE)) == of_bundle


def test_a_command_is_sent_where_its_right_is_granted_and_else_the_missing_right_is_named(
    proxied: TestClient, topic: Topic
) -> None:
    become(proxied, "alice")
    about = {"cluster": "eu-1"}
    sent = proxied.post(f"{API}/send/drain", json=about | {"broker": BROKER})
    assert (sent.status_code, [command.by for _, command in topic.sent]) == (202, ["alice"])
    for form, more, right, role in (
        ("drain", {"broker": "b-2:80"}, "drain b-2:80", "operator"),
        ("pause", {}, "pause", "operator"),
        ("dry-run", {}, "settings", "admin"),
        ("pin", {"bundle": BUNDLE, "hours": 1}, "pin", "operator"),
    ):
        answer = proxied.post(f"{API}/send/{form}", json=about | more)
        problem = answer.json()
        assert (answer.status_code, problem["right"], problem["role"]) == (403, right, role)
        assert right in problem["detail"]
    assert len(topic.sent) == 1


def test_a_destination_is_part_of_what_a_right_must_cover(
    proxied: TestClient, topic: Topic, rights: Path
) -> None:
    rights.write_text(FILE + f'[[grants]]\nto = ["bob"]\nverbs = ["move"]\nbrokers = ["{BROKER}"]')
    become(proxied, "bob")
    about = {"cluster": "eu-1", "bundle": BUNDLE}
    right = [
        proxied.post(f"{API}/send/unload", json=about | more).json().get("right")
        for more in ({}, {"destination": "b-2:80"}, {"destination": BROKER})
    ]
    assert right == ["move shop/hot", "move shop/hot b-2:80", None]
    assert [command.arguments["destination"] for _, command in topic.sent] == [BROKER]


def test_a_header_of_groups_counts_only_from_a_proxy(
    tables: Path, rights: Path, topic: Topic
) -> None:
    file = RightsFile(SecuritySettings(rights=str(rights)))
    site = client(tables, Access.load(None, "X-User", (), "X-Groups", file), topic)
    site.headers |= {"X-User": "ann", "X-Groups": "shop"}
    assert site.get(f"{API}/session").json()["name"] == ""
    assert site.post(f"{API}/send/pause", json={"cluster": "eu-1"}).status_code == 401


def test_a_changed_file_counts_for_users_who_are_logged_in_and_their_roles_do_not(
    tables: Path, tmp_path: Path, rights: Path, topic: Topic
) -> None:
    users = tmp_path / "users.toml"
    users.write_text(
        user_lines("root", PASSWORD, "admin", {"us-1": "viewer"})
        + user_lines("ann", PASSWORD, "viewer", {})
    )
    file = RightsFile(SecuritySettings(rights=str(rights)))
    site = client(tables, Access.load(users, rights=file), topic)
    page = link("cluster", name="eu-1")
    log_in(site, "root")
    session = site.get(f"{API}/session").json()
    assert (session["role"], session["clusters"]) == ("viewer", {"us-1": "viewer"})
    assert forms_on(site, page) == set()
    log_in(site, "ann")
    assert site.get(f"{API}/session").json()["role"] == "operator"
    assert "pause" in forms_on(site, page)
    rights.write_text("")
    assert forms_on(site, page) == set()


def test_undo_needs_the_right_of_each_command_that_it_sends(
    proxied: TestClient, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = Undo("eu-1", [make("undrain-broker", broker=BROKER), make("resume-cluster")])
    monkeypatch.setattr("lb_stream.console.sending.plan_undo", lambda *_: undo)
    for name, right in (("eve", None), ("alice", "pause"), ("ann", None)):
        become(proxied, name)
        answer = proxied.post(f"{API}/send/undo", json={"cluster": "eu-1", "id": "c1"})
        assert answer.json().get("right") == right
        assert answer.status_code == (202 if name == "ann" else 403)
    assert [command.kind for _, command in topic.sent] == ["undrain-broker", "resume-cluster"]


# --- the options of lbctl console ---


@pytest.mark.parametrize(
    ("options", "has_rights", "words"),
    [
        (("--user-header", "X-User"), False, "--user-header: expected --users FILE or security"),
        (("--proxy", "10.0.0.1"), False, "--proxy: expected --users FILE or security.rights"),
        (("--group-header", "X-Groups"), True, "--group-header: expected --user-header and"),
        (
            ("--user-header", "X-User", "--group-header", "X-Groups", "--users", "users.toml"),
            False,
            "--group-header: expected --user-header and",
        ),
        # all is well but the address
        (("--user-header", "X-User", "--group-header", "X-Groups"), True, "--address nowhere"),
        (("--users", "users.toml"), True, "the roles in users.toml do not count"),
    ],
)
def test_options_that_lack_another_one_are_wrong_usage(
    tmp_path: Path, rights: Path, options: tuple[str, ...], has_rights: bool, words: str
) -> None:
    (tmp_path / "users.toml").write_text(user_lines("root", None, "admin", {}))
    setting = ("--set", f"security.rights={rights}") if has_rights else ()
    answer = lbctl("console", "--address", "nowhere", *options, *setting, cwd=tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
