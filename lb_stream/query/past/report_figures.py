"""Load from the tables the figures that `lbctl report` shows of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.contracts.keys import SettingError
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import read_cluster_states
from lb_stream.query.costs import load_move_costs
from lb_stream.query.health import Facts
from lb_stream.query.lake import Row, build_loaded_bundles_query, records, run
from lb_stream.query.why_not import NoMoveExplanation, explain_no_move
from lb_stream.query.wording import explain_refusal

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MAX_POINTS = 400
"""Points of a line at most; neighbouring rounds are put together to keep below that."""
MAX_BROKERS, MAX_BUNDLES, MAX_DECISIONS = 200, 20, 200
_OVERLOADED = "overloaded_threshold_percent"
OPERATORS_REASON = "Admin"
"""The reason of decisions that follow from commands: drains, unloads, deleted namespaces."""
DECISION_STATES = ("confirmed", "superseded", "refused", "expired", "failed", "pending", "dry_run")
"""Outcomes of decisions, and the two states without an outcome."""

_LOADS = """
    WITH loads AS (
        SELECT seq, broker,
               latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s,
               usage_ratio
        FROM broker_loads WHERE cluster = $1 AND alive AND now_ms BETWEEN $2 AND $3
    ), points AS (
        SELECT unnest($4::BIGINT[]) AS first_seq, unnest(range(len($4::BIGINT[]))) AS point
    ), busiest AS (
        SELECT broker FROM loads GROUP BY broker
        ORDER BY max(bytes_per_s) DESC NULLS LAST, broker LIMIT $5
    )
    SELECT broker, point, round(avg(bytes_per_s), 1) AS bytes_per_s,
           round(avg(usage_ratio), 4) AS usage_ratio
    FROM (FROM loads SEMI JOIN busiest USING (broker)) AS seen
    ASOF JOIN points ON seen.seq >= points.first_seq
    GROUP BY broker, point ORDER BY broker, point
"""
_SPREAD = """
    SELECT seq, now_ms, max(bytes_per_s) / nullif(avg(bytes_per_s), 0) AS max_over_mean,
           stddev_pop(bytes_per_s) / nullif(avg(bytes_per_s), 0) AS std_over_mean
    FROM (
        SELECT seq, now_ms,
               latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s
        FROM broker_loads WHERE cluster = $1 AND active AND now_ms BETWEEN $2 AND $3
    )
    GROUP BY seq, now_ms ORDER BY seq
"""
_DECISIONS = """
    SELECT decision_id, decisions.seq, issued_ms, kind, decisions.bundle, source, destination,
           reason, rule, strategy, dry_run,
           outcome, detail, took_ms,
           CAST(json_extract_string(explain, '$.limit') AS DOUBLE) AS "limit",
           json_extract_string(explain, '$.unit') AS unit
    FROM decisions LEFT JOIN outcomes USING (decision_id)
    WHERE decisions.cluster = $1 AND issued_ms BETWEEN $2 AND $3
    ORDER BY issued_ms, decisions.seq, TRY_CAST(string_split(decision_id, ':')[-1] AS INT)
"""
_BUNDLES = f"""
    SELECT bundle, owner,
           short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s AS short_bytes_per_s,
           long_throughput_in_bytes_per_s + long_throughput_out_bytes_per_s AS long_bytes_per_s
    FROM {{bundles}} ORDER BY short_bytes_per_s DESC NULLS LAST, bundle LIMIT {MAX_BUNDLES}
"""
_REFUSALS = """
    SELECT rule, sum("count")::BIGINT AS times, count(DISTINCT broker) AS brokers,
           max(now_ms) AS last_ms
    FROM refusals WHERE cluster = $1 AND now_ms BETWEEN $2 AND $3 GROUP BY rule
    ORDER BY times DESC, rule
"""
_BROKERS = (
    "SELECT count(DISTINCT broker) AS n FROM broker_loads WHERE cluster = $1 AND now_ms "
    "BETWEEN $2 AND $3"
)
_ROUNDS = """
    SELECT count(*) AS logged, max(seq) - min(seq) + 1 AS rounds,
           count(*) FILTER (WHERE error IS NOT NULL) AS failed,
           min(now_ms) AS begin_ms, max(now_ms) AS end_ms
    FROM rounds WHERE cluster = $1 AND now_ms BETWEEN $2 AND $3
