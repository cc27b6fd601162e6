"""The chain of the audit: what was done to rows afterwards is found, and from which row on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lb_stream.contracts.audit import hash_row
from lb_stream.query import QueryError
from lb_stream.query.past.audit import (
    Anchor,
    ChainReport,
    find_audit_heads,
    parse_anchors,
    verify_audit,
)
from lb_stream.query.screens.audit import AuditFilter, list_audit_rows
from tests.support.audit_chain import audit_rows, lake_of
from tests.support.wordings import check_wording

COUNT = 1_000
AT = 600
"""The number of the row that is tampered with."""
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return audit_rows(COUNT)


def anchor_of(row: dict[str, Any]) -> Anchor:
    return Anchor(row["cluster"], row["number"], row["hash"])


def check(rows: Rows, *anchors: Anchor) -> ChainReport:
    (report,) = verify_audit(lake_of(rows), anchors)
    return report


def found(report: ChainReport) -> list[tuple[int, str]]:
    return [(fault.number, fault.what) for fault in report.faults]


def changed(rows: Rows, **fields: Any) -> Rows:
    return [*rows[: AT - 1], rows[AT - 1] | fields, *rows[AT:]]


def rehashed(rows: Rows, **fields: Any) -> Rows:
    row = rows[AT - 1] | fields
    return changed(rows, **row | {"hash": hash_row(row, row["previous_hash"])})


def swapped(rows: Rows) -> Rows:
    """Two neighbours with each other's number."""
    first, second = rows[AT - 1], rows[AT]
    numbers = first["number"], second["number"]
    first, second = first | {"number": numbers[1]}, second | {"number": numbers[0]}
    return [*rows[: AT - 1], second, first, *rows[AT + 1 :]]


def test_a_chain_as_it_was_written_holds(rows: Rows) -> None:
    report = check(rows, anchor_of(rows[AT]), anchor_of(rows[-1]))
    assert report.holds
    assert (report.rows, report.first, report.last, report.hash) == (
        COUNT,
        1,
        COUNT,
        rows[-1]["hash"],
    )


@pytest.mark.parametrize(
    ("tamper", "wrong"),
    [
        (lambda rows: changed(rows, by="mallory"), [(AT, "changed")]),
        (lambda rows: changed(rows, objects=["broker b-9:8080"]), [(AT, "changed")]),
        (lambda rows: changed(rows, rule=""), [(AT, "changed")]),
        (lambda rows: rehashed(rows, by="mallory"), [(AT, "replaced")]),
        (lambda rows: [*rows[: AT - 1], *rows[AT:]], [(AT, "removed")]),
        (lambda rows: rows[9:], [(1, "removed")]),
        (lambda rows: [*rows, rows[AT - 1]], [(AT, "repeated")]),
        (lambda rows: rows[::-1], []),  # rows of a table have no order
    ],
    ids=[
        "a changed name",
        "another object",
        "an empty text for none",
        "a row with a new hash",
        "a removed row",
        "the begin is gone",
        "a row twice",
        "another order in the files",
    ],
)
def test_what_is_wrong_is_found_without_an_anchor(
    rows: Rows, tamper: Callable[[Rows], Rows], wrong: list[tuple[int, str]]
) -> None:
    report = check(tamper(rows))
    assert found(report) == wrong
    check_wording("; ".join(fault.text for fault in report.faults) or "nothing")


def test_rows_in_another_order_are_found(rows: Rows) -> None:
    numbers = {number for number, what in found(check(swapped(rows))) if what == "changed"}
    assert numbers == {AT, AT + 1}


def test_a_row_without_a_number_is_found(rows: Rows) -> None:
    assert (COUNT + 1, "inserted") in found(check(changed(rows, number=None)))


def test_rows_that_are_cut_off_at_the_end_are_found_by_an_anchor(rows: Rows) -> None:
    assert check(rows[: AT - 1]).holds  # it can't be seen
    report = check(rows[: AT - 1], anchor_of(rows[AT - 1]))
    assert found(report) == [(AT, "cut")]
    check_wording(report.faults[0].text)
    assert found(check(rows[:-1], anchor_of(rows[-1]))) == [(COUNT, "cut")]


def test_a_chain_that_was_written_anew_is_found_by_an_anchor(rows: Rows) -> None:
    others = audit_rows(AT - 1)
    forged: Rows = []
    for row in [*others[:9], others[9] | {"by": "mallory"}, *others[10:]]:
        previous = forged[-1]["hash"] if forged else ""
        links = {"previous_hash": previous, "hash": hash_row(row, previous)}
        forged.append(row | links)
    assert check(forged).holds  # it can't be seen
    assert found(check(forged, anchor_of(rows[99]))) == [(100, "replaced")]


def test_a_cluster_whose_rows_are_all_gone_is_found_by_an_anchor() -> None:
    rows = audit_rows(20, ("eu-1", "us-1"))
    anchors = [anchor_of(row) for row in rows[-2:]]
    left = [row for row in rows if row["cluster"] == "eu-1"]
    reports = verify_audit(lake_of(left), anchors)
    assert [(report.cluster, found(report)) for report in reports] == [
        ("eu-1", []),
        ("us-1", [(1, "cut")]),
    ]
    (only,) = verify_audit(lake_of(left), anchors, "eu-1")
    assert only.holds


def test_heads_are_the_last_rows_and_verify_reads_them() -> None:
    rows = audit_rows(21, ("eu-1", "us-1"))
    heads = find_audit_heads(lake_of(rows))
    assert [(head["cluster"], head["number"]) for head in heads] == [("eu-1", 11), ("us-1", 10)]
    text = "".join(f'{{"cluster":"{head["cluster"]}","number":1,"hash":"x"}}\n' for head in heads)
    assert parse_anchors(f"\n{text}", "file") == [
        Anchor("eu-1", 1, "x"),
        Anchor("us-1", 1, "x"),
    ]


@pytest.mark.parametrize("line", ["{", '{"cluster":"eu-1"}', '{"cluster":"a","number":"1"}'])
def test_a_wrong_line_of_anchors_is_named(line: str) -> None:
    with pytest.raises(QueryError) as error:
        parse_anchors(f"\n{line}", "anchors.jsonl")
    assert error.value.code == 2 and "anchors.jsonl, line 2" in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (AuditFilter(), ["c5", "c4", "c3", "c2", "c1", "c0"]),
        (AuditFilter(cluster="us-1"), ["c5", "c3", "c1"]),
        (AuditFilter(by="MALL"), ["c4"]),
        (AuditFilter(by="3f1c"), ["c5", "c3", "c2", "c1", "c0"]),
        (AuditFilter(kind="drain", what="B-3"), ["c3"]),
        (AuditFilter(what="drain b-2"), ["c2"]),
        (AuditFilter(refused=True), ["c4"]),
        (AuditFilter(since_ms=60_000, until_ms=180_000), ["c2", "c1"]),
        (AuditFilter(kind="undrain"), []),
    ],
)
def test_rows_are_found_by_filters(wanted: AuditFilter, ids: list[str]) -> None:
    rows = audit_rows(6, ("eu-1", "us-1"))
    rows[4] |= {"by": "mallory", "key_id": None, "outcome": "refused"}
    listed = list_audit_rows(lake_of(rows), wanted)
    assert [row["command_id"] for row in listed.rows] == ids
    second = list_audit_rows(lake_of(rows), wanted, page=2, rows=2)
    assert second.rows == (listed.rows[2:4] or listed.rows) and second.total == len(ids)
