"""List what moves have cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.query.costs import build_cost_query
from lb_stream.query.screens.lists import ListPage, ListRequest, load_page

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

COST_SORTS = {
    "cost": "client_s DESC NULLS LAST, moves DESC, span DESC",
    "span": "span DESC, client_s DESC NULLS LAST, moves DESC",
    "whose": "whose, span DESC",
    "moves": "moves DESC, span DESC",
    "unserved": "unserved_s DESC NULLS LAST, span DESC",
    "clients": "clients DESC NULLS LAST, span DESC",
    "traffic": "bytes_per_s DESC NULLS LAST, span DESC",
}


def list_costs(
    lake: Lake,
    cluster: str,
    since_ms: int,
    by: str,
    each: str,
    wanted: ListRequest,
    zone: str = "UTC",
) -> ListPage:
    """Return a page of the rows of `query.costs.load_move_costs`, the dearest first.

    `zone`: in which days and weeks begin.
    """
    query = build_cost_query(by, each, zone)
    return load_page(lake, query, [cluster, since_ms], wanted, "whose", COST_SORTS)
