"""The figures of the console's pages, out of small tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    COMMANDS,
    DECISIONS,
    OUTCOMES,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.query.health import ClusterFacts
from lb_stream.query.lake import open_lake
from lb_stream.query.screens import brokers, feed, load_shares, over_time, search
from lb_stream.query.screens.entries import build_entry
from lb_stream.query.screens.lists import ListRequest
from lb_stream.query.screens.overview import load_overview
from lb_stream.store import Store
from tests.support.table_rows import NOW, decided, fill, load

MINUTE_MS = 60_000
TO = {"cluster": "eu", "owner": "b-1:80", "part": "eu-0", "now_ms": NOW, "topics": 2}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The cluster eu: b-1 has 3 MB/s, b-2 has 1 MB/s, b-3 is dead; two moves, one of them an hour
    and more ago; paused by an operator."""
    folder = tmp_path_factory.mktemp("screens")
    memory = Memory(operator_state=OperatorState(paused=True)).to_json()
    fill(
        folder,
        ROUNDS,
        [
            {
                "cluster": "eu",
                "seq": 2,
                "log_seq": 2,
                "now_ms": NOW,
                "inputs": '{"settings": {}}',
                "memory": memory,
            }
        ],
    )
    rows = [
        load("eu", 2, "b-1:80", 1500.0),
        load("eu", 2, "b-2:80", 500.0),
        load("eu", 2, "b-3:80", 9000.0, alive=False),
    ]
    early = [load("eu", 1, "b-1:80", 1.0) | {"now_ms": NOW - 10 * MINUTE_MS, "usage_ratio": 0.9}]
    fill(
        folder,
        BROKER_LOADS,
        early
        + [
            row | {"now_ms": NOW, "usage_ratio": 0.8 if row["broker"] == "b-2:80" else 0.5}
            for row in rows
        ],
    )
    known = (
        ("acme/a/0x0_0x1", "b-1:80", 6e5),
        ("acme/a/0x1_0x2", "b-2:80", 2e5),
        ("acme/b/0x0_0x1", "b-1:80", 1e5),
        ("shop/c/0x0_0x1", None, 1e5),
    )
    fill(
        folder,
        BUNDLE_AVERAGES,
        [
            TO
            | {
                "bundle": name,
                "owner": owner,
                "short_throughput_in_bytes_per_s": rate,
                "short_throughput_out_bytes_per_s": 0.0,
            }
            for name, owner, rate in known
        ],
    )
    issued = (NOW - 90 * MINUTE_MS, NOW - MINUTE_MS)
    made = [
        example_decision(
            decision_id=f"eu:{n}:0", cluster="eu", seq=n, issued_ms=at, bundle=known[n][0]
        )
        for n, at in enumerate(issued)
    ]
    fill(folder, DECISIONS, [decided(one) for one in made])
    fill(
        folder,
        OUTCOMES,
        [
            {
                "decision_id": "eu:0:0",
                "cluster": "eu",
                "seq": 1,
                "log_seq": 1,
                "outcome": "confirmed",
                "took_ms": 900,
            }
        ],
    )
    order = {
        "cluster": "eu",
        "id": "c-1",
        "kind": "drain-broker",
        "arguments": '{"broker": "b-1:80"}',
        "by": "ada",
        "at_ms": NOW - 5000,
    }
    fill(
        folder,
        COMMANDS,
        [
            order | {"outcome": outcome, "log_seq": n, "text": outcome}
            for n, outcome in enumerate(("accepted", "done"))
        ],
    )
    with open_lake(Store.at(folder)) as opened:
        yield opened


def test_the_overview_takes_living_brokers_and_the_last_hour(lake: Any) -> None:
    (row,) = load_overview(lake, [ClusterFacts("eu", NOW)])
    assert (row["alive"], row["brokers"], row["moves"], row["max_over_mean"]) == (
        2,
        3,
        1,
        pytest.approx(1.5),
    )
    assert row["usage_max"] == 0.8
    (unknown,) = load_overview(lake, [ClusterFacts("us", NOW)])
    assert (unknown["alive"], unknown["max_over_mean"], unknown["moves"]) == (None, None, 0)


