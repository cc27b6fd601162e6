"""Load one page of a long list: DuckDB counts, sorts and cuts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which part of a list is wanted: names that contain `text`, sorted by `sort`, page `page`.

    `sort` empty: the list's own order. Pages count from 1, and have `page_rows` rows at most.
    """

    text: str = ""
    sort: str = ""
    page: int = 1
    page_rows: int = PAGE_ROWS


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list. `total`: the number of rows of all pages; `sort`: the column in use."""

    rows: tuple[Row, ...]
    total: int
    page: int
    sort: str
    page_rows: int = PAGE_ROWS

    @property
    def pages(self) -> int:
        """Return the number of pages, at least 1."""
        return max(1, -(-self.total // self.page_rows))


def load_page(
    lake: Lake,
    query: str,
    parameters: Sequence[object],
    wanted: ListRequest,
    name: str,
    sorts: Mapping[str, str],
) -> ListPage:
    """Return a page of a query's rows; the last page where there are fewer.

    `name`: the column that is searched for `wanted.text`. `sorts`: column → its ORDER BY; the first
    one is the list's own order.
    """
    sort = wanted.sort if wanted.sort in sorts else next(iter(sorts))
    texts = [*parameters, wanted.text.lower()]
    found = f"FROM ({query}) WHERE ${len(texts)} = '' OR contains(lower({name}), ${len(texts)})"
    rows, page = wanted.page_rows, max(1, wanted.page)

    def load(page: int) -> list[Row]:
        # One scan gives the rows and their number.
        cut = f"ORDER BY {sorts[sort]}, {name} LIMIT {rows} OFFSET {(page - 1) * rows}"
        return records(
            run(lake, f"SELECT *, count(*) OVER () AS of_all_pages {found} {cut}", texts)
        )

    shown = load(page)
    if not shown and page > 1:  # there are fewer pages
        total = records(run(lake, f"SELECT count(*) AS n {found}", texts))[0]["n"]
        page = max(1, -(-total // rows))
        shown = load(page)
    totals = [row.pop("of_all_pages") for row in shown]
    return ListPage(tuple(shown), totals[0] if totals else 0, page, sort, rows)
