"""Whatever is done to rows of the audit, an anchor of its last row shows it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.audit import hash_row
from lb_stream.contracts.tables import AUDIT
from lb_stream.query.past.audit import Anchor, verify_audit
from tests.support.audit_chain import audit_rows, lake_of

COUNT = 12
ROWS = audit_rows(COUNT)
TEXTS = [
    name
    for name in AUDIT.schema.names
    if name not in ("cluster", "objects", "decision_ids", "repeated")
    and AUDIT.schema.field(name).type == "string"
]
Edit = tuple[str, int, int, str]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(("change", "rehash", "remove", "repeat", "swap", "cut", "number")),
        st.integers(0, COUNT - 1),
        st.integers(0, COUNT - 1),
        st.sampled_from(TEXTS),
    ),
    min_size=1,
    max_size=4,
)


def apply(rows: list[dict[str, Any]], edit: Edit) -> list[dict[str, Any]]:
    """Rows after an edit; a place beyond the last row is the last one."""
    kind, at, to, column = edit
    if not rows:
        return rows
    at, to = min(at, len(rows) - 1), min(to, len(rows) - 1)
    row = rows[at]
    if kind == "remove":
        return [*rows[:at], *rows[at + 1 :]]
    if kind == "repeat":
        return [*rows, row]
    if kind == "cut":
        return rows[:at]
    if kind == "swap":
        other = rows[to]
        row, other = row | {"number": other["number"]}, other | {"number": row["number"]}
        return [
            row if place == at else other if place == to else kept
            for place, kept in enumerate(rows)
        ]
    row = row | ({"number": to + 1} if kind == "number" else {column: rows[to][column]})
    if kind == "rehash":
        row |= {"hash": hash_row(row, row["previous_hash"] or "")}
    return [*rows[:at], row, *rows[at + 1 :]]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@given(EDITS)
def test_an_edit_that_changes_anything_is_found(edits: list[Edit]) -> None:
    rows = ROWS
    for edit in edits:
        rows = apply(rows, edit)
    last = ROWS[-1]
    (report,) = verify_audit(lake_of(rows), [Anchor("eu-1", COUNT, last["hash"])])
    assert report.holds == (in_order(rows) == in_order(ROWS))