def test_moves_that_were_not_carried_out_are_none_of_the_last_hours(tmp_path: Path) -> None:
    outcomes = ("confirmed", "superseded", None, "refused", "expired", "failed")
    rows, ended = [], []
    for number, outcome in enumerate(outcomes):
        at = {"decision_id": f"eu:{number}:0", "cluster": "eu", "seq": number}
        rows.append(decided(example_decision(**at, issued_ms=NOW - 1_000)))
        if outcome is not None:
            ended.append(at | {"outcome": outcome, "log_seq": number})
    # the bundle of the failed move goes back to its source
    back = {"decision_id": "eu:9:0", "cluster": "eu", "seq": 9, "kind": "assign"}
    rows.append(decided(example_decision(**back, issued_ms=NOW - 500, rule="released")))
    fill(tmp_path, DECISIONS, rows)
    fill(tmp_path, OUTCOMES, ended)
    with open_lake(Store.at(tmp_path)) as lake:
        (row,) = load_overview(lake, [ClusterFacts("eu", NOW)])
    assert row["moves"] == 3


def test_brokers_come_by_heat_the_dead_ones_last_and_pages_end_where_the_list_ends(
    lake: Any,
) -> None:
    found = brokers.list_brokers(lake, "eu", ListRequest(page=9))
    assert [row["broker"] for row in found.rows] == ["b-2:80", "b-1:80", "b-3:80"]
    assert (found.page, found.pages, found.total) == (1, 1, 3)
    assert [
        row["broker"]
        for row in brokers.list_brokers(lake, "eu", ListRequest("B-1", "traffic")).rows
    ] == ["b-1:80"]
    assert brokers.list_brokers(lake, "eu", ListRequest("'; --")).total == 0
    assert brokers.find_broker(lake, "eu", "b-9:80") is None


def test_shares_are_of_what_is_shown_and_a_namespace_s_is_of_the_cluster(lake: Any) -> None:
    groups = load_shares.list_groups(lake, "eu", "namespace", ListRequest())
    assert [(row["name"], row["bundles"], row["share"]) for row in groups.rows] == [
        ("acme/a", 2, pytest.approx(0.8)),
        ("acme/b", 1, pytest.approx(0.1)),
        ("shop/c", 1, pytest.approx(0.1)),
    ]
    assert [
        row["name"]
        for row in load_shares.list_groups(lake, "eu", "tenant", ListRequest(sort="name")).rows
    ] == ["acme", "shop"]
    whole = load_shares.find_group(lake, "eu", namespace="acme/a")
    assert whole is not None and (whole["share"], whole["brokers"]) == (pytest.approx(0.8), 2)
    assert load_shares.find_group(lake, "eu", tenant="nobody") is None
    assert [
        (row["broker"], row["share"])
        for row in load_shares.list_broker_shares(lake, "eu", "acme/a")
    ] == [
        ("b-1:80", pytest.approx(6 / 7)),
        ("b-2:80", 1.0),
    ]
    assert [
        row["bundle"]
        for row in load_shares.list_bundles(lake, "eu", ListRequest(), owner="b-1:80").rows
    ] == [
        "acme/a/0x0_0x1",
        "acme/b/0x0_0x1",
    ]


def test_lines_have_a_gap_where_nothing_was_seen(lake: Any) -> None:
    begin, end = over_time.find_chart_window(lake, "eu", "15m", None)
    chart = over_time.build_cluster_chart(lake, "eu", begin, end)
    highest = next(line for line in chart.lines if line.kind == "max")
    seen = [value for value in highest.values if value is not None]
    assert end - begin == 10 * MINUTE_MS, "it begins with the first loads that there are"
    assert (seen, highest.values[-1]) == ([0.9, 0.8], 0.8)
    (gap,) = chart.gaps
    inside = {at for at in chart.times_ms if gap.begin_ms <= at < gap.end_ms}
    assert len(inside) == len(highest.values) - 2
    begin, end = over_time.find_chart_window(lake, "eu", "15m", end - 20 * MINUTE_MS)
    assert end - begin == 15 * MINUTE_MS, "where nothing is known the span is as it was asked for"
    assert [line.name for line in chart.lines if line.kind == "single"] == ["b-2:80", "b-1:80"]
    assert [mark["decision_id"] for mark in chart.marks] == ["eu:1:0"]


