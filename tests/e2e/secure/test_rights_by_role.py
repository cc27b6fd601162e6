"""Each right of each role is needed, and its absence is one line that names user, right and
resource, with an exit code."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from lb_stream.access.roles import Right, Role
from lb_stream.io.kafka.topics import create_topics, topic_specs
from tests.e2e.secure.roles_at_work import Users, refuses, users_with_rights
from tests.support.secure_kafka import ADMIN, Acls, SecureKafka
from tests.support.tokens import TokenIssuer

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROLES_AT_WORK: tuple[Role, ...] = tuple(role for role in get_args(Role) if role != "create")
LONGEST_S = 120


@pytest.fixture(scope="module", params=["scram", "mtls"])
def users(
    request: pytest.FixtureRequest,
    secured: SecureKafka,
    acls: Acls,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Users]:
    """A user for each role, who has its rights; the topics."""
    folder = tmp_path_factory.mktemp("rights") / "users"
    with users_with_rights(
        secured, acls, request.param, folder, f"rights-{request.param}", ROLES_AT_WORK
    ) as made:
        create_topics(secured.mtls, topic_specs(made.topics), secured.certified(ADMIN))
        made.job_elsewhere()
        yield made


def assert_names(told: tuple[str, int], users: Users, role: Role, *rights: Right) -> None:
    """One line: who lacks what."""
    line, code = told
    assert code == 1, told
    assert re.fullmatch(refuses(users, role, *rights) + "\n", line), told


@pytest.mark.parametrize("role", ROLES_AT_WORK)
def test_each_right_that_is_missing_is_named(
    users: Users, acls: Acls, role: Role, tally: Callable[..., None]
) -> None:
    for right in users.rights(role):
        acls.take(users.principal(role), right)
        try:
            assert_names(users.ended(role, right), users, role, right)
        finally:
            acls.allow(users.principal(role), right)
        tally("rights")


@pytest.mark.parametrize("way", ["scram", "mtls"])
def test_topics_are_made_by_who_may_and_each_missing_right_to_it_is_named(
    secured: SecureKafka, acls: Acls, way: str, tmp_path: Path, tally: Callable[..., None]
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
    for right in (
        right for right in rights if right not in making
    ):  # nobody needs Create of what is there
        acls.take(users.principal("create"), right)
        assert_names(users.ended("create", right), users, "create", right)
        acls.allow(users.principal("create"), right)
    tally("rights", len(rights))
    acls.take(users.principal("create"), *rights)


def test_several_missing_rights_are_named_at_once(users: Users, acls: Acls) -> None:
    missing = [
        right
        for right in users.rights("job")
        if right.name in (users.topics.reports, users.topics.results)
    ]
    acls.take(users.principal("job"), *missing)
    line, code = users.ended("job")
    acls.allow(users.principal("job"), *missing)
    assert code == 1 and f"missing {', '.join(map(str, missing))}. " in line


@pytest.mark.parametrize("role", ROLES_AT_WORK)
def test_a_refused_login_is_a_wrong_setting(
    users: Users, role: Role, tally: Callable[..., None]
) -> None:
    scram = "sasl_plain_password" in users.options[role]
    wrong = (
        [{"sasl_plain_password": "wrong"}, {"sasl_mechanism": "PLAIN"}]
        if scram
        else [{"ssl_password": "wrong"}]
    )
    for changed in (*wrong, {"ssl_cafile": "/etc/ssl/certs/ca-certificates.crt"}):
        line, code = users.ended(role, **changed)
        assert code == 2, (line, changed)
        assert re.fullmatch(
            rf"Kafka at {users.bootstrap} does not let {users.principal(role)} in: .*\n", line
        ), (line, changed)
        tally("logins")


def test_a_token_that_somebody_else_has_signed_is_a_wrong_setting(
    secured: SecureKafka, tmp_path: Path, tally: Callable[..., None]
) -> None:
    users, forger = (
        Users.of(secured, "bearer", tmp_path / "users", "forged"),
        TokenIssuer(tmp_path / "forger"),
    )
    for role in get_args(Role):
        line, code = users.ended(role, sasl_oauth_token_file=str(forger.token(f"lb-{role}")))
        assert code == 2, (role, line)
        assert re.fullmatch(
            rf"Kafka at {users.bootstrap} does not let User:lb-{role} in: "
            r".*sasl_oauth_token_file.*\n",
            line,
        ), (role, line)
        tally("logins")
