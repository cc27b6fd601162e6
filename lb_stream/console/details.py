"""The pages of one broker, bundle, namespace, tenant, decision or round."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from lb_stream.console import address
from lb_stream.console.page import Page, render_page
from lb_stream.query import QueryError
from lb_stream.query.explanations import explain_decision, explain_round, load_decisions_about
from lb_stream.query.lake import Row
from lb_stream.query.screens import brokers, feed, load_shares
from lb_stream.query.why_not import explain_no_move

MAX_DECISIONS = 30
"""Decisions about a broker or a bundle that its page shows."""


def broker_page(request: Request) -> Response:
    """Show a broker: usage and limits, load over time, why its load stays, its bundles."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    facts = page.require_cluster_facts(cluster)
    row = page.ask(("broker", cluster, name), lambda lake: brokers.find_broker(lake, cluster, name))
    if row is None:
        raise QueryError(f"no round of {cluster} has seen a broker {name}", 2)
    wanted = address.read_list_request(request, load_shares.BUNDLE_SORTS)
    span, end_ms = address.read_span(request)
    return render_page(
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
        explanation=page.ask(
            ("why hot", cluster, name),
            lambda lake: explain_no_move(lake, page.view.facts, cluster, broker=name),
        ),
        decisions=page.ask(
            ("decisions", cluster, name),
            lambda lake: _newest_first(
                load_decisions_about(lake, "broker", name, cluster, MAX_DECISIONS)
            ),
        ),
        chart=address.link("chart", cluster=cluster, broker=name, span=span, end=end_ms),
        span=span,
        end_ms=end_ms,
    )


def bundle_page(request: Request) -> Response:
    """Show a bundle: its owner, its load, why it is not moved, decisions about it."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    page.require_cluster_facts(cluster)
    decisions = page.ask(
        ("decisions of", cluster, name),
        lambda lake: _newest_first(
            load_decisions_about(lake, "bundle", name, cluster, MAX_DECISIONS)
        ),
    )
    row = page.ask(
        ("bundle", cluster, name), lambda lake: load_shares.find_bundle_load(lake, cluster, name)
    )
    explanation = None
    if row is not None:
        explanation = page.ask(
            ("why not", cluster, name),
            lambda lake: explain_no_move(lake, page.view.facts, cluster, bundle=name),
        )
    elif not decisions:
        raise QueryError(f"no report of {cluster} names a bundle {name}", 2)
    span, end_ms = address.read_span(request)
    return render_page(
        page,
        "bundle.html",
        cluster=cluster,
        name=name,
        row=row,
        explanation=explanation,
        decisions=decisions,
        chart=address.link("chart", cluster=cluster, bundle=name, span=span, end=end_ms),
        span=span,
        end_ms=end_ms,
    )


def _build_entries(decisions: Iterable[Row]) -> tuple[Row, ...]:
    """Build entries of the feed from decisions."""
    return tuple(
        feed.add_explanation(
            {"entry": "decision", "id": row["decision_id"], **row, "at_ms": row["issued_ms"]}
        )
        for row in decisions
    )


def _newest_first(decisions: list[Row]) -> tuple[Row, ...]:
    """Build entries of the feed from decisions, of which the newest is the last."""
    return _build_entries(reversed(decisions))


def namespace_page(request: Request) -> Response:
    """Show a namespace: its load, by broker and by bundle, and decisions about its bundles."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    page.require_cluster_facts(cluster)
    row = page.ask(
        ("group", cluster, name), lambda lake: load_shares.find_group(lake, cluster, namespace=name)
    )
    if row is None:
        raise QueryError(f"no report of {cluster} names a bundle of the namespace {name}", 2)
    wanted = address.read_list_request(request, load_shares.BUNDLE_SORTS)
    return render_page(
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
            lambda lake: feed.list_entries(lake, cluster, kinds="decisions", text=f"{name}/"),
        ),
    )


def tenant_page(request: Request) -> Response:
    """Show a tenant: its load, and that of its namespaces."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "name")
    page.require_cluster_facts(cluster)
    row = page.ask(
        ("group tenant", cluster, name),
        lambda lake: load_shares.find_group(lake, cluster, tenant=name),
    )
    if row is None:
        raise QueryError(f"no report of {cluster} names a bundle of the tenant {name}", 2)
    wanted = address.read_list_request(request, load_shares.GROUP_SORTS)
    listed = page.ask(
        ("groups of", cluster, name, wanted),
        lambda lake: load_shares.list_groups(lake, cluster, "namespace", wanted, tenant=name),
    )
    return render_page(
        page, "tenant.html", cluster=cluster, name=name, row=row, listed=listed, wanted=wanted
    )


def decision_page(request: Request) -> Response:
    """Show a decision: its reason, its candidates, its expected and actual effect, its outcome."""
    page, decision_id = Page(request), address.require_text(request, "id")
    found = page.ask(("decision", decision_id), lambda lake: explain_decision(lake, decision_id))
    return render_page(
        page,
        "decision.html",
        found=found,
        decision=found.decision,
        cluster=found.decision["cluster"],
    )


def round_page(request: Request) -> Response:
    """Show what a round saw, decided and refused; without `seq`, the last round."""
    page = Page(request)
    cluster, seq = address.require_text(request, "cluster"), address.read_number(request, "seq")
    if seq is None:
        seq = page.require_cluster_facts(cluster).seq
    found = page.ask(("round", cluster, seq), lambda lake: explain_round(lake, cluster, seq))
    entries = _build_entries(found["decisions"])
    return render_page(page, "round.html", cluster=cluster, found=found, entries=entries)
