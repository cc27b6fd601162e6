"""Logging in and out."""

from __future__ import annotations

import math

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lb_stream.console.address import LOCAL_NAMES, host_name
from lb_stream.console.auth.visitor import COOKIE, access_of, read_form, require_csrf_token
from lb_stream.console.page import Page, show


def login_page(request: Request) -> Response:
    """The form."""
    if not access_of(request).by_password:
        raise HTTPException(404, "nobody logs in here: lbctl console --users FILE names who may")
    return show(
        Page(request),
        "login.html",
        next=_inside(request.query_params.get("next", "/")),
        name="",
        trouble="",
    )


async def log_in(request: Request) -> Response:
    """Check name and password.

    A wrong one says neither which of the two it was nor how many there are.
    """
    access, form = access_of(request), await read_form(request)
    if not access.by_password or access.users is None:
        raise HTTPException(404, "nobody logs in here: lbctl console --users FILE names who may")
    name, following = form.get("name", ""), _inside(form.get("next", "/"))
    trouble, status = "This name and this password don't belong together.", 401
    if (wait_s := access.tries.wait_s(name)) > 0:
        trouble, status = (
            f"Too many wrong passwords for this name: try again in {math.ceil(wait_s)} s.",
            429,
        )
    else:
        right = await run_in_threadpool(access.users.check, name, form.get("password", ""))
        access.tries.note(name, right)
        if right:
            answer = RedirectResponse(following, 303)
            answer.set_cookie(
                COOKIE,
                access.sessions.begin(name),
                httponly=True,
                samesite="strict",
                secure=_travels(request),
            )
            return answer
    return await run_in_threadpool(
        lambda: show(
            Page(request), "login.html", status, next=following, name=name, trouble=trouble
        )
    )


async def log_out(request: Request) -> Response:
    """The end of a session."""
    require_csrf_token(request, await read_form(request))
    access_of(request).sessions.end(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _inside(address: str) -> str:
    """An address of this console; the overview for any other."""
    return (
        address
        if address.startswith("/")
        and not address.startswith(("//", "/\\"))
        and address.isprintable()
        else "/"
    )


def _travels(request: Request) -> bool:
    """Whether the cookie leaves this machine: then only by TLS."""
    return host_name(request.headers.get("host", "")) not in LOCAL_NAMES
