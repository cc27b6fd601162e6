"""Operators' commands: read, done once, remembered within bounds; settings, namespaces and policies
that they lay down."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.namespaces import ClusterNamespaces
from lb_stream.core.averages import DEFAULT_RATES, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import (
    MOST_REMEMBERED,
    REMEMBERED_MS,
    WINDOW_MS,
    CommandAnswer,
    CommandResponder,
    Received,
    refuse_all,
)
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.policies import NO_POLICIES, Policies
from lb_stream.core.observing.known_bundles import (
    add_unassigned_bundles,
    apply_merges,
    apply_splits,
    build_ring,
    compact_boundaries,
    find_missing_bundles,
)
from lb_stream.core.round.decide import Inbox
from lb_stream.settings.overrides import apply_setting_commands, dynamic_keys
from lb_stream.settings.resolve import apply_overrides, cluster_config, resolve
from tests.support.build import Report, batch_of
from tests.support.command_rounds import (
    FIRST,
    GIVEN,
    LOAD,
    OTHER,
    SECOND,
    TWO,
    command,
    play,
    view,
    views,
)
from tests.support.wordings import check_wording


def set_by(
    operator_state: OperatorState, *commands: Received, given: dict[str, Any] = GIVEN
) -> tuple[ClusterConfig, CommandResponder]:
    """The settings in force after these commands, and what is said to them."""
    begin = apply_setting_commands(
        given, Memory(operator_state=operator_state), Inbox(commands=commands)
    )
    assert not begin.inbox.commands
    return begin.config, CommandResponder(
        begin.memory.operator_state, answers=[*begin.inbox.answers]
    )


# --- once ---


def test_a_command_is_done_once_however_often_and_wherever_it_comes() -> None:
    unload = command("unload", namespace="t/n", bundle="0x00000000_0x80000000")
    first = play(view(**TWO), Memory(), unload, unload)
    assert [(answer.outcome, answer.repeated) for answer in first.results] == [
        ("accepted", False),
        ("accepted", True),
    ]
    assert first.results[1].decision_ids == first.results[0].decision_ids == ("c:1:0",)
    assert len(first.decisions) == 1
    again = play(view(2000, **TWO), Memory.from_json(first.memory.to_json()), unload)
    assert [answer.repeated for answer in again.results] == [True]
    assert again.decisions == ()


def test_an_id_that_comes_again_with_other_contents_is_refused_and_gets_its_own_answer() -> None:
    first = play(
        view(**TWO), Memory(), command("unload", namespace="t/n", bundle="0x00000000_0x80000000")
    )
    remembered = Memory.from_json(first.memory.to_json())
    again = play(
        view(2000, **TWO),
        remembered,
        command("dry-run", on=True),
        command("unload", namespace="t/n", bundle="0x80000000_0xffffffff"),
    )
    assert [(answer.outcome, answer.rule, answer.repeated) for answer in again.results] == [
        ("refused", "id_used", False)
    ] * 2
    check_wording(again.results[0].text)
    assert again.decisions == () and "dry_run" not in again.memory.operator_state.settings
    other = Received.from_command(
        COMMANDS["unload"](
            id="x", by="bo", sent_ms=990, namespace="t/n", bundle="0x00000000_0x80000000"
        ),
        1_000,
    )
    assert play(view(2000, **TWO), remembered, other).results[0].repeated, (
        "when it was sent, and by whom, is none of its contents"
    )


def sent(kind: str, command_id: str, sent_ms: int, at_ms: int, **fields: Any) -> Received:
    """A command that says when it was sent."""
    return Received.from_command(
        COMMANDS[kind](id=command_id, by="User:ann", sent_ms=sent_ms, **fields), at_ms
    )


@pytest.mark.parametrize("ahead_ms", [-WINDOW_MS - 1, WINDOW_MS + 1])
def test_a_command_that_was_sent_long_before_or_after_kafka_took_it_is_refused(
    ahead_ms: int,
) -> None:
    at_ms = 10 * WINDOW_MS
    made = play(view(**TWO), Memory(), sent("pause-cluster", "x", at_ms + ahead_ms, at_ms))
    assert (made.results[0].outcome, made.results[0].rule) == ("refused", "too_old")
    assert not made.memory.operator_state.paused and made.memory.operator_state.answers == ()
    assert play(
        view(**TWO), Memory(), sent("pause-cluster", "x", at_ms + ahead_ms // 2, at_ms)
    ).memory.operator_state.paused


MANY = GIVEN | {"max_commands_per_minute": 0}


def test_a_sender_of_too_many_commands_is_refused_and_others_are_not() -> None:
    """What is refused pushes no other answer out, and takes no id."""
    few = GIVEN | {"max_commands_per_minute": 3}

    def given(number: int, by: str, at_ms: int, kind: str = "pause-cluster") -> Received:
        own = {"key": "enabled"} if kind == "delete-config" else {}
        return Received.from_command(COMMANDS[kind](id=f"{by}{number}", by=by, **own), at_ms=at_ms)

    made = play(
        view(**TWO),
        Memory(),
        given(0, "ann", 1_000, "delete-config"),
        *(given(number, "ann", 1_000 + number) for number in range(1, 6)),
        given(1, "bob", 1_005),
        given(1, "ann", 1_006),
        given=few,
    )
    found = {(result.id, result.rule, result.repeated) for result in made.results}
    assert {name for name, rule, _ in found if rule == "too_many"} == {"ann3", "ann4", "ann5"}
    assert ("bob1", None, False) in found and ("ann1", None, True) in found
    kept = [answer["id"] for answer in made.memory.operator_state.answers]
    assert kept == ["ann0", "ann1", "ann2", "bob1"]
    later = play(view(**TWO), made.memory, given(3, "ann", 61_001), given=few)
    assert [result.rule for result in later.results] == [None]
    check_wording(next(result.text for result in made.results if result.rule == "too_many"))


def test_an_old_command_does_not_come_alive_after_however_many_others() -> None:
    old = sent("pause-cluster", "old", 1_000_000, 1_000_001)
    memory = play(view(**TWO), Memory(), old).memory
    others = [
        sent("resume-cluster", f"r{number}", 1_000_002 + number, 1_000_010 + number)
        for number in range(MOST_REMEMBERED + 5)
    ]
    memory = play(view(**TWO), memory, *others, given=MANY).memory
    assert len(memory.operator_state.answers) == MOST_REMEMBERED
    again = sent("pause-cluster", "old", 1_000_000, 1_010_000)
    made = play(
        view(**TWO),
        Memory.from_json(memory.to_json()),
        again,
        sent("dry-run", "new", 1_009_990, 1_010_001, on=True),
        given=MANY,
    )
    assert [(result.id, result.outcome, result.rule) for result in made.results] == [
        ("new", "done", None),
        ("old", "refused", "too_old"),
    ]
    much_later = replace(again, at_ms=1_000_001 + REMEMBERED_MS)
    assert play(view(**TWO), Memory(), much_later).results[0].rule == "too_old", (
        "by then nothing need be remembered of it"
    )


def test_refused_commands_of_a_megabyte_leave_little_in_what_every_round_logs() -> None:
    long = {f"key{number:0240d}": "x" * 9_000 for number in range(100)}
    made = play(
        view(**TWO),
        Memory(),
        *(command("set-config", f"c{number}", values=long) for number in range(100)),
    )
    assert {result.outcome for result in made.results} == {"refused"}
    assert len(made.memory.to_json()) < 100_000
    assert len(canonical_json([result.to_dict() for result in made.results])) < 100 * 12_000
    assert made.results[0].arguments.keys() == {"digest", "characters"}


def test_as_many_answers_are_remembered_as_are_bounded() -> None:
    commands = [command("pause-cluster", f"p{number}") for number in range(MOST_REMEMBERED + 5)]
    made = play(view(**TWO), Memory(), *commands, given=MANY)
    assert len(made.results) == MOST_REMEMBERED + 5
    assert [answer["id"] for answer in made.memory.operator_state.answers] == [
        f"p{number}" for number in range(5, MOST_REMEMBERED + 5)
    ]


def test_one_that_cannot_be_read_is_answered_with_field_value_and_what_was_expected() -> None:
    wrong = Received(
        900,
        {"id": "x", "kind": "fly", "by": ""},
        {"field": "kind", "value": "fly", "expected": "one of unload, split"},
    )
    made = play(view(**TWO), Memory(), wrong, wrong)
    assert [(result.outcome, result.rule, result.text) for result in made.results] == [
        ("refused", "unreadable", "kind = fly: expected one of unload, split")
    ] * 2
    assert made.memory.operator_state == OperatorState()


def test_a_command_that_cannot_be_read_takes_neither_an_id_nor_memory() -> None:
    """Whoever sends it has signed nothing yet."""
    genuine = command("drain-broker", "x", broker="a")
    wrong = {"field": "kind", "value": "fly", "expected": "one of unload, split"}
    unreadable = [
        Received(900, {"id": name, "kind": "fly", "by": "alice"}, wrong)
        for name in ["x", *(f"u{number}" for number in range(MOST_REMEMBERED))]
    ]
    made = play(view(**TWO), Memory(), *unreadable, genuine)
    assert made.results[-1].outcome == "accepted"
    assert [answer["id"] for answer in made.memory.operator_state.answers] == ["x"]
    assert made.memory.operator_state.forgotten_ms == 0


def test_a_command_that_its_sender_has_not_signed_takes_neither_an_id_nor_memory() -> None:
    genuine = command("drain-broker", "x", broker="a")
    wrong = {"field": "lb-signature", "value": "none", "expected": "one", "rule": "unsigned"}
    forged = [Received(900, dict(genuine.record), wrong)] * (MOST_REMEMBERED + 1)
    made = play(view(**TWO), Memory(), *forged, genuine)
    assert {(result.outcome, result.rule) for result in made.results[:-1]} == {
        ("refused", "unsigned")
    }
    assert made.results[-1].outcome in ("accepted", "done")
    assert [answer["id"] for answer in made.memory.operator_state.answers] == ["x"]


def test_the_same_commands_and_memory_give_the_same_bytes_also_after_a_way_through_json() -> None:
    commands = [
        command("create-namespace", "1", namespace="t/new", bundles=4),
        command("drain-broker", "2", broker="a"),
        command("set-policies", "3", anti_affinity={"t/n": "g"}, failure_domains={"a": "east"}),
        command("split", "4", namespace="t/m", bundle="LARGEST"),
        replace(command("pause-cluster", "5"), key_id="3f1c22a09b7d4e10", right="pause"),
    ]
    once = play(view(**TWO), Memory(), *commands)
    read = [
        Received(**row)
        for row in json.loads(canonical_json([command.to_dict() for command in commands]))
    ]
    assert read == commands
    twice = play(view(**TWO), Memory(), *read)
    assert once.memory.to_json() == twice.memory.to_json()
    assert [result.to_dict() for result in once.results] == [
        result.to_dict() for result in twice.results
    ]
    assert Memory.from_json(once.memory.to_json()) == once.memory


def test_when_there_is_no_round_every_command_is_refused() -> None:
    (answer,) = refuse_all([command("pause-cluster")], "the round failed", "round_failed")
    assert answer == CommandAnswer(
        "x", "pause-cluster", "User:ann", 900, {}, "refused", "the round failed", "round_failed"
    )


# --- settings ---


@pytest.mark.parametrize("key", sorted(set(dynamic_keys()) - {"dynamic_bad_manager", "profile"}))
def test_every_dynamic_key_takes_its_own_default(key: str) -> None:
    config = cluster_config({})
    ours = next(iter(apply_overrides({}, {key: 1}))) if key[0].islower() and "_" not in key else key
    models = (config.balancer, config.shedder_config, config.placement_config, config.splitting)
    value = next(
        (getattr(model, ours) for model in models if ours in type(model).model_fields), None
    )
    if ours != key or not isinstance(value, bool | int | float | str):
        return  # under Pulsar's name a value may be in another unit
    (answer,) = set_by(OperatorState(), command("set-config", values={key: value}), given={})[
        1
    ].answers
    assert answer.outcome == "done", answer.text


def test_either_all_values_of_a_command_count_or_none() -> None:
    _, responder = set_by(
        OperatorState(),
        command("set-config", values={"max_moves_in_flight": 5, "shedding_interval_ms": -1}),
    )
    assert responder.operator_state.settings == {}
    check_wording(responder.answers[0].text)


def test_the_two_spellings_of_a_key_are_one_setting() -> None:
    first = command("set-config", "1", values={"loadBalancerSheddingIntervalMinutes": "3"})
    second = command("set-config", "2", values={"shedding_interval_ms": 5_000})
    config, responder = set_by(OperatorState(), first, given=GIVEN | {"shedding_interval_ms": 1})
    assert config.balancer.shedding_interval_ms == 180_000
    config, responder = set_by(responder.operator_state, second)
    assert responder.operator_state.settings == {"shedding_interval_ms": 5_000}
    assert config.balancer.shedding_interval_ms == 5_000
    config, responder = set_by(
        responder.operator_state,
        command("delete-config", "3", key="loadBalancerSheddingIntervalMinutes"),
    )
    assert config.balancer.shedding_interval_ms == 60_000
    (answer,) = set_by(
        responder.operator_state, command("delete-config", "4", key="shedding_interval_ms")
    )[1].answers
    assert (answer.outcome, answer.rule, answer.text) == (
        "refused",
        "not_set",
        "no command has set shedding_interval_ms; overrides: none",
    )


def test_a_key_of_a_strategy_that_does_not_run_is_checked_too() -> None:
    (answer,) = set_by(OperatorState(), command("set-config", values={"hit_count_low": -1}))[
        1
    ].answers
    assert answer.outcome == "refused" and "hit_count_low = -1" in answer.text


def test_settings_that_no_longer_go_together_can_be_mended_by_a_command() -> None:
    broken = OperatorState(settings={"shedding_interval_ms": "soon"})
    with pytest.raises(ValueError, match="shedding_interval_ms"):
        set_by(broken)
    assert (
        set_by(broken, command("set-config", values={"shedding_interval_ms": 7_000}))[
            0
        ].balancer.shedding_interval_ms
        == 7_000
    )
    assert (
        set_by(broken, command("delete-config", key="shedding_interval_ms"))[1].answers[0].outcome
        == "done"
    )


def test_what_has_been_commanded_lies_over_what_was_given_and_outlives_a_restart() -> None:
    made = play(view(**TWO), Memory(), command("dry-run", on=True))
    written = Memory.from_json(made.memory.to_json())
    for given in (GIVEN, GIVEN | {"dry_run": False}):
        assert resolve(given, written.operator_state.settings).config.balancer.dry_run is True


@pytest.mark.parametrize("manager", ["modular", "simple", "extensible"])
def test_switching_the_manager_loses_no_owner_no_average_and_nothing_under_way(
    manager: str,
) -> None:
    before, seen, after = views((1000, TWO), (2000, TWO), (3000, {"a": [SECOND], "b": [OTHER]}))
    moved = play(
        before,
        Memory(),
        command("unload", "1", namespace="t/n", bundle="0x00000000_0x80000000", destination="b"),
    )
    switched = play(
        seen, moved.memory, command("set-config", "2", values={"loadManagerClassName": manager})
    )
    assert [one.decision_id for one in switched.memory.pending] == ["c:1:0"]
    assert switched.memory.versions == moved.memory.versions
    np.testing.assert_array_equal(switched.view.bundles.long.rate_in, seen.bundles.long.rate_in)
    done = play(after, switched.memory)
    assert [
        (decision.kind, decision.bundle, decision.destination) for decision in done.decisions
    ] == [("assign", FIRST, "b")]


# --- namespaces ---


def test_bundles_that_nobody_has_named_stand_among_the_others_sorted_and_unowned() -> None:
    seen = view(**TWO)
    more = add_unassigned_bundles(
        seen, find_missing_bundles(seen, {"t/a": 2, "t/n": 2, "t/z": [0, 5, 0xFFFFFFFF]})
    )
    names = more.bundles.names.to_pylist()
    assert names == sorted(names, key=str.encode)
    assert len(names) == 3 + 2 + 2
    new = more.bundles.rows_of(["t/a/0x00000000_0x80000000", "t/z/0x00000005_0xffffffff"])
    assert (more.bundles.owner[new] == -1).all()
    assert (more.bundles.short.throughput_in[new] == DEFAULT_RATES[0]).all() and (
        more.bundles.long.rate_out[new] == DEFAULT_RATES[3]
    ).all()
    many = add_unassigned_bundles(seen, find_missing_bundles(seen, {"t/b": 1_100}))
    assert (
        many.bundles.names.to_pylist() == sorted(many.bundles.names.to_pylist(), key=str.encode)
        and len(many.bundles) == 3 + 1_100
    )
    known = seen.bundles.names.to_pylist()
    assert (more.bundles.owner[more.bundles.rows_of(known)] == seen.bundles.owner).all()
    np.testing.assert_array_equal(
        more.bundles.long.take(more.bundles.rows_of(known)).throughput, seen.bundles.long.throughput
    )


def test_a_bundle_that_brokers_have_split_by_themselves_is_not_missed() -> None:
    quarters = ["t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"]
    assert find_missing_bundles(view(a=quarters), {"t/n": 2}) == [SECOND]
    assert find_missing_bundles(view(a=[FIRST]), {"t/n": 4}) == [
        "t/n/0x80000000_0xc0000000",
        "t/n/0xc0000000_0xffffffff",
    ]


def test_where_brokers_place_at_lookups_idle_bundles_are_shown_to_commands_only() -> None:
    given = GIVEN | {"assign_unowned": "on_lookup"}
    made = play(
        view(**TWO),
        Memory(),
        command("create-namespace", "1", namespace="t/idle", bundles=2),
        given=given,
    )
    assert (len(made.view.bundles), made.decisions) == (5, ())
    quiet = play(view(2000, **TWO), made.memory, given=given)
    assert len(quiet.view.bundles) == 3
    asked = play(
        view(3000, **TWO),
        quiet.memory,
        command("unload", "2", namespace="t/idle", bundle="0x00000000_0x80000000"),
        given=given,
    )
    check_wording(asked.results[0].text)


def test_rings_are_remembered_in_few_words_and_cut_anew_when_a_split_is_confirmed() -> None:
    assert [
        compact_boundaries(build_ring("t/n", cut).boundaries.tolist())
        for cut in (1, 7, [0, 9, 0xFFFFFFFF])
    ] == [1, 7, [0, 9, 0xFFFFFFFF]]
    children = view(a=["t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", SECOND])
    assert apply_merges({"t/n": 4, "t/m": 1}, ["t/n/0x40000000_0x80000000"]) == {
        "t/n": [0, 0x40000000, 0xC0000000, 0xFFFFFFFF],
        "t/m": 1,
    }
    assert apply_splits({"t/n": 2, "t/m": 1}, children, [FIRST, OTHER]) == {
        "t/n": [0, 0x40000000, 0x80000000, 0xFFFFFFFF],
        "t/m": 1,
    }
    whole = view(
        a=[
            "t/n/0x00000000_0x40000000",
            "t/n/0x40000000_0x80000000",
            "t/n/0x80000000_0xc0000000",
            "t/n/0xc0000000_0xffffffff",
        ]
    )
    assert apply_splits({"t/n": 2}, whole, [FIRST, SECOND]) == {"t/n": 4}


def test_a_split_bundle_of_a_namespace_that_was_made_is_not_made_again() -> None:
    made = play(
        view(a=[OTHER], b=[]),
        Memory(),
        command("create-namespace", "1", namespace="t/n", bundles=2),
    )
    served = play(
        view(2000, a=[OTHER, FIRST, SECOND], b=[]),
        made.memory,
        command("split", "2", namespace="t/n", bundle="0x00000000_0x80000000"),
    )
    children = list(served.decisions[0].children)
    after = play(view(3000, a=[OTHER, *children, SECOND], b=[]), served.memory)
    assert [result.outcome for result in after.results] == ["done"]
    assert after.memory.operator_state.namespaces == {
        "t/n": [0, 0x40000000, 0x80000000, 0xFFFFFFFF]
    }
    lost = play(view(4000, a=[OTHER], b=[]), after.memory)
    assert sorted(decision.bundle for decision in lost.decisions) == [*children, SECOND]


def test_an_import_brings_namespaces_and_policies_and_replaces_those_of_the_last_one() -> None:
    policy = {"name": "p", "namespaces": ["t/new"], "primary": ["a"]}
    content: dict[str, Any] = {
        "namespaces": [
            {"name": "t/new", "boundaries": [0, 0xFFFFFFFF], "anti_affinity_group": "g"}
        ],
        "isolation": [policy],
    }
    first = play(
        view(a=[OTHER], b=[]),
        Memory(),
        command(
            "import-namespaces",
            "1",
            content=ClusterNamespaces.model_validate(content | {"failure_domains": {"a": "x"}}),
        ),
    )
    operator_state = first.memory.operator_state
    assert (
        dict(operator_state.namespaces),
        dict(operator_state.anti_affinity),
        dict(operator_state.failure_domains),
    ) == (
        {"t/new": 1},
        {"t/new": "g"},
        {"a": "x"},
    )
    assert [(decision.bundle, decision.destination) for decision in first.decisions] == [
        ("t/new/0x00000000_0xffffffff", "a")
    ], "isolated"
    content["namespaces"][0]["anti_affinity_group"] = None
    second = play(
        view(a=[OTHER], b=[]),
        first.memory,
        command(
            "import-namespaces",
            "2",
            content=ClusterNamespaces.model_validate(content | {"isolation": []}),
        ),
    )
    operator_state = second.memory.operator_state
    assert (
        operator_state.isolation,
        operator_state.anti_affinity,
        operator_state.failure_domains,
    ) == ({}, {}, {})


# --- policies ---


def test_policies_are_set_changed_and_taken_away_one_by_one() -> None:
    seen = view(**TWO)
    first = {"name": "p", "namespaces": ["t/n"], "primary": ["a"]}
    made = play(
        seen,
        Memory(),
        command(
            "set-policies",
            "1",
            isolation=[first],
            anti_affinity={"t/n": "g", "t/m": "g"},
            failure_domains={"a": "x"},
        ),
    )
    policies = made.view.policies
    assert (
        policies.isolation_of("t/n") is not None
        and policies.group_of("t/m") == "g"
        and policies.failure_domains == {"a": "x"}
    )
    assert "failureDomainsEnabled" in made.results[0].text
    made = play(
        seen,
        made.memory,
        command(
            "set-policies",
            "2",
            remove_isolation=["p"],
            anti_affinity={"t/n": None},
            failure_domains={"a": None},
        ),
    )
    operator_state = made.memory.operator_state
    assert (
        operator_state.isolation,
        operator_state.anti_affinity,
        operator_state.failure_domains,
    ) == (
        {},
        {"t/m": "g"},
        {},
    )
    (unknown,) = play(
        seen, made.memory, command("set-policies", "3", remove_isolation=["p"])
    ).results
    assert (unknown.outcome, unknown.rule) == ("refused", "unknown_policy")
    (broken,) = play(
        seen, made.memory, command("set-policies", "4", isolation=[first | {"primary": ["("]}])
    ).results
    assert (broken.outcome, broken.rule) == ("refused", "not_an_expression")


def test_orders_lie_over_policies_that_are_known_otherwise() -> None:
    others = Policies(anti_affinity={"t/n": "old", "t/m": "old"}, non_persistent=frozenset({"t/n"}))
    laid = OperatorState(anti_affinity={"t/n": "new"}, drained=("a",)).policies(others)
    assert laid.anti_affinity == {"t/n": "new", "t/m": "old"}
    assert (laid.non_persistent, laid.drained) == (frozenset({"t/n"}), frozenset({"a"}))
    assert OperatorState().policies(NO_POLICIES) == NO_POLICIES


def test_a_drained_broker_is_no_part_of_what_a_shedder_compares() -> None:
    """Its low usage would make the others look hot."""
    given = GIVEN | {
        "shedding_enabled": True,
        "shedding_interval_ms": 0,
        "history_ratio": 0,
        "min_throughput_mb": 0,
    }
    config = cluster_config(given)
    reports = [
        Report(name, 1000, dict.fromkeys(bundles, LOAD), {"cpu": (usage, 100.0)}, offset=at)
        for at, (name, usage, bundles) in enumerate(
            [("a", 50.0, [FIRST, SECOND]), ("b", 50.0, [OTHER]), ("c", 0.0, [])]
        )
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), 1000, config.fold)
    seen = view_of("c", [shard], 1000, config.balancer.weights)
    assert [decision.source for decision in play(seen, Memory(), given=given).decisions] == ["a"]
    assert play(seen, Memory(), command("drain-broker", broker="c"), given=given).decisions == ()


# --- forget ---


def test_a_cluster_that_reports_is_not_forgotten_and_a_silent_one_is() -> None:
    forget = command("forget-cluster")
    (refused,) = play(view(**TWO), Memory(), forget).results
    assert (refused.outcome, refused.rule) == ("refused", "reports")
    assert refused.text.startswith("brokers have reported recently: a, b. ")
    seen = view(**TWO)
    for passed_ms, outcome in ((1, "refused"), (10_000_000, "done")):
        brokers = replace(seen.brokers, clock_ms=seen.brokers.clock_ms + passed_ms)
        later = replace(seen, brokers=brokers, now_ms=seen.now_ms + passed_ms)
        (answer,) = play(later, Memory(), forget).results
        assert answer.outcome == outcome, answer.text


def test_the_first_policy_by_name_counts_in_the_round_of_its_command_and_after_the_log() -> None:
    given = {"namespaces": ["t/n"], "min_available": 1}
    memory = Memory(
        operator_state=OperatorState(
            isolation={
                "q": given | {"name": "q", "primary": ["c"]},
                "p": given | {"name": "p", "primary": ["a"]},
            }
        )
    )
    for now in (memory, Memory.from_json(memory.to_json())):
        policy = now.operator_state.policies(Policies()).isolation_of("t/n")
        assert policy is not None and policy.primary == ("a",)
