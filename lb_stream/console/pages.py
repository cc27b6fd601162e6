"""The pages of a fleet and of a cluster: what each one shows, out of the read models."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lb_stream.console import address
from lb_stream.console.acts import MODES
from lb_stream.console.page import Page, reader_of, show
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import describe_unknown_cluster
from lb_stream.query.present.proposals import (
    is_worse_alone,
    load_ended_proposals,
    load_waiting_proposals,
    summarise_plans,
)
from lb_stream.query.screens import brokers, costs, feed, load_shares, over_time
from lb_stream.query.screens.lists import ListRequest
from lb_stream.query.screens.overview import load_overview
from lb_stream.query.screens.search import find_by_name
from lb_stream.query.why_not import explain_no_move

COST_BY = ("tenant", "namespace")
COST_EACH = ("week", "day", "total")
COST_DAYS = 28
"""Days before the last round of which moves are added up."""
ENDED = 50
"""Proposals that are shown of those that wait no more."""


def fleet_page(request: Request) -> Response:
    """All clusters."""
    page = Page(request)
    rows = (
        page.ask("overview", lambda lake: load_overview(lake, page.view.facts.clusters))
        if page.view.lake is not None
        else ()
    )
    entries = (
        page.ask("feed", lambda lake: feed.list_entries(lake, None))
        if page.view.lake is not None
        else ()
    )
    return show(
        page,
        "fleet.html",
        rows=rows,
        entries=entries,
        stream=address.link("events"),
        what="all",
        text="",
    )


def cluster_page(request: Request) -> Response:
    """One cluster: its brokers by heat, load over time, what holds it up, what is under way, what
    has happened."""
    page = Page(request)
    name = address.require_text(request, "name")
    wanted = address.read_list_request(request, brokers.SORTS)
    span, end_ms = address.read_span(request)
    what, word = address.read_choice(request, "what", feed.WHAT), address.read_text(request, "word")
    facts = require_cluster_facts(page, name)
    standing = page.find_cluster_state(name)
    open_ids = (
        [decision.decision_id for decision in standing.memory.pending]
        if standing is not None
        else []
    )
    return show(
        page,
        "cluster.html",
        cluster=name,
        facts=facts,
        row=page.ask(("overview", name), lambda lake: load_overview(lake, [facts]))[0],
        config=None if standing is None else standing.config,
        brokers=page.ask(
            ("brokers", name, wanted), lambda lake: brokers.list_brokers(lake, name, wanted)
        ),
        wanted=wanted,
        answer=page.ask(
            ("held up", name), lambda lake: explain_no_move(lake, page.view.facts, name)
        ),
        waiting=page.ask(("waiting", name), lambda lake: load_waiting_proposals(lake, name)),
        modes={mode: tuple(act for other, act in MODES.items() if other != mode) for mode in MODES},
        pending=page.ask(("pending", name), lambda lake: feed.list_pending(lake, name, open_ids)),
        entries=page.ask(
            ("feed", name, what, word),
            lambda lake: feed.list_entries(lake, name, what=what, text=word),
        ),
        what=what,
        text=word,
        stream=address.link("events", cluster=name, what=what, text=word),
        causes=page.ask(
            ("causes", name),
            lambda lake: load_shares.list_groups(lake, name, "namespace", ListRequest()),
        ),
        chart=address.link("chart", cluster=name, span=span, end=end_ms),
        span=span,
        end_ms=end_ms,
    )


def require_cluster_facts(page: Page, name: str) -> Any:
    """Those of `lbctl status`.

    Raises QueryError (code 2) for a cluster that the tables don't know.
    """
    if page.view.lake is None:
        raise QueryError(page.view.trouble)
    found = next((facts for facts in page.view.facts.clusters if facts.cluster == name), None)
    if found is None:
        raise QueryError(
            describe_unknown_cluster(name, [facts.cluster for facts in page.view.facts.clusters]), 2
        )
    return found


def proposals_page(request: Request) -> Response:
    """What waits for approval, and what has become of what did."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    facts = require_cluster_facts(page, cluster)
    waiting = page.ask(("waiting", cluster), lambda lake: load_waiting_proposals(lake, cluster))
    first = [proposal["proposal_id"] for proposal in waiting]
    while len(" ".join(first)) > address.LONGEST:
        first.pop()
    return show(
        page,
        "proposals.html",
        cluster=cluster,
        mode=facts.mode,
        waiting=waiting,
        plans=summarise_plans(waiting),
        is_worse_alone=is_worse_alone,
        first=" ".join(first),
        counted=len(first),
        ended=page.ask(("ended", cluster), lambda lake: load_ended_proposals(lake, cluster, ENDED)),
    )


