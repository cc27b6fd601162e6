"""The pages of all clusters and of one cluster, and its lists, chart, proposals and costs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lb_stream.console import address
from lb_stream.console.command_forms import MODE_FORMS
from lb_stream.console.page import Page, reader_of, render_page
from lb_stream.core.commands.rollouts import RESTARTABLE
from lb_stream.query.health import describe_duration
from lb_stream.query.lake import Row
from lb_stream.query.present.proposals import (
    is_worse_alone,
    load_ended_proposals,
    load_waiting_proposals,
    summarise_plans,
)
from lb_stream.query.rollouts import (
    find_untold,
    load_last_rollouts,
    load_rollout,
    load_rollout_events,
)
from lb_stream.query.screens import brokers, costs, feed, load_shares, over_time
from lb_stream.query.screens.lists import ListRequest
from lb_stream.query.screens.overview import load_overview
from lb_stream.query.screens.search import find_by_name
from lb_stream.query.why_not import explain_no_move

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake
    from lb_stream.query.rollouts import RolloutNow
    from lb_stream.query.screens.over_time import Chart

GROUPS = ("namespace", "tenant")
COST_GROUPS = ("tenant", "namespace")
COST_PERIODS = ("week", "day", "total")
COST_DAYS = 28
"""Costs are those of the moves in this many days before the last round."""
MAX_PAST_PROPOSALS = 50
MAX_PAST_ROLLOUTS = 10
MAX_ROLLOUT_EVENTS = 100


def fleet_page(request: Request) -> Response:
    """Show all clusters."""
    page = Page(request)
    rows: tuple[Row, ...] = ()
    entries: tuple[Row, ...] = ()
    if page.view.lake is not None:
        rows = page.ask("overview", lambda lake: load_overview(lake, page.view.facts.clusters))
        entries = page.ask("feed", lambda lake: feed.list_entries(lake, None))
    stream = address.link("events")
    return render_page(page, "fleet.html", rows=rows, entries=entries, stream=stream)


def cluster_page(request: Request) -> Response:
    """Show a cluster: brokers by usage, load over time, why nothing moves, decisions."""
    page = Page(request)
    name = address.require_text(request, "name")
    wanted = address.read_list_request(request, brokers.SORTS)
    span, end_ms = address.read_span(request)
    kinds = address.read_choice(request, "kinds", feed.ENTRY_KINDS)
    find = address.read_text(request, "find")
    facts = page.require_cluster_facts(name)
    state = page.find_cluster_state(name)
    pending_ids: list[str] = []
    if state is not None:
        pending_ids = [decision.decision_id for decision in state.memory.pending]
    other_modes = [form for mode, form in MODE_FORMS.items() if mode != facts.mode]
    return render_page(
        page,
        "cluster.html",
        cluster=name,
        facts=facts,
        row=page.ask(("overview", name), lambda lake: load_overview(lake, [facts]))[0],
        config=None if state is None else state.config,
        brokers=page.ask(
            ("brokers", name, wanted), lambda lake: brokers.list_brokers(lake, name, wanted)
        ),
        wanted=wanted,
        explanation=page.ask(
            ("why no move", name), lambda lake: explain_no_move(lake, page.view.facts, name)
        ),
        waiting=page.ask(("waiting", name), lambda lake: load_waiting_proposals(lake, name)),
        other_modes=other_modes,
        pending=page.ask(
            ("pending", name), lambda lake: feed.list_pending(lake, name, pending_ids)
        ),
        entries=page.ask(
            ("feed", name, kinds, find),
            lambda lake: feed.list_entries(lake, name, kinds=kinds, text=find),
        ),
        kinds=kinds,
        stream=address.link("events", cluster=name, kinds=kinds, text=find),
        top_namespaces=page.ask(
            ("top namespaces", name),
            lambda lake: load_shares.list_groups(lake, name, "namespace", ListRequest()),
        ),
        chart=address.link("chart", cluster=name, span=span, end=end_ms),
        span=span,
        end_ms=end_ms,
    )


def proposals_page(request: Request) -> Response:
    """Show the proposals that wait for approval, and past ones."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    facts = page.require_cluster_facts(cluster)
    waiting = page.ask(("waiting", cluster), lambda lake: load_waiting_proposals(lake, cluster))
    # the first proposals, as many as an address can name
    first = [proposal["proposal_id"] for proposal in waiting]
    while len(" ".join(first)) > address.MAX_CHARACTERS:
        first.pop()
    return render_page(
        page,
        "proposals.html",
        cluster=cluster,
        mode=facts.mode,
        waiting=waiting,
        plans=summarise_plans(waiting),
        is_worse_alone=is_worse_alone,
        first=first,
        ended=page.ask(
            ("ended", cluster),
            lambda lake: load_ended_proposals(lake, cluster, MAX_PAST_PROPOSALS),
        ),
    )


