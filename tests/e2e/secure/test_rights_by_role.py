"""Each right of each role is needed, and its absence is one line that names user, right and resource, with an exit code."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from lb_stream.access import refusals
from lb_stream.access.roles import Right, Role
from lb_stream.agent import producer
from lb_stream.io.kafka.topics import create_topics, topic_specs
from tests.e2e.secure.roles_at_work import Users
from tests.support.secure_kafka import Acls, SecureKafka

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROLES_AT_WORK: tuple[Role, ...] = tuple(role for role in get_args(Role) if role != "create")
LONGEST_S = 120


@pytest.fixture(scope="module", params=["scram", "mtls"])
def users(request: pytest.FixtureRequest, secured: SecureKafka, acls: Acls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    """A user for each role, who has its rights; the topics."""
    made = Users.of(secured, request.param, tmp_path_factory.mktemp("rights") / "users", f"rights-{request.param}")
    create_topics(secured.mtls, topic_specs(made.topics), secured.certified("admin"))
    made.job_elsewhere()
    for role in ROLES_AT_WORK:
        acls.allow(made.principal(role), *made.rights(role))
    yield made
    for role in ROLES_AT_WORK:
        acls.take(made.principal(role), *made.rights(role))


def assert_names(told: tuple[str, int], users: Users, role: Role, *rights: Right) -> None:
    """One line: who lacks what."""
    line, code = told
    missing = ", ".join(map(str, rights))
    assert code == 1, told
    assert re.fullmatch(
        rf"Kafka at {re.escape(users.bootstrap)} refuses {re.escape(users.principal(role))}: missing {re.escape(missing)}\. .*\n", line
    ), told


@pytest.mark.parametrize("role", ROLES_AT_WORK)
def test_each_right_that_is_missing_is_named(users: Users, acls: Acls, role: Role, last_words: dict[str, Any]) -> None:
    for right in users.rights(role):
        acls.take(users.principal(role), right)
        try:
            assert_names(users.ended(role, right), users, role, right)
        finally:
            acls.allow(users.principal(role), right)
        last_words["rights"] = last_words.get("rights", 0) + 1


@pytest.mark.parametrize("way", ["scram", "mtls"])
def test_topics_are_made_by_who_may_and_each_missing_right_to_it_is_named(
    secured: SecureKafka, acls: Acls, way: str, tmp_path: Path, last_words: dict[str, Any]
) -> None:
    users = Users.of(secured, way, tmp_path / "users", f"made-{way}")
    rights = users.rights("create")
    acls.allow(users.principal("create"), *rights)
    making = [right for right in rights if right.operation == "Create"]
    assert [right.name for right in making] == [spec.name for spec in topic_specs(users.topics)]
    acls.take(users.principal("create"), *making)
    for at, right in enumerate(making):
        assert_names(users.ended("create", right), users, "create", *making[at:])
        acls.allow(users.principal("create"), right)
    assert users.lbctl("create", "topics", "create").code == 0
    for right in (right for right in rights if right not in making):  # nobody needs Create of what is there
        acls.take(users.principal("create"), right)
        assert_names(users.ended("create", right), users, "create", right)
        acls.allow(users.principal("create"), right)
    last_words["rights"] = last_words.get("rights", 0) + len(rights)
    acls.take(users.principal("create"), *rights)


def test_several_missing_rights_are_named_at_once(users: Users, acls: Acls) -> None:
    missing = [right for right in users.rights("job") if right.name in (users.topics.reports, users.topics.results)]
    acls.take(users.principal("job"), *missing)
    line, code = users.ended("job")
    acls.allow(users.principal("job"), *missing)
    assert code == 1 and f"missing {', '.join(map(str, missing))}. " in line


@pytest.mark.parametrize("role", ROLES_AT_WORK)
def test_a_refused_login_is_a_wrong_setting(users: Users, role: Role, last_words: dict[str, Any]) -> None:
    scram = "sasl_plain_password" in users.options[role]
    wrong = [{"sasl_plain_password": "wrong"}, {"sasl_mechanism": "PLAIN"}] if scram else [{"ssl_password": "wrong"}]
    for changed in (*wrong, {"ssl_cafile": "/etc/ssl/certs/ca-certificates.crt"}):
        line, code = users.ended(role, **changed)
        assert code == 2, (line, changed)
        assert re.fullmatch(rf"Kafka at {users.bootstrap} does not let {users.principal(role)} in: .*\n", line), (line, changed)
        last_words["logins"] = last_words.get("logins", 0) + 1


def until(condition: Callable[[], object]) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end, f"it did not come about within {LONGEST_S} s"
        time.sleep(0.1)


def test_an_agent_whose_rights_are_taken_says_so_once_and_goes_on_when_it_has_them_again(
    users: Users, acls: Acls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (refusals, producer):
        monkeypatch.setattr(module, "AGAIN_S", 1.0)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    agent = users.agent()
    agent.start()
    try:
        for operation, topic in (("Write", users.topics.reports), ("Read", users.topics.decisions)):
            right = Right(operation, "topic", topic)

            def lines(right: Right = right) -> list[str]:
                return [text for text in caplog.messages if f"refuses {users.principal('agent')}: missing {right}." in text]

            acls.take(users.principal("agent"), right)
            until(lines)
            time.sleep(3.0)  # it tries again meanwhile
            acls.allow(users.principal("agent"), right)
            caplog.clear()
            time.sleep(3.0)
            assert agent.running and len(lines()) <= 1
            until(lambda: not agent.reporter._unheard)
    finally:
        agent.stop()
