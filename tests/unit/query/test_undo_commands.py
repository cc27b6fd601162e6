"""What takes back several commands comes to what was in force before the first of them."""

from typing import Any

import pytest

from lb_stream.contracts.namespaces import NamespaceIsolation
from lb_stream.core.commands.base import make
from lb_stream.core.model.operator_state import OperatorState, RejectedProposal
from lb_stream.query.past.undo_commands import find_cancelled, may_end_publishing, merge_commands

NOTHING = OperatorState()
NOW_MS = 1_000_000
PAUSE, RESUME = {"kind": "pause-cluster"}, {"kind": "resume-cluster"}
DRAIN, UNDRAIN = ({"kind": f"{word}-broker", "broker": "b:1"} for word in ("drain", "undrain"))


def setting(name: str, value: object) -> dict[str, object]:
    return {"kind": "set-config", "values": {name: value}}


def unset(name: str) -> dict[str, object]:
    return {"kind": "delete-config", "key": name}


def pin(*bundles: str, for_ms: int) -> dict[str, object]:
    return {"kind": "pin-bundles", "bundles": list(bundles), "for_ms": for_ms}


def policies(**fields: object) -> dict[str, object]:
    return {"kind": "set-policies", **fields}


def rejection(name: str, for_ms: int, why: str) -> dict[str, object]:
    return {"kind": "reject-proposals", "proposals": [name], "why": why, "for_ms": for_ms}


POLICY = NamespaceIsolation(name="p", namespaces=["t/.*"], primary=["a.*"]).model_dump(mode="json")
IN = {"namespace": "t/n"}
HELD = RejectedProposal("c:1:p0", "c:1:p0", "t/n/x", True, NOW_MS + 5_000, "ann", "peak")


@pytest.mark.parametrize(
    ("orders", "now", "left"),
    [
        ([PAUSE, RESUME], NOTHING, []),
        ([PAUSE, RESUME], OperatorState(paused=True), [RESUME]),
        ([DRAIN, UNDRAIN], NOTHING, []),
        ([UNDRAIN, DRAIN], OperatorState(drained=("b:1",)), []),
        ([DRAIN, UNDRAIN, RESUME], OperatorState(paused=True), [RESUME]),
        ([setting("enabled", False), unset("enabled")], NOTHING, []),
        (
            [setting("enabled", True), setting("min_brokers", 3)],
            NOTHING,
            [{"kind": "set-config", "values": {"enabled": True, "min_brokers": 3}}],
        ),
        ([pin("t/n/x", for_ms=5_000), pin("t/n/x", for_ms=0)], NOTHING, []),
        (
            [pin("t/n/x", "t/n/y", for_ms=5_000), pin("t/n/x", for_ms=0)],
            NOTHING,
            [pin("t/n/y", for_ms=5_000)],
        ),
        ([RESUME, PAUSE, RESUME], OperatorState(paused=True), [RESUME]),
        ([policies(isolation=[POLICY]), policies(remove_isolation=["p"])], NOTHING, []),
        (
            [policies(remove_isolation=["p"]), policies(isolation=[POLICY])],
            OperatorState(isolation={"p": POLICY}),
            [],
        ),
        (
            [policies(remove_isolation=["p", "q"], anti_affinity={"t/n": None})],
            OperatorState(isolation={"q": {**POLICY, "name": "q"}}, anti_affinity={"t/n": "g"}),
            [policies(remove_isolation=["q"], anti_affinity={"t/n": None})],
        ),
        ([policies(anti_affinity={"t/n": to}) for to in ("g", None)], NOTHING, []),
        (
            [policies(failure_domains={"b:1": "east", "c:1": "west"})],
            OperatorState(failure_domains={"b:1": "east"}),
            [policies(failure_domains={"c:1": "west"})],
        ),
        ([rejection("c:1:p0", 5_000, "peak"), rejection("c:1:p0", 0, "undone")], NOTHING, []),
        ([rejection("c:1:p0", 5_000, "peak")], OperatorState(rejections=(HELD,)), []),
        (
            [rejection("c:1:p0", 0, "undone"), rejection("c:1:p1", 0, "undone")],
            OperatorState(rejections=(HELD,)),
            [rejection("c:1:p0", 0, "undone")],
        ),
        (
            [setting("mode", "approve")],
            OperatorState(settings={"mode": "approve", "dry_run": True}),
            [setting("mode", "approve")],
        ),
        (
            [{"kind": "set-config", "values": {"mode": "approve", "dry_run": True}}],
            OperatorState(settings={"mode": "approve"}),
            [{"kind": "set-config", "values": {"mode": "approve", "dry_run": True}}],
        ),
    ],
)
def test_a_command_and_its_opposite_cancel_out(orders, now: OperatorState, left) -> None:
    found = merge_commands([make(**order) for order in orders], now, NOW_MS)
    assert [command.given for command in found] == left


@pytest.mark.parametrize(
    ("commands", "over"),
    [
        ([("delete-namespace", IN), ("create-namespace", IN)], {0, 1}),
        ([("create-namespace", IN), ("delete-namespace", IN)], set()),
        ([("delete-namespace", {"namespace": "t/m"}), ("create-namespace", IN)], set()),
        (
            [
                ("merge", IN | {"bundles": ["0x40000000_0x80000000", "0x00000000_0x40000000"]}),
                ("pause-cluster", {}),
                ("split", IN | {"bundle": "0x00000000_0x80000000"}),
            ],
            {0, 2},
        ),
        (
            [
                ("merge", IN | {"advised": 2}),
                ("split", IN | {"bundle": "LARGEST"}),
            ],
            set(),
        ),
    ],
)
def test_what_was_made_and_taken_away_again_needs_no_undo(
    commands: list[tuple[str, dict[str, Any]]], over: set[int]
) -> None:
    assert find_cancelled(commands) == over


def test_a_rejection_that_was_ended_is_not_laid_down_again() -> None:
    command = make(**rejection("c:1:p0", 5_000, "peak"))
    assert command.explain_lost(OperatorState(rejections=(HELD,))) is None
    assert "the rejection of c:1:p0 has ended" in str(command.explain_lost(NOTHING))


@pytest.mark.parametrize(
    ("order", "now", "ends"),
    [
        ({"kind": "delete-config", "key": "dry_run"}, {"mode": "act"}, True),
        ({"kind": "delete-config", "key": "mode"}, {"dry_run": False}, True),
        ({"kind": "set-config", "values": {"dry_run": True}}, {"mode": "act"}, True),
        (
            {"kind": "set-config", "values": {"min_brokers": 2, "mode": "observe"}},
            {"mode": "approve"},
            True,
        ),
        ({"kind": "set-config", "values": {"mode": "act"}}, {"mode": "approve"}, False),
        ({"kind": "set-config", "values": {"mode": "act"}}, {"mode": "observe"}, False),
        ({"kind": "delete-config", "key": "mode"}, {}, False),
        ({"kind": "delete-config", "key": "min_brokers"}, {"mode": "act"}, False),
        ({"kind": "resume-cluster"}, {"mode": "act"}, False),
    ],
)
def test_what_may_end_publishing(order: dict[str, Any], now: dict[str, Any], ends: bool) -> None:
    assert may_end_publishing(make(**order), OperatorState(settings=now)) is ends
