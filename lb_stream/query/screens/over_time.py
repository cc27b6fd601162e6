"""Build charts of load over time: of a cluster, a broker, a bundle.

A line has a few hundred points at most. Where no loads were written for long, all lines have None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.lake import Row, records, run
from lb_stream.query.past.tables import BACK_MS
from lb_stream.query.wording import describe_outcome

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake
    from lb_stream.query.screens.limits import Limit

MAX_POINTS = 180
MIN_STEP_MS = 10_000
"""With shorter steps lines would have holes, as brokers report seldom."""
HOTTEST = 5
MAX_MARKS = 300
DAY_MS = 86_400_000
SPANS = {
    "1h": 3_600_000,
    "15m": 900_000,
    "6h": 21_600_000,
    "24h": DAY_MS,
    "7d": 7 * DAY_MS,
    "30d": 30 * DAY_MS,
    "90d": 90 * DAY_MS,
}
"""Name → length in ms of the spans that can be chosen. The first one is the default."""
ALWAYS_OFFERED_MS = 7 * DAY_MS
"""Longer spans are offered where the tables go back farther than the span before."""
MIN_GAP_MS = 60_000
GAP_INTERVALS, GAP_STEPS = 5, 3
"""A gap is longer than this many usual times between loads, and than this many steps."""
MIN_INTERVALS = 3
"""With fewer times between loads none is usual."""
NEAR_MS = 60_000
"""The first and the last loads are looked for this near to the first and the last round."""
MAX_MS = 10**15

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
_ROUNDS = "SELECT min(now_ms) AS first_ms, max(now_ms) AS last_ms FROM rounds WHERE cluster = $1"
# Rows of broker_loads are many. With bounds in the text, only files within them are read.
_KNOWN = """
    SELECT min(now_ms) AS first_ms, max(now_ms) AS last_ms FROM broker_loads
    WHERE cluster = $1 AND now_ms BETWEEN {begin_ms} AND {end_ms}
