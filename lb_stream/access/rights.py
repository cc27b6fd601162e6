"""Who may do what: grants of verbs on clusters, brokers and namespaces, read from a TOML file.

A right that no grant gives is missing: there are no grants that take rights away. See
docs/security.md "Rights of people".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.verbs import ALL, BUILT_IN_ROLES, VERBS, RequiredRight, Verb

KEY = "key:"
"""What comes before a key's id in a grant's `to`."""
GROUP = "group:"
"""What comes before a group's name in a grant's `to`."""
EXCEPT = "!"
"""What comes before the pattern of clusters that a grant excepts."""
LONGEST_SHOWN = 200
"""Characters of a wrong value that an error repeats."""
_KEY_ID = re.compile(r"[0-9a-f]{16}")
_GRANT = re.compile(r"\s*\[\[\s*(?:grants|\"grants\"|'grants')\s*\]\]")


class RightsError(ValueError):
    """A file of rights can't be read. The text names field, value and what was expected."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who gives a command: a name, the key that has signed it, and the groups of its user.

    `key_id` None: no signature was verified.
    """

    name: str
    key_id: str | None = None
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Grant:
    """Verbs that principals have on some clusters, brokers and namespaces.

    Patterns have `*` for any text. A pattern of brokers without a colon is one of hosts.
    `role`: whose verbs they are; None: the grant names them itself. `place`: where it stands.
    """

    to: tuple[str, ...]
    verbs: frozenset[Verb]
    role: str | None = None
    clusters: tuple[str, ...] = (ALL,)
    brokers: tuple[str, ...] = (ALL,)
    namespaces: tuple[str, ...] = (ALL,)
    place: str = ""

    def is_to(self, principal: Principal) -> bool:
        """Return whether the grant is one to this principal."""
        return any(_is_named(entry, principal) for entry in self.to)

    def is_in(self, cluster: str) -> bool:
        """Return whether the grant is one in this cluster."""
        wanted = [pattern for pattern in self.clusters if not pattern.startswith(EXCEPT)]
        excepted = [pattern[1:] for pattern in self.clusters if pattern.startswith(EXCEPT)]
        return _covers(wanted, cluster) and not _covers(excepted, cluster)

    def gives(self, right: RequiredRight) -> bool:
        """Return whether the grant gives a right, in its clusters."""
        return (
            right.verb in self.verbs
            and any(_covers_broker(pattern, right.broker) for pattern in self.brokers)
            and _covers(self.namespaces, right.namespace)
        )

    def describe(self) -> str:
        """Describe what the grant gives, as "operator on brokers broker-1*"."""
        what = self.role or ", ".join(sorted(self.verbs)) or "nothing"
        limits = {"clusters": self.clusters, "brokers": self.brokers, "namespaces": self.namespaces}
        shown = [
            f"{kind} {', '.join(patterns)}"
            for kind, patterns in limits.items()
            if patterns != (ALL,)
        ]
        return f"{what} on {' and '.join(shown)}" if shown else what


def _is_named(entry: str, principal: Principal) -> bool:
    if entry.startswith(KEY):
        return principal.key_id is not None and entry == KEY + principal.key_id
    if entry.startswith(GROUP):
        pattern = entry.removeprefix(GROUP)
        return any(matches(pattern, group) for group in principal.groups)
    return matches(entry, principal.name)


def _covers(patterns: Iterable[str], name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns)


def _covers_broker(pattern: str, broker: str) -> bool:
    """Return whether a pattern covers a broker, or all brokers of another pattern."""
    host, colon, _ = broker.rpartition(":")
    # What a pattern of brokers has behind its last colon are ports, however it is written.
    return matches(pattern, host if colon and ":" not in pattern else broker)


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern, in which `*` stands for any text, matches a whole text.

    If the text is itself a pattern, it then covers all that the text matches: the text's own stars
    can only be part of what a star of the pattern stands for.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    last = rest.pop()
    if len(text) < len(first) + len(last):
        return False
    if not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in rest:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


@dataclass(frozen=True, slots=True)
class Rights:
    """All grants of a file. `source`: its name; `roles`: the file's own and those built in."""

    grants: tuple[Grant, ...] = ()
    source: str = ""
    roles: Mapping[str, frozenset[Verb]] = field(default_factory=dict)

    def find_grant(self, principal: Principal, cluster: str, right: RequiredRight) -> Grant | None:
        """Return the first grant that gives a principal a right in a cluster; None: none does."""
        return next(
            (grant for grant in self.grants_to(principal, cluster) if grant.gives(right)), None
        )

    def find_missing(
        self, principal: Principal, cluster: str, rights: Iterable[RequiredRight]
    ) -> RequiredRight | None:
        """Return the first of these rights that no grant gives; None: the principal has all."""
        return next(
            (right for right in rights if self.find_grant(principal, cluster, right) is None), None
        )

    def grants_to(self, principal: Principal, cluster: str) -> list[Grant]:
        """Return the grants to a principal in a cluster."""
        return [grant for grant in self.grants if grant.is_to(principal) and grant.is_in(cluster)]


# --- the file ---


def _check_pattern(text: str) -> str:
    if not text or re.search(r"[\s?\[\]]", text):
        raise PydanticCustomError("pattern", "a name, in which * stands for any text")
    return text


