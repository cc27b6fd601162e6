"""The file of those who may act: what is read, what is refused, and what a password is checked
against."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lb_stream.access.rights import Principal
from lb_stream.console.auth.users import Users, UsersError, user_lines
from lb_stream.contracts.verbs import RequiredRight


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def test_the_printed_lines_are_a_user_who_logs_in_with_the_password(tmp_path: Path) -> None:
    lines = (
        user_lines("alice", "a secret", "operator", {"eu-1": "admin"}),
        user_lines("proxy@example.com", None, "viewer", {}),
    )
    users = Users(written(tmp_path / "users.toml", *lines))
    assert "a secret" not in lines[0] and "password" not in lines[1]
    assert users.has_password("alice", "a secret")
    assert not users.has_password("alice", "another") and not users.has_password("alice", "")
    assert not users.has_password("proxy@example.com", "") and not users.has_password(
        "nobody", "nobody's"
    ), "who has no password has none that fits"
    alice = users.find("alice")
    assert alice is not None and alice.clusters == {"eu-1": "admin"}


def test_a_role_in_one_cluster_counts_there_instead_of_the_users_other_role(
    tmp_path: Path,
) -> None:
    lines = (
        user_lines("alice", None, "operator", {"eu-1": "admin"}),
        user_lines("bob", None, "admin", {"eu-1": "viewer"}),
    )
    rights = Users(written(tmp_path / "users.toml", *lines)).rights()
    found = {
        (name, cluster, verb): rights.find_missing(Principal(name), cluster, [RequiredRight(verb)])
        is None
        for name in ("alice", "bob", "nobody")
        for cluster in ("eu-1", "us-1")
        for verb in ("settings", "pause")
    }
    assert [place for place, is_granted in found.items() if is_granted] == [
        ("alice", "eu-1", "settings"),
        ("alice", "eu-1", "pause"),
        ("alice", "us-1", "pause"),
        ("bob", "us-1", "settings"),
        ("bob", "us-1", "pause"),
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("[users.alice]", 'password = "plain"'), "users.alice.password: expected an Argon2 hash"),
        (
            ("[users.alice]", 'role = "root"'),
            "users.alice.role: Input should be 'viewer', 'operator' or 'admin'",
        ),
        (("[users.alice]", 'rolle = "admin"'), "users.alice.rolle: Extra inputs"),
        (('[users."a b"]',), "users.a b"),
        (("[users",), "users.toml"),
    ],
)
def test_an_unreadable_file_names_the_field(
    tmp_path: Path, lines: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsersError) as error:
        Users(written(tmp_path / "users.toml", *lines))
    assert words in str(error.value) and "users.toml" in str(error.value)


def test_invalid_names_and_roles_make_no_lines() -> None:
    for name, role in (('a"]\nx', "viewer"), ("alice", "root")):
        with pytest.raises(UsersError):
            user_lines(name, None, role, {})


def test_a_changed_file_counts_at_once_and_an_unreadable_one_is_an_error(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "users.toml", user_lines("alice", None, "admin", {}))
    users = Users(path)
    written(path, user_lines("bob", None, "admin", {}))
    os.utime(path, ns=(1, 1))
    assert users.find("alice") is None and users.find("bob") is not None
    path.unlink()
    with pytest.raises(UsersError):
        users.find("bob")
