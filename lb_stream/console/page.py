"""What every page has: the look at the tables that it shows, its banner, its address, its theme."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lb_stream import __version__
from lb_stream.console.acts import offered
from lb_stream.console.address import changed
from lb_stream.console.looks import environment
from lb_stream.console.sources.live import now_ms
from lb_stream.console.sources.reader import Look, Reader
from lb_stream.console.who.visitor import access_of, visitor
from lb_stream.query.cluster_state import Standing, standing_in

T = TypeVar("T")

THEMES = ("dark", "light")


def reader_of(request: Request) -> Reader:
    """The app's."""
    found: Reader = request.app.state.reader
    return found


class Page:
    """One request for a page."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.look: Look = reader_of(request).look()

    def ask(self, key: Hashable, question: Callable[[Any], T]) -> T:
        """A figure out of the tables. Raises QueryError."""
        return self.look.ask(key, question)

    def standing(self, cluster: str) -> Standing | None:
        """What is in force there."""
        found = self.ask(("standing", cluster), lambda lake: standing_in(lake, cluster))
        return found[0] if found else None


def show(page: Page, template: str, status: int = 200, **figures: Any) -> Response:
    """The page as HTML. `live` among the figures says whether it follows what happens; without it, it does unless a time is held."""
    theme, who = page.request.cookies.get("theme", ""), visitor(page.request)
    given = {
        "theme": theme if theme in THEMES else "",
        "here": partial(changed, page.request),
        "who": who,
        "logs_in": access_of(page.request).by_password,
        "offered": partial(offered, who),
        "verdict": page.look.verdict,
        "stale": page.look.stale,
        "now_ms": now_ms(),
        "version": __version__,
        "live": not page.request.query_params.get("end"),
    }
    return HTMLResponse(environment().get_template(template).render(**{**given, **figures}), status)
