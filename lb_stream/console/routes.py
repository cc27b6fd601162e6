"""Everything that the console answers: its pages, its API, and the API's document.

A page's figures are at its address with /api/v1 before it, with the same parameters. The pages
themselves are no part of the document: they are for people, and change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lb_stream.console import (
    answers,
    api,
    details,
    login,
    over_time,
    pages,
    queries,
    rows,
    sending,
    what_if,
)
from lb_stream.console.address import API
from lb_stream.console.api import PROBLEM, Endpoint, Show
from lb_stream.console.auth.visitor import CSRF_HEADER
from lb_stream.console.command_forms import COMMAND_FORMS, FORM_BODIES, FORM_QUERIES
from lb_stream.console.page import Page, cached, render_page
from lb_stream.console.queries import Query, parse_query
from lb_stream.contracts.openapi import Answer, ApiOperation, Method, build_openapi


@dataclass(frozen=True, slots=True)
class Screen:
    """A page and its JSON.

    `template` None: there is JSON alone. `is_cached`: the answer follows from the tables alone.
    `json_path`: the path of the JSON, where it is not that of the page.
    """

    path: str
    show: Show
    query: type[Query]
    answer: Any
    template: str | None = None
    is_cached: bool = True
    json_path: str = ""

    @property
    def name(self) -> str:
        """Return the path of the JSON below that of the API."""
        return (self.json_path or self.path).lstrip("/")


SCREENS = (
    Screen(
        "/", pages.fleet_page, Query, answers.ClustersAnswer, "fleet.html", json_path="/clusters"
    ),
    Screen(
        "/cluster",
        pages.cluster_page,
        queries.ClusterPageQuery,
        answers.ClusterAnswer,
        "cluster.html",
    ),
    Screen("/brokers", pages.brokers_answer, queries.BrokersQuery, answers.List[rows.BrokerRow]),
    Screen(
        "/groups",
        pages.groups_page,
        queries.GroupsQuery,
        answers.List[rows.GroupRow],
        "groups.html",
    ),
    Screen(
        "/bundles",
        pages.bundles_page,
        queries.BundlesQuery,
        answers.List[rows.BundleRow],
        "bundles.html",
    ),
    Screen(
        "/history",
        pages.history_page,
        queries.HistoryQuery,
        answers.HistoryAnswer,
        "history.html",
    ),
    Screen(
        "/audit", pages.audit_page, queries.AuditQuery, answers.List[rows.AuditRow], "audit.html"
    ),
    Screen("/search", pages.search_page, queries.SearchQuery, answers.SearchAnswer, "search.html"),
    Screen("/chart", over_time.chart_answer, queries.ChartQuery, answers.ChartAnswer),
    Screen("/heat", over_time.heat_page, queries.HeatQuery, answers.HeatAnswer, "heat.html"),
    Screen(
        "/broker", details.broker_page, queries.BrokerQuery, answers.BrokerAnswer, "broker.html"
    ),
    Screen(
        "/bundle", details.bundle_page, queries.BundleQuery, answers.BundleAnswer, "bundle.html"
    ),
    Screen(
        "/namespace",
        details.namespace_page,
        queries.NamespaceQuery,
        answers.NamespaceAnswer,
        "namespace.html",
    ),
    Screen(
        "/tenant", details.tenant_page, queries.TenantQuery, answers.TenantAnswer, "tenant.html"
    ),
    Screen(
        "/decision",
        details.decision_page,
        queries.DecisionQuery,
        answers.DecisionAnswer,
        "decision.html",
    ),
    Screen("/round", details.round_page, queries.RoundQuery, answers.RoundAnswer, "round.html"),
    Screen(
        "/proposals",
        pages.proposals_page,
        queries.ClusterQuery,
        answers.ProposalsAnswer,
        "proposals.html",
    ),
    Screen(
        "/rollout",
        pages.rollout_page,
        queries.ClusterQuery,
        answers.RolloutAnswer,
        "rollout.html",
    ),
    Screen(
        "/changes",
        pages.changes_page,
        queries.ChangesQuery,
        answers.ChangesAnswer,
        "changes.html",
    ),
    Screen(
        "/settings",
        pages.settings_page,
        queries.ClusterQuery,
        answers.SettingsAnswer,
        "settings.html",
    ),
    Screen("/cost", pages.cost_page, queries.CostQuery, answers.List[rows.CostRow], "cost.html"),
    Screen(
        "/command",
        sending.command_page,
        queries.CommandQuery,
        answers.CommandAnswer,
        "command.html",
        is_cached=False,
    ),
    Screen(
        "/plan",
        what_if.plan_page,
        queries.PlanQuery,
        answers.Computed[answers.NextMoves],
        "plan.html",
        is_cached=False,
    ),
    Screen(
        "/what-if",
        what_if.what_if_page,
        queries.WhatIfQuery,
        answers.WhatIfAnswer,
        "what-if.html",
        is_cached=False,
    ),
    Screen(
        "/what-if/chart",
        what_if.what_if_chart_answer,
        queries.WhatIfQuery,
        answers.ChartAnswer,
        is_cached=False,
    ),
)

_PROBLEMS = {
    401: "nobody has logged in",
    403: "the role, or the CSRF token, is missing",
    404: "there is no such thing, or the console has no users",
    408: "the body did not come in time",
    409: "it is too late: the proposal waits no longer, or nothing is left to undo",
    413: "the body is too large",
    415: "the body is not application/json",
    421: "the console doesn't answer to this host name",
    422: "a field is wrong",
    429: "too many wrong passwords: wait",
    503: "the tables can't be read, Kafka doesn't answer, or too much is computed",
}
_READ = (404, 421, 422, 503)
_SENT = (401, 403, 404, 408, 413, 415, 421, 422)
_KNOWN: tuple[Mapping[str, list[str]], ...] = ({"token": []}, {"cookie": []}, {"proxy": []})
_LOGGED_IN: tuple[Mapping[str, list[str]], ...] = (
    {"token": []},
    {"cookie": [], "csrf": []},
    {"proxy": [], "csrf": []},
)
SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "the token of POST /api/v1/session",
    },
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "lb_session",
        "description": "the session of somebody who has logged in on a page",
    },
    "proxy": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Forwarded-User",
        "description": "set by a proxy; --user-header gives its name",
    },
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": CSRF_HEADER,
        "description": "csrf_token of GET /api/v1/session",
    },
}


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A method of the API: how it is described, and the function that answers.

    `for_users`: it is there only if the console has users.
    """

    operation: ApiOperation
    endpoint: Endpoint
    for_users: bool = False


