"""Load the usage of many brokers over time: a row for each broker, a column for each slot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run
from lb_stream.query.screens.lists import ListPage, ListRequest, load_page
from lb_stream.query.screens.over_time import ChartTimes, Gap, load_marks

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MAX_COLUMNS = 60
SORTS = {
    "peak": "peak DESC NULLS LAST",
    "mean": "mean DESC NULLS LAST",
    "last": "last DESC NULLS LAST",
    "broker": "broker",
}
_BROKERS = """
    SELECT broker, max(usage_ratio) AS peak, avg(usage_ratio) AS mean,
           arg_max(usage_ratio, now_ms) AS last
    FROM broker_loads WHERE cluster = $1 AND alive AND now_ms BETWEEN $2 AND $3 GROUP BY broker
"""
_CELLS = """
    SELECT broker, (now_ms // $4) * $4 AS at_ms, max(usage_ratio) AS value
    FROM broker_loads
    WHERE cluster = $1 AND alive AND now_ms BETWEEN $2 AND $3 AND list_contains($5, broker)
    GROUP BY broker, at_ms
"""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Usage of brokers over time. `times_ms`: the begins of slots of `step_ms`.

    A row of `brokers` has `peak`, `mean` and `last` usage (ratios), and for each slot its max usage
    in `values` and the number of moves from or to it in `moves`. `gaps`: times without loads.
    """

    times_ms: tuple[int, ...]
    step_ms: int
    brokers: ListPage
    gaps: tuple[Gap, ...]


def load_heat_map(
    lake: Lake, cluster: str, begin_ms: int, end_ms: int, wanted: ListRequest
) -> HeatMap:
    """Return a page of a cluster's brokers with their usage in each slot, the hottest first."""
    times = ChartTimes.load(lake, cluster, begin_ms, end_ms, MAX_COLUMNS)
    asked = times.asked[:3]
    listed = load_page(lake, _BROKERS, asked, wanted, "broker", SORTS)
    names = [row["broker"] for row in listed.rows]
    values: dict[str, dict[int, float | None]] = {name: {} for name in names}
    for row in records(run(lake, _CELLS, [*times.asked, names])):
        values[row["broker"]][row["at_ms"]] = row["value"]
    moves = _count_moves(load_marks(lake, asked), times.step_ms)
    rows = tuple(
        row
        | {
            "values": times.fill(values[row["broker"]]),
            "moves": tuple(moves[row["broker"], at] for at in times.at_ms),
        }
        for row in listed.rows
    )
    return HeatMap(times.at_ms, times.step_ms, replace(listed, rows=rows), times.gaps)


def _count_moves(marks: tuple[Row, ...], step_ms: int) -> Counter[tuple[str, int]]:
    """Return the number of moves from or to each broker in each slot, without dry runs."""
    return Counter(
        (broker, mark["at_ms"] // step_ms * step_ms)
        for mark in marks
        if not mark["dry_run"]
        for broker in {mark["source"], mark["destination"]} - {None}
    )
