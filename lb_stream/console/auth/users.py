"""The users who may send commands: their hashed passwords and roles, read from a TOML file."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from lb_stream.access.rights import EXCEPT, Grant, Rights
from lb_stream.contracts.base import USER_PATTERN, describe_expected
from lb_stream.contracts.verbs import ALL, BUILT_IN_ROLES, BuiltInRole
from lb_stream.settings.watched_file import WatchedFile

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
    role: BuiltInRole = "viewer"
    clusters: dict[str, BuiltInRole] = Field({}, description="cluster → another role there")

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

    def grants(self, name: str, source: str) -> list[Grant]:
        """Return what the user's role, and those in single clusters, grant."""
        place = f"{source}, user {name}"
        everywhere = (ALL, *(EXCEPT + cluster for cluster in self.clusters))
        roles = [(self.role, everywhere)]
        roles += [(role, (cluster,)) for cluster, role in self.clusters.items()]
        return [
            Grant((name,), BUILT_IN_ROLES[role], role, clusters, place=place)
            for role, clusters in roles
        ]


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
        self._file = WatchedFile(path, self._read)

    def find(self, name: str) -> User | None:
        """Return a user. Raises UsersError when the file can't be read any more."""
        return self._file.content()[0].get(name)

    def rights(self) -> Rights:
        """Return what the users' roles grant. Raises UsersError."""
        return self._file.content()[1]

    @property
    def have_roles(self) -> bool:
        """Whether a user has a role that grants something. Raises UsersError."""
        return any(grant.verbs for grant in self.rights().grants)

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

    def _read(self) -> tuple[dict[str, User], Rights]:
        try:
            read = _UsersFile.model_validate(tomllib.loads(self._path.read_text()))
        except ValidationError as error:
            raise UsersError(f"{self._path}: {_describe_first(error)}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise UsersError(f"{self._path}: {error}") from None
        source = str(self._path)
        grants = [grant for name, user in read.users.items() for grant in user.grants(name, source)]
        return read.users, Rights(tuple(grants), source)


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
