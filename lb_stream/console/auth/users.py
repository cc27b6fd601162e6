"""Who may act: users, their hashed passwords, and their roles in each cluster, out of a TOML
file."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.base import USER_PATTERN, describe_expected

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do what those before it may."""
AT_ONCE = 2
"""Passwords that are checked at the same time: each takes 64 MiB and a tenth of a second, on
purpose."""


class UsersError(ValueError):
    """The file of users can't be read. The text names the file, the field and what was expected."""


class User(BaseModel):
    """One user. Without a password only a proxy can name them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    password: str | None = Field(
        None, description="an Argon2 hash: `lbctl console user NAME` makes one"
    )
    role: Role = "viewer"
    clusters: dict[str, Role] = Field({}, description="cluster → another role there")

    @field_validator("password")
    @classmethod
    def _hashed(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("$argon2"):
            raise PydanticCustomError(
                "hash",
                "expected an Argon2 hash, not the password itself: `lbctl console user NAME` makes "
                "one",
            )
        return value

    def may(self, role: Role, cluster: str) -> bool:
        """Whether the role there is this one or more."""
        return ROLES.index(self.clusters.get(cluster, self.role)) >= ROLES.index(role)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    users: dict[Annotated[str, Field(pattern=USER_PATTERN)], User] = {}


ANONYMOUS = User()
"""Somebody who isn't in the file."""


class Users:
    """The users of a file, which is read anew when it has changed.

    Any thread may ask. Raises UsersError at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checks = threading.Semaphore(AT_ONCE)
        self._stamp: tuple[int, int] | None = None
        self._users: dict[str, User] = {}
        self._read()

    def find(self, name: str) -> User | None:
        """A user. Raises UsersError when the file has become unreadable: then nobody may act."""
        self._read()
        return self._users.get(name)

    def check(self, name: str, password: str) -> bool:
        """Whether this is the user's password.

        It takes as long for a name that isn't there. While the file can't be read none is.
        """
        try:
            user = self.find(name)
        except UsersError:
            user = None
        known = user.password if user is not None and user.password is not None else None
        with self._checks:
            try:
                return (
                    PasswordHasher().verify(known or _unknown_users_hash(), password)
                    and known is not None
                )
            except (Argon2Error, InvalidHashError):
                return False

    def _read(self) -> None:
        try:
            there = self._path.stat()
            if (stamp := (there.st_mtime_ns, there.st_size)) == self._stamp:
                return
            found = _File.model_validate(tomllib.loads(self._path.read_text()))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsersError(f"{self._path}: {error}") from None
        except ValidationError as error:
            raise UsersError(f"{self._path}: {_describe_first(error)}") from None
        self._users, self._stamp = found.users, stamp


def _describe_first(error: ValidationError) -> str:
    """The first thing that is wrong with a file: the field, its value where it has no secret."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part != "[key]")
    if first["type"] == "string_pattern_mismatch":
        return f"{field}: expected {describe_expected(first)} in a user's name"
    return f"{field}: {first['msg']}"


@cache
def _unknown_users_hash() -> str:
    return PasswordHasher().hash("nobody's")


def user_lines(name: str, password: str | None, role: str, clusters: Mapping[str, str]) -> str:
    """The lines of the file that make a user. Raises UsersError for a name that can't be one."""
    hashed = None if password is None else PasswordHasher().hash(password)
    given: dict[str, Any] = {"role": role, "clusters": dict(clusters), "password": hashed}
    try:
        user = _File.model_validate({"users": {name: given}}).users[name]
    except ValidationError as error:
        raise UsersError(_describe_first(error).removeprefix("users.")) from None
    lines = [f'[users."{name}"]', f'role = "{user.role}"']
    if user.password is not None:
        lines.append(f'password = "{user.password}"')
    if clusters:
        lines.append(
            "clusters = { "
            + ", ".join(f'"{cluster}" = "{role}"' for cluster, role in clusters.items())
            + " }"
        )
    return "\n".join(lines) + "\n"
