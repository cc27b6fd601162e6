"""What moves have cost clients, out of the tables: how many were disturbed, for how long, with how
much traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.lake import records, run

if TYPE_CHECKING:
    import duckdb

    Lake = duckdb.DuckDBPyConnection

By = Literal["tenant", "namespace", "bundle", "reason", "total"]
Each = Literal["day", "week", "total"]

_GIVEN = """
    SELECT d.cluster, d.bundle, o.released_ms, min(o.at_ms) AS at_ms
    FROM decisions d JOIN outcomes o USING (decision_id)
    WHERE d.kind = 'assign' AND NOT d.dry_run AND o.outcome = 'confirmed'
      AND o.released_ms IS NOT NULL AND ($1 IS NULL OR d.cluster = $1)
    GROUP BY ALL
"""
"""When a broker was seen to serve a released bundle: the release stands in both decisions."""
_UNSERVED = f"""
    SELECT m.*, (CASE
        WHEN given.at_ms IS NOT NULL THEN given.at_ms - m.released_ms
        WHEN m.destination IS NULL OR m.outcome NOT IN ('confirmed', 'superseded') THEN NULL
        WHEN m.at_ms > m.released_ms THEN m.at_ms - m.released_ms
        -- Nobody saw it leave before it came: it had no broker for no longer than its move took.
        WHEN m.at_ms = m.released_ms THEN m.took_ms
    END) / 1000 AS unserved_s
    FROM ended m LEFT JOIN ({_GIVEN}) AS given
    ON m.cluster = given.cluster AND m.bundle = given.bundle AND m.released_ms = given.released_ms
"""
"""How long nobody served the bundle of each row of `ended`: decisions with their outcomes."""
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
_ONE = f"""{_COSTS.format(chosen="d.decision_id = $2")}
    SELECT unserved_s, clients, clients * unserved_s AS client_s, bytes_per_s FROM carried
    WHERE kind IN {MOVES} OR (kind = 'assign' AND released_ms IS NOT NULL)
"""
_FREED = f"""
    SELECT 1 AS n
    FROM decisions d JOIN outcomes o USING (decision_id) JOIN outcomes mine USING (released_ms)
    WHERE mine.decision_id = $2 AND d.cluster = $1 AND d.bundle = mine.bundle AND d.kind IN {MOVES}
    LIMIT 1
"""
"""Whether a move has left an assignment its bundle: then the cost is that move's."""
_BY = {
    "tenant": "string_split(bundle, '/')[1]",
    "namespace": "array_to_string(string_split(bundle, '/')[:-2], '/')",
    "bundle": "bundle",
    "reason": "reason",
    "total": "''",
}
_EACH = {
    "day": "strftime(epoch_ms(issued_ms), '%Y-%m-%d')",
    "week": "strftime(epoch_ms(issued_ms), '%G-W%V')",
    "total": "''",
}


def find_move_cost(lake: Lake, decision: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a decision (a row of `decisions`) has cost clients: figures as in `move_costs`.

    Of a move whose bundle has left its source, and of an assignment whose bundle had lost its
    broker by other means, such as its death. None: it was neither. `unserved_s` is None where
    the release, or a broker that serves the bundle, isn't known; `clients`, `client_s` and
    `bytes_per_s` where history tells nothing.
    """
    asked = [decision["cluster"], decision["decision_id"]]
    if decision["kind"] == "assign" and records(run(lake, _FREED, asked)):
        return None
    return next(iter(records(run(lake, _ONE, asked))), None)


def load_move_costs(
    lake: Lake, cluster: str | None, since_ms: int, by: By, each: Each
) -> list[dict[str, Any]]:
    """Rows by cluster, span of time (UTC) and whose: moves and what they cost, the dearest first.

    Moves whose bundle left its source, wherever it came to. `unserved_s`: how long no broker
    served the bundles, summed: from the release, as acknowledged or reported, to the first report
    or acknowledgement of a broker that has them. `clients`: producers and consumers of the moved
    bundles, each time they moved; `client_s`: each of them times its bundle's seconds;
    `bytes_per_s`: traffic of the moved bundles. These three are of the moves of which history
    tells (`known`), null where it tells of none.
    """
    query = f"{build_cost_query(by, each)} ORDER BY cluster, span, client_s DESC NULLS LAST, moves DESC, whose"
    return records(run(lake, query, [cluster, since_ms]))


def build_cost_query(by: str, each: str) -> str:
    """The query of `move_costs`, in no order; $1: the cluster or null, $2: only moves since
    then."""
    return f"""{_MOVES}
        SELECT cluster, {_EACH[each]} AS span, {_BY[by]} AS whose, count(*) AS moves, sum(unserved_s) AS unserved_s,
               count(clients) AS known, sum(clients)::BIGINT AS clients, sum(clients * unserved_s) AS client_s,
               sum(bytes_per_s) AS bytes_per_s, sum(expected_client_s) AS expected_client_s
        FROM carried GROUP BY ALL"""