"""
_SLOTS = """
    SELECT DISTINCT (now_ms // $4) * $4 AS at_ms FROM broker_loads
    WHERE cluster = $1 AND now_ms BETWEEN $2 AND $3
"""
MIN_SPAN_MS = 60_000
"""The shortest span of a chart."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; a value for each of the chart's times.

    `kind`: max, mean, min, limit, others, or single for a broker, a bundle, or a group of those.
    """

    name: str
    kind: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without loads, ms since the epoch: the job didn't run, or nothing was reported."""

    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the same times (ms since the epoch). `unit`: ratio or bytes/s.

    `marks`: moves, the earliest first; `ended`: their outcome as a text. `gaps`: times without
    loads. `note`: what readers must know; empty: nothing.
    """

    times_ms: tuple[int, ...]
    lines: tuple[Line, ...]
    unit: str
    marks: tuple[Row, ...]
    gaps: tuple[Gap, ...] = ()
    note: str = ""

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return asdict(self)


# --- the range of time ---


def find_known_times(lake: Lake, cluster: str) -> tuple[int, int] | None:
    """Return the times (ms) of the first and the last loads of brokers; None: there are none."""
    (rounds,) = records(run(lake, _ROUNDS, [cluster]))
    if rounds["last_ms"] is None:
        return None
    near_first, near_last = rounds["first_ms"] + NEAR_MS, rounds["last_ms"] - NEAR_MS
    first_ms = _find_end(lake, cluster, "first_ms", [(0, near_first), (0, MAX_MS)])
    if first_ms is None:
        return None
    last_ms = _find_end(lake, cluster, "last_ms", [(near_last, MAX_MS), (0, MAX_MS)])
    return first_ms, first_ms if last_ms is None else last_ms


def _find_end(lake: Lake, cluster: str, name: str, ranges: Sequence[tuple[int, int]]) -> int | None:
    """Return the time of the first or last loads in the first of these ranges that has some."""
    for begin_ms, end_ms in ranges:
        (row,) = records(run(lake, _KNOWN.format(begin_ms=begin_ms, end_ms=end_ms), [cluster]))
        if row[name] is not None:
            return int(row[name])
    return None


def list_offered_spans(known: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the names of the spans to choose from, the shortest first."""
    known_ms = known[1] - known[0] if known else 0
    names = sorted(SPANS, key=SPANS.__getitem__)
    lengths = [0, *(SPANS[name] for name in names)]
    return tuple(
        name
        for name, before_ms in zip(names, lengths, strict=False)
        if SPANS[name] <= ALWAYS_OFFERED_MS or before_ms < known_ms
    )


def find_chart_window(
    lake: Lake,
    cluster: str,
    span: str,
    end_ms: int | None,
    begin_ms: int | None = None,
    known: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Return begin and end (ms) of a range. `begin_ms` None: that of the span before the end.

    `end_ms` None: it ends with the last loads. A span begins with the first loads in it, a chosen
    range no earlier than the tables. `known`: the result of `find_known_times`, if it is known.
    """
    known = known or find_known_times(lake, cluster)
    if end_ms is None:
        end_ms = max(known[1] if known else 0, (begin_ms or 0) + MIN_SPAN_MS)
    if begin_ms is not None:
        begin_ms = min(begin_ms, end_ms - MIN_SPAN_MS)
        first_ms = known[0] if known and known[0] < end_ms else begin_ms
    else:
        begin_ms = end_ms - SPANS.get(span, SPANS["1h"])
        first_ms = begin_ms
        if known and begin_ms <= known[0] <= end_ms:
            first_ms = known[0]
        elif known and known[0] < begin_ms:
            ranges = [(begin_ms, min(end_ms, begin_ms + NEAR_MS)), (begin_ms, end_ms)]
            found = _find_end(lake, cluster, "first_ms", ranges)
            first_ms = begin_ms if found is None else found
    return max(begin_ms, min(first_ms, end_ms - MIN_SPAN_MS)), end_ms


# --- charts ---


def build_cluster_chart(
    lake: Lake, cluster: str, begin_ms: int, end_ms: int, limit: Limit | None = None
) -> Chart:
    """Build the chart of active brokers: max, mean, min usage, and the hottest at the end.

    `limit`: of usage, by which the cluster's strategy decides.
    """
    times = ChartTimes.load(lake, cluster, begin_ms, end_ms, query=_USAGE)
    lines = [
        Line(name, name, times.fill({row["at_ms"]: row[name] for row in times.rows}))
        for name in ("max", "mean", "min")
    ]
    asked = times.asked[:3]
    names = [row["broker"] for row in records(run(lake, _HOTTEST, asked))]
    limits = _build_limit(limit, lines[1].values)
    singles = _build_broker_lines(lake, times, names)
    marks = load_marks(lake, asked)
    return Chart(times.at_ms, (*lines, *limits, *singles), "ratio", marks, times.gaps)


def build_broker_chart(
    lake: Lake, cluster: str, broker: str, begin_ms: int, end_ms: int, limit: Limit | None = None
) -> Chart:
    """Build the chart of a broker's usage, beside the mean of active brokers and the limit."""
    times = ChartTimes.load(lake, cluster, begin_ms, end_ms, query=_USAGE)
    mean = Line("mean", "mean", times.fill({row["at_ms"]: row["mean"] for row in times.rows}))
    singles = _build_broker_lines(lake, times, [broker])
    lines = (mean, *_build_limit(limit, mean.values), *singles)
    marks = load_marks(lake, times.asked[:3], broker=broker)
    return Chart(times.at_ms, lines, "ratio", marks, times.gaps)


def build_bundle_chart(lake: Lake, cluster: str, bundle: str, begin_ms: int, end_ms: int) -> Chart:
    """Build the chart of a bundle's traffic. A slot without a row is as the slot before."""
    times = ChartTimes.load(lake, cluster, begin_ms, end_ms)
    known = {
        row["at_ms"]: row["value"]
        for row in records(run(lake, _BUNDLE_TRAFFIC, times.look_back(bundle)))
    }
    line = Line(bundle, "single", times.hold(known))
    marks = load_marks(lake, times.asked[:3], bundle=bundle)
    return Chart(times.at_ms, (line,), "bytes/s", marks, times.gaps)


@dataclass(frozen=True, slots=True)
class ChartTimes:
    """The times of a chart: the begins of slots of `step_ms`.

    `seen`: the slots in which any loads were written, `rows`: what was asked about each. `gaps`:
    long times without any.
    """

    cluster: str
    begin_ms: int
    end_ms: int
    step_ms: int
    at_ms: tuple[int, ...]
    seen: frozenset[int]
    gaps: tuple[Gap, ...]
    rows: tuple[Row, ...]

    @classmethod
    def load(
        cls,
        lake: Lake,
        cluster: str,
        begin_ms: int,
        end_ms: int,
        max_points: int = MAX_POINTS,
        min_step_ms: int = MIN_STEP_MS,
        query: str = _SLOTS,
    ) -> ChartTimes:
        """Return the times of a range, with the gaps that the tables have there.

        `query`: gives the rows, one for each slot with loads.
        """
        step_ms = max(min_step_ms, -(-(end_ms - begin_ms) // max_points))
        at_ms = tuple(range(begin_ms // step_ms * step_ms, end_ms + 1, step_ms))
        rows = tuple(records(run(lake, query, [cluster, begin_ms, end_ms, step_ms])))
        seen = frozenset(row["at_ms"] for row in rows)
        gaps = _find_gaps(sorted(seen), at_ms[0], end_ms, step_ms)
        return cls(cluster, begin_ms, end_ms, step_ms, at_ms, seen, gaps, rows)

    @property
    def asked(self) -> list[object]:
        """Return the parameters of a query for the values of each slot."""
        return [self.cluster, self.begin_ms, self.end_ms, self.step_ms]

    def look_back(self, *more: object) -> list[object]:
        """Return `asked` with an earlier begin, at which each bundle has a row."""
        return [self.cluster, self.begin_ms - BACK_MS, self.end_ms, self.step_ms, *more]

    def fill(self, values: Mapping[int, float | None]) -> tuple[float | None, ...]:
        """Return a value for each time. In a slot without any loads it is that of the slot before.

        In gaps it is None.
        """
        filled: list[float | None] = []
        for at in self.at_ms:
            before = filled[-1] if filled else None
            filled.append(values.get(at) if at in self.seen else before)
        return self._without_gaps(filled)

    def hold(self, values: Mapping[int, float | None]) -> tuple[float | None, ...]:
        """Return a value for each time. A slot without a value is as the slot before."""
        before = max((at for at in values if at < self.at_ms[0]), default=None)
        last = None if before is None else values[before]
        held: list[float | None] = []
        for at in self.at_ms:
            last = values.get(at, last)
            held.append(last)
        return self._without_gaps(held)

    def _without_gaps(self, values: Sequence[float | None]) -> tuple[float | None, ...]:
        return tuple(
            None if any(gap.begin_ms <= at < gap.end_ms for gap in self.gaps) else value
            for at, value in zip(self.at_ms, values, strict=True)
        )


def _find_gaps(seen: Sequence[int], begin_ms: int, end_ms: int, step_ms: int) -> tuple[Gap, ...]:
    """Return the long times between slots with loads, and before the first and after the last."""
    if not seen:
        return (Gap(begin_ms, end_ms + 1),)
    between = [later - earlier for earlier, later in pairwise(seen)]
    usual_ms = median(between) if len(between) >= MIN_INTERVALS else step_ms
    least_ms = max(MIN_GAP_MS, GAP_INTERVALS * usual_ms, GAP_STEPS * step_ms)
    ends = [*pairwise(seen), (seen[-1], end_ms)]
    gaps = [Gap(at + step_ms, later) for at, later in ends if later - at > least_ms]
    if seen[0] - begin_ms > least_ms:
        gaps.insert(0, Gap(begin_ms, seen[0]))
    return tuple(gaps)


def _build_broker_lines(lake: Lake, times: ChartTimes, names: list[str]) -> list[Line]:
    found: dict[str, dict[int, float | None]] = {name: {} for name in names}
    for row in records(run(lake, _BROKER_USAGE, [*times.asked, names])):
        found[row["broker"]][row["at_ms"]] = row["value"]
    return [Line(name, "single", times.fill(values)) for name, values in found.items()]


def _build_limit(limit: Limit | None, mean: Sequence[float | None]) -> list[Line]:
    """Return the line of a limit, beside the line of the mean."""
    if limit is None:
        return []
    return [Line(limit.name, "limit", tuple(limit.at_mean(value) for value in mean))]


def load_marks(
    lake: Lake, asked: Sequence[object], broker: str | None = None, bundle: str | None = None
) -> tuple[Row, ...]:
    """Return the moves of a range, at most the last MAX_MARKS, the earliest first.

    `asked`: cluster, begin and end.
    """
    rows = reversed(records(run(lake, _MARKS, [*asked, broker, bundle])))
    return tuple(row | {"ended": describe_outcome(row)} for row in rows)
