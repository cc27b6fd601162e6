"""`lbctl cost`: confirmed moves, how long their bundles had no owner, and whom that disturbed."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.tables import BUNDLE_HISTORY, DECISIONS, OUTCOMES
from lb_stream.query.costs import load_move_costs
from lb_stream.query.explanations import explain_decision
from lb_stream.query.lake import open_lake
from lb_stream.store import Store
from tests.support.lbctl_runner import Result, lbctl
from tests.support.table_rows import fill
from tests.support.wordings import check_wording

NOW = time.time_ns() // 1_000_000
CARTS, ORDERS, OTHER = (
    f"{name}/0x00000000_0xffffffff" for name in ("shop/carts", "shop/orders", "pay/bills")
)


def decision(
    name: str,
    kind: str,
    bundle: str,
    ago_ms: int,
    took_ms: int,
    outcome: str = "confirmed",
    left_ms: int | None = None,
    **more: Any,
) -> tuple[Any, Any]:
    """A decision and its outcome. `left_ms`: from the decision until the bundle had no broker."""
    issued_ms = NOW - ago_ms
    one = {
        "decision_id": name,
        "cluster": "eu",
        "kind": kind,
        "bundle": bundle,
        "issued_ms": issued_ms,
    }
    one |= {"destination": "b:80", "dry_run": False, "explain": "{}", "reason": "Overloaded"} | more
    ended = {
        "decision_id": name,
        "cluster": "eu",
        "bundle": bundle,
        "outcome": outcome,
        "took_ms": took_ms,
    }
    released_ms = None if left_ms is None else issued_ms + left_ms
    return one, ended | {"at_ms": issued_ms + took_ms, "released_ms": released_ms}


@pytest.fixture
def cost(tmp_path: Path) -> Callable[..., Result]:
    """`lbctl cost` over moves that ended in all ways.

    An unload with its assignment, as they end together; two transfers, the second seen only at its
    destination; a dry run; one that expired; one of last year; a failover.
    """
    made = [
        decision("1", "unload", CARTS, 60_000, 5_000, left_ms=2_000),
        decision("2", "assign", CARTS, 57_900, 2_900, left_ms=-100),
        decision("3", "transfer", ORDERS, 50_000, 5_500, left_ms=1_500),
        decision("4", "transfer", OTHER, 40_000, 1_500, left_ms=1_500),
        decision("5", "transfer", OTHER, 30_000, 9_000, dry_run=True),
        decision("6", "transfer", OTHER, 20_000, 9_000, "expired"),
        decision("7", "transfer", OTHER, 400 * 86_400_000, 9_000, left_ms=1_000),
        decision("8", "assign", ORDERS, 10_000, 9_000, left_ms=-31_000),
    ]
    fill(tmp_path, DECISIONS, [one for one, _ in made])
    fill(tmp_path, OUTCOMES, [ended for _, ended in made])
    told = {"cluster": "eu", "throughput_in_bytes_per_s": 1e6, "throughput_out_bytes_per_s": 2e6}
    clients = [
        (CARTS, 900_000, 90, 10),
        (CARTS, 100_000, 3, 7),
        (CARTS, 1_000, 500, 500),
        (ORDERS, 100_000, 1, 1),
    ]
    rows = [
        {"bundle": b, "slot_ms": NOW - ago, "producers": p, "consumers": c} | told
        for b, ago, p, c in clients
    ]
    fill(tmp_path, BUNDLE_HISTORY, rows)
    return lambda *arguments: lbctl(
        "cost", *arguments, "--set", f"stream.tables={tmp_path}", cwd=tmp_path
    )


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_moves_are_added_up_by_whom_they_disturbed(cost: Callable[..., Result]) -> None:
    shop, pay = rows(cost("--by", "tenant", "--each", "total", "--json"))
    assert (shop["whose"], shop["moves"], shop["unserved_s"], shop["known"]) == (
        "shop",
        2,
        3.0 + 4.0,
        2,
    )
    assert (shop["clients"], shop["client_s"], shop["bytes_per_s"]) == (
        10 + 2,
        10 * 3.0 + 2 * 4.0,
        6e6,
    )
    assert (pay["whose"], pay["moves"], pay["unserved_s"], pay["known"], pay["clients"]) == (
        "pay",
        1,
        1.5,
        0,
        None,
    )


def test_one_move_s_cost_is_its_part_of_the_sums(
    cost: Callable[..., Result], tmp_path: Path
) -> None:
    with open_lake(Store.at(tmp_path)) as lake:
        found = {one: explain_decision(lake, one).cost for one in "1234568"}
        sums = {row["whose"]: row for row in load_move_costs(lake, "eu", 0, "bundle", "total")}
    assert [found[one] for one in "256"] == [
        None
    ] * 3  # a move's second half, a dry run, one that expired
    for one, bundle in (("1", CARTS), ("3", ORDERS)):
        assert found[one] == {
            name: sums[bundle][name]
            for name in ("unserved_s", "clients", "client_s", "bytes_per_s")
        }
    assert found["4"] == {"unserved_s": 1.5, "clients": None, "client_s": None, "bytes_per_s": None}
    failover = found["8"]
    assert failover is not None and (failover["unserved_s"], failover["client_s"]) == (40.0, 80.0)


def test_a_move_that_failed_cost_what_passed_until_somebody_served_its_bundle(
    cost: Callable[..., Result], tmp_path: Path
) -> None:
    made = [
        decision("9", "unload", ORDERS, 9_000, 4_000, "failed", left_ms=1_000),
        decision("10", "assign", ORDERS, 7_500, 2_500, "refused", left_ms=-500),
        decision("11", "assign", ORDERS, 4_000, 3_000, left_ms=-4_000),
    ]
    fill(tmp_path, DECISIONS, [one for one, _ in made])
    fill(tmp_path, OUTCOMES, [ended for _, ended in made])
    with open_lake(Store.at(tmp_path)) as lake:
        (orders,) = [
            row
            for row in load_move_costs(lake, "eu", 0, "bundle", "total")
            if row["whose"] == ORDERS
        ]
        assert (orders["moves"], orders["unserved_s"]) == (2, 4.0 + 7.0)
        assert explain_decision(lake, "11").cost is None


def test_explain_says_what_the_move_has_cost(cost: Callable[..., Result], tmp_path: Path) -> None:
    carts, bills = (
        lbctl("explain", one, "--set", f"stream.tables={tmp_path}", cwd=tmp_path) for one in "14"
    )
    assert carts.code == 0, carts.err
    assert (
        "real cost    3.0 s unserved, 10 clients disturbed, 30 client-seconds, 3.00 MB/s"
        in carts.out
    )
    assert "1.5 s unserved; bundle_history lacks its clients and traffic" in bills.out.replace(
        "\n", " "
    )


def test_a_bundle_that_nobody_serves_yet_is_said(
    cost: Callable[..., Result], tmp_path: Path
) -> None:
    one, ended = decision("9", "unload", ORDERS, 1_000, 500, left_ms=500, destination=None)
    fill(tmp_path, DECISIONS, [one])
    fill(tmp_path, OUTCOMES, [ended])
    told = lbctl("explain", "9", "--set", f"stream.tables={tmp_path}", cwd=tmp_path)
    said = " ".join(told.out.split())
    assert (
        told.code == 0
        and "no report has shown the bundle at a broker yet, 2 clients disturbed" in said
    )


def test_each_span_and_each_kind_of_whose_has_its_rows(cost: Callable[..., Result]) -> None:
    whole = rows(cost("--by", "total", "--each", "week", "--since", "500d", "--json"))
    assert [one["moves"] for one in whole] == [1, 3] and whole[0]["span"] < whole[1]["span"]
    assert [
        row["whose"] for row in rows(cost("--by", "namespace", "--each", "total", "--json"))
    ] == [
        "shop/carts",
        "shop/orders",
        "pay/bills",
    ]
    assert {row["whose"] for row in rows(cost("--by", "bundle", "--each", "day", "--json"))} == {
        CARTS,
        ORDERS,
        OTHER,
    }
    assert [row["whose"] for row in rows(cost("--by", "reason", "--each", "total", "--json"))] == [
        "Overloaded"
    ]


def test_people_see_a_table_and_what_history_does_not_tell(cost: Callable[..., Result]) -> None:
    told = cost("--each", "total").out
    assert "client-s" in told and "7.0 s" in told and "6.00" in told
    assert "bundle_history lacks clients and traffic of 1 of 3 moves." in told


def test_no_move_is_said_and_a_wrong_span_or_cluster_is_wrong_usage(
    cost: Callable[..., Result],
) -> None:
    quiet = cost("--since", "1s")
    assert (quiet.code, quiet.out) == (
        0,
        "",
    )
    check_wording(quiet.err)
    for arguments, told in (
        (("--since", "0d"), "expected a number and a unit"),
        (("--cluster", "tyop"), "there is no cluster tyop"),
    ):
        wrong = cost(*arguments)
        assert wrong.code == 2 and told in wrong.err
