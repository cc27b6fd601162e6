"""The range of time of a page's chart: what is shown, what can be chosen, and what to say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from lb_stream.console import address
from lb_stream.console.address import is_open
from lb_stream.console.page import Page
from lb_stream.console.queries import SpanQuery
from lb_stream.contracts.keys import SettingError
from lb_stream.io.messages.times import ago, clock
from lb_stream.query.screens import over_time
from lb_stream.query.screens.limits import Limit, describe_missing_limit, find_limit

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

OLD_MS = 300_000
"""Loads older than this are not called current."""
MAX_BUNDLES = 10_000
"""The history of more bundles takes a second of CPU time to read."""


@dataclass(frozen=True, slots=True)
class ShownRange:
    """The range of time of a chart, ms since the epoch.

    `chart`: the address of the lines; empty: the chart is shown when somebody asks for it.
    `is_chosen`: the page's address names the end. `spans`: those that can be chosen; `span`: the
    one that is shown, empty where begin and end are chosen. `note`: what readers must know; empty:
    nothing. `given`: the range as parameters of an address.
    """

    chart: str
    begin_ms: int
    end_ms: int
    span: str
    spans: tuple[str, ...]
    is_chosen: bool
    note: str
    given: Mapping[str, object]

    @property
    def begin(self) -> str:
        """Return the begin as a field of a form takes it, in this machine's zone."""
        return _format_local(self.begin_ms)

    @property
    def end(self) -> str:
        """Return the end as a field of a form takes it, in this machine's zone."""
        return _format_local(self.end_ms)


def _format_local(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}"


def find_known_times(page: Page, cluster: str) -> tuple[int, int] | None:
    """Return the times of a cluster's first and last loads; None: there are none."""
    return page.ask(
        ("known times", cluster), lambda lake: over_time.find_known_times(lake, cluster)
    )


def find_window(page: Page, cluster: str, query: SpanQuery) -> tuple[int, int]:
    """Return begin and end (ms) of the range that is asked for."""
    known = find_known_times(page, cluster)

    def find(lake: Lake) -> tuple[int, int]:
        return over_time.find_chart_window(
            lake, cluster, query.span, query.end_ms, query.begin, known
        )

    return page.ask(("window", cluster, *query.range), find)


def find_traffic_range(page: Page, cluster: str, query: SpanQuery, **about: object) -> ShownRange:
    """Return the range of a chart of many bundles' traffic, as `find_shown_range`.

    In a cluster of more than MAX_BUNDLES the chart is shown to those who ask for it.
    """
    shown = find_shown_range(page, cluster, query, **about)
    bundles = page.require_cluster_facts(cluster).bundles or 0
    if bundles <= MAX_BUNDLES or is_open(page.request, "chart"):
        return shown
    return replace(shown, chart="")


def find_shown_range(page: Page, cluster: str, query: SpanQuery, **about: object) -> ShownRange:
    """Return the range that a page shows. `about`: what its chart is of."""
    begin_ms, end_ms = find_window(page, cluster, query)
    known = find_known_times(page, cluster)
    given = {"span": query.span, "from": query.begin, "to": query.to, "end": query.end}
    return ShownRange(
        address.link(address.CHART, cluster=cluster, **about, **given),
        begin_ms,
        end_ms,
        "" if query.begin else query.span,
        over_time.list_offered_spans(known),
        query.begin is not None or query.end_ms is not None,
        _describe_loads(known, begin_ms, end_ms, page.view.facts.now_ms),
        given,
    )


def _describe_loads(known: tuple[int, int] | None, begin_ms: int, end_ms: int, read_ms: int) -> str:
    """Describe a range that has no loads, or whose loads are not current; empty: it needs none."""
    if known is None:
        return "The tables have no loads of this cluster yet."
    first_ms, last_ms = known
    if last_ms < begin_ms or end_ms < first_ms:
        return (
            f"No loads from {clock(begin_ms)} to {clock(end_ms)}: the tables have loads from "
            f"{clock(first_ms)} to {clock(last_ms)}."
        )
    if read_ms - last_ms > OLD_MS and end_ms >= last_ms:
        return f"The last loads are of {clock(last_ms)}, {ago(last_ms)}."
    return ""


def find_usage_limit(page: Page, cluster: str) -> Limit | None:
    """Return the limit of usage of the strategy in force; None: there is none."""
    state = page.find_cluster_state(cluster)
    if state is None:
        return None
    try:
        return page.ask(("limit", cluster), lambda _: find_limit(state.config))
    except SettingError:  # settings that contradict each other; status says so
        return None


def find_missing_limit(page: Page, cluster: str) -> str:
    """Say why a chart of usages shows no limit; empty: it shows one, or its strategy is unknown."""
    state = page.find_cluster_state(cluster)
    if state is None:
        return ""
    try:
        return describe_missing_limit(state.config)
    except SettingError:  # settings that contradict each other; status says so
        return ""
