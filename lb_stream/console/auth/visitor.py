"""Who asks for a page, and what they may: by the cookie of a login, or by what a proxy says."""

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
LARGEST_FORM = 64 << 10
MOST_FIELDS = 50


@dataclass(frozen=True, slots=True)
class Access:
    """How people become known.

    `users` None: nobody may act. `header`: where one of the `proxies` says who its visitor is.
    """

    users: Users | None
    header: str | None
    proxies: frozenset[str]
    sessions: Sessions
    tries: LoginAttempts

    @classmethod
    def of(
        cls, users: Path | None, header: str | None = None, proxies: tuple[str, ...] = ()
    ) -> Access:
        """Raises UsersError; ValueError for a proxy that is no address."""
        known = frozenset(
            str(ipaddress.ip_address(proxy)) for proxy in proxies or ("127.0.0.1", "::1")
        )
        return cls(
            None if users is None else Users(users), header, known, Sessions(), LoginAttempts()
        )

    @property
    def by_password(self) -> bool:
        """Whether there is a page to log in."""
        return self.users is not None and self.header is None


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whoever asks. `name` empty: not logged in. `csrf_token`: what their forms bring back."""

    name: str
    user: User
    csrf_token: str

    def may(self, role: Role, cluster: str) -> bool:
        """Whether they may there what this role may."""
        return bool(self.name) and self.user.may(role, cluster)


NO_ACCESS = Access.of(None)
"""Everybody reads, nobody acts."""


def access_of(request: Request) -> Access:
    """The app's."""
    found: Access = request.app.state.access
    return found


def find_visitor(request: Request) -> Visitor:
    """Who asks. While the file of users can't be read everybody is nobody."""
    access = access_of(request)
    key, name = _identify(request, access)
    if access.users is None or not name:
        return Visitor("", ANONYMOUS, "")
    try:
        user = access.users.find(name)
    except UsersError as error:
        logger.warning("nobody may act: %s", error)
        return Visitor("", ANONYMOUS, "")
    return Visitor(name, user or ANONYMOUS, access.sessions.csrf_token(key))


def _identify(request: Request, access: Access) -> tuple[str, str]:
    """What their proof hangs on, and their name."""
    if access.header is not None:
        peer = request.client.host if request.client is not None else ""
        given = request.headers.getlist(access.header)
        name = given[0].strip() if peer in access.proxies and len(given) == 1 else ""
        return f"header {name}", name
    token = request.cookies.get(COOKIE, "")
    return token, (access.sessions.name_of(token) or "") if token else ""


# --- forms ---


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that a page of this console's has sent.

    Raises HTTPException for another site's, or one that is too large.
    """
    site, origin = (
        request.headers.get("sec-fetch-site", "same-origin"),
        request.headers.get("origin"),
    )
    if site not in ("same-origin", "none") or (
        origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise HTTPException(403, "this form comes from another site: open this console's own page")
    if (
        request.headers.get("content-type", "").partition(";")[0]
        != "application/x-www-form-urlencoded"
    ):
        raise HTTPException(415, "expected a form (application/x-www-form-urlencoded)")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_FORM:
            raise HTTPException(413, f"expected a form of at most {LARGEST_FORM} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError as error:
        raise HTTPException(400, f"this form can't be read: {error}") from None


def require_csrf_token(request: Request, form: dict[str, str]) -> Visitor:
    """Who has sent a form that was made for them. Raises HTTPException(403)."""
    access, (key, name) = access_of(request), _identify(request, access_of(request))
    if not name or not access.sessions.is_csrf_token(key, form.get("csrf_token", "")):
        raise HTTPException(
            403, "you are not logged in any more, or the page is an old one: nothing was done"
        )
    return find_visitor(request)
