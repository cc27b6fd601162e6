"""A long list, one page of it at a time: DuckDB counts, sorts and cuts, so that the page costs the
same however long the list is."""

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
    """Which part of a list: names that contain `text`, sorted by `sort` (empty: as the list would
    be), the page from 1."""

    text: str = ""
    sort: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list. `total`: rows of all pages; `sort`: the column that it is sorted by."""

    rows: tuple[Row, ...]
    total: int
    page: int
    sort: str

    @property
    def pages(self) -> int:
        """How many there are, at least one."""
        return max(1, -(-self.total // PAGE_ROWS))


def load_page(
    lake: Lake,
    query: str,
    parameters: Sequence[object],
    wanted: ListRequest,
    name: str,
    sorts: Mapping[str, str],
) -> ListPage:
    """A page of what `query` finds.

    `name`: its column that `wanted.text` is looked for in; `sorts`: column → ORDER BY, the first
    counts.

    A page behind the last one is the last one.
    """
    sort = wanted.sort if wanted.sort in sorts else next(iter(sorts))
    texts = [*parameters, wanted.text.lower()]
    found = f"FROM ({query}) WHERE ${len(texts)} = '' OR contains(lower({name}), ${len(texts)})"
    total = records(run(lake, f"SELECT count(*) AS n {found}", texts))[0]["n"]
    page = min(max(1, wanted.page), max(1, -(-total // PAGE_ROWS)))
    cut = f"ORDER BY {sorts[sort]}, {name} LIMIT {PAGE_ROWS} OFFSET {(page - 1) * PAGE_ROWS}"
    return ListPage(tuple(records(run(lake, f"SELECT * {found} {cut}", texts))), total, page, sort)
