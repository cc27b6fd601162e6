"""The pages of all clusters and of one cluster, and its lists, chart, proposals and costs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lb_stream.console import address
from lb_stream.console.command_forms import MODE_FORMS
from lb_stream.console.page import Page, Shown
from lb_stream.console.queries import (
    AUDIT_CHOICES,
    COST_GROUPS,
    COST_PERIODS,
    AuditQuery,
    BrokersQuery,
    BundlesQuery,
    ChangesQuery,
    ClusterPageQuery,
    ClusterQuery,
    CostQuery,
    GroupsQuery,
    HistoryQuery,
    Query,
    SearchQuery,
)
from lb_stream.console.ranges import find_shown_range, find_traffic_range
from lb_stream.core.commands.rollouts import RESTARTABLE
from lb_stream.io.messages.times import local_zone
from lb_stream.query.health import ClusterFacts, Finding, describe_duration
from lb_stream.query.lake import Row
from lb_stream.query.present.plans import NO_EFFECT, load_plan_effect
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
from lb_stream.query.screens.audit import AuditFilter, list_audit_rows
from lb_stream.query.screens.changes import list_changes
from lb_stream.query.screens.lists import ListPage, ListRequest
from lb_stream.query.screens.overview import load_overview
from lb_stream.query.screens.search import find_by_name
from lb_stream.query.screens.settings_in_force import list_given_settings, list_operator_state
from lb_stream.query.why_not import explain_no_move

if TYPE_CHECKING:
    from lb_stream.core.model.memory import MoveInProgress, Pending
    from lb_stream.query.lake import Lake
    from lb_stream.query.rollouts import RolloutNow

COST_DAYS = 28
"""Costs are those of the moves in this many days before the last round."""
MAX_PAST_PROPOSALS = 50
MAX_PAST_ROLLOUTS = 10
MAX_ROLLOUT_EVENTS = 100


def fleet_page(page: Page, query: Query) -> Shown:
    """Show all clusters."""
    rows: tuple[Row, ...] = ()
    entries: tuple[Row, ...] = ()
    if page.view.lake is not None:
        rows = page.ask("overview", lambda lake: load_overview(lake, page.view.facts.clusters))
        entries = page.ask("feed", lambda lake: feed.list_entries(lake, None))
    data = {
        "verdict": page.view.verdict,
        "stale": page.view.staleness,
        "read_ms": page.view.facts.now_ms,
        "clusters": [_add_state(page, row) for row in rows],
        "entries": entries,
    }
    # The heading says the gravest finding; a healthy verdict says none.
    findings = page.view.verdict.findings
    is_grave = page.view.verdict.state != "healthy"
    for_page = {
        "stream": address.link("events"),
        "first": findings[0] if findings and is_grave else None,
        "others": findings[1:] if is_grave else findings,
        "staleness": _leave_out_findings(page.view.staleness, findings),
    }
    return Shown(data, for_page)


def _leave_out_findings(staleness: str | None, findings: Sequence[Finding]) -> str | None:
    """Return why the tables are not up to date without the finding that the page shows already."""
    for finding in findings:
        if staleness is not None and staleness.startswith(f"{finding.description}; "):
            return staleness.removeprefix(f"{finding.description}; ")
    return staleness


def _add_state(page: Page, row: Row) -> Row:
    """Return a row of an overview with the cluster's name and state."""
    facts: ClusterFacts = row["facts"]
    return row | {"cluster": facts.cluster, "state": page.view.facts.state_of(facts)}


def brokers_answer(page: Page, query: BrokersQuery) -> Shown:
    """Show the brokers of a cluster by usage."""
    page.require_cluster_facts(query.cluster)
    return Shown(page.ask(*_list_brokers(query.cluster, query.wanted)))


def _list_brokers(cluster: str, wanted: ListRequest) -> tuple[Hashable, Callable[[Lake], ListPage]]:
    """Return the question for a page of brokers, with its key."""
    return (
        ("brokers", cluster, wanted),
        lambda lake: brokers.list_brokers(lake, cluster, wanted),
    )


