"""What `lbctl report` shows of one cluster, out of the tables; the figures only, nothing of how
they look."""

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

MOST_POINTS = 400
"""Of each line; more rounds than that are put together, neighbours with neighbours."""
MOST_BROKERS, MOST_BUNDLES, MOST_DECISIONS = 200, 20, 200
_OVERLOADED = "overloaded_threshold_percent"
OPERATORS_REASON = "Admin"
"""The reason of what operators order: drains, unloads, deleted namespaces."""
DECISION_STATES = ("confirmed", "superseded", "refused", "expired", "failed", "pending", "dry_run")
"""How decisions end, and those that have not."""

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
    FROM {{bundles}} ORDER BY short_bytes_per_s DESC NULLS LAST, bundle LIMIT {MOST_BUNDLES}
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
    """Useless work: moves whose bundle came back within `within` rounds, and moves on cycles of a
    bundle's way from broker to broker.

    A bundle's way is the brokers that it was at, one after another, as confirmed; whatever leads it
    back to a broker where it was before is a cycle, and its moves are redundant: without them the
    bundle would be where it is. An operator's move (a drain, an unload, an undo) is no thrashing: a
    bundle's way ends before it and another one begins after it.
    """

    within: int
    moves: int  # of balancing, confirmed
    returned: tuple[Row, ...]  # bundle, broker, left_in, back_in (rounds)
    redundant: int
    cycles: tuple[Row, ...]  # bundle, brokers (the first is the last, too), moves
    operators_moves: int = 0  # confirmed, and counted nowhere else


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """One cluster's.

    Times ms since the epoch, loads bytes/s. `loads` has a list for each broker, one value for each
    of `times_ms`.
    """

    cluster: str
    rounds: Row
    times_ms: list[int]
    seqs: list[int]
    rounds_per_point: int
    longest_ms: int  # rounds that are further apart have a gap between them, which no point covers
    loads: dict[str, list[float | None]]  # of the busiest brokers
    usages: dict[str, list[float | None]]  # of the same, ratios
    limits: dict[
        str, float
    ]  # of usages: that of the last move, and the threshold of overload if the strategy has one
    brokers: int  # all of them
    max_over_mean: list[float | None]
    std_over_mean: list[float | None]
    first_last: (
        tuple[Row, Row] | None
    )  # the first and the last round's max_over_mean and std_over_mean
    decisions: list[Row]
    reasons: list[Row]
    refusals: list[Row]
    bundles: list[Row]
    thrash: Thrash
    costs: list[Row]  # of moves, by week and tenant (move_costs)
    why_no_moves: NoMoveExplanation | None  # what holds the balancing up now; None: not known

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        return asdict(self)


def list_logged_clusters(lake: Lake) -> list[str]:
    """All clusters of the log, the one with the most decisions first."""
    query = """SELECT cluster FROM (SELECT DISTINCT cluster FROM rounds)
        LEFT JOIN (SELECT cluster, count(*) AS n FROM decisions GROUP BY cluster) USING (cluster)
        ORDER BY coalesce(n, 0) DESC, cluster"""
    return [row["cluster"] for row in records(run(lake, query))]


