"""Charts and the heat map: load over a range of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.console.page import Page, Shown
from lb_stream.console.queries import ChartQuery, HeatQuery
from lb_stream.console.ranges import find_shown_range, find_usage_limit, find_window
from lb_stream.console.templates import HEAT_LIMITS
from lb_stream.query.screens import heat, over_time

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake
    from lb_stream.query.screens.over_time import Chart

LABELS = 6
"""Times that the head of a heat map shows, about; the others have no room."""


def chart_answer(page: Page, query: ChartQuery) -> Shown:
    """Show the lines of a chart: of a cluster, or of its `broker` or `bundle`."""
    cluster, broker, bundle = query.cluster, query.broker, query.bundle
    window = find_window(page, cluster, query)
    limit = None if bundle else find_usage_limit(page, cluster)

    def build_chart(lake: Lake) -> Chart:
        if bundle:
            return over_time.build_bundle_chart(lake, cluster, bundle, *window)
        if broker:
            return over_time.build_broker_chart(lake, cluster, broker, *window, limit)
        return over_time.build_cluster_chart(lake, cluster, *window, limit)

    return Shown(page.ask(("chart", cluster, broker, bundle, *query.range), build_chart))


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
