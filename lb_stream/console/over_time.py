"""Charts and the heat map: load over a range of time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lb_stream.console.page import Page, Shown
from lb_stream.console.queries import ChartQuery, HeatQuery
from lb_stream.console.ranges import (
    find_missing_limit,
    find_shown_range,
    find_usage_limit,
    find_window,
)
from lb_stream.console.templates import HEAT_LIMITS
from lb_stream.query.screens import group_chart, heat, over_time

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake
    from lb_stream.query.screens.over_time import Chart

LABELS = 6
"""Times that the head of a heat map shows, about; the others have no room."""


def chart_answer(page: Page, query: ChartQuery) -> Shown:
    """Show the lines of a chart: of a cluster, of its `broker` or `bundle`, or `by` groups."""
    cluster, broker, bundle, by = query.cluster, query.broker, query.bundle, query.by
    tenant, namespace = query.tenant or None, query.namespace or None
    window = find_window(page, cluster, query)
    limit = None if bundle or by else find_usage_limit(page, cluster)

    def build_chart(lake: Lake) -> Chart:
        if by:
            return group_chart.build_group_chart(
                lake, cluster, *window, by, tenant=tenant, namespace=namespace
            )
        if bundle:
            return over_time.build_bundle_chart(lake, cluster, bundle, *window)
        if broker:
            return over_time.build_broker_chart(lake, cluster, broker, *window, limit)
        return over_time.build_cluster_chart(lake, cluster, *window, limit)

    about = (broker, bundle, by, tenant, namespace)
    chart = page.ask(("chart", cluster, *about, *query.range), build_chart)
    if not bundle and not by:
        chart = replace(chart, note=find_missing_limit(page, cluster))
    return Shown(chart)


def heat_page(page: Page, query: HeatQuery) -> Shown:
    """Show the usage of a cluster's brokers over time, a row for each, the hottest first."""
    cluster, wanted = query.cluster, query.wanted
    page.require_cluster_facts(cluster)
    window = find_window(page, cluster, query)
    found = page.ask(
        ("heat", cluster, wanted, *query.range),
        lambda lake: heat.load_heat_map(lake, cluster, *window, wanted),
    )
    shown = find_shown_range(page, cluster, query)
    for_page = {
        "cluster": cluster,
        "found": found,
        "listed": found.brokers,
        "wanted": wanted,
        "range": shown,
        "limits": HEAT_LIMITS,
        "label_each": -(-len(found.times_ms) // LABELS),
    }
    return Shown(found, for_page)
