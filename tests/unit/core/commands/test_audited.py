"""What the audit gets from a command's answer: the things that it names, old and new values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lb_stream.contracts.commands import COMMANDS
from lb_stream.core.commands.audited import LONGEST_OBJECTS, LONGEST_VALUE, describe_objects
from lb_stream.core.commands.base import make, operation
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.round.decide import Round
from tests.support.command_rounds import TWO, command, play, view

PIN = "t/n/0x00000000_0x80000000"


def answered(made: Round) -> CommandAnswer:
    (answer,) = made.results
    return answer


def values(answer: CommandAnswer) -> list[Any]:
    texts = answer.audited.old_value, answer.audited.new_value
    return [None if text is None else json.loads(text) for text in texts]


@pytest.mark.parametrize(
    ("kind", "fields", "objects"),
    [
        ("drain-broker", {"broker": "http://b-1:8080"}, ("broker b-1:8080",)),
        (
            "unload",
            {"namespace": "t/n", "bundle": "0x0_0x1", "destination": "b-2:8080"},
            ("broker b-2:8080", "bundle t/n/0x0_0x1"),
        ),
        ("create-namespace", {"namespace": "t/n", "bundles": 4}, ("namespace t/n",)),
        (
            "merge",
            {"namespace": "t/n", "bundles": ["0x0_0x1", "0x1_0x2"]},
            ("bundle t/n/0x0_0x1", "bundle t/n/0x1_0x2"),
        ),
        ("pin-bundles", {"bundles": [PIN], "for_ms": 1}, (f"bundle {PIN}",)),
        (
            "assign",
            {"namespace": "t/n", "topic": "persistent://t/n/a"},
            ("namespace t/n", "topic persistent://t/n/a"),
        ),
        ("delete-config", {"key": "mode"}, ("setting mode",)),
        ("set-config", {"values": {"mode": "act", "x": 1}}, ("setting mode", "setting x")),
        ("approve-proposals", {"proposals": ["eu:1:p0"]}, ("proposal eu:1:p0",)),
        ("set-policies", {"anti_affinity": {"t/n": "g"}}, ("namespace t/n",)),
        ("set-policies", {"failure_domains": {"b-1:8080": None}}, ("broker b-1:8080",)),
        (
            "set-policies",
            {"isolation": [{"name": "p", "namespaces": [], "primary": []}]},
            ("policy p",),
        ),
        ("set-policies", {"remove_isolation": ["p"]}, ("policy p",)),
        (
            "import-namespaces",
            {"content": {"namespaces": [{"name": "t/n", "boundaries": [0, 0xFFFFFFFF]}]}},
            ("namespace t/n",),
        ),
        ("rollout-start", {"in_order": ["b-1:8080"], "at_most": 1}, ("broker b-1:8080",)),
        ("rollout-abort", {"rollout": "r-1"}, ("rollout r-1",)),
        ("set-capacity", {"broker": "b-*", "cpu_cores": 2}, ("broker b-*",)),
        ("dry-run", {"on": True}, ()),
    ],
)
def test_a_row_names_what_a_command_is_about(
    kind: str, fields: dict[str, Any], objects: tuple[str, ...]
) -> None:
    assert describe_objects(make(kind, **fields).named_objects()) == objects


@pytest.mark.parametrize("kind", COMMANDS)
def test_every_field_that_names_a_thing_is_known_to_rights_and_audit(kind: str) -> None:
    model = operation(kind)
    known = {*model.brokers, *model.namespaces, *model.ranges, *model.objects}
    assert known <= model.model_fields.keys()
    names = {"broker", "destination", "namespace", "bundle", "topic", "proposals", "rollout", "key"}
    assert names & model.model_fields.keys() <= known


def test_of_many_things_some_are_named_and_the_others_counted() -> None:
    values = {f"key{number:04}": 1 for number in range(500)}
    found = describe_objects(make("set-config", values=values).named_objects())
    assert found[-1] == f"{500 - len(found) + 1} more"
    assert sum(map(len, found[:-1])) <= LONGEST_OBJECTS < sum(map(len, found)) + 20


def test_old_and_new_value_are_the_parts_that_differ() -> None:
    before = Memory(operator_state=OperatorState(drained=("b",)))
    drained = answered(play(view(**TWO), before, command("drain-broker", broker="a", force=True)))
    assert values(drained) == [{"drained": []}, {"drained": ["a"]}]  # b stays drained
    assert drained.audited.objects == ("broker a",)
    paused = answered(play(view(**TWO), before, command("pause-cluster")))
    assert values(paused) == [{"paused": False}, {"paused": True}]


def test_a_command_about_settings_has_the_overrides_before_and_after() -> None:
    given = {"max_moves_in_flight": 3}
    before = Memory(operator_state=OperatorState(settings={"max_moves_in_flight": 2}))
    made = answered(play(view(**TWO), before, command("set-config", values=given)))
    assert values(made) == [{"settings": {"max_moves_in_flight": 2}}, {"settings": given}]
    removed = play(view(**TWO), before, command("delete-config", key="max_moves_in_flight"))
    assert values(answered(removed)) == [{"settings": {"max_moves_in_flight": 2}}, {"settings": {}}]


@pytest.mark.parametrize("kind", ["undrain-broker", "drain-broker"])
def test_a_command_that_changes_nothing_has_no_values(kind: str) -> None:
    refused = answered(play(view(**TWO), Memory(), command(kind, broker="nowhere")))
    assert refused.outcome in ("refused", "done") and values(refused) == [None, None]


def test_a_long_value_is_named_by_its_digest() -> None:
    long = {f"t/n/0x{number:08x}_0xffffffff": 10**15 for number in range(500)}
    pins = Memory(operator_state=OperatorState(pins=long))
    unpinned = command("pin-bundles", bundles=list(long), for_ms=0)
    old, new = values(answered(play(view(**TWO), pins, unpinned)))
    assert old["characters"] > LONGEST_VALUE and new == {"pins": {}}


def test_the_key_and_the_right_are_those_of_the_command() -> None:
    given = replace(command("pause-cluster"), key_id="3f1c22a09b7d4e10", right="pause")
    fields = answered(play(view(**TWO), Memory(), given)).to_dict()
    assert (fields["key_id"], fields["right"]) == ("3f1c22a09b7d4e10", "pause")
    unsigned = answered(play(view(**TWO), Memory(), command("pause-cluster"))).to_dict()
    assert not {"key_id", "right"} & unsigned.keys()