def _check_grantee(text: str) -> str:
    kind = next((kind for kind in (KEY, GROUP) if text.startswith(kind)), "")
    rest = text.removeprefix(kind)
    if kind == KEY and not _KEY_ID.fullmatch(rest):
        raise PydanticCustomError("key", "key: and the 16 digits that `lbctl keys list` shows")
    if not rest.strip():
        raise PydanticCustomError("grantee", "a user's name, key:ID or group:NAME")
    return text


def _check_cluster(text: str) -> str:
    _check_pattern(text.removeprefix(EXCEPT))
    return text


def _check_broker(text: str) -> str:
    if "/" in text:
        raise PydanticCustomError("broker", "host:port or a host, without a scheme")
    return _check_pattern(text)


def _check_namespace(text: str) -> str:
    if text != ALL and "/" not in text:
        raise PydanticCustomError("namespace", "tenant/namespace, such as shop/*, or *")
    return _check_pattern(text)


def _check_verb(text: str) -> str:
    if text not in VERBS:
        raise PydanticCustomError("verb", "{expected}", {"expected": f"one of {', '.join(VERBS)}"})
    return text


_VerbName = Annotated[str, AfterValidator(_check_verb)]
_Grantee = Annotated[str, AfterValidator(_check_grantee)]
_Clusters = Annotated[list[Annotated[str, AfterValidator(_check_cluster)]], Field(min_length=1)]
_Brokers = Annotated[list[Annotated[str, AfterValidator(_check_broker)]], Field(min_length=1)]
_Namespaces = Annotated[list[Annotated[str, AfterValidator(_check_namespace)]], Field(min_length=1)]


class _GivenRole(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    verbs: list[_VerbName]


class _GivenGrant(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    to: Annotated[list[_Grantee], Field(min_length=1)]
    role: str | None = None
    verbs: list[_VerbName] | None = None
    clusters: _Clusters = [ALL]
    brokers: _Brokers = [ALL]
    namespaces: _Namespaces = [ALL]

    @model_validator(mode="after")
    def _role_or_verbs(self) -> _GivenGrant:
        if (self.role is None) == (self.verbs is None):
            raise PydanticCustomError("which", "either role or verbs")
        if all(pattern.startswith(EXCEPT) for pattern in self.clusters):
            raise PydanticCustomError("clusters", "a pattern of clusters beside those after !")
        return self


class _GivenFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    roles: dict[str, _GivenRole] = {}
    grants: list[_GivenGrant] = []


@lru_cache(maxsize=4)
def parse_rights(text: str, source: str = "rights") -> Rights:
    """Parse a file of rights. Raises RightsError.

    Tasks of many batches parse the same text.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number with too many digits
        raise RightsError(f"{source}: {error}") from None
    places = _find_places(text, source, content.get("grants"))
    try:
        given = _GivenFile.model_validate(content)
    except ValidationError as error:
        raise RightsError(_describe_first(error, source, places)) from None
    roles = cast("dict[str, frozenset[Verb]]", dict(BUILT_IN_ROLES))
    for name, role in given.roles.items():
        if name in BUILT_IN_ROLES:
            raise RightsError(
                f"{source}: roles.{name}: expected another name: this role is built in"
            )
        roles[name] = frozenset(cast("list[Verb]", role.verbs))
    grants = [
        _build_grant(grant, roles, place) for grant, place in zip(given.grants, places, strict=True)
    ]
    return Rights(tuple(grants), source, roles)


def _build_grant(given: _GivenGrant, roles: Mapping[str, frozenset[Verb]], place: str) -> Grant:
    """Return a grant with the verbs of its role. Raises RightsError."""
    if given.role is not None and given.role not in roles:
        expected = f"one of {', '.join(roles)}"
        raise RightsError(f"{place}: role = {given.role[:LONGEST_SHOWN]}: expected {expected}")
    own = frozenset(cast("list[Verb]", given.verbs or []))
    return Grant(
        tuple(given.to),
        own if given.role is None else roles[given.role],
        given.role,
        tuple(given.clusters),
        tuple(given.brokers),
        tuple(given.namespaces),
        place,
    )


def _find_places(text: str, source: str, grants: object) -> list[str]:
    """Return where each grant stands: file and line, or its number where no line is its own."""
    count = len(grants) if isinstance(grants, Sequence) else 0
    lines = [at for at, line in enumerate(text.splitlines(), 1) if _GRANT.match(line)]
    if len(lines) != count:
        return [f"{source}, grant {number}" for number in range(1, count + 1)]
    return [f"{source}, line {line}" for line in lines]


def _describe_first(error: ValidationError, source: str, places: Sequence[str]) -> str:
    first = error.errors()[0]
    path = list(first["loc"])
    place = source
    if len(path) > 1 and path[0] == "grants" and isinstance(path[1], int):
        place, path = places[path[1]], path[2:]
    name = ".".join(map(str, path)) or "grant"
    value = first["input"]
    shown = f" = {str(value)[:LONGEST_SHOWN]}" if isinstance(value, str | int | float) else ""
    message = first["msg"]
    if first["type"] == "extra_forbidden":
        return f"{place}: {name}: there is no such field"
    return f"{place}: {name}{shown}: expected {message[:1].lower()}{message[1:]}"