def load_cluster_figures(
    lake: Lake, cluster: str, begin_ms: int, end_ms: int, within: int, facts: Facts
) -> ClusterFigures:
    """All figures of one cluster between two times, both included. `facts`: of the job."""
    asked = [cluster, begin_ms, end_ms]
    spread = records(run(lake, _SPREAD, asked))
    decisions = records(run(lake, _DECISIONS, asked))
    per_point = -(-len(spread) // MOST_POINTS) or 1
    longest = longest_step_ms([row["now_ms"] for row in spread])
    points = _points(spread, per_point, longest)
    loads = records(run(lake, _LOADS, [*asked, [some[0]["seq"] for some in points], MOST_BROKERS]))
    return ClusterFigures(
        cluster=cluster,
        rounds=records(run(lake, _ROUNDS, asked))[0],
        times_ms=[some[-1]["now_ms"] for some in points],
        seqs=[some[-1]["seq"] for some in points],
        rounds_per_point=per_point,
        longest_ms=longest,
        loads=_lines(loads, "bytes_per_s", len(points)),
        usages=_lines(loads, "usage_ratio", len(points)),
        limits=_limits(lake, cluster, decisions),
        brokers=records(run(lake, _BROKERS, asked))[0]["n"],
        max_over_mean=[_mean([row["max_over_mean"] for row in some]) for some in points],
        std_over_mean=[_mean([row["std_over_mean"] for row in some]) for some in points],
        first_last=(spread[0], spread[-1]) if spread else None,
        decisions=decisions,
        reasons=_reasons(decisions),
        refusals=[
            row | {"why": explain_refusal(row["rule"])}
            for row in records(run(lake, _REFUSALS, asked))
        ],
        bundles=_heaviest(lake, cluster),
        thrash=find_thrashing(decisions, within),
        costs=load_move_costs(lake, cluster, begin_ms, "tenant", "week"),
        why_no_moves=_why_not(lake, cluster, facts),
    )


def _why_not(lake: Lake, cluster: str, facts: Facts) -> NoMoveExplanation | None:
    """None where the tables have no round, or a strategy that isn't installed here."""
    with suppress(QueryError, SettingError):
        return explain_no_move(lake, facts, cluster)
    return None


def _heaviest(lake: Lake, cluster: str) -> list[Row]:
    query = _BUNDLES.format(bundles=build_loaded_bundles_query(lake, cluster))
    return records(run(lake, query, [cluster]))


def longest_step_ms(times_ms: Sequence[int]) -> int:
    """What is longer between two neighbours is a gap: five times what is usual, and a minute at
    least."""
    steps = [end - begin for begin, end in pairwise(times_ms)]
    return max(60_000, round(5 * median(steps))) if steps else 60_000


def _points(spread: list[Row], most: int, longest_ms: int) -> list[list[Row]]:
    """Rounds put together, so many at most; none with those beyond a gap."""
    points: list[list[Row]] = []
    for row in spread:
        if (
            points
            and len(points[-1]) < most
            and row["now_ms"] - points[-1][-1]["now_ms"] <= longest_ms
        ):
            points[-1].append(row)
        else:
            points.append([row])
    return points


def _limits(lake: Lake, cluster: str, decisions: list[Row]) -> dict[str, float]:
    """Usages that a strategy doesn't want exceeded, by what they are called."""
    found: dict[str, float] = {}
    parts = [
        row["limit"]
        for row in decisions
        if row["kind"] in MOVES and row["unit"] == "ratio" and row["limit"] is not None
    ]
    if parts:
        found["limit, last move"] = parts[-1]
    with suppress(
        SettingError
    ):  # of a strategy that isn't installed here, say: the past can be told without
        for standing in read_cluster_states(lake, cluster):
            config = standing.config
            percent = getattr(config.shedder_config, _OVERLOADED, None) or getattr(
                config.placement_config, _OVERLOADED, None
            )
            if percent is not None:
                found["overloaded"] = percent / 100
    return found


def _lines(loads: list[Row], column: str, points: int) -> dict[str, list[float | None]]:
    """Broker → its figure at each point, None where it had none."""
    lines: dict[str, list[float | None]] = {}
    for row in loads:
        lines.setdefault(row["broker"], [None] * points)[row["point"]] = row[column]
    return lines


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _reasons(decisions: list[Row]) -> list[Row]:
    """How many decisions of each kind, reason and rule, and how they ended."""
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
    """What balancing's confirmed moves (decisions in their order) undid of each other."""
    ways, operators_moves = _bundle_paths(decisions)
    returned: list[Row] = []
    cycles: list[Row] = []
    for bundle, steps in sorted(ways, key=lambda way: way[0]):
        for at, (left_in, source, _) in enumerate(steps):
            back_in = next(
                (seq for seq, _, destination in steps[at:] if destination == source), None
            )
            if back_in is not None and back_in - left_in <= within:
                returned.append(
                    {"bundle": bundle, "broker": source, "left_in": left_in, "back_in": back_in}
                )
        cycles += [
            {"bundle": bundle, "brokers": cycle, "moves": len(cycle) - 1}
            for cycle in _cycles(steps)
        ]
    moves = sum(len(steps) for _, steps in ways)
    redundant = sum(row["moves"] for row in cycles)
    return Thrash(within, moves, tuple(returned), redundant, tuple(cycles), operators_moves)


BundlePath = tuple[str, list[tuple[int, str, str]]]
"""A bundle, and moves of it in order: the round of the decision that began each, from, to."""


def _bundle_paths(decisions: Sequence[Row]) -> tuple[list[BundlePath], int]:
    """Each bundle's ways between operators' moves, and how many of these there were.

    Only what reports have confirmed.
    """
    ways: list[BundlePath] = []
    current: dict[str, BundlePath] = {}
    left: dict[str, Row] = {}
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
                ways.append(current[bundle])
            current[bundle][1].append((begun["seq"], begun["source"], row["destination"]))
    return ways, operators_moves


def _cycles(steps: Sequence[tuple[int, str, str]]) -> list[list[str]]:
    """The cycles on a way, each cut out as soon as it closes; what remains visits no broker
    twice."""
    found: list[list[str]] = []
    way: list[str] = []
    for _, source, destination in steps:
        if not way or way[-1] != source:
            way = [source]  # it has got elsewhere by other means
        if destination in way:
            at = way.index(destination)
            found.append([*way[at:], destination])
            way = way[: at + 1]
        else:
            way.append(destination)
    return found
