"""The pages of one broker, bundle, namespace, tenant, decision or round."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from lb_stream.console.page import Page, Shown
from lb_stream.console.queries import (
    BrokerQuery,
    BundleQuery,
    DecisionQuery,
    NamespaceQuery,
    RoundQuery,
    TenantQuery,
)
from lb_stream.console.ranges import find_shown_range, find_traffic_range
from lb_stream.query import QueryError
from lb_stream.query.drain_estimate import estimate_drain
from lb_stream.query.explanations import DecisionExplanation, explain_decision, explain_round
from lb_stream.query.screens import brokers, feed, load_shares, neighbours
from lb_stream.query.why_not import explain_no_move

if TYPE_CHECKING:
    from lb_stream.query.health import ClusterFacts
    from lb_stream.query.lake import Row


def broker_page(page: Page, query: BrokerQuery) -> Shown:
    """Show a broker: usage and limits, load over time, why its load stays, its bundles."""
    cluster, name, wanted = query.cluster, query.name, query.wanted
    facts = page.require_cluster_facts(cluster)
    row = page.ask(("broker", cluster, name), lambda lake: brokers.find_broker(lake, cluster, name))
    if row is None:
        raise QueryError(f"no round of {cluster} has seen a broker {name}", 2)
    data = {
        "broker": row,
        "state": facts.state_of(name),
        "bundles": page.ask(
            ("bundles of", cluster, name, wanted),
            lambda lake: load_shares.list_bundles(lake, cluster, wanted, owner=name),
        ),
        "explanation": page.ask(
            ("why hot", cluster, name),
            lambda lake: explain_no_move(lake, page.view.facts, cluster, broker=name),
        ),
        "decisions": page.ask(
            ("decisions", cluster, name),
            lambda lake: feed.list_broker_entries(lake, cluster, name),
        ),
        "drain": _estimate_drain(page, facts, name),
    }
    for_page = {
        "cluster": cluster,
        "name": name,
        "row": row,
        "wanted": wanted,
        "range": find_shown_range(page, cluster, query, broker=name),
    }
    return Shown(data, for_page)


def _estimate_drain(page: Page, facts: ClusterFacts, broker: str) -> Row | None:
    """Return when the drain of a broker is done; None: it isn't being drained."""
    cluster, stale = facts.cluster, page.view.staleness
    state = page.find_cluster_state(cluster)
    if state is None or broker not in facts.drained:
        return None
    return page.ask(
        ("drain", cluster, broker),
        lambda lake: estimate_drain(lake, state, facts, broker, stale),
    )


def bundle_page(page: Page, query: BundleQuery) -> Shown:
    """Show a bundle: its owner, its load, why it is not moved, decisions about it."""
    cluster, name = query.cluster, query.name
    page.require_cluster_facts(cluster)
    decisions = page.ask(
        ("decisions of", cluster, name),
        lambda lake: feed.list_bundle_entries(lake, cluster, name),
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
    for_page = {
        "cluster": cluster,
        "name": name,
        "row": row,
        "range": find_shown_range(page, cluster, query, bundle=name),
    }
    return Shown({"bundle": row, "explanation": explanation, "decisions": decisions}, for_page)


def namespace_page(page: Page, query: NamespaceQuery) -> Shown:
    """Show a namespace: its load, by broker and by bundle, and decisions about its bundles."""
    cluster, name, wanted = query.cluster, query.name, query.wanted
    page.require_cluster_facts(cluster)
    row = page.ask(
        ("group", cluster, name), lambda lake: load_shares.find_group(lake, cluster, namespace=name)
    )
    if row is None:
        raise QueryError(f"no report of {cluster} names a bundle of the namespace {name}", 2)
    data = {
        "namespace": row,
        "brokers": page.ask(
            ("by broker", cluster, name),
            lambda lake: load_shares.list_broker_shares(lake, cluster, name),
        ),
        "bundles": page.ask(
            ("bundles in", cluster, name, wanted),
            lambda lake: load_shares.list_bundles(lake, cluster, wanted, namespace=name),
        ),
        "entries": page.ask(
            ("feed of", cluster, name),
            lambda lake: feed.list_entries(lake, cluster, kinds="decisions", text=f"{name}/"),
        ),
    }
    for_page = {
        "cluster": cluster,
        "name": name,
        "row": row,
        "wanted": wanted,
        "range": find_traffic_range(page, cluster, query, by="bundle", namespace=name),
    }
    return Shown(data, for_page)


def tenant_page(page: Page, query: TenantQuery) -> Shown:
    """Show a tenant: its load, and that of its namespaces."""
    cluster, name, wanted = query.cluster, query.name, query.wanted
    page.require_cluster_facts(cluster)
    row = page.ask(
        ("group tenant", cluster, name),
        lambda lake: load_shares.find_group(lake, cluster, tenant=name),
    )
    if row is None:
        raise QueryError(f"no report of {cluster} names a bundle of the tenant {name}", 2)
    listed = page.ask(
        ("groups of", cluster, name, wanted),
        lambda lake: load_shares.list_groups(lake, cluster, "namespace", wanted, tenant=name),
    )
    for_page = {
        "cluster": cluster,
        "name": name,
        "row": row,
        "listed": listed,
        "wanted": wanted,
        "range": find_traffic_range(page, cluster, query, by="namespace", tenant=name),
    }
    return Shown({"tenant": row, "namespaces": listed}, for_page)


@dataclass(frozen=True, slots=True)
class DecisionBesideOthers(DecisionExplanation):
    """A decision, and the ids of those of its cluster before and after it."""

    previous: str | None
    next: str | None


def decision_page(page: Page, query: DecisionQuery) -> Shown:
    """Show a decision: its reason, its candidates, its expected and actual effect, its outcome."""
    found = page.ask(("decision", query.id), lambda lake: explain_decision(lake, query.id))
    cluster = found.decision["cluster"]
    beside = page.ask(
        ("beside decision", query.id),
        lambda lake: neighbours.find_neighbour_decisions(lake, cluster, query.id),
    )
    known = {field.name: getattr(found, field.name) for field in fields(found)}
    for_page = {"found": found, "decision": found.decision, "cluster": cluster, **beside}
    return Shown(DecisionBesideOthers(**known, **beside), for_page)


def round_page(page: Page, query: RoundQuery) -> Shown:
    """Show what a round saw, decided and refused; without `seq`, the last round."""
    cluster, seq = query.cluster, query.seq
    if seq is None:
        seq = page.require_cluster_facts(cluster).seq
    found = page.ask(("round", cluster, seq), lambda lake: explain_round(lake, cluster, seq))
    beside = page.ask(
        ("beside round", cluster, seq),
        lambda lake: neighbours.find_neighbour_rounds(lake, cluster, seq),
    )
    entries = page.ask(
        ("entries of round", cluster, seq),
        lambda lake: feed.list_round_entries(lake, cluster, seq),
    )
    return Shown(found | beside, {"found": found, "entries": entries})
