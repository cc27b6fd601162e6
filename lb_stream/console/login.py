"""The pages that log a user in and out: by a password, or by an OpenID Connect provider."""

from __future__ import annotations

import math

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lb_stream.console.address import LOCAL_NAMES, host_name
from lb_stream.console.auth.oidc import LOGIN_S, OidcError, OidcLogins
from lb_stream.console.auth.users import Users, UsersError
from lb_stream.console.auth.visitor import (
    COOKIE,
    access_of,
    find_address,
    read_form,
    require_csrf_token,
)
from lb_stream.console.page import Page, render_page

OIDC_COOKIE = "lb_login"
OIDC_PATH, CALLBACK_PATH = "/login/oidc", "/login/oidc/callback"
WRONG_LOGIN = "There is no user with this name and password."


def login_page(request: Request) -> Response:
    """Show the form."""
    require_logins(request)
    address = local_address(request.query_params.get("next", "/"))
    return _render_form(request, address, "", "", 200)


async def log_in(request: Request) -> Response:
    """Check name and password, and begin a session."""
    require_logins(request)
    form = await read_form(request)
    name, address = form.get("name", ""), local_address(form.get("next", "/"))
    try:
        token = await begin_session(request, name, form.get("password", ""))
    except LoginFailed as error:
        return await _show_error(request, address, name, str(error), error.status)
    answer = RedirectResponse(address, 303)
    _set_session(request, answer, token)
    return answer


def _set_session(request: Request, answer: Response, token: str) -> None:
    is_secure = _leaves_machine(request)
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_secure)


class LoginFailed(Exception):
    """A login failed. The text says neither what is wrong nor which users exist."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def begin_session(request: Request, name: str, password: str) -> str:
    """Check name and password, and return the token of a new session. Raises LoginFailed."""
    users, access, address = require_logins(request), access_of(request), find_address(request)
    wait_s = access.attempts.wait_s(name, address)
    if wait_s > 0:
        seconds = math.ceil(wait_s)
        text = f"Too many wrong passwords: try again in {seconds} s."
        raise LoginFailed(429, text)
    is_right = await run_in_threadpool(users.has_password, name, password)
    access.attempts.record(name, is_right, address)
    if not is_right:
        raise LoginFailed(401, WRONG_LOGIN)
    try:
        return access.begin_session(name)
    except UsersError:
        raise LoginFailed(401, WRONG_LOGIN) from None


async def _show_error(
    request: Request, address: str, name: str, error: str, status: int
) -> Response:
    return await run_in_threadpool(_render_form, request, address, name, error, status)


def _render_form(request: Request, address: str, name: str, error: str, status: int) -> Response:
    oidc = access_of(request).oidc
    return render_page(
        Page(request),
        "login.html",
        status,
        next=address,
        name=name,
        error=error,
        provider=None if oidc is None else oidc.provider,
    )


# --- by a provider ---


async def begin_oidc(request: Request) -> Response:
    """Send a visitor to the provider."""
    oidc = _require_oidc(request)
    address = local_address(request.query_params.get("next", "/"))
    callback = _console_url(request, oidc) + CALLBACK_PATH
    try:
        url, cookie = await run_in_threadpool(oidc.begin, callback, address)
    except OidcError as error:
        raise HTTPException(error.status, str(error)) from None
    answer = RedirectResponse(url, 303)
    answer.set_cookie(
        OIDC_COOKIE,
        cookie,
        max_age=int(LOGIN_S),
        path=CALLBACK_PATH,
        httponly=True,
        samesite="lax",  # the provider's redirection comes from another site
        secure=_leaves_machine(request),
    )
    return answer


async def finish_oidc(request: Request) -> Response:
    """Begin the session of a visitor whom the provider has sent back."""
    oidc, access = _require_oidc(request), access_of(request)
    given, cookie = dict(request.query_params), request.cookies.get(OIDC_COOKIE, "")
    try:
        user = await run_in_threadpool(oidc.finish, given, cookie)
        token = access.begin_session(user.name, user.groups)
    except OidcError as error:
        raise HTTPException(error.status, f"{error}.") from None
    except UsersError:
        raise HTTPException(503, "The file of users can't be read: tell its owner") from None
    # The session's cookie goes to requests of this site's own pages alone, so a page leads on.
    answer = await run_in_threadpool(
        lambda: render_page(
            Page(request), "logged-in.html", next=local_address(user.address), live=False
        )
    )
    _set_session(request, answer, token)
    answer.delete_cookie(OIDC_COOKIE, path=CALLBACK_PATH)
    return answer


def _require_oidc(request: Request) -> OidcLogins:
    """Return the logins by a provider. Raises HTTPException(404) if there are none."""
    oidc = access_of(request).oidc
    if oidc is None:
        raise HTTPException(404, "this console has no provider: oidc.issuer names it")
    return oidc


def _console_url(request: Request, oidc: OidcLogins) -> str:
    return oidc.console_url or f"{request.url.scheme}://{request.headers.get('host', '')}"


# --- logouts ---


async def log_out(request: Request) -> Response:
    """End the session."""
    form = await read_form(request)
    require_csrf_token(request, form.get("csrf_token", ""))
    access_of(request).sessions.end(request.cookies.get(COOKIE, ""))
    oidc = access_of(request).oidc
    end = None
    if oidc is not None:
        end = await run_in_threadpool(oidc.logout_url, _console_url(request, oidc) + "/")
    answer: Response = RedirectResponse("/", 303)
    if oidc is not None and end is not None:
        answer = await run_in_threadpool(
            lambda: render_page(
                Page(request), "logged-out.html", end=end, provider=oidc.provider, live=False
            )
        )
    answer.delete_cookie(COOKIE)
    return answer


def require_logins(request: Request) -> Users:
    """Return the users who may log in. Raises HTTPException(404) where users don't log in."""
    access = access_of(request)
    if not access.by_password or access.users is None:
        raise HTTPException(
            404, "this console has no logins: lbctl console --users FILE names its users"
        )
    return access.users


def local_address(address: str) -> str:
    """Return an address of this console; the overview's for any other address."""
    is_local = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_local and address.isprintable() else "/"


def _leaves_machine(request: Request) -> bool:
    """Return whether the cookie leaves this machine or goes through TLS; then it needs TLS."""
    is_local = host_name(request.headers.get("host", "")) in LOCAL_NAMES
    return not is_local or request.url.scheme == "https"
