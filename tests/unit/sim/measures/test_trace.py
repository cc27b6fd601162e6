"""A trace of what cannot have happened is no trace; what can have happened is followed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lb_stream.sim.measures import TraceError, measure_figures, read_trace
from tests.support.small_scenario import deaf, event, move, small_scenario
from tests.support.wordings import check_wording

Lines = list[dict[str, Any]]
SCENARIO = small_scenario([0, 0, 1])
MOVE = move(SCENARIO, 0, 0, 1, 61.0)


def changed(line: int, **keys: Any) -> Lines:
    return [one | keys if at == line else one for at, one in enumerate(MOVE)]


IMPOSSIBLE: dict[str, tuple[Lines, str]] = {
    "no time": (changed(0, t=None), "t None, expected seconds"),
    "a time that is no number": (changed(0, t=float("nan")), "t nan, expected seconds"),
    "a time before the start": (changed(0, t=-1), "time goes back to -1 s"),
    "time goes back": (changed(1, t=60.0), "at 61 s: time goes back to 60 s"),
    "after the end": (changed(3, t=601), "601 s lies behind the scenario's end, 600 s"),
    "an unknown bundle": (
        changed(0, bundle="acme/shop/0x0_0x1"),
        "bundle is 'acme/shop/0x0_0x1', expected a name",
    ),
    "an unknown broker": (changed(1, broker="b9:8080"), "broker is 'b9:8080', expected a name"),
    "an unknown source": (changed(0, source="b9:8080"), "source is 'b9:8080'"),
    "an unknown destination": (changed(0, destination="b9:8080"), "destination is 'b9:8080'"),
    "an assignment to nobody": (changed(2, destination=None), "destination is None"),
    "an unknown event": (
        changed(1, event="moved"),
        "event is 'moved', expected decision, released or acquired",
    ),
    "an unknown kind": (
        changed(0, kind="split"),
        "kind of decision m1 is 'split', expected unload or assign",
    ),
    "an id twice": (
        changed(2, id="m1"),
        "id of a decision is 'm1', expected one that no other has",
    ),
    "no id": (changed(0, id=None), "id of a decision is None"),
    "no decision": (
        MOVE[1:],
        "released with decision 'm1', expected the id of one that has had no effect yet",
    ),
    "an id that can't be one": (changed(1, decision=[]), "released with decision []"),
    "a decision twice used": (
        [*MOVE[:2], MOVE[1]],
        "expected the id of one that has had no effect yet",
    ),
    "a decision of another bundle": (
        changed(1, bundle=SCENARIO.bundles.names[1]),
        "is not what decision m1 says",
    ),
    "a decision of another broker": (changed(1, broker="b1:8080"), "is not what decision m1 says"),
    "a decision of another kind": (
        changed(1, event="acquired"),
        "acquired of acme/shop/0x00000000_0x00000001 by b0:8080 is not what",
    ),
    "a release too early": (
        changed(1, t=62.9),
        "released 1.9 s after decision m1, expected 2 s or more",
    ),
    "an acquisition too early": (
        changed(3, t=65.9),
        "acquired 2.9 s after decision m2, expected 3 s or more",
    ),
    "a release by who has it not": (
        move(SCENARIO, 0, 2, 1, 61.0),
        "b2:8080 releases acme/shop/0x00000000_0x00000001, which it does not own",
    ),
    "an acquisition of what somebody has": (
        [{**MOVE[2]}, MOVE[3]],
        "b1:8080 acquires acme/shop/0x00000000_0x00000001, which b0:8080 owns",
    ),
}


@pytest.mark.parametrize(("lines", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_cannot_have_happened_is_told_in_one_line(lines: Lines, why: str) -> None:
    with pytest.raises(TraceError) as caught:
        measure_figures(SCENARIO, lines)
    assert why in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "others",
    [
        {"faults": (deaf(0, 61.0, 62.0),)},
        {"events": (event(62.0, 0, "crash"),)},
        {"events": (event(60.0, 1, "crash"), event(64.0, 1, "up"))},
        {"events": (event(64.0, 1, "leave"), event(65.0, 1, "up"))},
    ],
)
def test_a_broker_that_is_deaf_or_down_does_nothing(others: dict[str, Any]) -> None:
    with pytest.raises(TraceError) as error:
        measure_figures(small_scenario([0, 0, 1], **others), MOVE)
    check_wording(error.value)


def test_a_header_may_stand_before_a_trace_and_ids_need_not_have_an_effect() -> None:
    lines = [{"event": "header", "format": 1, "anything": "else"}, *MOVE[:1]]
    assert measure_figures(SCENARIO, lines)["decisions"] == 1
    faults = (deaf(0, 61.0, 62.0),)
    assert measure_figures(small_scenario([0, 0, 1], faults=faults), lines)["decisions_lost"] == 1


def test_a_trace_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n\n" for line in MOVE))
    assert list(read_trace(path)) == MOVE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text('{"event": "header"}\n{"t": 1'),
        lambda path: path.write_text("[1]\n"),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.mkdir(),
        lambda path: None,
    ],
)
def test_a_file_that_is_no_trace_is_named(spoil: Callable[[Path], Any], tmp_path: Path) -> None:
    spoil(tmp_path / "trace.jsonl")
    with pytest.raises(TraceError) as error:
        list(read_trace(tmp_path / "trace.jsonl"))
    check_wording(error.value)
