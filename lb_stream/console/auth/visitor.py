"""Who requests a page, and what this visitor may do: from a login's cookie or a proxy's header."""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from lb_stream.console.auth.sessions import LoginAttempts, Sessions
from lb_stream.console.auth.users import ANONYMOUS, Role, User, Users, UsersError

logger = logging.getLogger(__name__)

COOKIE = "lb_session"
MAX_FORM_BYTES = 64 << 10
MAX_FORM_FIELDS = 50
FORM_TYPE = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Access:
    """How the console identifies its visitors.

    `users` None: no visitor may send commands. `header`: the one in which a proxy, at one of the
    addresses `proxies`, names its user; None: users log in.
    """

    users: Users | None
    header: str | None
    proxies: frozenset[str]
    sessions: Sessions
    attempts: LoginAttempts

    @classmethod
    def load(
        cls, users: Path | None, header: str | None = None, proxies: tuple[str, ...] = ()
    ) -> Access:
        """Read the file of users. Raises UsersError; ValueError for a proxy that is no address."""
        addresses = frozenset(
            str(ipaddress.ip_address(proxy)) for proxy in proxies or ("127.0.0.1", "::1")
        )
        read = None if users is None else Users(users)
        return cls(read, header, addresses, Sessions(), LoginAttempts())

    @property
    def by_password(self) -> bool:
        """Return whether users log in on a page of the console."""
        return self.users is not None and self.header is None


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who requests a page. `name` empty: not logged in. `csrf_token`: what the forms must send."""

    name: str
    user: User
    csrf_token: str

    def may(self, role: Role, cluster: str) -> bool:
        """Return whether the visitor has this role, or a higher one, in a cluster."""
        return bool(self.name) and self.user.may(role, cluster)


READ_ONLY = Access.load(None)
"""All visitors may read, none may send commands."""


def access_of(request: Request) -> Access:
    """Return the application's access rules."""
    access: Access = request.app.state.access
    return access


def find_visitor(request: Request) -> Visitor:
    """Return who makes a request; an anonymous visitor while the file of users can't be read."""
    access = access_of(request)
    key, name = _identify(request, access)
    anonymous = Visitor("", ANONYMOUS, "")
    if access.users is None or not name:
        return anonymous
    try:
        user = access.users.find(name)
    except UsersError as error:
        logger.warning("no visitor may send commands: %s", error)
        return anonymous
    return Visitor(name, user or ANONYMOUS, access.sessions.csrf_token(key))


def _identify(request: Request, access: Access) -> tuple[str, str]:
    """Return the key of the visitor's CSRF token, and the visitor's name."""
    if access.header is not None:
        peer = request.client.host if request.client is not None else ""
        values = request.headers.getlist(access.header)
        name = values[0].strip() if peer in access.proxies and len(values) == 1 else ""
        return f"header {name}", name
    token = request.cookies.get(COOKIE, "")
    return token, (access.sessions.find_user(token) or "") if token else ""


# --- forms ---


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form that a page of this console has sent.

    Raises HTTPException for the form of another site, and for one that is too large.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    is_foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if site not in ("same-origin", "none") or is_foreign:
        raise HTTPException(403, "this form comes from another site: open this console's own page")
    if request.headers.get("content-type", "").partition(";")[0] != FORM_TYPE:
        raise HTTPException(415, f"expected a form ({FORM_TYPE})")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, f"expected a form of at most {MAX_FORM_BYTES} bytes")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError as error:
        raise HTTPException(400, f"this form can't be read: {error}") from None
    return dict(fields)


def require_csrf_token(request: Request, form: dict[str, str]) -> Visitor:
    """Return who has sent a form that was made for this visitor. Raises HTTPException(403)."""
    access = access_of(request)
    key, name = _identify(request, access)
    if not name or not access.sessions.is_csrf_token(key, form.get("csrf_token", "")):
        raise HTTPException(
            403, "you are no longer logged in, or the page is out of date: nothing was sent"
        )
    return find_visitor(request)
