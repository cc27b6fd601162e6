"""The rows of the audit that meet some conditions."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lb_stream.core.commands.responder import UNSIGNED
from lb_stream.query.lake import Row
from lb_stream.query.screens.lists import ListPage, ListRequest, load_page

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which rows are wanted: those that meet all conditions that are set.

    `by`, `kind`, `what`: a part of the sender's name or key, of the kind, and of what a command
    names. `since_ms`, `until_ms`: of the answer; from this time on, and before that one.
    """

    cluster: str | None = None
    by: str = ""
    kind: str = ""
    what: str = ""
    refused: bool = False
    since_ms: int | None = None
    until_ms: int | None = None


_WANTED = """
    SELECT * FROM audit
    WHERE ($1 IS NULL OR cluster = $1)
      AND ($2 = '' OR contains(lower(concat_ws(' ', "by", key_id)), $2))
      AND ($3 = '' OR contains(lower(kind), $3))
      AND ($4 = '' OR contains(lower(concat_ws(' ', command_id, array_to_string(objects, ' '),
                                               "right")), $4))
      AND (NOT $5 OR outcome = 'refused')
      AND ($6 IS NULL OR now_ms >= $6) AND ($7 IS NULL OR now_ms < $7)
"""
_NEWEST = {"newest": "now_ms DESC, log_seq DESC, cluster, number DESC"}


def list_audit_rows(lake: Lake, wanted: AuditFilter, page: int = 1, rows: int = 50) -> ListPage:
    """Return a page of the rows that are wanted, the newest first. `rows`: of a page."""
    parameters = [
        wanted.cluster,
        wanted.by.lower(),
        wanted.kind.lower(),
        wanted.what.lower(),
        wanted.refused,
        wanted.since_ms,
        wanted.until_ms,
    ]
    request = ListRequest(page=page, page_rows=rows)
    found = load_page(lake, _WANTED, parameters, request, "command_id", _NEWEST)
    return replace(found, rows=tuple(map(_parse_row, found.rows)))


def _parse_row(row: Row) -> Row:
    """Return a row with the JSON in it as objects, and whether its sender's name is unproven."""
    parsed = {
        name: None if row[name] is None else json.loads(row[name])
        for name in ("arguments", "old_value", "new_value")
    }
    return row | parsed | {"by_unproven": row["rule"] == UNSIGNED}
