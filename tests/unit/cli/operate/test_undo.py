"""`lbctl undo`: what it sends for what was decided and ordered, and what it says can't be taken
back."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.commands import command_union
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    COMMANDS,
    DECISIONS,
    OUTCOMES,
    OWNERSHIP,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState, WaitingCommand
from tests.support.lbctl_runner import Result
from tests.support.scripted_kafka import Broker
from tests.support.table_rows import decided, fill
from tests.support.wordings import check_wording

NOW = time.time_ns() // 1_000_000
MOVED, AGAIN, STUCK, AWAY, HOME = (
    f"t/n/0x{number}0000000_0x{number + 1}0000000" for number in range(5)
)
BEFORE = OperatorState(
    settings={"max_moves_in_flight": 7}, drained=("d:1",), pins={AWAY: NOW + 60_000}
)


def move(
    number: int, bundle: str, source: str, outcome: str | None = "confirmed", **changes: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A decision that moves a bundle, and how it ended."""
    decision_id = f"c:{number}:1"
    given = example_decision().model_dump(mode="json") | {
        "decision_id": decision_id,
        "cluster": "c",
        "seq": number,
        "kind": "transfer",
        "bundle": bundle,
        "source": source,
        "destination": "b:1",
        "dry_run": False,
        "issued_ms": NOW - 60_000 + number,
        "expires_ms": NOW,
    }
    row = decided(type(example_decision()).model_validate(given | changes))
    return row, {
        "decision_id": decision_id,
        "cluster": "c",
        "seq": number + 1,
        "outcome": outcome,
        "at_ms": NOW,
        "log_seq": number,
    }


def said(number: int, kind: str, outcome: str = "done", **arguments: Any) -> dict[str, Any]:
    """A command and its answer."""
    return {
        "id": f"cmd-{number}",
        "cluster": "c",
        "kind": kind,
        "arguments": json.dumps(arguments),
        "by": "ann",
        "at_ms": NOW - 60_000 + number,
        "outcome": outcome,
        "text": "",
        "decision_ids": [],
        "seq": number,
        "now_ms": NOW,
        "log_seq": number,
    }


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "tables"
    rounds = [
        (1, replace(Memory(), operator_state=BEFORE)),
        (
            30,
            replace(Memory(), operator_state=replace(BEFORE, paused=True, drained=("d:1", "e:1"))),
        ),
    ]
    fill(
        folder,
        ROUNDS,
        [
            {"cluster": "c", "seq": seq, "log_seq": seq, "now_ms": NOW, "memory": memory.to_json()}
            for seq, memory in rounds
        ],
    )
    moves = [
        move(2, MOVED, "a:1"),
        move(3, MOVED, "b:1", destination="c:1"),
        move(4, AGAIN, "a:1"),
        move(5, AGAIN, "b:1"),
        move(6, STUCK, "a:1", None),
        move(7, AWAY, "gone:1"),
        move(8, HOME, "a:1"),
        move(9, HOME, "e:1", "expired"),
    ]
    fill(folder, DECISIONS, [decision for decision, _ in moves])
    fill(folder, OUTCOMES, [outcome for _, outcome in moves if outcome["outcome"] is not None])
    owners = {MOVED: "c:1", AGAIN: "a:1", STUCK: "a:1", AWAY: "b:1", HOME: "b:1"}
    fill(
        folder,
        OWNERSHIP,
        [{"cluster": "c", "bundle": bundle, "owner": owner} for bundle, owner in owners.items()],
    )
    alive = [
        {"cluster": "c", "broker": broker, "alive": broker != "gone:1", "log_seq": 30}
        for broker in ("a:1", "b:1", "c:1", "gone:1")
    ]
    fill(folder, BROKER_LOADS, alive)
    return folder


@pytest.fixture
def undo(tables: Path, call: Callable[..., Result]) -> Callable[..., Result]:
    return lambda *arguments, **given: call(
        "undo", *arguments, "--set", f"stream.tables={tables}", **given
    )


def commands(tables: Path, *rows: dict[str, Any]) -> None:
    fill(tables, COMMANDS, list(rows))


def test_a_move_goes_back_and_is_pinned_there(undo: Callable[..., Result], kafka: Broker) -> None:
    result = undo("c:2:1", "--yes", answers=[("c", "done")] * 2)
    assert (result.code, kafka.sent) == (1, []), "it has been moved again since"
    assert "it has been moved again since, by c:3:1" in result.out
    result = undo("c:3:1", "--yes", "--pin", "30m", answers=[("c", "done")] * 2)
    assert result.code == 0, result.err
    (_, pin), (key, unload) = kafka.sent
    assert (pin["kind"], pin["bundles"], pin["for_ms"]) == ("pin-bundles", [MOVED], 1_800_000)
    assert (key, unload["kind"], unload["namespace"], unload["bundle"], unload["destination"]) == (
        "c",
        "unload",
        "t/n",
        MOVED.removeprefix("t/n/"),
        "b:1",
    )
    assert unload["queue"] is True, "limits on moves pace it"


