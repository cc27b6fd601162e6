"""What takes back several commands comes to what was in force before the first of them."""

import pytest

from lb_stream.core.commands.undo import cancel_out
from lb_stream.core.model.operator_state import OperatorState

NOTHING = OperatorState()
PAUSE, RESUME = {"kind": "pause-cluster"}, {"kind": "resume-cluster"}
DRAIN, UNDRAIN = ({"kind": f"{word}-broker", "broker": "b:1"} for word in ("drain", "undrain"))


def setting(name: str, value: object) -> dict[str, object]:
    return {"kind": "set-config", "values": {name: value}}


def unset(name: str) -> dict[str, object]:
    return {"kind": "delete-config", "key": name}


def pin(*bundles: str, for_ms: int) -> dict[str, object]:
    return {"kind": "pin-bundles", "bundles": list(bundles), "for_ms": for_ms}


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
    ],
)
def test_a_command_and_its_opposite_cancel_out(orders, now: OperatorState, left) -> None:
    assert cancel_out(orders, now, 1_000_000) == left