def groups_page(request: Request) -> Response:
    """Namespaces or tenants of a cluster by the load that they cause."""
    page = Page(request)
    name, by = (
        address.require_text(request, "cluster"),
        address.read_choice(request, "by", ("namespace", "tenant")),
    )
    wanted, tenant = (
        address.read_list_request(request, load_shares.GROUP_SORTS),
        address.read_text(request, "tenant") or None,
    )
    require_cluster_facts(page, name)
    found = page.ask(
        ("groups", name, by, tenant, wanted),
        lambda lake: load_shares.list_groups(lake, name, by, wanted, tenant=tenant),
    )
    return show(
        page, "groups.html", cluster=name, by=by, listed=found, wanted=wanted, tenant=tenant
    )


def cost_page(request: Request) -> Response:
    """What the moves of the last weeks have cost clients."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    by, each = (
        address.read_choice(request, "by", COST_BY),
        address.read_choice(request, "each", COST_EACH),
    )
    wanted, facts = (
        address.read_list_request(request, costs.COST_SORTS),
        require_cluster_facts(page, cluster),
    )
    since_ms = facts.last_round_ms - COST_DAYS * 86_400_000
    found = page.ask(
        ("cost", cluster, by, each, wanted),
        lambda lake: costs.list_costs(lake, cluster, since_ms, by, each, wanted),
    )
    return show(
        page,
        "cost.html",
        cluster=cluster,
        by=by,
        each=each,
        listed=found,
        wanted=wanted,
        days=COST_DAYS,
        choices=(("by", "Whose", COST_BY, by), ("each", "Span of time", COST_EACH, each)),
    )


def bundles_page(request: Request) -> Response:
    """Bundles of a cluster by the load that they cause."""
    page = Page(request)
    name, wanted = (
        address.require_text(request, "cluster"),
        address.read_list_request(request, load_shares.BUNDLE_SORTS),
    )
    require_cluster_facts(page, name)
    found = page.ask(
        ("bundles", name, wanted), lambda lake: load_shares.list_bundles(lake, name, wanted)
    )
    return show(page, "bundles.html", cluster=name, listed=found, wanted=wanted)


def history_page(request: Request) -> Response:
    """Decisions and commands, the newest first, as far back as there are."""
    page = Page(request)
    name, before_ms = (
        address.read_text(request, "cluster") or None,
        address.read_number(request, "before"),
    )
    what, word = address.read_choice(request, "what", feed.WHAT), address.read_text(request, "word")
    key = ("feed", name, before_ms, what, word)
    entries = page.ask(
        key, lambda lake: feed.list_entries(lake, name, before_ms=before_ms, what=what, text=word)
    )
    stream = (
        address.link("events", cluster=name, what=what, text=word) if before_ms is None else None
    )
    return show(
        page,
        "history.html",
        cluster=name,
        entries=entries,
        what=what,
        text=word,
        stream=stream,
        before_ms=before_ms,
        most=feed.ENTRIES,
    )


def search_page(request: Request) -> Response:
    """What has a text in its name."""
    page, word = Page(request), address.read_text(request, "q")
    found = (
        page.ask(("search", word), lambda lake: find_by_name(lake, word)) if word.strip() else {}
    )
    return show(page, "search.html", word=word, found=found)


def chart_answer(request: Request) -> Response:
    """The lines of a chart as JSON: of a cluster, or of its `broker` or `bundle`."""
    look = reader_of(request).current_view()
    name, broker, bundle = (
        address.require_text(request, "cluster"),
        address.read_text(request, "broker"),
        address.read_text(request, "bundle"),
    )
    span, end_ms = address.read_span(request)

    def asked(lake: Any) -> Any:
        begin, end = over_time.find_chart_window(lake, name, span, end_ms)
        if bundle:
            return over_time.build_bundle_chart(lake, name, bundle, begin, end)
        return (
            over_time.build_broker_chart(lake, name, broker, begin, end)
            if broker
            else over_time.build_cluster_chart(lake, name, begin, end)
        )

    return JSONResponse(look.ask(("chart", name, broker, bundle, span, end_ms), asked).to_dict())