def cluster_page(page: Page, query: ClusterPageQuery) -> Shown:
    """Show a cluster: brokers by usage, load over time, why nothing moves, decisions."""
    name, wanted = query.name, query.wanted
    facts = page.require_cluster_facts(name)
    state = page.find_cluster_state(name)
    waits: list[Pending | MoveInProgress] = []
    if state is not None:
        waits = [*state.memory.pending, *state.memory.moves.values()]
    pending_ids = {decision.decision_id for decision in waits}
    since_ms = min((decision.issued_ms for decision in waits), default=0)
    other_modes = [form for mode, form in MODE_FORMS.items() if mode != facts.mode]
    row = page.ask(("overview", name), lambda lake: load_overview(lake, [facts]))[0]
    data = {
        "overview": _add_state(page, row),
        "strategy": None if state is None else state.config.shedder.name,
        "brokers": page.ask(*_list_brokers(name, wanted)),
        "explanation": page.ask(
            ("why no move", name), lambda lake: explain_no_move(lake, page.view.facts, name)
        ),
        "waiting": page.ask(("waiting", name), lambda lake: load_waiting_proposals(lake, name)),
        "pending": page.ask(
            ("pending", name), lambda lake: feed.list_pending(lake, name, pending_ids, since_ms)
        ),
        "entries": page.ask(
            ("feed", name, query.kinds, query.find),
            lambda lake: feed.list_entries(lake, name, kinds=query.kinds, text=query.find),
        ),
        "top_namespaces": page.ask(
            ("top namespaces", name),
            lambda lake: load_shares.list_groups(lake, name, "namespace", ListRequest()),
        ),
    }
    for_page = {
        "cluster": name,
        "facts": facts,
        "row": row,
        "wanted": wanted,
        "other_modes": other_modes,
        "kinds": query.kinds,
        "stream": address.link("events", cluster=name, kinds=query.kinds, text=query.find),
        "range": find_shown_range(page, name, query),
    }
    return Shown(data, for_page)


def proposals_page(page: Page, query: ClusterQuery) -> Shown:
    """Show the proposals that wait for approval, and past ones."""
    cluster = query.cluster
    facts = page.require_cluster_facts(cluster)
    waiting = page.ask(("waiting", cluster), lambda lake: load_waiting_proposals(lake, cluster))
    data = {
        "mode": facts.mode,
        "waiting": waiting,
        "plans": _load_plans(page, cluster, waiting),
        "ended": page.ask(
            ("ended", cluster),
            lambda lake: load_ended_proposals(lake, cluster, MAX_PAST_PROPOSALS),
        ),
    }
    for_page = {
        "cluster": cluster,
        "is_worse_alone": is_worse_alone,
        "others": [row for row in waiting if row["plan"] is None],
    }
    return Shown(data, for_page)


def _load_plans(page: Page, cluster: str, waiting: Sequence[Row]) -> list[Row]:
    """Return the plans of waiting proposals with the effect of all their moves together."""
    state = page.find_cluster_state(cluster)
    plans = []
    for plan in summarise_plans(waiting):
        rows = [row for row in waiting if row["plan"] == plan["plan"]]
        effect = NO_EFFECT
        if state is not None:
            load = partial(load_plan_effect, state=state, proposals=rows)
            effect = page.ask(("effect", cluster, tuple(plan["ids"])), load)
        expires_ms = min(row["expires_ms"] for row in rows)
        bytes_per_s = sum(row["bytes_per_s"] or 0.0 for row in rows)
        plans.append(plan | effect | {"expires_ms": expires_ms, "bytes_per_s": bytes_per_s})
    return plans


def rollout_page(page: Page, query: ClusterQuery) -> Shown:
    """Show the rollout that is on, with its brokers in their order; and past ones."""
    cluster = query.cluster
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
    data = {
        "rollout": None if now is None else now.to_dict() | {"brokers": rows},
        "state": state,
        "untold": () if now is None else find_untold(now.progress),
        "events": events[-MAX_ROLLOUT_EVENTS:],
        "past": [row for row in last if row["outcome"] is not None],
    }
    for_page = {
        "cluster": cluster,
        "now": now,
        "forms": forms,
        "rows": rows,
        "done": sum(row["phase"] == "done" for row in rows),
        "describe_duration": describe_duration,
    }
    return Shown(data, for_page)


def changes_page(page: Page, query: ChangesQuery) -> Shown:
    """Show what changed in a cluster: commands, settings, versions, brokers, the job."""
    cluster = query.cluster
    page.require_cluster_facts(cluster)
    shown = find_shown_range(page, cluster, query)
    begin_ms, end_ms = shown.begin_ms, shown.end_ms
    if not shown.is_chosen:  # until now, also where loads have ended before
        end_ms = page.view.facts.now_ms
        begin_ms = end_ms - over_time.SPANS[query.span]
    has_stopped = page.view.facts.job.running is not True and page.view.staleness is not None
    changes = page.ask(
        ("changes", cluster, begin_ms, end_ms),
        lambda lake: list_changes(lake, cluster, begin_ms, end_ms, has_stopped),
    )
    data = {"begin_ms": begin_ms, "end_ms": end_ms, "changes": changes}
    window = replace(shown, begin_ms=begin_ms, end_ms=end_ms)
    return Shown(data, {"cluster": cluster, "range": window})


