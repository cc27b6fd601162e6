"""Build charts of load over time: of a cluster, a broker, a bundle.

A line has a few hundred points at most, None where nothing was reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import describe_outcome

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MAX_POINTS = 180
MIN_STEP_MS = 10_000
"""With shorter steps lines would have holes, as brokers report seldom."""
HOTTEST = 5
MAX_MARKS = 300
SPANS = {"1h": 3_600_000, "15m": 900_000, "6h": 21_600_000, "24h": 86_400_000, "7d": 604_800_000}
"""Name → length in ms of the spans that can be chosen. The first one is the default."""

_USAGE = """
    SELECT (now_ms // $4) * $4 AS at_ms, max("max") AS "max", avg(mean) AS mean, avg("min") AS "min"
    FROM (
        SELECT now_ms, max(usage_ratio) AS "max", avg(usage_ratio) AS mean,
               min(usage_ratio) AS "min"
        FROM broker_loads WHERE cluster = $1 AND active AND now_ms BETWEEN $2 AND $3
        GROUP BY seq, now_ms
    )
    GROUP BY at_ms ORDER BY at_ms
"""
_HOTTEST = f"""
    SELECT broker FROM broker_loads WHERE cluster = $1 AND active AND now_ms BETWEEN $2 AND $3
    GROUP BY broker ORDER BY arg_max(usage_ratio, now_ms) DESC NULLS LAST, broker LIMIT {HOTTEST}
"""
_BROKER_USAGE = """
    SELECT broker, (now_ms // $4) * $4 AS at_ms, avg(usage_ratio) AS value
    FROM broker_loads
    WHERE cluster = $1 AND alive AND now_ms BETWEEN $2 AND $3 AND list_contains($5, broker)
    GROUP BY broker, at_ms ORDER BY at_ms
"""
_BUNDLE_TRAFFIC = """
    SELECT (slot_ms // $4) * $4 AS at_ms,
           avg(throughput_in_bytes_per_s + throughput_out_bytes_per_s) AS value
    FROM bundle_history WHERE cluster = $1 AND bundle = $5 AND slot_ms BETWEEN $2 AND $3
    GROUP BY at_ms ORDER BY at_ms
"""
_MARKS = f"""
    SELECT decision_id, issued_ms AS at_ms, kind, decisions.bundle, source, destination, dry_run,
           outcome, detail, took_ms
    FROM decisions LEFT JOIN outcomes USING (decision_id)
    WHERE decisions.cluster = $1 AND issued_ms BETWEEN $2 AND $3 AND kind IN {MOVES}
      AND ($4 IS NULL OR $4 IN (source, destination)) AND ($5 IS NULL OR decisions.bundle = $5)
    ORDER BY issued_ms DESC LIMIT {MAX_MARKS}
"""
_LAST = "SELECT max(now_ms) AS now_ms FROM rounds WHERE cluster = $1"
_FIRST = """
    SELECT min(now_ms) AS now_ms FROM broker_loads WHERE cluster = $1 AND now_ms BETWEEN $2 AND $3
"""
MIN_SPAN_MS = 60_000
"""The shortest span of a chart."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; a value for each of the chart's times.

    `kind`: max, mean, min, or single for a broker or a bundle.
    """

    name: str
    kind: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the same times (ms since the epoch). `unit`: ratio or bytes/s.

    `marks`: moves, the earliest first; `ended`: their outcome as a text.
    """

    times_ms: tuple[int, ...]
    lines: tuple[Line, ...]
    unit: str
    marks: tuple[Row, ...]

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def find_chart_window(lake: Lake, cluster: str, span: str, end_ms: int | None) -> tuple[int, int]:
    """Return begin and end (ms) of a span. `end_ms` None: it ends with the last round.

    Where the tables begin later, the span begins with them.
    """
    if end_ms is None:
        (row,) = records(run(lake, _LAST, [cluster]))
        end_ms = row["now_ms"] or 0
    begin_ms = end_ms - SPANS.get(span, SPANS["1h"])
    (first,) = records(run(lake, _FIRST, [cluster, begin_ms, end_ms]))
    if first["now_ms"] is None:
        return begin_ms, end_ms
    return max(begin_ms, min(first["now_ms"], end_ms - MIN_SPAN_MS)), end_ms


def build_cluster_chart(lake: Lake, cluster: str, begin_ms: int, end_ms: int) -> Chart:
    """Build the chart of active brokers: max, mean, min usage, and the hottest at the end."""
    step, times = _build_times(begin_ms, end_ms)
    asked = [cluster, begin_ms, end_ms]
    rows = {row["at_ms"]: row for row in records(run(lake, _USAGE, [*asked, step]))}
    lines = [
        Line(name, name, tuple(rows.get(at, {}).get(name) for at in times))
        for name in ("max", "mean", "min")
    ]
    names = [row["broker"] for row in records(run(lake, _HOTTEST, asked))]
    return Chart(
        times,
        (*lines, *_build_broker_lines(lake, asked, step, times, names)),
        "ratio",
        _load_marks(lake, asked),
    )


def build_broker_chart(lake: Lake, cluster: str, broker: str, begin_ms: int, end_ms: int) -> Chart:
    """Build the chart of a broker's usage, beside the mean of active brokers."""
    step, times = _build_times(begin_ms, end_ms)
    asked = [cluster, begin_ms, end_ms]
    rows = {row["at_ms"]: row for row in records(run(lake, _USAGE, [*asked, step]))}
    mean = Line("mean", "mean", tuple(rows.get(at, {}).get("mean") for at in times))
    return Chart(
        times,
        (mean, *_build_broker_lines(lake, asked, step, times, [broker])),
        "ratio",
        _load_marks(lake, asked, broker=broker),
    )


def build_bundle_chart(lake: Lake, cluster: str, bundle: str, begin_ms: int, end_ms: int) -> Chart:
    """Build the chart of a bundle's traffic. A slot without a row is as the slot before."""
    step, times = _build_times(begin_ms, end_ms)
    asked = [cluster, begin_ms, end_ms]
    rows = {
        row["at_ms"]: row["value"]
        for row in records(run(lake, _BUNDLE_TRAFFIC, [*asked, step, bundle]))
    }
    values: list[float | None] = []
    for at in times:
        values.append(rows.get(at, values[-1] if values else None))
    return Chart(
        times,
        (Line(bundle, "single", tuple(values)),),
        "bytes/s",
        _load_marks(lake, asked, bundle=bundle),
    )


def _build_times(begin_ms: int, end_ms: int) -> tuple[int, tuple[int, ...]]:
    step = max(MIN_STEP_MS, -(-(end_ms - begin_ms) // MAX_POINTS))
    return step, tuple(range(begin_ms // step * step, end_ms + 1, step))


def _build_broker_lines(
    lake: Lake, asked: Sequence[object], step: int, times: Sequence[int], names: list[str]
) -> list[Line]:
    found: dict[str, dict[int, float | None]] = {name: {} for name in names}
    for row in records(run(lake, _BROKER_USAGE, [*asked, step, names])):
        found[row["broker"]][row["at_ms"]] = row["value"]
    return [
        Line(name, "single", tuple(values.get(at) for at in times))
        for name, values in found.items()
    ]


def _load_marks(
    lake: Lake, asked: Sequence[object], broker: str | None = None, bundle: str | None = None
) -> tuple[Row, ...]:
    rows = reversed(records(run(lake, _MARKS, [*asked, broker, bundle])))
    return tuple(row | {"ended": describe_outcome(row)} for row in rows)
