"""What moves have cost clients, out of the tables: how many were disturbed, for how long, with how much traffic."""

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

_MOVES = f"""
    WITH moved AS (
        SELECT d.cluster, d.bundle, d.reason, d.kind, d.issued_ms, o.at_ms, o.took_ms,
               CAST(json_extract_string(d.explain, '$.client_seconds') AS DOUBLE) AS expected_client_s
        FROM decisions d JOIN outcomes o USING (decision_id)
        WHERE d.kind IN {MOVES} AND NOT d.dry_run AND o.outcome = 'confirmed' AND d.issued_ms >= $2 AND ($1 IS NULL OR d.cluster = $1)
    ), given AS (
        SELECT d.cluster, d.bundle, d.issued_ms, o.at_ms FROM decisions d JOIN outcomes o USING (decision_id)
        WHERE d.kind = 'assign' AND NOT d.dry_run AND o.outcome = 'confirmed' ORDER BY d.issued_ms
    ), served AS (
        SELECT moved.*, (CASE WHEN moved.kind = 'transfer' THEN moved.took_ms ELSE given.at_ms - moved.at_ms END) / 1000 AS unserved_s
        FROM moved ASOF LEFT JOIN given
        ON moved.cluster = given.cluster AND moved.bundle = given.bundle AND moved.issued_ms <= given.issued_ms
    ), carried AS (
        SELECT served.*, h.producers + h.consumers AS clients, h.throughput_in_bytes_per_s + h.throughput_out_bytes_per_s AS bytes_per_s
        FROM served ASOF LEFT JOIN bundle_history h
        ON served.cluster = h.cluster AND served.bundle = h.bundle AND served.issued_ms >= h.slot_ms
    )
"""
_BY = {
    "tenant": "string_split(bundle, '/')[1]",
    "namespace": "array_to_string(string_split(bundle, '/')[:-2], '/')",
    "bundle": "bundle",
    "reason": "reason",
    "total": "''",
}
_EACH = {"day": "strftime(epoch_ms(issued_ms), '%Y-%m-%d')", "week": "strftime(epoch_ms(issued_ms), '%G-W%V')", "total": "''"}


_ASSIGNED = """
    SELECT o.at_ms FROM decisions d JOIN outcomes o USING (decision_id)
    WHERE d.cluster = $1 AND d.bundle = $2 AND d.issued_ms >= $3 AND d.kind = 'assign' AND NOT d.dry_run AND o.outcome = 'confirmed'
    ORDER BY d.issued_ms LIMIT 1
"""
_CARRIED = """
    SELECT producers + consumers AS clients, throughput_in_bytes_per_s + throughput_out_bytes_per_s AS bytes_per_s
    FROM bundle_history WHERE cluster = $1 AND bundle = $2 AND slot_ms <= $3 ORDER BY slot_ms DESC LIMIT 1
"""


def move_cost(lake: Lake, decision: Mapping[str, Any]) -> dict[str, Any] | None:
    """What one confirmed move (a row of `decisions` with its outcome) has cost: figures as in `move_costs`. None: it was none.

    `unserved_s` is None while nobody serves the bundle; `clients`, `client_s` and `bytes_per_s` where history doesn't tell.
    """
    if decision["kind"] not in MOVES or decision["dry_run"] or decision["outcome"] != "confirmed":
        return None
    asked = [decision["cluster"], decision["bundle"], decision["issued_ms"]]
    unserved_s = decision["took_ms"] / 1000
    if decision["kind"] != "transfer":
        given = records(run(lake, _ASSIGNED, asked))
        unserved_s = (given[0]["at_ms"] - decision["at_ms"]) / 1000 if given else None
    carried = next(iter(records(run(lake, _CARRIED, asked))), {"clients": None, "bytes_per_s": None})
    client_s = None if carried["clients"] is None or unserved_s is None else carried["clients"] * unserved_s
    return {"unserved_s": unserved_s, "clients": carried["clients"], "client_s": client_s, "bytes_per_s": carried["bytes_per_s"]}


def move_costs(lake: Lake, cluster: str | None, since_ms: int, by: By, each: Each) -> list[dict[str, Any]]:
    """Rows by cluster, span of time (UTC) and whose: confirmed moves and what they cost, the dearest first within a span.

    `unserved_s`: how long nobody served the bundles, from the report without to the report with them, summed. `clients`: producers and
    consumers of the moved bundles, each time they moved; `client_s`: each of them times its bundle's seconds; `bytes_per_s`: traffic of
    the moved bundles. These three are of the moves of which history tells (`known`), null where it tells of none.
    """
    query = f"{summed(by, each)} ORDER BY cluster, span, client_s DESC NULLS LAST, moves DESC, whose"
    return records(run(lake, query, [cluster, since_ms]))


def summed(by: str, each: str) -> str:
    """The query of `move_costs`, in no order; $1: the cluster or null, $2: only moves since then."""
    return f"""{_MOVES}
        SELECT cluster, {_EACH[each]} AS span, {_BY[by]} AS whose, count(*) AS moves, sum(unserved_s) AS unserved_s,
               count(clients) AS known, sum(clients)::BIGINT AS clients, sum(clients * unserved_s) AS client_s,
               sum(bytes_per_s) AS bytes_per_s, sum(expected_client_s) AS expected_client_s
        FROM carried GROUP BY ALL"""