def list_api() -> list[ApiRoute]:
    """List everything that the API answers."""
    return [*map(_build_figures, SCREENS), *_build_others(), *_build_commands()]


def _build_figures(screen: Screen) -> ApiRoute:
    """Return the JSON of a page."""
    answer = api.answer_shown(screen.query, screen.show, screen.answer)
    good = {200: Answer("the figures", screen.answer)}
    endpoint: Endpoint = answer
    if screen.is_cached:
        endpoint = cached(answer, for_all=True)
        good[304] = Answer("the visitor has them: If-None-Match names them")
    return ApiRoute(
        _describe("get", screen.name, screen.show, good, _READ, "figures", query=screen.query),
        endpoint,
    )


def _build_others() -> Iterator[ApiRoute]:
    """Yield the stream of entries, and what a session needs."""
    stream = {200: Answer("entries as they come, each an event", str, "text/event-stream")}
    events = _describe(
        "get", "events", api.events, stream, (421, 422, 503), "figures", query=queries.EventsQuery
    )
    yield ApiRoute(events, api.events)
    session = answers.SessionAnswer
    shown = {200: Answer("who makes the request", session)}
    show = _describe("get", "session", api.show_session, shown, (404, 421, 422), "session")
    yield ApiRoute(show, api.show_session, for_users=True)
    begun = {201: Answer("the new session, with its token", session)}
    log_in = _describe(
        "post", "session", api.log_in, begun, (*_SENT, 429), "session", body=api.LoginBody
    )
    yield ApiRoute(log_in, api.log_in, for_users=True)
    ended = {204: Answer("the session has ended")}
    log_out = _describe(
        "delete", "session", api.log_out, ended, (401, 403, 404, 421), "session", needs=_LOGGED_IN
    )
    yield ApiRoute(log_out, api.log_out, for_users=True)