"""


@dataclass(frozen=True, slots=True)
class Thrash:
    """Moves whose bundle came back within `within` rounds, and moves on cycles of a bundle's path.

    A bundle's path is its brokers, one after another, by confirmed moves. A cycle leads it back to
    a broker where it was before. The moves of a cycle are redundant: without them the bundle would
    have the same owner. A command's move (a drain, an unload, an undo) ends a path, and another one
    begins after it.
    """

    within: int
    moves: int  # of balancing, confirmed
    returned: tuple[Row, ...]  # bundle, broker, left_in, back_in (rounds)
    redundant: int
    cycles: tuple[Row, ...]  # bundle, brokers (the first is the last, too), moves
    operators_moves: int = 0  # confirmed, and counted nowhere else


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The figures of one cluster.

    Times are ms since the epoch, loads bytes/s. `loads` and `usages` have a list for each broker,
    with a value for each of `times_ms`.
    """

    cluster: str
    rounds: Row
    times_ms: list[int]
    seqs: list[int]
    rounds_per_point: int
    longest_ms: int  # between rounds that are further apart there is a gap, without a point
    loads: dict[str, list[float | None]]  # of the busiest brokers
    usages: dict[str, list[float | None]]  # of the same brokers, ratios
    limits: dict[str, float]  # name → usage: of the last move, and the threshold of overload
    brokers: int  # the number of all brokers
    max_over_mean: list[float | None]
    std_over_mean: list[float | None]
    first_last: tuple[Row, Row] | None  # max_over_mean, std_over_mean of first and last round
    decisions: list[Row]
    reasons: list[Row]
    refusals: list[Row]
    bundles: list[Row]
    thrash: Thrash
    costs: list[Row]  # of moves, by week and tenant (load_move_costs)
    why_no_moves: NoMoveExplanation | None  # why nothing moves now; None: not known

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def list_logged_clusters(lake: Lake) -> list[str]:
    """Return all clusters of the log, the one with the most decisions first."""
    query = """SELECT cluster FROM (SELECT DISTINCT cluster FROM rounds)
        LEFT JOIN (SELECT cluster, count(*) AS n FROM decisions GROUP BY cluster) USING (cluster)
        ORDER BY coalesce(n, 0) DESC, cluster"""
    return [row["cluster"] for row in records(run(lake, query))]


