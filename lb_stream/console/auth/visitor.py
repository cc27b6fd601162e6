"""Who requests a page, and what this visitor may do: from a login's cookie or a proxy's header."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from lb_stream.access.rights import Principal, Rights
from lb_stream.console.auth.attempts import LoginAttempts
from lb_stream.console.auth.sessions import Session, Sessions
from lb_stream.console.auth.users import ANONYMOUS, User, Users, UsersError
from lb_stream.contracts.verbs import ALL, BUILT_IN_ROLES, BuiltInRole, RequiredRight, Verb
from lb_stream.settings.rights import RightsFile

if TYPE_CHECKING:
    from lb_stream.console.auth.oidc import OidcLogins

logger = logging.getLogger(__name__)

COOKIE = "lb_session"
CSRF_HEADER = "X-CSRF-Token"
NOT_LOGGED_IN = "log in first: a command is recorded with its sender's name"
MAX_BODY_BYTES = 64 << 10
BODY_TIMEOUT_S = 10.0
"""How long a visitor may take to send a form, where no setting says it."""
MAX_FORM_FIELDS = 50
FORM_TYPE = "application/x-www-form-urlencoded"
NO_RIGHTS = Rights()


@dataclass(frozen=True, slots=True)
class Access:
    """How the console identifies its visitors.

    `users`: who may log in; without `rights` their roles say what they may do. `header`: the one in
    which a proxy, at one of the addresses `proxies`, names its user; None: users log in.
    `group_header`: the one in which it names the user's groups. `rights`: the file that says who
    may do what. `oidc`: the provider that logs users in.
    """

    users: Users | None
    header: str | None
    proxies: frozenset[str]
    sessions: Sessions
    attempts: LoginAttempts
    group_header: str | None = None
    rights: RightsFile | None = None
    oidc: OidcLogins | None = None

    @classmethod
    def load(
        cls,
        users: Path | None,
        header: str | None = None,
        proxies: tuple[str, ...] = (),
        group_header: str | None = None,
        rights: RightsFile | None = None,
    ) -> Access:
        """Read the file of users. Raises UsersError; ValueError for a proxy that is no address."""
        addresses = frozenset(
            str(ipaddress.ip_address(proxy)) for proxy in proxies or ("127.0.0.1", "::1")
        )
        read = None if users is None else Users(users)
        return cls(read, header, addresses, Sessions(), LoginAttempts(), group_header, rights)

    @property
    def takes_commands(self) -> bool:
        """Return whether visitors can be known who may send commands."""
        return self.users is not None or (self.rights is not None and self.header is not None)

    def find_rights(self) -> Rights:
        """Return who may do what. Raises UsersError when the file of users can't be read."""
        if self.rights is not None:
            return self.rights.rights()
        return NO_RIGHTS if self.users is None else self.users.rights()

    @property
    def by_password(self) -> bool:
        """Return whether users log in on a page of the console."""
        return self.users is not None and self.header is None

    def begin_session(self, name: str, groups: frozenset[str] = frozenset()) -> str:
        """Begin a session of a user, and return its token. Raises UsersError."""
        login = "" if self.users is None else self.users.describe_login(name)
        return self.sessions.begin(name, groups, login)

    def find_session(self, token: str) -> Session | None:
        """Return a session that has not ended.

        It ends when its user gets another password, or is no longer in the file.
        """
        session = self.sessions.find(token) if token else None
        if session is None or self.users is None:
            return session
        with suppress(UsersError):  # visitors may do nothing while the file can't be read
            if self.users.describe_login(session.name) != session.login:
                self.sessions.end(token)
                return None
        return session


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who requests a page. `name` empty: not logged in. `csrf_token`: what the forms must send.

    `groups`: those that a login names for the user. `rights`: of all visitors.
    """

    name: str
    user: User
    csrf_token: str
    groups: frozenset[str] = frozenset()
    rights: Rights = NO_RIGHTS

    @property
    def principal(self) -> Principal:
        """The visitor, as grants name visitors."""
        return Principal(self.name, groups=self.groups)

    def find_missing(self, cluster: str, rights: Iterable[RequiredRight]) -> RequiredRight | None:
        """Return the first of these rights that the visitor lacks; None: the visitor has all."""
        return self.rights.find_missing(self.principal, cluster, rights)

    def may(self, cluster: str, rights: Iterable[RequiredRight]) -> bool:
        """Return whether the visitor has logged in, and has these rights in a cluster."""
        return bool(self.name) and self.find_missing(cluster, rights) is None

    def has_verb(self, cluster: str, verb: Verb | None) -> bool:
        """Return whether the visitor has a verb on something in a cluster; None: any verb."""
        grants = self.rights.grants_to(self.principal, cluster)
        return any(verb in grant.verbs or (verb is None and grant.verbs) for grant in grants)

    def role_in(self, cluster: str = ALL) -> BuiltInRole:
        """Return the highest role whose verbs the visitor has on all of a cluster."""
        found: BuiltInRole = "viewer"
        for role, verbs in BUILT_IN_ROLES.items():
            if self.find_missing(cluster, map(RequiredRight, verbs)) is None:
                found = role
        return found


READ_ONLY = Access.load(None)
"""All visitors may read, none may send commands."""


def access_of(request: Request) -> Access:
    """Return the application's access rules."""
    access: Access = request.app.state.access
    return access


