"""Which decisions an agent obeys, which it refuses, which it leaves alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.agent.obey import (
    REMEMBERED_MS,
    AgentMemory,
    AgentVerdict,
    acknowledgement,
    addressee,
    judge,
    with_record_time,
)
from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.core.model.memory import Pending

NOW = 1_767_225_670_000
UNLOAD = example_decision(
    source="a:1", destination="b:1", expected_owner="a:1", epoch=3, expires_ms=NOW + 1
)
ASSIGN = example_decision(
    kind="assign", source=None, destination="b:1", expected_owner=None, epoch=3, expires_ms=NOW + 1
)


def with_(decision: Decision, **changes: object) -> Decision:
    return decision.model_copy(update=changes)


def test_the_source_releases_what_it_is_told_to_unload() -> None:
    assert judge("a:1", AgentMemory(), UNLOAD, owns=True, now_ms=NOW) == AgentVerdict("release")


def test_the_destination_acquires_what_is_assigned_to_it() -> None:
    assert judge("b:1", AgentMemory(), ASSIGN, owns=False, now_ms=NOW) == AgentVerdict("acquire")


def test_acquiring_what_is_owned_already_is_said_again() -> None:
    assert judge("b:1", AgentMemory(), ASSIGN, owns=True, now_ms=NOW) == AgentVerdict("acquire")


@pytest.mark.parametrize("decision", [UNLOAD, ASSIGN], ids=["unload", "assign"])
def test_a_broker_that_is_not_addressed_does_nothing(decision: Decision) -> None:
    other = "b:1" if decision.kind == "unload" else "a:1"
    assert judge(other, AgentMemory(), decision, owns=True, now_ms=NOW).action == "ignore"
    assert judge("c:1", AgentMemory(), decision, owns=True, now_ms=NOW).action == "ignore"


def test_unloading_a_bundle_that_is_not_served_here_is_refused() -> None:
    verdict = judge("a:1", AgentMemory(), UNLOAD, owns=False, now_ms=NOW)
    assert verdict == AgentVerdict("refuse", f"{UNLOAD.bundle} is not served here")


@pytest.mark.parametrize("decision", [UNLOAD, ASSIGN], ids=["unload", "assign"])
def test_a_decision_of_an_earlier_run_is_refused_once_a_later_run_was_heard_of(
    decision: Decision,
) -> None:
    seen = AgentMemory()
    seen.note_epoch(with_(decision, epoch=4, source="z:1", destination="z:1"))
    verdict = judge(addressee(decision) or "", seen, decision, owns=True, now_ms=NOW)
    assert verdict == AgentVerdict("refuse", "epoch 3 is over: 4 has begun")
    assert judge(
        addressee(decision) or "", seen, with_(decision, epoch=4), owns=True, now_ms=NOW
    ).action in ("release", "acquire")


def test_an_earlier_epoch_seen_later_takes_nothing_back() -> None:
    seen = AgentMemory(epoch=4)
    seen.note_epoch(UNLOAD)
    assert seen.epoch == 4


@pytest.mark.parametrize(("late_ms", "action"), [(-1, "release"), (0, "refuse"), (1, "refuse")])
def test_a_decision_is_refused_from_the_moment_it_expires(late_ms: int, action: str) -> None:
    assert (
        judge(
            "a:1", AgentMemory(), with_(UNLOAD, expires_ms=NOW - late_ms), owns=True, now_ms=NOW
        ).action
        == action
    )


def test_no_decision_is_done_twice_by_one_broker() -> None:
    seen = AgentMemory()
    seen.note_done("a:1", UNLOAD, NOW)
    assert judge("a:1", seen, UNLOAD, owns=True, now_ms=NOW) == AgentVerdict(
        "ignore", "done before"
    )
    assert (
        judge("a:1", seen, with_(UNLOAD, decision_id="eu-1:43:0"), owns=True, now_ms=NOW).action
        == "release"
    )


def test_what_one_broker_has_done_another_may_still_do() -> None:
    seen = AgentMemory()
    seen.note_done("a:1", UNLOAD, NOW)
    assert (
        judge(
            "b:1", seen, with_(ASSIGN, decision_id=UNLOAD.decision_id), owns=False, now_ms=NOW
        ).action
        == "acquire"
    )


def test_a_decision_done_before_is_ignored_even_when_it_is_stale_by_now() -> None:
    seen = AgentMemory()
    seen.note_done("a:1", UNLOAD, NOW)
    seen.note_epoch(with_(UNLOAD, epoch=9))
    assert judge("a:1", seen, UNLOAD, owns=False, now_ms=NOW + 10).action == "ignore"


def test_done_decisions_are_forgotten_long_after_they_expired_and_their_age_refuses_them_then() -> (
    None
):
    seen = AgentMemory()
    seen.note_done("a:1", UNLOAD, NOW)
    later = UNLOAD.expires_ms + REMEMBERED_MS
    seen.note_done("a:1", with_(UNLOAD, decision_id="eu-1:43:0", expires_ms=later + 1), later)
    assert len(seen.done) == 2
    seen.note_done("a:1", with_(UNLOAD, decision_id="eu-1:44:0", expires_ms=later + 2), later + 1)
    assert [decision_id for _, decision_id in seen.done] == ["eu-1:43:0", "eu-1:44:0"]
    assert judge("a:1", seen, UNLOAD, owns=True, now_ms=later + 1).action == "refuse"


def test_forgetting_stops_when_nothing_is_left_to_forget() -> None:
    seen = AgentMemory()
    seen.note_done("a:1", UNLOAD, UNLOAD.expires_ms + REMEMBERED_MS + 1)
    assert not seen.done


def test_a_dry_run_is_never_obeyed() -> None:
    assert judge(
        "a:1", AgentMemory(), with_(UNLOAD, dry_run=True), owns=True, now_ms=NOW
    ) == AgentVerdict("ignore", "dry run")


def test_the_source_splits_what_it_serves_and_nothing_else() -> None:
    split = with_(UNLOAD, kind="split", destination=None)
    assert judge("a:1", AgentMemory(), split, owns=True, now_ms=NOW) == AgentVerdict("split")
    assert judge("a:1", AgentMemory(), split, owns=False, now_ms=NOW) == AgentVerdict(
        "refuse", f"{UNLOAD.bundle} is not served here"
    )
    assert judge("b:1", AgentMemory(), split, owns=True, now_ms=NOW).action == "ignore"


def test_a_transfers_source_releases_the_bundle_and_its_destination_waits_for_an_assignment() -> (
    None
):
    transfer = with_(UNLOAD, kind="transfer")
    assert judge("a:1", AgentMemory(), transfer, owns=True, now_ms=NOW) == AgentVerdict("release")
    assert judge("a:1", AgentMemory(), transfer, owns=False, now_ms=NOW) == AgentVerdict(
        "refuse", f"{UNLOAD.bundle} is not served here"
    )
    assert judge("b:1", AgentMemory(), transfer, owns=True, now_ms=NOW).action == "ignore"


def test_the_source_merges_what_it_serves_and_names_both_when_it_does_not() -> None:
    merge = with_(UNLOAD, kind="merge", destination=None, neighbour="t/n/0x80000000_0xffffffff")
    assert judge("a:1", AgentMemory(), merge, owns=True, now_ms=NOW) == AgentVerdict("merge")
    refused = AgentVerdict(
        "refuse", f"{UNLOAD.bundle} or t/n/0x80000000_0xffffffff is not served here"
    )
    assert judge("a:1", AgentMemory(), merge, owns=False, now_ms=NOW) == refused
    assert acknowledgement(merge, "merge", "", NOW).outcome == "merged"


def test_a_decision_published_late_counts_from_its_record_unless_that_came_far_too_late() -> None:
    minute = 60_000
    made = with_(UNLOAD, issued_ms=NOW, expires_ms=NOW + minute)
    in_time, slow_batch, after_a_crash = (
        with_record_time(made, NOW + late_ms) for late_ms in (1_000, 70_000, 3_600_000)
    )
    assert in_time == made
    assert (
        judge("a:1", AgentMemory(), slow_batch, owns=True, now_ms=NOW + 71_000).action == "release"
    )
    assert (
        judge("a:1", AgentMemory(), slow_batch, owns=True, now_ms=NOW + 130_000).action == "refuse"
    )
    now_ms = NOW + 3_600_001
    assert judge("a:1", AgentMemory(), after_a_crash, owns=True, now_ms=now_ms).action == "refuse"
    assert with_record_time(made, 0) == made  # when it was appended is not known


@given(
    span_ms=st.integers(1, 10**6),
    appended=st.floats(0, 8),
    later=st.floats(0, 8),
)
def test_what_the_balancer_holds_to_have_expired_has_expired_for_every_agent(
    span_ms: int, appended: float, later: float
) -> None:
    made = example_decision().model_copy(update={"issued_ms": NOW, "expires_ms": NOW + span_ms})
    appended_ms = NOW + int(appended * span_ms)
    round_ms = appended_ms + int(later * span_ms)  # the first one after it has been published
    times = made.issued_ms, made.expires_ms
    pending = Pending("c:1:0", "assign", "t/n/0x0_0x1", None, "b", *times, version=1)
    held_ms = pending.published_by(round_ms).expires_ms
    obeyed_ms = with_record_time(made, appended_ms).expires_ms
    assert max(held_ms, round_ms) >= obeyed_ms
