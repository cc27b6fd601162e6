"""Find the rounds and decisions before and after one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

_ROUNDS = """
    SELECT max(seq) FILTER (WHERE seq < $2) AS previous, min(seq) FILTER (WHERE seq > $2) AS next
    FROM rounds WHERE cluster = $1 AND seq > 0
"""
_PLACE = "(seq, coalesce(TRY_CAST(string_split(decision_id, ':')[-1] AS INT), 0))"
_DECISIONS = f"""
    SELECT arg_max(decision_id, {_PLACE}) FILTER (WHERE {_PLACE} < place) AS previous,
           arg_min(decision_id, {_PLACE}) FILTER (WHERE {_PLACE} > place) AS next
    FROM decisions,
         (SELECT {_PLACE} AS place FROM decisions WHERE cluster = $1 AND decision_id = $2 LIMIT 1)
    WHERE cluster = $1
"""


def find_neighbour_rounds(lake: Lake, cluster: str, seq: int) -> Row:
    """Return the numbers of the logged rounds `previous` and `next` to one; None: there is none."""
    return records(run(lake, _ROUNDS, [cluster, seq]))[0]


def find_neighbour_decisions(lake: Lake, cluster: str, decision_id: str) -> Row:
    """Return the ids of the decisions `previous` and `next` to one; None: there is none."""
    return records(run(lake, _DECISIONS, [cluster, decision_id]))[0]