def rollout_page(request: Request) -> Response:
    """Show the rollout that is on, with its brokers in their order; and past ones."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    page.require_cluster_facts(cluster)
    found = page.find_cluster_state(cluster)
    now = None
    if found is not None:
        now = page.ask(("rollout", cluster), lambda lake: load_rollout(lake, found))
    last = page.ask(
        ("rollouts", cluster),
        lambda lake: tuple(load_last_rollouts(lake, cluster, MAX_PAST_ROLLOUTS)),
    )
    shown = last[-1]["rollout"] if last else None
    shown = shown if now is None else now.order.id
    events: tuple[Row, ...] = ()
    if shown is not None:
        events = page.ask(
            ("rollout events", cluster, shown),
            lambda lake: tuple(load_rollout_events(lake, cluster, shown)),
        )
    rows = () if now is None else sorted(now.rows, key=_rollout_place)
    state, forms = _find_rollout_state(now)
    untold = () if now is None else find_untold(now.progress)
    return render_page(
        page,
        "rollout.html",
        cluster=cluster,
        now=now,
        state=state,
        forms=forms,
        rows=rows,
        untold=untold,
        done=sum(row["phase"] == "done" for row in rows),
        events=events[-MAX_ROLLOUT_EVENTS:],
        past=[row for row in last if row["outcome"] is not None],
        describe_duration=describe_duration,
    )


def _rollout_place(row: Row) -> tuple[bool, bool, int]:
    """Return the place of a broker on the page: done, now, then those that wait, as planned."""
    waits = row["phase"] == "waiting"
    place = (row["place"] or sys.maxsize) if waits else row["since_ms"]
    return waits, not waits and row["phase"] != "done", place


def _find_rollout_state(now: RolloutNow | None) -> tuple[str, tuple[str, ...]]:
    """Return a word for the state of a rollout, and the forms of the commands that it takes."""
    if now is None:
        return "", ("rollout-start",)
    if now.order.paused:
        return "paused", ("rollout-resume", "rollout-abort")
    phases = [row["phase"] for row in now.rows]
    begun = sum(phases.count(phase) for phase in RESTARTABLE)
    begins = "waiting" in phases and begun < now.order.at_most and now.progress.still_ms is None
    forms = ("rollout-next",) if begins else ()
    ways = ("rollout-pause", "rollout-abort")
    if now.progress.still_ms is not None:
        return "held", ("rollout-resume", *ways)
    return "on", (*forms, *ways)


def groups_page(request: Request) -> Response:
    """Show the namespaces or tenants of a cluster by their load."""
    page = Page(request)
    name = address.require_text(request, "cluster")
    by = address.read_choice(request, "by", GROUPS)
    wanted = address.read_list_request(request, load_shares.GROUP_SORTS)
    tenant = address.read_text(request, "tenant") or None
    page.require_cluster_facts(name)
    listed = page.ask(
        ("groups", name, by, tenant, wanted),
        lambda lake: load_shares.list_groups(lake, name, by, wanted, tenant=tenant),
    )
    return render_page(
        page, "groups.html", cluster=name, by=by, listed=listed, wanted=wanted, tenant=tenant
    )


def cost_page(request: Request) -> Response:
    """Show what the moves of the last COST_DAYS days have cost clients."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    by = address.read_choice(request, "by", COST_GROUPS)
    period = address.read_choice(request, "each", COST_PERIODS)
    wanted = address.read_list_request(request, costs.COST_SORTS)
    facts = page.require_cluster_facts(cluster)
    since_ms = facts.last_round_ms - COST_DAYS * 86_400_000
    listed = page.ask(
        ("cost", cluster, by, period, wanted),
        lambda lake: costs.list_costs(lake, cluster, since_ms, by, period, wanted),
    )
    return render_page(
        page,
        "cost.html",
        cluster=cluster,
        by=by,
        period=period,
        listed=listed,
        wanted=wanted,
        days=COST_DAYS,
        choices=(("by", "Group by", COST_GROUPS, by), ("each", "Period", COST_PERIODS, period)),
    )


def bundles_page(request: Request) -> Response:
    """Show the bundles of a cluster by their load."""
    page, name = Page(request), address.require_text(request, "cluster")
    wanted = address.read_list_request(request, load_shares.BUNDLE_SORTS)
    page.require_cluster_facts(name)
    listed = page.ask(
        ("bundles", name, wanted), lambda lake: load_shares.list_bundles(lake, name, wanted)
    )
    return render_page(page, "bundles.html", cluster=name, listed=listed, wanted=wanted)


def history_page(request: Request) -> Response:
    """Show decisions and commands, the newest first, back to the oldest in the tables."""
    page, name = Page(request), address.read_text(request, "cluster") or None
    before_ms = address.read_number(request, "before")
    kinds = address.read_choice(request, "kinds", feed.ENTRY_KINDS)
    find = address.read_text(request, "find")
    entries = page.ask(
        ("feed", name, before_ms, kinds, find),
        lambda lake: feed.list_entries(lake, name, before_ms=before_ms, kinds=kinds, text=find),
    )
    stream = None
    if before_ms is None:
        stream = address.link("events", cluster=name, kinds=kinds, text=find)
    return render_page(
        page,
        "history.html",
        cluster=name,
        entries=entries,
        kinds=kinds,
        find=find,
        stream=stream,
        before_ms=before_ms,
        has_older=len(entries) == feed.MAX_ENTRIES,
    )


def search_page(request: Request) -> Response:
    """Show clusters, brokers, bundles and others whose names contain a text."""
    page, text = Page(request), address.read_text(request, "q")
    found: dict[str, tuple[Row, ...]] = {}
    if text.strip():
        found = page.ask(("search", text), lambda lake: find_by_name(lake, text))
    return render_page(page, "search.html", searched=text, found=found)


def chart_answer(request: Request) -> Response:
    """Return the lines of a chart as JSON: of a cluster, or of its `broker` or `bundle`."""
    view = reader_of(request).current_view()
    cluster = address.require_text(request, "cluster")
    broker, bundle = address.read_text(request, "broker"), address.read_text(request, "bundle")
    span, end_ms = address.read_span(request)

    def build_chart(lake: Lake) -> Chart:
        window = over_time.find_chart_window(lake, cluster, span, end_ms)
        if bundle:
            return over_time.build_bundle_chart(lake, cluster, bundle, *window)
        if broker:
            return over_time.build_broker_chart(lake, cluster, broker, *window)
        return over_time.build_cluster_chart(lake, cluster, *window)

    chart = view.ask(("chart", cluster, broker, bundle, span, end_ms), build_chart)
    return JSONResponse(chart.to_dict())
