"""The file of those who may act: what is read, what is refused, and what a password is checked
against."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lb_stream.console.auth.users import ANONYMOUS, Users, UsersError, user_lines


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
    assert alice is not None
    assert (
        alice.may("admin", "eu-1"),
        alice.may("admin", "us-1"),
        alice.may("operator", "us-1"),
    ) == (True, False, True)
    assert ANONYMOUS.may("viewer", "eu-1") and not ANONYMOUS.may("operator", "eu-1")


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