def test_all_since_go_back_to_where_the_first_move_took_them_from(
    undo: Callable[..., Result], tables: Path
) -> None:
    commands(tables, said(20, "pause-cluster"))
    result = undo("--since", "10h", "--preview", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["commands"] == [{"kind": "resume-cluster"}]
    assert [(one["bundle"], one["from"], one["to"]) for one in found["moves"]] == [
        (MOVED, "c:1", "a:1"),
        (HOME, "b:1", "a:1"),
    ]
    left = dict(found["left"])
    check_wording(left[AGAIN])
    check_wording(left[STUCK])
    check_wording(left[AWAY])


@pytest.mark.parametrize(
    ("kind", "arguments", "undone_by"),
    [
        ("resume-cluster", {}, []),
        ("pause-cluster", {}, [{"kind": "resume-cluster"}]),
        ("drain-broker", {"broker": "e:1"}, [{"kind": "undrain-broker", "broker": "e:1"}]),
        ("drain-broker", {"broker": "d:1"}, []),
        ("undrain-broker", {"broker": "d:1"}, [{"kind": "drain-broker", "broker": "d:1"}]),
        ("dry-run", {"on": False}, [{"kind": "delete-config", "key": "dry_run"}]),
        (
            "set-config",
            {"values": {"max_moves_in_flight": 9, "min_dwell_ms": 5}},
            [
                {"kind": "set-config", "values": {"max_moves_in_flight": 7}},
                {"kind": "delete-config", "key": "min_dwell_ms"},
            ],
        ),
        (
            "delete-config",
            {"key": "max_moves_in_flight"},
            [{"kind": "set-config", "values": {"max_moves_in_flight": 7}}],
        ),
        (
            "set-policies",
            {
                "isolation": [{"name": "p", "namespaces": ["t/.*"], "primary": ["a.*"]}],
                "anti_affinity": {"t/n": "g"},
            },
            [{"kind": "set-policies", "remove_isolation": ["p"], "anti_affinity": {"t/n": None}}],
        ),
        (
            "pin-bundles",
            {"bundles": [AWAY, HOME], "for_ms": 5},
            [
                {"kind": "pin-bundles", "bundles": [HOME], "for_ms": 0},
                {"kind": "pin-bundles", "bundles": [AWAY], "for_ms": 60_000},
            ],
        ),
    ],
)
def test_what_a_command_has_laid_down_is_what_it_was_before(
    undo: Callable[..., Result],
    tables: Path,
    kind: str,
    arguments: dict[str, Any],
    undone_by: list[dict[str, Any]],
) -> None:
    commands(tables, said(20, kind, **arguments))
    result = undo("cmd-20", "--preview", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["commands"] == undone_by
    assert bool(found["left"]) == (not undone_by)
    for command in undone_by:
        command_union().model_validate({"id": "x", **command})


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            said(20, "split", namespace="t/n"),
            "a split can't be taken back: lbctl namespaces merge ",
        ),
        (said(20, "pause-cluster", "refused"), "it was refused: nothing has changed"),
        (
            said(20, "set-policies", digest="x", characters=20_000),
            "20000 characters, were too long to be kept",
        ),
        (said(1, "pause-cluster"), "resume-cluster"),
    ],
)
def test_what_cannot_be_taken_back_is_said(
    undo: Callable[..., Result], tables: Path, row: dict[str, Any], why: str
) -> None:
    commands(tables, row)
    result = undo(row["id"], "--preview")
    assert result.code == 0 and why in result.out.replace("\n", " "), result.out


def test_what_upkeep_has_removed_from_the_log_cannot_be_taken_back(
    undo: Callable[..., Result], tables: Path
) -> None:
    commands(tables, said(1, "pause-cluster") | {"seq": 9})
    assert "the log no longer has the rounds before it" in undo("cmd-1", "--preview").out.replace(
        "\n", " "
    )


def test_an_order_of_moves_takes_its_moves_back(undo: Callable[..., Result], tables: Path) -> None:
    commands(tables, said(20, "unload", namespace="t/n") | {"decision_ids": ["c:3:1"]})
    found = json.loads(undo("cmd-20", "--preview", "--json").out)
    assert [(one["bundle"], one["to"]) for one in found["moves"]] == [(MOVED, "b:1")] and found[
        "commands"
    ] == []


def logged(tables: Path, seq: int, operator_state: OperatorState) -> None:
    memory = replace(Memory(), operator_state=operator_state).to_json()
    row = {"cluster": "c", "seq": seq, "log_seq": seq, "now_ms": NOW, "memory": memory}
    fill(tables, ROUNDS, [row])