def test_the_feed_has_the_last_answer_of_each_command_and_goes_back_in_time(lake: Any) -> None:
    rows = feed.list_entries(lake, "eu")
    assert [(row["entry"], row["id"], row["outcome"]) for row in rows] == [
        ("command", "c-1", "done"),
        ("move", "eu:1:0", None),
        ("move", "eu:0:0", "confirmed"),
    ]
    assert (rows[0]["by"], rows[0]["arguments"]) == (
        "ada",
        {"broker": "b-1:80"},
    ) and "62.0%" in rows[1]["why"]
    assert [row["id"] for row in feed.list_entries(lake, "eu", before_ms=rows[1]["at_ms"])] == [
        "eu:0:0"
    ]
    assert [row["id"] for row in feed.list_entries(lake, "eu", kinds="commands")] == ["c-1"]
    assert [row["id"] for row in feed.list_entries(lake, "eu", kinds="moves", text="0x1_0x2")] == [
        "eu:1:0"
    ]
    assert [row["id"] for row in feed.list_pending(lake, "eu", ["eu:0:0", "eu:1:0"])] == ["eu:1:0"]


def test_search_finds_each_kind_and_nothing_for_nothing(lake: Any) -> None:
    assert {
        kind: [row["name"] for row in rows]
        for kind, rows in search.find_by_name(lake, "ACME/B").items()
    } == {
        "namespace": ["acme/b"],
        "bundle": ["acme/b/0x0_0x1"],
    }
    assert list(search.find_by_name(lake, "b-1")) == ["broker"] and list(
        search.find_by_name(lake, "eu:0:0")
    ) == ["decision"]
    assert search.find_by_name(lake, "  ") == {}


def test_an_unload_and_its_assignments_are_one_row_with_its_phases(tmp_path: Path) -> None:
    def made(seq: int, kind: str, rule: str, at_ms: int, **more: Any) -> dict[str, Any]:
        fields = {"decision_id": f"eu:{seq}:0", "cluster": "eu", "seq": seq, "issued_ms": at_ms}
        given = fields | {"kind": kind, "rule": rule, "bundle": "a/b/0x0_0x1"} | more
        return decided(example_decision(**given))

    rows = [
        made(1, "unload", "above_average", NOW, source="b-1:80", destination="b-2:80"),
        made(2, "assign", "released", NOW + 1, source=None, destination="b-2:80"),
        made(3, "assign", "repeated", NOW + 2, source=None, destination="b-3:80"),
        made(4, "assign", "unowned", NOW + 3, source=None, destination="b-4:80", reason="Unowned"),
        made(5, "unload", "above_average", NOW + 4, source="b-4:80", destination="b-2:80"),
        made(6, "assign", "released", NOW + 5, bundle="of/no/0x0_0x1", destination="b-2:80"),
    ]
    fill(tmp_path, DECISIONS, rows)
    ended = {"decision_id": "eu:2:0", "cluster": "eu", "seq": 3, "log_seq": 3, "outcome": "expired"}
    fill(tmp_path, OUTCOMES, [ended | {"detail": "no report confirmed it in time"}])
    with open_lake(Store.at(tmp_path)) as lake:
        found = feed.list_entries(lake, "eu")
        of_broker = feed.list_broker_entries(lake, "eu", "b-3:80")
        of_round = feed.list_round_entries(lake, "eu", 3)
        before = feed.list_entries(lake, "eu", before_ms=NOW + 2)
    shape = [(row["entry"], row["id"], [phase["id"] for phase in row["phases"]]) for row in found]
    move = ("move", "eu:1:0", ["eu:1:0", "eu:2:0", "eu:3:0"])
    assert shape == [
        ("decision", "eu:6:0", []),
        ("move", "eu:5:0", ["eu:5:0"]),
        ("decision", "eu:4:0", []),
        move,
    ]
    first = found[-1]
    assert [phase["state"] for phase in first["phases"]] == ["released", "expired", "pending"]
    assert (first["source"], first["destination"], first["outcome"]) == ("b-1:80", "b-3:80", None)
    assert of_broker == of_round == before == (first,)


