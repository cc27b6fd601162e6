"""The pages of one thing: a broker, a bundle, a namespace, a tenant, a decision, a round.

What it is, why, and why not.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from lb_stream.console import address
from lb_stream.console.page import Page, show
from lb_stream.console.pages import require_cluster_facts
from lb_stream.query import QueryError
from lb_stream.query.explanations import explain_decision, explain_round, load_decisions_about
from lb_stream.query.lake import Row
from lb_stream.query.screens import brokers, feed, load_shares
from lb_stream.query.why_not import explain_no_move

LAST = 30
"""Decisions that are shown of a broker or a bundle."""


def broker_page(request: Request) -> Response:
    """A broker: its load against its limits, over time, who causes it, and why it is not
    relieved."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    facts = require_cluster_facts(page, cluster)
    row = page.ask(("broker", cluster, name), lambda lake: brokers.find_broker(lake, cluster, name))
    if row is None:
        raise QueryError(f"no round of {cluster} has seen a broker {name}", 2)
    wanted, (span, end_ms) = (
        address.read_list_request(request, load_shares.BUNDLE_SORTS),
        address.read_span(request),
    )
    return show(
        page,
        "broker.html",
        cluster=cluster,
        name=name,
        row=row,
        state=facts.state_of(name),
        bundles=page.ask(
            ("bundles of", cluster, name, wanted),
            lambda lake: load_shares.list_bundles(lake, cluster, wanted, owner=name),
        ),
        wanted=wanted,
        answer=page.ask(
            ("why hot", cluster, name),
            lambda lake: explain_no_move(lake, page.view.facts, cluster, broker=name),
        ),
        decisions=page.ask(
            ("decisions", cluster, name),
            lambda lake: _last(load_decisions_about(lake, "broker", name, cluster, LAST)),
        ),
        chart=address.link("chart", cluster=cluster, broker=name, span=span, end=end_ms),
        span=span,
        end_ms=end_ms,
    )


def bundle_page(request: Request) -> Response:
    """A bundle: where it is, what it carries, where it has been, and why it stays."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    require_cluster_facts(page, cluster)
    decisions = page.ask(
        ("decisions of", cluster, name),
        lambda lake: _last(load_decisions_about(lake, "bundle", name, cluster, LAST)),
    )
    row = page.ask(
        ("bundle", cluster, name), lambda lake: load_shares.find_bundle_load(lake, cluster, name)
    )
    if row is None and not decisions:
        raise QueryError(f"no report of {cluster} names a bundle {name}", 2)
    span, end_ms = address.read_span(request)
    return show(
        page,
        "bundle.html",
        cluster=cluster,
        name=name,
        row=row,
        answer=None
        if row is None
        else page.ask(
            ("why not", cluster, name),
            lambda lake: explain_no_move(lake, page.view.facts, cluster, bundle=name),
        ),
        decisions=decisions,
        chart=address.link("chart", cluster=cluster, bundle=name, span=span, end=end_ms),
        span=span,
        end_ms=end_ms,
    )


def _last(decisions: list[Row]) -> tuple[Row, ...]:
    """As rows of the feed, the newest first."""
    rows = (
        {"entry": "decision", "id": row["decision_id"], **row, "at_ms": row["issued_ms"]}
        for row in reversed(decisions)
    )
    return tuple(map(feed.with_explanation, rows))


def namespace_page(request: Request) -> Response:
    """A namespace: what it carries, whom it loads, its bundles."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    require_cluster_facts(page, cluster)
    row = page.ask(
        ("whole", cluster, name), lambda lake: load_shares.find_group(lake, cluster, namespace=name)
    )
    if row is None:
        raise QueryError(f"no report of {cluster} names a bundle of the namespace {name}", 2)
    wanted = address.read_list_request(request, load_shares.BUNDLE_SORTS)
    return show(
        page,
        "namespace.html",
        cluster=cluster,
        name=name,
        row=row,
        loads=page.ask(
            ("by broker", cluster, name),
            lambda lake: load_shares.list_broker_shares(lake, cluster, name),
        ),
        bundles=page.ask(
            ("bundles in", cluster, name, wanted),
            lambda lake: load_shares.list_bundles(lake, cluster, wanted, namespace=name),
        ),
        wanted=wanted,
        entries=page.ask(
            ("feed of", cluster, name),
            lambda lake: feed.list_entries(lake, cluster, what="decisions", text=f"{name}/"),
        ),
    )


def tenant_page(request: Request) -> Response:
    """A tenant: what it carries, in which namespaces."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    require_cluster_facts(page, cluster)
    row = page.ask(
        ("whole tenant", cluster, name),
        lambda lake: load_shares.find_group(lake, cluster, tenant=name),
    )
    if row is None:
        raise QueryError(f"no report of {cluster} names a bundle of the tenant {name}", 2)
    wanted = address.read_list_request(request, load_shares.GROUP_SORTS)
    found = page.ask(
        ("groups of", cluster, name, wanted),
        lambda lake: load_shares.list_groups(lake, cluster, "namespace", wanted, tenant=name),
    )
    return show(
        page, "tenant.html", cluster=cluster, name=name, row=row, listed=found, wanted=wanted
    )


def decision_page(request: Request) -> Response:
    """Why a decision was made, who else was considered, what was expected and what came of it."""
    page, name = Page(request), address.require_text(request, "id")
    found = page.ask(("decision", name), lambda lake: explain_decision(lake, name))
    return show(
        page, "decision.html", found=found, one=found.decision, cluster=found.decision["cluster"]
    )


def round_page(request: Request) -> Response:
    """What a round saw, decided and refused."""
    page = Page(request)
    cluster, seq = address.require_text(request, "cluster"), address.read_number(request, "seq")
    if seq is None:
        seq = require_cluster_facts(page, cluster).seq
    found = page.ask(("round", cluster, seq), lambda lake: explain_round(lake, cluster, seq))
    made = tuple(
        map(
            feed.with_explanation,
            (
                {"entry": "decision", "id": row["decision_id"], **row, "at_ms": row["issued_ms"]}
                for row in found["decisions"]
            ),
        )
    )
    return show(page, "round.html", cluster=cluster, found=found, entries=made)
