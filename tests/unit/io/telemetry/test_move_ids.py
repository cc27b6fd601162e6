"""The move that decisions and outcomes belong to, from a round's row of the log."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.model.memory import Memory, MoveInProgress
from lb_stream.io.telemetry.move_ids import find_move_ids

MOVE = MoveInProgress("eu:4:1", "unload", "b1", "b2", 0, 1_500, 60_000)
UNDER_WAY = Memory(seq=5, moves={"t/n/0": MOVE}).to_json()
SETTLED = Memory(seq=6).to_json()


def decision(decision_id: str, kind: str, bundle: str = "t/n/0") -> dict[str, Any]:
    return {"decision_id": decision_id, "kind": kind, "bundle": bundle}


def outcome(decision_id: str, bundle: str = "t/n/0") -> dict[str, Any]:
    return {"decision_id": decision_id, "bundle": bundle}


def test_an_assignment_belongs_to_the_move_that_its_bundle_is_on() -> None:
    found = find_move_ids(
        UNDER_WAY,
        [decision("eu:5:0", "assign"), decision("eu:5:1", "assign", "t/n/9")],
    )
    assert found == {"eu:5:0": "eu:4:1", "eu:5:1": "eu:5:1"}


def test_any_other_decision_begins_a_trace_of_its_own() -> None:
    kinds = ("unload", "transfer", "split", "merge")
    decisions = [decision(f"eu:5:{at}", kind) for at, kind in enumerate(kinds)]
    assert find_move_ids(UNDER_WAY, decisions) == {
        entry["decision_id"]: entry["decision_id"] for entry in decisions
    }


def test_a_move_and_its_assignment_that_end_together_are_one_trace() -> None:
    outcomes = [outcome("eu:10:0"), outcome("eu:9:12"), outcome("eu:10:1", "t/n/9")]
    assert find_move_ids(SETTLED, [], outcomes) == {
        "eu:10:0": "eu:9:12",
        "eu:9:12": "eu:9:12",
        "eu:10:1": "eu:10:1",
    }


def test_an_assignment_that_expires_while_the_move_goes_on_belongs_to_it() -> None:
    assert find_move_ids(UNDER_WAY, [], [outcome("eu:5:0")]) == {"eu:5:0": "eu:4:1"}


def test_a_forgotten_cluster_has_no_memory_and_each_outcome_its_own_trace() -> None:
    assert find_move_ids("", [], [outcome("eu:5:0")]) == {"eu:5:0": "eu:5:0"}


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["assign", "unload"]), st.integers(0, 3)),
        max_size=8,
    )
)
def test_every_decision_and_outcome_has_a_move(entries: list[tuple[int, str, int]]) -> None:
    decisions = [
        decision(f"eu:7:{at}", kind, f"t/n/{number}")
        for at, (_, kind, number) in enumerate(entries)
    ]
    outcomes = [
        outcome(f"eu:{seq}:{at}", f"t/n/{number}") for at, (seq, _, number) in enumerate(entries)
    ]
    found = find_move_ids(UNDER_WAY, decisions, outcomes)
    assert found.keys() == {entry["decision_id"] for entry in (*decisions, *outcomes)}