def test_a_dry_run_repeats_a_move_in_one_row_and_leaves_room_for_other_clusters(
    tmp_path: Path,
) -> None:
    def made(cluster: str, seq: int, place: int, dry_run: bool) -> dict[str, Any]:
        name, bundle = f"{cluster}:{seq}:{place}", f"a/b/0x{place}_0x{place + 1}"
        fields = {"decision_id": name, "cluster": cluster, "seq": seq, "bundle": bundle}
        times = {"issued_ms": NOW + 1000 * seq, "expires_ms": NOW + 1000 * seq + 60_000}
        return decided(example_decision(**fields, **times, dry_run=dry_run))

    rounds = feed.WINDOW  # three rows in each: more than a page reads
    dry = [made("dry", seq, place, True) for seq in range(1, rounds + 1) for place in range(3)]
    fill(tmp_path, DECISIONS, [*dry, made("eu", 1, 0, False), made("eu", 2, 0, False)])
    with open_lake(Store.at(tmp_path)) as lake:
        found = feed.list_entries(lake, None)
        of_broker = feed.list_broker_entries(lake, "dry", dry[0]["source"])
        text = feed.list_entries(lake, None, text="0x2_0x3")
        older = feed.list_entries(lake, None, before_ms=found[2]["at_ms"])
    last = [(f"dry:{rounds}:{place}", rounds, NOW + 1000) for place in (2, 1, 0)]
    rows = [(row["id"], row["times"], row["first_ms"]) for row in found]
    live = [("eu:2:0", 1, NOW + 2000), ("eu:1:0", 1, NOW + 1000)]
    assert rows == [*last, *live]
    assert [row["id"] for row in of_broker] == [name for name, *_ in last]
    assert [(row["id"], row["times"]) for row in text] == [last[0][:2]]
    assert [row["id"] for row in older] == ["eu:2:0", "eu:1:0"], "no page repeats another one's"


def test_a_page_is_full_of_whole_moves_however_many_decisions_they_have(tmp_path: Path) -> None:
    def made(seq: int, bundle: int, kind: str) -> dict[str, Any]:
        fields = {"decision_id": f"eu:{seq}:0", "cluster": "eu", "seq": seq, "kind": kind}
        more = {"bundle": f"a/b/0x{bundle}_0x{bundle + 1}", "issued_ms": NOW + seq}
        rule = "released" if kind == "assign" else "above_average"
        return decided(example_decision(**fields, **more, rule=rule))

    moves = feed.WINDOW
    rows = [
        made(2 * number + place, number, kind)
        for number in range(moves)
        for place, kind in enumerate(("unload", "assign"))
    ]
    fill(tmp_path, DECISIONS, rows)
    with open_lake(Store.at(tmp_path)) as lake:
        pages, before_ms = [], None
        for _ in range(3):
            page = feed.list_entries(lake, "eu", before_ms=before_ms)
            before_ms = page[-1]["at_ms"]
            pages += page
        pending = feed.list_pending(lake, "eu", ["eu:7:0", "eu:6:0", "eu:9:0"], NOW + 6)
    assert [row["id"] for row in pages] == [
        f"eu:{2 * number}:0" for number in range(moves - 1, moves - 1 - 3 * feed.MAX_ENTRIES, -1)
    ]
    assert all(len(row["phases"]) == 2 for row in pages)
    assert [row["id"] for row in pending] == ["eu:6:0", "eu:8:0"], "an assignment is of its move"


def test_a_move_that_was_not_carried_out_has_its_reason_also_while_it_is_pending() -> None:
    move = decided(example_decision()) | {"outcome": None, "detail": None, "took_ms": None}
    later = {"kind": "assign", "rule": "released", "reason": "Overloaded", "outcome": "refused"}
    waits = build_entry(move, [move | later | {"detail": "41 topics, limit 40"}])
    assert waits["outcome_reason"] == "assign refused: 41 topics, limit 40"
    failed = build_entry(move | {"outcome": "failed", "detail": "b-2:80 is dead"})
    assert (failed["outcome"], failed["outcome_reason"]) == ("failed", "b-2:80 is dead")
