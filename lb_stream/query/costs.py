"""Reads the cost of moves to clients from the tables: clients, seconds unserved, throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.lake import Row, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

By = Literal["tenant", "namespace", "bundle", "reason", "total"]
Each = Literal["day", "week", "total"]

_GIVEN = """
    SELECT d.cluster, d.bundle, o.released_ms, min(o.at_ms) AS at_ms
    FROM decisions d JOIN outcomes o USING (decision_id)
    WHERE d.kind = 'assign' AND NOT d.dry_run AND o.outcome = 'confirmed'
      AND o.released_ms IS NOT NULL AND ($1 IS NULL OR d.cluster = $1)
    GROUP BY ALL
"""
"""The time when a broker first served a released bundle, by the assign with the same release."""
_UNSERVED = f"""
    SELECT m.*, (CASE
        WHEN given.at_ms IS NOT NULL THEN given.at_ms - m.released_ms
        WHEN m.destination IS NULL OR m.outcome NOT IN ('confirmed', 'superseded') THEN NULL
        WHEN m.at_ms > m.released_ms THEN m.at_ms - m.released_ms
        -- No report had it without a broker: that took at most as long as the move.
        WHEN m.at_ms = m.released_ms THEN m.took_ms
    END) / 1000 AS unserved_s
    FROM ended m LEFT JOIN ({_GIVEN}) AS given
    ON m.cluster = given.cluster AND m.bundle = given.bundle AND m.released_ms = given.released_ms
"""
"""The time without a broker (s), for each row of `ended`, which is a decision with its outcome."""
_ENDED = """
    SELECT d.cluster, d.bundle, d.reason, d.kind, d.destination, d.issued_ms, o.outcome, o.at_ms,
           o.took_ms, o.released_ms,
           CAST(json_extract_string(d.explain, '$.client_seconds') AS DOUBLE) AS expected_client_s
    FROM decisions d JOIN outcomes o USING (decision_id)
    WHERE NOT d.dry_run AND (o.outcome = 'confirmed' OR o.released_ms IS NOT NULL)
      AND ($1 IS NULL OR d.cluster = $1)
"""
_CARRIED = """
    SELECT served.*, h.producers + h.consumers AS clients,
           h.throughput_in_bytes_per_s + h.throughput_out_bytes_per_s AS bytes_per_s
    FROM served ASOF LEFT JOIN bundle_history h
    ON served.cluster = h.cluster AND served.bundle = h.bundle AND served.issued_ms >= h.slot_ms
"""
_COSTS = (
    f"WITH ended AS ({_ENDED} AND {{chosen}}), served AS ({_UNSERVED}), carried AS ({_CARRIED})"
)
_MOVES = _COSTS.format(chosen=f"d.kind IN {MOVES} AND d.issued_ms >= $2")
_ONE_DECISION = f"""{_COSTS.format(chosen="d.decision_id = $2")}
    SELECT unserved_s, clients, clients * unserved_s AS client_s, bytes_per_s FROM carried
    WHERE kind IN {MOVES} OR (kind = 'assign' AND released_ms IS NOT NULL)
"""
_FREED = f"""
    SELECT 1 AS n
    FROM decisions d JOIN outcomes o USING (decision_id) JOIN outcomes mine USING (released_ms)
    WHERE mine.decision_id = $2 AND d.cluster = $1 AND d.bundle = mine.bundle AND d.kind IN {MOVES}
    LIMIT 1
"""
"""A row if a move released the bundle of an assign: then the cost is that move's."""
_BY = {
    "tenant": "string_split(bundle, '/')[1]",
    "namespace": "array_to_string(string_split(bundle, '/')[:-2], '/')",
    "bundle": "bundle",
    "reason": "reason",
    "total": "''",
}
_EACH = {
    "day": "strftime({at}, '%Y-%m-%d')",
    "week": "strftime({at}, '%G-W%V')",
    "total": "''",
}


def find_move_cost(lake: Lake, decision: Row) -> Row | None:
    """Return what a decision (a row of `decisions`) has cost clients, as `load_move_costs` does.

    A cost has a move whose bundle has left its source, and an assignment whose bundle had lost its
    broker otherwise, such as by the broker's death. None: the decision is neither. `unserved_s` is
    None where the time of the release, or of the first report with the bundle, isn't known.
    `clients`, `client_s` and `bytes_per_s` are None where bundle_history has no row.
    """
    parameters = [decision["cluster"], decision["decision_id"]]
    if decision["kind"] == "assign" and records(run(lake, _FREED, parameters)):
        return None
    return next(iter(records(run(lake, _ONE_DECISION, parameters))), None)


def load_move_costs(
    lake: Lake, cluster: str | None, since_ms: int, by: By, each: Each
) -> list[Row]:
    """Return moves and what they cost, by cluster, span of time (UTC) and `by`; the dearest first.

    Counted are moves whose bundle left its source, wherever it came to.
    - `unserved_s`: seconds without a broker, summed over the bundles: from the release to the first
      report or acknowledgement of a broker that has the bundle.
    - `clients`: producers and consumers of the moved bundles, once for each move.
    - `client_s`: clients times the seconds without a broker, summed over the moves.
    - `bytes_per_s`: traffic of the moved bundles.
    - `known`: the moves with a row in bundle_history. The three figures before are of these moves,
      null where there are none.
    """
    order = "cluster, span, client_s DESC NULLS LAST, moves DESC, whose"
    query = f"{build_cost_query(by, each)} ORDER BY {order}"
    return records(run(lake, query, [cluster, since_ms]))


def build_cost_query(by: str, each: str, zone: str = "UTC") -> str:
    """Return the query of `load_move_costs`, without an order.

    Its $1: the cluster, or null for all. $2: the time (ms) from which on moves count. `zone`: in
    which days and weeks begin, as `io.messages.times.local_zone` gives it.
    """
    span = _EACH[each].format(at=_in_zone("issued_ms", zone))
    return f"""{_MOVES}
        SELECT cluster, {span} AS span, {_BY[by]} AS whose, count(*) AS moves,
               sum(unserved_s) AS unserved_s, count(clients) AS known,
               sum(clients)::BIGINT AS clients, sum(clients * unserved_s) AS client_s,
               sum(bytes_per_s) AS bytes_per_s, sum(expected_client_s) AS expected_client_s
        FROM carried GROUP BY ALL"""


def _in_zone(column: str, zone: str) -> str:
    """Return a column of times (ms since the epoch) as timestamps of a zone (SQL)."""
    if zone == "UTC":
        return f"epoch_ms({column})"
    if zone[0] in "+-":
        hours, minutes = zone[1:].split(":")
        return f"epoch_ms({column} {zone[0]} {60_000 * (60 * int(hours) + int(minutes))})"
    return f"timezone('{zone}', to_timestamp({column} / 1000))"
