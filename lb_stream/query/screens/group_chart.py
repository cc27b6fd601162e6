"""Build the chart of the traffic of tenants, namespaces or bundles: the five heaviest now.

`bundle_history` has the traffic of each bundle, by default once a minute while it changes. A bundle
without a row in a slot carries what its last row says, which is at most an hour old.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run
from lb_stream.query.screens import load_shares
from lb_stream.query.screens.lists import ListRequest
from lb_stream.query.screens.over_time import Chart, ChartTimes, Line

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

TOP = 5
MAX_POINTS = 60
SLOT_MS = 60_000
"""The default of stream.history_resolution_ms; with shorter steps a line would be a stair."""
MAX_ROWS = 1_000_000
"""Rows of bundle_history that a chart may need, about. A longer range would make viewers wait."""
GROUPS = {
    "tenant": "split_part(bundle, '/', 1)",
    "namespace": "regexp_replace(bundle, '/[^/]*$', '')",
    "bundle": "bundle",
}
"""What can have lines → its name, from that of a bundle."""

# A bundle adds to its group's traffic by how much each row differs from the row before.
_CHANGES = """
    SELECT name, (slot_ms // $4) * $4 AS at_ms, sum(change) AS change
    FROM (
        SELECT CASE WHEN list_contains($5, {group}) THEN {group} END AS name, slot_ms,
               traffic - lag(traffic, 1, 0) OVER (PARTITION BY bundle ORDER BY slot_ms) AS change
        FROM (
            SELECT bundle, slot_ms,
                   CASE WHEN owner IS NULL THEN 0
                        ELSE coalesce(throughput_in_bytes_per_s, 0)
                           + coalesce(throughput_out_bytes_per_s, 0) END AS traffic
            FROM bundle_history
            WHERE cluster = $1 AND slot_ms BETWEEN $2 AND $3 AND ({within})
        )
    )
    GROUP BY name, at_ms ORDER BY at_ms
"""
_CLUSTER_TRAFFIC = """
    SELECT (now_ms // $4) * $4 AS at_ms, avg(traffic) AS value
    FROM (
        SELECT now_ms, sum(latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s)
                   AS traffic
        FROM broker_loads WHERE cluster = $1 AND alive AND now_ms BETWEEN $2 AND $3
        GROUP BY seq, now_ms
    )
    GROUP BY at_ms
"""


def build_group_chart(
    lake: Lake,
    cluster: str,
    begin_ms: int,
    end_ms: int,
    by: str,
    *,
    tenant: str | None = None,
    namespace: str | None = None,
) -> Chart:
    """Build the chart of the heaviest tenants, namespaces or bundles, and of all others together.

    `by`: one of GROUPS. `tenant`, `namespace`: only bundles of these. A range that needs more than
    MAX_ROWS begins later, and the chart's note says so.
    """
    top = _list_heaviest(lake, cluster, by, tenant, namespace)
    names = [row["name"] for row in top]
    whole = namespace or tenant
    bundles = sum(row["bundles"] for row in top)
    if whole is not None:
        found = load_shares.find_group(lake, cluster, namespace=namespace, tenant=tenant)
        bundles = 0 if found is None else found["bundles"]
    allowed_ms = MAX_ROWS // max(1, bundles) * SLOT_MS
    note = ""
    if end_ms - begin_ms > allowed_ms:
        begin_ms = end_ms - allowed_ms
        note = f"Only the last {allowed_ms // SLOT_MS} min of the range: {bundles:,} bundles."

    # Others are the rest of the tenant or the namespace, or of what all brokers report.
    times = ChartTimes.load(lake, cluster, begin_ms, end_ms, MAX_POINTS, SLOT_MS)
    end = "" if by == "bundle" else "/"
    within = [f"{whole}/"] if whole is not None else [f"{name}{end}" for name in names]
    lines = _build_lines(lake, times, by, names, within)
    if whole is None:
        rows = records(run(lake, _CLUSTER_TRAFFIC, times.asked))
        total = times.fill({row["at_ms"]: row["value"] for row in rows})
        lines[None] = _subtract(total, list(lines.values()))
    if all(value is None for values in lines.values() for value in values):
        note = "The tables have no history of bundles in this range."
    shown = [Line(name, "single", lines[name]) for name in names if name in lines]
    # Sums of parts differ from the total by rounding errors: less than half a byte is nothing.
    if None in lines and any(value is not None and value >= 0.5 for value in lines[None]):
        shown.append(Line("all others", "others", lines[None]))
    return Chart(times.at_ms, tuple(shown), "bytes/s", (), times.gaps, note)


def _list_heaviest(
    lake: Lake, cluster: str, by: str, tenant: str | None, namespace: str | None
) -> Sequence[Row]:
    """Return the heaviest groups now, each with its name and its number of bundles."""
    wanted = ListRequest()
    if by != "bundle":
        return load_shares.list_groups(lake, cluster, by, wanted, tenant=tenant).rows[:TOP]
    listed = load_shares.list_bundles(lake, cluster, wanted, tenant=tenant, namespace=namespace)
    return [{"name": row["bundle"], "bundles": 1} for row in listed.rows[:TOP]]


def _build_lines(
    lake: Lake, times: ChartTimes, by: str, names: Sequence[str], within: Sequence[str]
) -> dict[str | None, tuple[float | None, ...]]:
    """Return the traffic of each name, and of all others under None."""
    if not within:
        return {}
    conditions = " OR ".join(f"starts_with(bundle, ${6 + n})" for n in range(len(within)))
    query = _CHANGES.format(group=GROUPS[by], within=conditions)
    traffic: dict[str | None, float] = defaultdict(float)
    values: dict[str | None, dict[int, float | None]] = defaultdict(dict)
    for row in records(run(lake, query, times.look_back(list(names), *within))):
        name = row["name"]
        traffic[name] = max(0.0, traffic[name] + row["change"])
        values[name][row["at_ms"]] = traffic[name]
    return {name: times.hold(known) for name, known in values.items()}


def _subtract(
    total: Sequence[float | None], parts: Sequence[Sequence[float | None]]
) -> tuple[float | None, ...]:
    """Return what is left of the total at each time, at least 0."""
    return tuple(
        None if whole is None else max(0.0, whole - sum(part[at] or 0.0 for part in parts))
        for at, whole in enumerate(total)
    )
