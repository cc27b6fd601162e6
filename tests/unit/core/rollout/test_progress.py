"""The phases of a rollout's brokers, by what they report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lb_stream.core.model.memory import Memory
from lb_stream.core.model.rollout import BrokerProgress, RolloutOrder, RolloutProgress
from lb_stream.core.rollout.progress import (
    BrokerFacts,
    begin,
    begin_broker,
    count_moves,
    find_open,
    find_overdue,
    find_stuck_ms,
    follow,
    may_begin_another,
)

ORDER = RolloutOrder("r", "anna", 1_000, ("a", "b", "c"), wanted=3)
SERVING = BrokerFacts(alive=True, start_ms=5, version="4.0.7", reported_ms=1_000, bundles=3)
FACTS = dict.fromkeys(ORDER.brokers, SERVING)
BEGUN = begin(ORDER, FACTS, 1_000)
WITHIN_MS = 900_000


def phase_of(was: str, start_ms: int = 5, order: RolloutOrder = ORDER, **facts: object) -> str:
    """Return the phase that a broker is in after a report."""
    broker = BrokerProgress(was, 2_000, start_ms)  # type: ignore[arg-type]
    before = replace(BEGUN, brokers={"a": broker})
    seen = replace(SERVING, **facts)  # type: ignore[arg-type]
    after, _ = follow(order, before, {"a": seen}, 10_000)
    return after.brokers["a"].phase


def test_a_broker_is_empty_when_it_has_no_bundle_and_none_is_on_its_way() -> None:
    assert phase_of("draining") == "draining"
    assert phase_of("draining", bundles=0, moving=1) == "draining"
    assert phase_of("draining", bundles=0) == "empty"
    assert phase_of("empty", bundles=1) == "draining"


def test_a_broker_that_is_not_alive_is_down_whatever_it_was() -> None:
    for was in ("waiting", "draining", "empty", "down"):
        assert phase_of(was, alive=False) == "down"
    assert phase_of("done", alive=False) == "done"
    assert follow(ORDER, BEGUN, {}, 2_000)[0].in_phases("down") == ORDER.brokers


def test_a_broker_with_another_start_is_done_whatever_it_was() -> None:
    for was in ("waiting", "draining", "empty", "down"):
        assert phase_of(was, start_ms=5) != "done"
        assert phase_of(was, start_ms=6) == "done"


def test_a_broker_that_was_only_silent_waits_for_its_turn_again() -> None:
    assert phase_of("down", reported_ms=9_000) == "waiting"
    assert phase_of("down", reported_ms=1_500) == "down"


def test_a_broker_that_reports_no_start_has_restarted_if_it_was_down() -> None:
    unknown = {"start_ms": 0}
    broker = BrokerProgress("down", 2_000, 0)
    before = replace(BEGUN, brokers={"a": broker})
    seen = replace(SERVING, reported_ms=9_000, **unknown)
    assert follow(ORDER, before, {"a": seen}, 10_000)[0].brokers["a"].phase == "done"


def test_a_start_that_was_not_known_is_compared_with_the_rollouts_own() -> None:
    assert phase_of("waiting", start_ms=0) == "waiting"
    before = replace(BEGUN, brokers={"a": BrokerProgress("waiting", 1_000, 0)})
    seen = replace(SERVING, start_ms=1_500)
    assert follow(ORDER, before, {"a": seen}, 10_000)[0].brokers["a"].phase == "done"


def test_the_wanted_version_is_waited_for_and_another_one_is_told_once() -> None:
    order = replace(ORDER, version="5.0.1")
    before = replace(BEGUN, brokers={"a": BrokerProgress("down", 2_000, 5)})
    old = replace(SERVING, start_ms=6)
    after, news = follow(order, before, {"a": old}, 10_000)
    assert after.brokers["a"].phase == "down"
    assert [item.text for item in news] == ["a is back with version 4.0.7, not 5.0.1"]
    assert follow(order, after, {"a": old}, 11_000) == (after, [])
    new = replace(old, version="5.0.1", start_ms=7)
    assert follow(order, after, {"a": new}, 12_000)[0].brokers["a"].phase == "done"


def test_a_broker_that_drains_with_another_version_is_emptied_for_one_more_restart() -> None:
    order = replace(ORDER, version="5.0.1")
    assert phase_of("draining", 4, order) == "draining"
    assert phase_of("draining", 4, order, bundles=0) == "empty"
    assert phase_of("empty", 4, order, bundles=0) == "empty"
    assert phase_of("empty", 4, order, bundles=0, version="5.0.1") == "done"


def test_brokers_keep_the_order_that_was_given_when_a_job_is_killed() -> None:
    order = replace(ORDER, brokers=("c", "a", "b"), in_order=True)
    memory = Memory(rollout=begin(order, FACTS, 1_000))
    read = Memory.from_json(memory.to_json()).rollout
    assert read is not None
    assert follow(order, read, FACTS, 2_000)[0].in_phases("waiting") == ("c", "a", "b")


def test_each_change_of_a_phase_is_told_once() -> None:
    before = begin_broker(BEGUN, "a", "it is next", 0.5, 1_000)
    seen = {**FACTS, "a": replace(SERVING, bundles=0)}
    after, news = follow(ORDER, before, seen, 4_000)
    assert [(item.broker, item.phase, item.at_ms) for item in news] == [("a", "empty", 4_000)]
    assert follow(ORDER, after, seen, 5_000) == (after, [])


@pytest.mark.parametrize(
    ("changes", "phases", "may"),
    [
        pytest.param({}, {}, True, id="the first"),
        pytest.param({}, {"a": "draining"}, False, id="as many as allowed"),
        pytest.param({"at_most": 2}, {"a": "draining"}, True, id="two at most"),
        pytest.param({"paused": True}, {}, False, id="paused"),
        pytest.param({"wanted": 1}, {"a": "done"}, False, id="no more wanted"),
        pytest.param({"wanted": 2}, {"a": "done"}, True, id="one more wanted"),
        pytest.param({}, {"a": "done", "b": "done", "c": "done"}, False, id="none waits"),
    ],
)
def test_another_broker_is_begun_as_the_order_allows(
    changes: dict[str, int], phases: dict[str, str], may: bool
) -> None:
    order = replace(ORDER, **changes)  # type: ignore[arg-type]
    assert may_begin_another(order, in_phases(phases), 2_000, WITHIN_MS) == may


def test_a_broker_that_is_not_back_in_time_holds_up_all_others_until_an_operator_goes_on() -> None:
    order, missing = replace(ORDER, at_most=2), in_phases({"a": "down"})
    assert may_begin_another(order, missing, 1_000 + WITHIN_MS - 1, WITHIN_MS)
    late_ms = 1_000 + WITHIN_MS
    assert not may_begin_another(order, missing, late_ms, WITHIN_MS)
    resumed = replace(order, at_most=1, resumed_ms=late_ms, left_out=("a",))
    assert may_begin_another(resumed, missing, late_ms + 1, WITHIN_MS)


def test_a_broker_that_is_not_left_out_has_its_time_again_and_counts_on() -> None:
    order, missing = replace(ORDER, at_most=2, resumed_ms=9_000), in_phases({"a": "draining"})
    assert not find_overdue(order, missing, 9_000 + WITHIN_MS - 1, WITHIN_MS)
    assert find_overdue(order, missing, 9_000 + WITHIN_MS, WITHIN_MS) == {"a": WITHIN_MS}
    assert not find_overdue(replace(order, paused=True), missing, 9_000 + WITHIN_MS, WITHIN_MS)
    late = replace(order, at_most=1, resumed_ms=2 * WITHIN_MS)
    assert not may_begin_another(late, missing, 2 * WITHIN_MS + 1, WITHIN_MS)


@pytest.mark.parametrize(
    ("order", "phases", "stuck"),
    [
        ({}, {}, True),
        ({}, {"a": "done"}, True),
        ({"continues": False}, {}, False),  # a command fails at once
        ({"paused": True}, {}, False),
        ({}, {"a": "down"}, False),  # that one is late, or not
        ({}, dict.fromkeys("abc", "done"), False),
        ({"resumed_ms": 3_000}, {}, False),
    ],
)
def test_a_rollout_that_goes_on_by_itself_is_stuck_if_nothing_happens_for_too_long(
    order: dict[str, object], phases: dict[str, str], stuck: bool
) -> None:
    given = replace(ORDER, **{"continues": True} | order)  # type: ignore[arg-type]
    progress = in_phases(phases)
    last_ms = max(broker.since_ms for broker in progress.brokers.values())
    assert find_stuck_ms(given, progress, last_ms + WITHIN_MS - 1, WITHIN_MS) is None
    found = find_stuck_ms(given, progress, last_ms + WITHIN_MS, WITHIN_MS)
    assert found == (WITHIN_MS if stuck else None)


def test_a_broker_is_left_out_only_as_long_as_nothing_happens_to_it() -> None:
    order = replace(ORDER, resumed_ms=5_000, left_out=("a",))
    assert find_open(order, in_phases({"a": "down"})) == ["b", "c"]
    again = replace(BEGUN.brokers["a"], phase="down", since_ms=5_000)
    assert find_open(order, replace(BEGUN, brokers={"a": again})) == ["a"]
    assert phase_of("down", order=order, reported_ms=9_000) == "waiting"
    assert phase_of("down", start_ms=6, order=order) == "done"


def test_a_word_that_a_broker_has_restarted_counts_if_its_reports_have_no_start() -> None:
    order = replace(ORDER, restarted=("a",))
    before = replace(BEGUN, brokers={"a": BrokerProgress("empty", 2_000, 0)})
    silent = replace(SERVING, start_ms=0, bundles=0)
    assert follow(ORDER, before, {"a": silent}, 9_000)[0].brokers["a"].phase == "empty"
    assert follow(order, before, {"a": silent}, 9_000)[0].brokers["a"].phase == "done"
    assert phase_of("empty", order=order, bundles=0) == "empty"


def test_a_start_that_is_told_late_is_what_later_ones_are_compared_with() -> None:
    before = replace(BEGUN, brokers={"a": BrokerProgress("draining", 2_000, 0)})
    told, _ = follow(ORDER, before, {"a": SERVING}, 3_000)
    assert told.brokers["a"].start_ms == SERVING.start_ms
    # By a clock that is slow, its next start is before the rollout's.
    after, _ = follow(ORDER, told, {"a": replace(SERVING, start_ms=7, bundles=0)}, 9_000)
    assert after.brokers["a"].phase == "done"


def test_the_highest_usage_that_was_expected_is_kept() -> None:
    first = begin_broker(BEGUN, "a", "", 0.8, 1_000)
    assert begin_broker(first, "b", "", 0.6, 2_000).expected_usage == 0.8


def in_phases(phases: dict[str, str]) -> RolloutProgress:
    """Return the progress with brokers in these phases since 1 000 ms; the others wait."""
    brokers = {
        name: replace(broker, phase=phases.get(name, "waiting"))
        for name, broker in BEGUN.brokers.items()
    }
    return replace(BEGUN, brokers=brokers)


def test_moves_are_counted_and_those_to_brokers_that_wait_are_remembered() -> None:
    moves = [("x", "a", "b"), ("y", "a", "z")]
    after = count_moves(in_phases({"a": "draining"}), moves)
    assert (after.brokers["a"].moves, after.again) == (2, ("x",))
    assert count_moves(after, moves[:1]).again == ("x",)