def load_cluster_figures(
    lake: Lake, cluster: str, begin_ms: int, end_ms: int, within: int, facts: Facts
) -> ClusterFigures:
    """Return the figures of a cluster between two times, both included. `facts`: of the job."""
    asked = [cluster, begin_ms, end_ms]
    spread = records(run(lake, _SPREAD, asked))
    decisions = records(run(lake, _DECISIONS, asked))
    per_point = -(-len(spread) // MAX_POINTS) or 1
    longest = find_gap_ms([row["now_ms"] for row in spread])
    points = _group_rounds(spread, per_point, longest)
    loads = records(run(lake, _LOADS, [*asked, [some[0]["seq"] for some in points], MAX_BROKERS]))
    return ClusterFigures(
        cluster=cluster,
        rounds=records(run(lake, _ROUNDS, asked))[0],
        times_ms=[some[-1]["now_ms"] for some in points],
        seqs=[some[-1]["seq"] for some in points],
        rounds_per_point=per_point,
        longest_ms=longest,
        loads=_build_lines(loads, "bytes_per_s", len(points)),
        usages=_build_lines(loads, "usage_ratio", len(points)),
        limits=_find_limits(lake, cluster, decisions),
        brokers=records(run(lake, _BROKERS, asked))[0]["n"],
        max_over_mean=[_mean([row["max_over_mean"] for row in some]) for some in points],
        std_over_mean=[_mean([row["std_over_mean"] for row in some]) for some in points],
        first_last=(spread[0], spread[-1]) if spread else None,
        decisions=decisions,
        reasons=_count_reasons(decisions),
        refusals=[
            row | {"why": explain_refusal(row["rule"])}
            for row in records(run(lake, _REFUSALS, asked))
        ],
        bundles=_load_heaviest_bundles(lake, cluster),
        thrash=find_thrashing(decisions, within),
        costs=load_move_costs(lake, cluster, begin_ms, "tenant", "week"),
        why_no_moves=_explain_no_move(lake, cluster, facts),
    )


def _explain_no_move(lake: Lake, cluster: str, facts: Facts) -> NoMoveExplanation | None:
    """Return why nothing moves; None: there is no round, or its strategy isn't installed here."""
    with suppress(QueryError, SettingError):
        return explain_no_move(lake, facts, cluster)
    return None


def _load_heaviest_bundles(lake: Lake, cluster: str) -> list[Row]:
    query = _BUNDLES.format(bundles=build_loaded_bundles_query(lake, cluster))
    return records(run(lake, query, [cluster]))


def find_gap_ms(times_ms: Sequence[int]) -> int:
    """Return the distance above which two neighbouring times have a gap between them.

    It is five times the median distance, and a minute at least.
    """
    steps = [end - begin for begin, end in pairwise(times_ms)]
    return max(60_000, round(5 * median(steps))) if steps else 60_000


def _group_rounds(rounds: list[Row], size: int, longest_ms: int) -> list[list[Row]]:
    """Return neighbouring rounds in groups of at most `size`; a gap begins a new group."""
    groups: list[list[Row]] = []
    before_ms = 0
    for row in rounds:
        is_full = not groups or len(groups[-1]) == size
        if is_full or row["now_ms"] - before_ms > longest_ms:
            groups.append([])
        groups[-1].append(row)
        before_ms = row["now_ms"]
    return groups


def _find_limits(lake: Lake, cluster: str, decisions: list[Row]) -> dict[str, float]:
    """Return name → usage that a strategy wants not to be exceeded."""
    found: dict[str, float] = {}
    limits = [
        row["limit"]
        for row in decisions
        if row["kind"] in MOVES and row["unit"] == "ratio" and row["limit"] is not None
    ]
    if limits:
        found["limit, last move"] = limits[-1]
    # A strategy that isn't installed here has no settings; the report goes without its limit.
    with suppress(SettingError):
        for state in read_cluster_states(lake, cluster):
            config = state.config
            of_shedder = getattr(config.shedder_config, _OVERLOADED, None)
            percent = of_shedder or getattr(config.placement_config, _OVERLOADED, None)
            if percent is not None:
                found["overloaded"] = percent / 100
    return found


def _build_lines(loads: list[Row], column: str, points: int) -> dict[str, list[float | None]]:
    """Return broker → its figure at each point, None where it has none."""
    lines: dict[str, list[float | None]] = {}
    for row in loads:
        lines.setdefault(row["broker"], [None] * points)[row["point"]] = row[column]
    return lines


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _count_reasons(decisions: list[Row]) -> list[Row]:
    """Count decisions of each kind, reason and rule, and how they ended."""
    found: dict[tuple[str, str, str], Row] = {}
    for row in decisions:
        key = (row["kind"], row["reason"], row["rule"])
        counts = found.setdefault(key, dict.fromkeys(("decisions", *DECISION_STATES), 0))
        counts["decisions"] += 1
        counts["dry_run" if row["dry_run"] else row["outcome"] or "pending"] += 1
    return [
        {"kind": kind, "reason": reason, "rule": rule} | found[kind, reason, rule]
        for kind, reason, rule in sorted(found)
    ]


# --- thrash ---


def find_thrashing(decisions: Sequence[Row], within: int) -> Thrash:
    """Find which of balancing's confirmed moves undid others. `decisions`: in their order."""
    paths, operators_moves = _find_paths(decisions)
    returned: list[Row] = []
    cycles: list[Row] = []
    for bundle, steps in sorted(paths, key=lambda path: path[0]):
        for at, (left_in, source, _) in enumerate(steps):
            returns = (seq for seq, _, destination in steps[at:] if destination == source)
            back_in = next(returns, None)
            if back_in is not None and back_in - left_in <= within:
                returned.append(
                    {"bundle": bundle, "broker": source, "left_in": left_in, "back_in": back_in}
                )
        cycles += [
            {"bundle": bundle, "brokers": cycle, "moves": len(cycle) - 1}
            for cycle in _find_cycles(steps)
        ]
    moves = sum(len(steps) for _, steps in paths)
    redundant = sum(row["moves"] for row in cycles)
    return Thrash(within, moves, tuple(returned), redundant, tuple(cycles), operators_moves)


BundlePath = tuple[str, list[tuple[int, str, str]]]
"""A bundle and its moves in order: the round of the decision that began each, source,
destination."""


def _find_paths(decisions: Sequence[Row]) -> tuple[list[BundlePath], int]:
    """Return each bundle's paths between operators' moves, and the number of these moves.

    Only confirmed moves count.
    """
    paths: list[BundlePath] = []
    current: dict[str, BundlePath] = {}  # bundle → the path that goes on
    left: dict[str, Row] = {}  # bundle → the unload whose assignment is to come
    operators_moves = 0
    for row in decisions:
        if row["dry_run"] or row["outcome"] != "confirmed":
            continue
        if row["kind"] in ("unload", "transfer"):
            left[row["bundle"]] = row
        elif row["kind"] == "assign" and (begun := left.pop(row["bundle"], None)) is not None:
            bundle = row["bundle"]
            if begun["reason"] == OPERATORS_REASON:
                operators_moves += 1
                current.pop(bundle, None)
                continue
            if bundle not in current:
                current[bundle] = (bundle, [])
                paths.append(current[bundle])
            current[bundle][1].append((begun["seq"], begun["source"], row["destination"]))
    return paths, operators_moves


def _find_cycles(steps: Sequence[tuple[int, str, str]]) -> list[list[str]]:
    """Return the cycles of a path. A cycle is cut out as soon as it closes, before the next one."""
    found: list[list[str]] = []
    path: list[str] = []
    for _, source, destination in steps:
        if not path or path[-1] != source:
            path = [source]  # the bundle got there without a move, such as by its broker's death
        if destination in path:
            at = path.index(destination)
            found.append([*path[at:], destination])
            path = path[: at + 1]
        else:
            path.append(destination)
    return found