def settings_page(page: Page, query: ClusterQuery) -> Shown:
    """Show the settings that were given for a cluster, and what commands have set."""
    cluster = query.cluster
    page.require_cluster_facts(cluster)
    state = page.find_cluster_state(cluster)
    data = {
        "settings": [] if state is None else list_given_settings(state),
        "operator_state": [] if state is None else list_operator_state(state),
    }
    return Shown(data, {"cluster": cluster})


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


def groups_page(page: Page, query: GroupsQuery) -> Shown:
    """Show the namespaces or tenants of a cluster by their load."""
    name, wanted, tenant = query.cluster, query.wanted, query.tenant or None
    page.require_cluster_facts(name)
    listed = page.ask(
        ("groups", name, query.by, tenant, wanted),
        lambda lake: load_shares.list_groups(lake, name, query.by, wanted, tenant=tenant),
    )
    for_page = {
        "cluster": name,
        "by": query.by,
        "wanted": wanted,
        "tenant": tenant,
        "range": find_traffic_range(page, name, query, by=query.by, tenant=tenant),
    }
    return Shown(listed, {"listed": listed, **for_page})


def cost_page(page: Page, query: CostQuery) -> Shown:
    """Show what the moves of the last COST_DAYS days have cost clients."""
    cluster, by, period, wanted = query.cluster, query.by, query.each, query.wanted
    facts = page.require_cluster_facts(cluster)
    since_ms = facts.last_round_ms - COST_DAYS * 86_400_000
    listed = page.ask(
        ("cost", cluster, by, period, wanted),
        lambda lake: costs.list_costs(lake, cluster, since_ms, by, period, wanted, local_zone()),
    )
    choices = (("by", "Group by", COST_GROUPS, by), ("each", "Period", COST_PERIODS, period))
    for_page = {"cluster": cluster, "by": by, "period": period, "wanted": wanted}
    return Shown(listed, {"listed": listed, "days": COST_DAYS, "choices": choices, **for_page})


def bundles_page(page: Page, query: BundlesQuery) -> Shown:
    """Show the bundles of a cluster by their load."""
    name, wanted = query.cluster, query.wanted
    page.require_cluster_facts(name)
    listed = page.ask(
        ("bundles", name, wanted), lambda lake: load_shares.list_bundles(lake, name, wanted)
    )
    return Shown(listed, {"listed": listed, "cluster": name, "wanted": wanted})


def history_page(page: Page, query: HistoryQuery) -> Shown:
    """Show decisions and commands, the newest first, back to the oldest in the tables."""
    name, before_ms, kinds, find = query.cluster or None, query.before, query.kinds, query.find
    entries = page.ask(
        ("feed", name, before_ms, kinds, find),
        lambda lake: feed.list_entries(lake, name, before_ms=before_ms, kinds=kinds, text=find),
    )
    stream = None
    if before_ms is None:
        stream = address.link("events", cluster=name, kinds=kinds, text=find)
    data = {"entries": entries, "has_older": len(entries) == feed.MAX_ENTRIES}
    for_page = {"cluster": name, "kinds": kinds, "find": find, "stream": stream}
    return Shown(data, for_page | {"before_ms": before_ms})


def audit_page(page: Page, query: AuditQuery) -> Shown:
    """Show who commanded what, what it changed, and the answer, the newest first."""
    refused = query.only == "refused"
    wanted = AuditFilter(query.cluster or None, query.by, query.kind, query.what, refused)
    listed = page.ask(
        ("audit", wanted, query.page), lambda lake: list_audit_rows(lake, wanted, query.page or 1)
    )
    for_page = {"cluster": wanted.cluster, "asked": query, "choices": AUDIT_CHOICES}
    return Shown(listed, {"listed": listed, **for_page})


def search_page(page: Page, query: SearchQuery) -> Shown:
    """Show clusters, brokers, bundles and others whose names contain a text."""
    found: dict[str, tuple[Row, ...]] = {}
    if query.q.strip():
        found = page.ask(("search", query.q), lambda lake: find_by_name(lake, query.q))
    return Shown({"found": found}, {"searched": query.q})