def find_visitor(request: Request) -> Visitor:
    """Return who makes a request; an anonymous visitor while the file of users can't be read."""
    access = access_of(request)
    identity = _identify(request, access)
    anonymous = Visitor("", ANONYMOUS, "")
    if not identity.name:
        return anonymous
    try:
        user = None if access.users is None else access.users.find(identity.name)
        rights = access.find_rights()
    except UsersError as error:
        logger.warning("no visitor may send commands: %s", error)
        return anonymous
    csrf_token = access.sessions.csrf_token(identity.key)
    return Visitor(identity.name, user or ANONYMOUS, csrf_token, identity.groups, rights)


@dataclass(frozen=True, slots=True)
class _Identity:
    """The key of the visitor's CSRF token, and the visitor's name; empty: not logged in.

    `by_token`: the request itself has the session's token, which no other site can send.
    """

    key: str
    name: str
    by_token: bool = False
    groups: frozenset[str] = frozenset()


def _identify(request: Request, access: Access) -> _Identity:
    if access.header is not None:
        name = _read_header(request, access, access.header)
        groups = _read_header(request, access, access.group_header or "")
        named = frozenset(group.strip() for group in groups.split(",")) - {""}
        return _Identity(f"header {name}", name, groups=named)
    given = find_token(request)
    token = request.cookies.get(COOKIE, "") if given is None else given
    session = access.find_session(token)
    if session is None:
        return _Identity(token, "", given is not None)
    return _Identity(token, session.name, given is not None, session.groups)


def find_address(request: Request) -> str:
    """Return the address from which a visitor comes.

    A proxy adds it to the header X-Forwarded-For; empty: it is a proxy's that has not said it.
    """
    peer = request.client.host if request.client is not None else ""
    if peer not in access_of(request).proxies:
        return peer
    last = ",".join(request.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return ""


def _read_header(request: Request, access: Access, name: str) -> str:
    """Return the text of a header that a proxy has sent; empty for any other sender's."""
    peer = request.client.host if request.client is not None else ""
    values = request.headers.getlist(name) if name else []
    return values[0].strip() if peer in access.proxies and len(values) == 1 else ""


def find_token(request: Request) -> str | None:
    """Return the session's token in the header Authorization; None: it has none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


# --- what visitors send ---


def require_own_site(request: Request) -> None:
    """Raise HTTPException(403) for a request that a page of another site makes."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    is_foreign = origin is not None and _host_of(origin) != request.headers.get("host")
    if site not in ("same-origin", "none") or is_foreign:
        raise HTTPException(403, "this form comes from another site: open this console's own page")


def _host_of(origin: str) -> str | None:
    """Return host and port of an origin; None for what is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as an IPv6 address whose bracket isn't closed
        return None


async def read_body(request: Request, media_type: str) -> bytes:
    """Read what a page or program of this console's own has sent.

    Raises HTTPException for what another site has sent, for another type, and for a body that is
    too large.
    """
    require_own_site(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != media_type:
        raise HTTPException(415, f"expected {media_type}")
    body, timeout_s = b"", request.app.state.body_timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"expected at most {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(
            408, f"expected the whole body within {timeout_s:g} s", {"Connection": "close"}
        ) from None
    return body


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form that a page of this console has sent. Raises as `read_body`."""
    body = await read_body(request, FORM_TYPE)
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError as error:
        raise HTTPException(400, f"this form can't be read: {error}") from None
    return dict(fields)


def require_csrf_token(request: Request, token: str) -> Visitor:
    """Return who has sent a form that was made for this visitor. Raises HTTPException(403)."""
    access = access_of(request)
    identity = _identify(request, access)
    if not identity.name or not access.sessions.is_csrf_token(identity.key, token):
        raise HTTPException(
            403, "you are no longer logged in, or the page is out of date: nothing was sent"
        )
    return find_visitor(request)


def require_login(request: Request) -> Visitor:
    """Return who has logged in and makes a request of the API.

    A visitor whom a cookie or a proxy's header names must send the CSRF token, too. Raises
    HTTPException(401) for a visitor who has not logged in, HTTPException(403) without the token.
    """
    identity = _identify(request, access_of(request))
    if not identity.name:
        raise HTTPException(401, NOT_LOGGED_IN, {"WWW-Authenticate": "Bearer"})
    if identity.by_token:
        return find_visitor(request)
    return require_csrf_token(request, request.headers.get(CSRF_HEADER, ""))
