"""The users who may send commands: their hashed passwords and roles, read from a TOML file."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.base import USER_PATTERN, describe_expected

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each role may do what the roles before it may."""
MAX_CONCURRENT_CHECKS = 2
"""Passwords that are checked at the same time. By design, each takes 64 MiB and 0.1 s."""


class UsersError(ValueError):
    """The file of users can't be read. The text names file, field and what was expected."""


class User(BaseModel):
    """A user of the file. Only a proxy can name a user without a password."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    password: str | None = Field(
        None, description="an Argon2 hash: `lbctl console user NAME` makes one"
    )
    role: Role = "viewer"
    clusters: dict[str, Role] = Field({}, description="cluster → another role there")

    @field_validator("password")
    @classmethod
    def _require_hash(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("$argon2"):
            raise PydanticCustomError(
                "hash",
                "expected an Argon2 hash, not the password itself: `lbctl console user NAME` makes "
                "one",
            )
        return value

    def may(self, role: Role, cluster: str) -> bool:
        """Return whether the user has this role, or a higher one, in a cluster."""
        return ROLES.index(self.clusters.get(cluster, self.role)) >= ROLES.index(role)


class _UsersFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    users: dict[Annotated[str, Field(pattern=USER_PATTERN)], User] = {}


ANONYMOUS = User()
"""A visitor who is not in the file."""


class Users:
    """The users of a file, which is read again when it has changed. Any thread may call.

    Raises UsersError when the file can't be read at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checks = threading.Semaphore(MAX_CONCURRENT_CHECKS)
        self._stamp: tuple[int, int] | None = None  # time and size of the file that was read
        self._users: dict[str, User] = {}
        self._read()

    def find(self, name: str) -> User | None:
        """Return a user. Raises UsersError when the file can't be read any more."""
        self._read()
        return self._users.get(name)

    def describe_login(self, name: str) -> str:
        """Return what the file says of a user's login; its change ends the user's sessions.

        Raises UsersError when the file can't be read any more.
        """
        user = self.find(name)
        return "" if user is None else user.password or "without a password"

    def has_password(self, name: str, password: str) -> bool:
        """Return whether a user has this password; False while the file can't be read.

        A name that is not in the file takes as long, so that the time does not reveal names.
        """
        try:
            user = self.find(name)
        except UsersError:
            user = None
        known_hash = None if user is None else user.password
        with self._checks:
            try:
                matches = PasswordHasher().verify(known_hash or _unknown_users_hash(), password)
            except (Argon2Error, InvalidHashError):
                return False
        return matches and known_hash is not None

    def _read(self) -> None:
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp == self._stamp:
                return
            read = _UsersFile.model_validate(tomllib.loads(self._path.read_text()))
        except ValidationError as error:
            raise UsersError(f"{self._path}: {_describe_first(error)}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise UsersError(f"{self._path}: {error}") from None
        self._users, self._stamp = read.users, stamp


def _describe_first(error: ValidationError) -> str:
    """Describe the first error of a file: the field, and its value unless it is secret."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part != "[key]")
    if first["type"] == "string_pattern_mismatch":
        return f"{field}: expected {describe_expected(first)} in a user's name"
    return f"{field}: {first['msg']}"


@cache
def _unknown_users_hash() -> str:
    return PasswordHasher().hash("no user has this password")


def user_lines(name: str, password: str | None, role: str, clusters: Mapping[str, str]) -> str:
    """Return a user's lines of the file. Raises UsersError for a name that a user can't have."""
    hashed = None if password is None else PasswordHasher().hash(password)
    given = {"role": role, "clusters": dict(clusters), "password": hashed}
    try:
        user = _UsersFile.model_validate({"users": {name: given}}).users[name]
    except ValidationError as error:
        raise UsersError(_describe_first(error).removeprefix("users.")) from None
    lines = [f'[users."{name}"]', f'role = "{user.role}"']
    if user.password is not None:
        lines.append(f'password = "{user.password}"')
    if clusters:
        roles = ", ".join(f'"{cluster}" = "{role}"' for cluster, role in clusters.items())
        lines.append(f"clusters = {{ {roles} }}")
    return "\n".join(lines) + "\n"
