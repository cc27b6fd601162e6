"""Capacities that operators give: rules in settings and by command, and what they change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.keys import SettingError
from lb_stream.core.config.broker_capacities import MAX_RULES, UNITS, check_capacities, parse_rule
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.observing.given_capacities import with_given_capacities
from lb_stream.operations.set_capacity import MOST_CAPACITIES, SetCapacity
from lb_stream.settings.resolve import cluster_config
from tests.support.command_rounds import FIRST, command, play, view

ONE = {"dry_run": False, "shedding_enabled": False}


@pytest.mark.parametrize(
    ("pattern", "broker", "matches"),
    [
        ("broker-1:8080", "broker-1:8080", True),
        ("broker-1", "broker-1:8080", True),
        ("broker-1", "broker-11:8080", False),
        ("broker-1*", "broker-11:8080", True),
        ("broker-?:80*", "broker-2:8080", True),
        ("broker-?:80*", "broker-22:8080", False),
        ("*", "any:1", True),
        ("Broker-1", "broker-1:8080", False),
    ],
)
def test_a_rule_is_about_brokers_by_name_or_pattern(
    pattern: str, broker: str, matches: bool
) -> None:
    assert parse_rule(f"broker={pattern} cpu_cores=2").matches(broker) is matches


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "broker"),
        ("cpu_cores=2", "broker"),
        ("broker=a", "capacity"),
        ("broker=a cores=2", "cores"),
        ("broker=a cpu_cores=2 cpu_cores=3", "cpu_cores"),
        ("broker=a cpu_cores", "cpu_cores"),
        ("broker=a bandwidth_in_mbps=0", "bandwidth_in_mbps 0"),
        ("broker=a bandwidth_in_mbps=-1", "bandwidth_in_mbps -1"),
        ("broker=a bandwidth_in_mbps=nan", "bandwidth_in_mbps nan"),
        ("broker=a bandwidth_in_mbps=inf", "bandwidth_in_mbps inf"),
        ("broker=a bandwidth_in_mbps=1Gbit", "bandwidth_in_mbps 1Gbit"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_word_that_is_wrong(text: str, wrong: str) -> None:
    with pytest.raises(SettingError, match="broker_capacities") as raised:
        cluster_config({"broker_capacities": [text]})
    assert wrong in str(raised.value)


def test_rules_are_given_as_a_list_or_a_text() -> None:
    rules = ("broker=a* cpu_cores=4", "broker=b bandwidth_in_mbps=0.5 memory_mib=2048")
    for given in (list(rules), "; ".join(rules)):
        assert cluster_config({"broker_capacities": given}).balancer.broker_capacities == rules
    assert [parse_rule(rule).to_text() for rule in rules] == [
        rules[0],
        "broker=b memory_mib=2048 bandwidth_in_mbps=0.5",
    ]
    check_capacities([f"broker=b{at} cpu_cores=1" for at in range(MAX_RULES)])
    with pytest.raises(SettingError):
        check_capacities([f"broker=b{at} cpu_cores=1" for at in range(MAX_RULES + 1)])


def test_given_capacities_replace_limits_and_the_usages_follow() -> None:
    seen = view(**{"a:1": [FIRST], "b:1": []})
    brokers = seen.brokers
    assert with_given_capacities(seen, []) is seen
    assert with_given_capacities(seen, ["broker=z* cpu_cores=1"]) is seen
    rules = [f"broker=* {word}=10" for word in UNITS] + ["broker=a bandwidth_in_mbps=20"]
    found = with_given_capacities(seen, rules).brokers
    limits = {name: limit.tolist() for name, (_, limit) in found.resources.items()}
    assert limits == {
        "cpu": [1_000.0, 1_000.0],
        "memory": [10.0, 10.0],
        "direct_memory": [10.0, 10.0],
        "bandwidth_in": [20_000.0, 10_000.0],
        "bandwidth_out": [10_000.0, 10_000.0],
    }
    for name, (usage, _) in brokers.resources.items():
        assert np.array_equal(found.resources[name][0], usage)
    again = with_given_capacities(with_given_capacities(seen, rules), rules).brokers
    assert np.array_equal(again.usage, found.usage)
    usage, limit = brokers.resources["cpu"]
    half = with_given_capacities(seen, [f"broker=a cpu_cores={limit[0] / 200}"]).brokers
    assert half.usage == pytest.approx(np.where([True, False], 2 * usage / limit, brokers.usage))


def limit_after(memory: Memory, given: dict[str, Any]) -> list[float]:
    """The bandwidth in that a round sees, kbit/s."""
    made = play(view(**{"a:1": [FIRST], "b:1": []}), memory, given=ONE | given)
    return made.view.brokers.resources["bandwidth_in"][1].tolist()


def test_a_command_goes_over_the_setting_and_its_opposite_brings_that_back() -> None:
    seen, given = (
        view(**{"a:1": [FIRST], "b:1": []}),
        ONE | {"broker_capacities": "broker=* bandwidth_in_mbps=7"},
    )
    assert limit_after(Memory(), given) == [7_000.0, 7_000.0]
    first = play(
        seen, Memory(), command("set-capacity", broker="a", bandwidth_in_mbps=3), given=given
    )
    assert first.results[0].outcome == "done"
    assert limit_after(first.memory, given) == [3_000.0, 7_000.0]
    again = Memory.from_json(first.memory.to_json())
    assert limit_after(again, given) == [3_000.0, 7_000.0]
    # A second one of the same name replaces all of it, and is the last one.
    other = command("set-capacity", "y", broker="a:1", bandwidth_in_mbps=4)
    second = play(seen, first.memory, other, given=given)
    third = command("set-capacity", "z", broker="a", cpu_cores=2)
    after = play(seen, second.memory, third, given=given)
    assert limit_after(after.memory, given) == [4_000.0, 7_000.0]
    # Each is taken back by its opposite.
    undo = SetCapacity(id="u", broker="a", cpu_cores=2).opposites(second.memory.operator_state, 0)
    (back,) = [
        COMMANDS["set-capacity"].model_validate(one.model_dump() | {"id": f"u{at}"})
        for at, one in enumerate(undo)
    ]
    assert isinstance(back, SetCapacity) and back.bandwidth_in_mbps == 3 and back.cpu_cores is None
    assert back.is_in_force(second.memory.operator_state, 0)
    assert not back.is_in_force(after.memory.operator_state, 0)
    (removal,) = SetCapacity(id="u", broker="a", cpu_cores=2).opposites(OperatorState(), 0)
    assert isinstance(removal, SetCapacity) and removal.unset
    removed = play(
        seen, first.memory, command("set-capacity", "w", broker="a", unset=True), given=given
    )
    assert removed.results[0].outcome == "done" and not removed.memory.operator_state.capacities
    assert limit_after(removed.memory, given) == [7_000.0, 7_000.0]


def test_what_says_nothing_or_both_is_unreadable() -> None:
    for wrong in ({}, {"unset": True, "cpu_cores": 1}, {"cpu_cores": 0}, {"cpu_cores": "nan"}):
        with pytest.raises(ValidationError):
            SetCapacity.model_validate({"id": "x", "broker": "a", **wrong})


def test_set_capacity_is_refused_where_nothing_is_set_or_too_much() -> None:
    seen = view(**{"a:1": [FIRST]})
    refused = play(seen, Memory(), command("set-capacity", broker="a", unset=True)).results[0]
    assert (refused.outcome, refused.rule) == ("refused", "not_set")
    many = tuple(f"broker=b{at} cpu_cores=1" for at in range(MOST_CAPACITIES))
    full = Memory(operator_state=OperatorState(capacities=many))
    refused = play(seen, full, command("set-capacity", broker="a", cpu_cores=1)).results[0]
    assert (refused.outcome, refused.rule) == ("refused", "too_many_capacities")
    assert (
        play(seen, full, command("set-capacity", broker="b7", cpu_cores=2)).results[0].outcome
        == "done"
    )