def _build_commands() -> Iterator[ApiRoute]:
    """Yield two methods for each form: what its command would do, and to send it."""
    for name, form in COMMAND_FORMS.items():
        path, query, role = f"send/{name}", FORM_QUERIES[name], {"x-role": form.role}
        show = partial(sending.show_form, name)
        shown = {200: Answer("what the command would do", answers.FormAnswer)}
        sent = {202: Answer("Kafka has the command; `result` answers it", answers.SentAnswer)}
        endpoint = api.send_form(name)
        about = _describe(
            "get",
            path,
            sending.show_form,
            shown,
            (401, 403, 409, *_READ),
            "commands",
            query=query,
            needs=_KNOWN,
            extensions=role,
        )
        yield ApiRoute(about, api.answer_shown(query, show, answers.FormAnswer), for_users=True)
        command = _describe(
            "post",
            path,
            endpoint,
            sent,
            (*_SENT, 409, 503),
            "commands",
            body=FORM_BODIES[name],
            needs=_LOGGED_IN,
            extensions=role,
        )
        yield ApiRoute(replace(command, summary=form.sentence), endpoint, for_users=True)


def _describe(
    method: Method,
    name: str,
    function: Callable[..., object],
    good: Mapping[int, Answer],
    problems: Iterable[int],
    tag: str,
    **more: Any,
) -> ApiOperation:
    """Describe an operation. Its summary is the first line of the function's docstring."""
    parts = [part.capitalize() for part in re.split(r"\W", name)]
    summary = (function.__doc__ or "").strip().partition("\n")[0]
    operation_id = f"{method}{''.join(parts)}"
    return ApiOperation(
        method, f"/{API}/{name}", operation_id, summary, tag, good, tuple(problems), **more
    )


# --- routes ---


def build_routes(takes_commands: bool) -> list[Route]:
    """Build the routes of pages and API. `takes_commands`: visitors may log in and send."""
    routes = [_build_page(screen) for screen in SCREENS if screen.template]
    routes += [
        Route(route.operation.path, route.endpoint, methods=[route.operation.method.upper()])
        for route in list_api()
        if takes_commands or not route.for_users
    ]
    routes += [Route("/events", api.page_events), Route("/openapi.json", answer_document)]
    if takes_commands:
        routes += [
            Route("/send/{name}", sending.form_page),
            Route("/send/{name}", sending.send, methods=["POST"]),
            Route("/login", login.login_page),
            Route("/login", login.log_in, methods=["POST"]),
            Route("/logout", login.log_out, methods=["POST"]),
            Route(login.OIDC_PATH, login.begin_oidc),
            Route(login.CALLBACK_PATH, login.finish_oidc),
        ]
    return routes


def _build_page(screen: Screen) -> Route:
    def handle(request: Request) -> Response:
        page = Page(request)
        shown = screen.show(page, parse_query(request, screen.query))
        return render_page(page, str(screen.template), **shown.values)

    return Route(screen.path, cached(handle) if screen.is_cached else handle)


# --- the document ---

DESCRIPTION = (
    "The figures and the commands of the console (docs/console.md). Times are ms since the epoch, "
    "usages ratios of limits, throughputs bytes/s, rates messages/s. A console without users "
    "answers 404 to everything that is not a figure."
)


@cache
def build_document() -> dict[str, Any]:
    """Build the OpenAPI document of the console."""
    operations = [route.operation for route in list_api()]
    problems = {
        status: Answer(text, answers.Problem, PROBLEM) for status, text in _PROBLEMS.items()
    }
    return build_openapi("lb_stream console", DESCRIPTION, operations, "/", problems, SECURITY)


def answer_document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return JSONResponse(build_document())
