"""The pages that log a user in and out."""

from __future__ import annotations

import math

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lb_stream.console.address import LOCAL_NAMES, host_name
from lb_stream.console.auth.users import Users, UsersError
from lb_stream.console.auth.visitor import (
    COOKIE,
    access_of,
    find_address,
    read_form,
    require_csrf_token,
)
from lb_stream.console.page import Page, render_page

WRONG_LOGIN = "There is no user with this name and password."


def login_page(request: Request) -> Response:
    """Show the form."""
    require_logins(request)
    address = _local_address(request.query_params.get("next", "/"))
    return render_page(Page(request), "login.html", next=address, name="", error="")


async def log_in(request: Request) -> Response:
    """Check name and password, and begin a session."""
    require_logins(request)
    form = await read_form(request)
    name, address = form.get("name", ""), _local_address(form.get("next", "/"))
    try:
        token = await begin_session(request, name, form.get("password", ""))
    except LoginFailed as error:
        return await _show_error(request, address, name, str(error), error.status)
    answer = RedirectResponse(address, 303)
    is_secure = _leaves_machine(request)
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_secure)
    return answer


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
    return await run_in_threadpool(
        lambda: render_page(
            Page(request), "login.html", status, next=address, name=name, error=error
        )
    )


async def log_out(request: Request) -> Response:
    """End the session."""
    form = await read_form(request)
    require_csrf_token(request, form.get("csrf_token", ""))
    access_of(request).sessions.end(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/", 303)
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


def _local_address(address: str) -> str:
    """Return an address of this console; the overview's for any other address."""
    is_local = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_local and address.isprintable() else "/"


def _leaves_machine(request: Request) -> bool:
    """Return whether the cookie leaves this machine or goes through TLS; then it needs TLS."""
    is_local = host_name(request.headers.get("host", "")) in LOCAL_NAMES
    return not is_local or request.url.scheme == "https"