def test_moves_that_wait_for_room_wait_no_more(undo: Callable[..., Result], tables: Path) -> None:
    arguments = {"namespace": "t/n", "queue": True}
    command = {"id": "cmd-20", "kind": "unload", "by": "ann", "at_ms": NOW, "arguments": arguments}
    goes_on = WaitingCommand(
        command, "", (MOVED,), ("c:3:1",), queued=(HOME, AWAY, MOVED, "t/n/unowned")
    )
    logged(tables, 31, replace(BEFORE, waiting=(goes_on,)))
    commands(tables, said(20, "unload", "accepted", **arguments))
    found = json.loads(undo("cmd-20", "--preview", "--json").out)
    back = [(one["bundle"], one["to"]) for one in found["moves"]]
    assert back == [(MOVED, "b:1")], "its decisions are not among its answers yet"
    assert {one["kind"] for one in found["commands"]} == {"unload"}
    stay = [
        (f"{one['namespace']}/{one['bundle']}", one["destination"]) for one in found["commands"]
    ]
    assert stay == [(HOME, "b:1"), (AWAY, "b:1")]
    assert found["left"] == [["t/n/unowned", "no broker has it now: its move waits on"]]


def test_a_command_that_comes_again_counts_in_its_place(
    undo: Callable[..., Result], tables: Path
) -> None:
    paused = replace(BEFORE, paused=True)
    for seq, operator_state in (
        (19, BEFORE),
        (20, paused),
        (21, BEFORE),
        (22, paused),
        (31, paused),
    ):
        logged(tables, seq, operator_state)
    pause, resume, again = ("pause-cluster", "resume-cluster", "pause-cluster")
    commands(tables, said(20, pause), said(21, resume), said(22, again))
    found = json.loads(undo("--since", "10h", "--preview", "--json").out)
    assert found["commands"] == [{"kind": "resume-cluster"}]


def test_a_namespace_that_was_made_and_deleted_again_is_not_mentioned(
    undo: Callable[..., Result], tables: Path
) -> None:
    commands(
        tables,
        said(20, "create-namespace", namespace="t/x", bundles=4),
        said(21, "delete-namespace", namespace="t/x"),
        said(22, "create-namespace", namespace="t/y"),
    )
    found = json.loads(undo("--since", "10h", "--preview", "--json").out)
    left = [what for what, _ in found["left"]]
    assert [what.partition(" ")[0] for what in left if "namespace" in what] == ["create-namespace"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "expected one of: the ID of a decision or a command, --since TIME"),
        ("c:2:1 --since 5m", "expected one of"),
        ("c:2:1 --json", "--json: expected --yes or --preview"),
        ("--since soon", "--since 'soon': expected a number and a unit"),
        ("nobody", "no decision and no command has the id nobody"),
    ],
)
def test_wrong_usage_says_what_was_expected(
    undo: Callable[..., Result], line: str, told: str
) -> None:
    result = undo(*line.split())
    assert result.code == 2 and told in result.err.replace("\n", " "), result.err


def test_more_bundles_than_may_be_pinned_go_back_without_pins_only(
    undo: Callable[..., Result], kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lb_stream.contracts.commands.MOST_PINS", 1)
    result = undo("--since", "10h", "--yes", answers=[])
    assert result.code == 2 and kafka.sent == []
    assert "--pin 0s" in result.err
    check_wording(result.err)
    result = undo("--since", "10h", "--yes", "--pin", "0s", "--timeout", "0.1", answers=[])
    assert [command["kind"] for _, command in kafka.sent] == ["unload", "unload"]


def test_nothing_is_sent_unless_it_is_confirmed(undo: Callable[..., Result], kafka: Broker) -> None:
    result = undo("c:3:1", answers=[])
    assert result.code == 1 and kafka.sent == []


def test_a_drain_ends_in_the_same_append_as_the_moves_back(
    undo: Callable[..., Result],
    tables: Path,
    kafka: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appends: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "lb_stream.io.kafka.commands.SigningProducer",
        lambda _, **given: appends.append(given) or kafka,
    )
    monkeypatch.setattr("lb_stream.cli.shared.sending._wait", lambda *_: {})
    drain, undrain = (
        said(at, f"{word}-broker", broker="d:1") for at, word in ((22, "drain"), (23, "undrain"))
    )
    commands(
        tables, said(20, "drain-broker", broker="e:1"), said(21, "pause-cluster"), drain, undrain
    )
    result = undo("--since", "10h", "--yes", answers=[])
    assert result.code == 0, result.err
    kinds = [command["kind"] for _, command in kafka.sent]
    assert kinds == ["resume-cluster", "undrain-broker", "pin-bundles", "unload", "unload"]
    assert kafka.sent[1][1]["broker"] == "e:1", "what was drained before stays so"
    (append,) = appends
    assert append["linger_ms"] > 0 and append["batch_size"] >= 100_000
