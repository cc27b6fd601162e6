"""Who may take over, and when: found from records and times alone. No Kafka needed."""

from __future__ import annotations

from lb_stream.contracts.commands import Claim, Tick
from lb_stream.io.leadership.succession import CLAIM_MS, Action, Follower, ReceivedRecord, Standing

SILENCE = 3_000


def tick(epoch: int, at_ms: int, pid: int = 1, ends: bool = False, to: str = "") -> ReceivedRecord:
    return ReceivedRecord(
        Tick(
            id=f"tick:{epoch}:{at_ms}",
            pipeline="p",
            epoch=epoch,
            host="h",
            pid=pid,
            ends=ends,
            to=to,
        ),
        at_ms,
    )


def claim(pid: int, at_ms: int, forced: bool = False, epoch: int = 1) -> ReceivedRecord:
    return ReceivedRecord(
        Claim(
            id=f"claim:{pid}:{at_ms}", pipeline="p", epoch=epoch, host="h", pid=pid, forced=forced
        ),
        at_ms,
    )


def standing(*heard: ReceivedRecord) -> Standing:
    """What the topic says after these."""
    found = Standing()
    for one in heard:
        found = found.after(one, SILENCE)
    return found


def heir(*heard: ReceivedRecord) -> int | None:
    """The process whose claim counts."""
    found = standing(*heard).heir
    return None if found is None else found.record.pid


def test_of_several_claims_the_first_in_the_topic_counts() -> None:
    assert heir(tick(1, 0), claim(2, 3_000), claim(3, 3_001)) == 2


def test_a_claim_counts_only_after_silence_by_kafkas_time() -> None:
    assert heir(tick(1, 0), claim(2, 2_999)) is None
    assert heir(tick(1, 0), claim(2, 2_999), claim(3, 3_000)) == 3


def test_where_nobody_has_ticked_a_claim_counts_at_once() -> None:
    assert heir(claim(2, 5)) == 2


def test_whoever_has_claimed_and_does_not_tick_loses_its_turn() -> None:
    before = (tick(1, 0), claim(2, 3_000))
    assert heir(*before, claim(3, 3_000 + CLAIM_MS - 1)) == 2
    assert heir(*before, claim(3, 3_000 + CLAIM_MS)) == 3


def test_a_leader_that_wakes_up_does_not_make_its_heirs_claim_void() -> None:
    assert heir(tick(1, 0), claim(2, 3_000), tick(1, 3_500), claim(3, 7_000)) == 2
    assert heir(tick(1, 0), claim(2, 3_000), tick(1, 3_500), tick(2, 3_600, pid=2)) is None
    assert heir(tick(1, 0), claim(2, 3_000), tick(2, 3_600, pid=9)) is None, (
        "another one was faster"
    )
    assert heir(tick(1, 0), claim(2, 3_000, epoch=7), tick(2, 3_600, pid=2)) is None, (
        "whatever epoch it had heard of"
    )
    assert heir(tick(1, 0), claim(2, 3_000), tick(1, 3_000 + CLAIM_MS)) is None, (
        "it never led, and the leader lives"
    )


def test_a_leader_that_stops_in_order_is_followed_at_once() -> None:
    assert heir(tick(1, 0), tick(1, 10, ends=True), claim(2, 11)) == 2


def test_a_leader_that_names_its_successor_is_followed_by_it_and_by_others_only_after_silence() -> (
    None
):
    over = tick(1, 10, ends=True, to="h:3")
    assert heir(over, claim(2, 11)) is None
    assert heir(over, claim(2, 11), claim(3, 12)) == 3
    assert heir(over, claim(2, 10 + SILENCE)) == 2


def test_the_end_of_one_that_was_shut_out_says_nothing_about_its_heir() -> None:
    assert heir(tick(1, 0), tick(2, 10, pid=2), tick(1, 20, ends=True), claim(3, 30)) is None


def test_a_job_that_was_started_to_take_over_counts_before_everybody() -> None:
    assert heir(tick(1, 0), claim(2, 10, forced=True)) == 2
    assert heir(tick(1, 0), claim(3, 3_000), claim(2, 3_010, forced=True), claim(3, 30_000)) == 2


# --- one follower ---


def follower(pid: int = 2) -> Follower:
    return Follower(f"h:{pid}", SILENCE)


def looks(one: Follower, *what: tuple[float, list[ReceivedRecord] | None]) -> list[Action]:
    """What it does at each look."""
    return [one.observe(heard, at) for at, heard in what]


def every_200(begin: int, end: int) -> list[tuple[float, list[ReceivedRecord] | None]]:
    """Looks at which nothing is new."""
    return [(float(at), []) for at in range(begin, end, 200)]


def test_it_claims_after_looking_for_long_enough_without_a_sign_of_life() -> None:
    done = looks(follower(), (0, [tick(1, 50_000)]), *every_200(200, 3_200))
    assert done[:15] == [Action.WAIT] * 15 and done[15] is Action.CLAIM


def test_each_tick_begins_the_wait_anew() -> None:
    one = follower()
    looks(one, (0, [tick(1, 50_000)]), *every_200(200, 2_800), (2_800, [tick(1, 52_800)]))
    assert set(looks(one, *every_200(3_000, 5_800))) == {Action.WAIT}
    assert looks(one, (5_800, [])) == [Action.CLAIM]


def test_a_sign_that_came_while_kafka_was_slow_to_answer_begins_the_wait_at_the_answer() -> None:
    one = follower()
    assert one.observe([tick(1, 51_000)], 0, 1_100) is Action.WAIT
    assert looks(one, *every_200(1_200, 4_000)) == [Action.WAIT] * 14, (
        "a claim would come too early to count"
    )
    assert looks(one, (4_000, []), (4_200, [])) == [Action.WAIT, Action.CLAIM]


def test_who_could_not_read_the_topic_concludes_nothing_and_begins_anew_once_it_can() -> None:
    one = follower()
    looks(one, (0, [tick(1, 50_000)]), *every_200(200, 2_000))
    assert set(looks(one, *[(float(at), None) for at in range(2_000, 60_000, 500)])) == {
        Action.WAIT
    }
    assert set(looks(one, *every_200(60_000, 63_000))) == {Action.WAIT}
    assert looks(one, (63_000, [])) == [Action.CLAIM]


def test_who_has_slept_begins_anew() -> None:
    one = follower()
    looks(one, (0, [tick(1, 50_000)]), (200, []))
    assert looks(one, (100_000, [])) == [Action.WAIT]
    assert set(looks(one, *every_200(100_200, 103_000))) == {Action.WAIT}


def test_it_leads_by_its_own_claim_alone_and_only_by_the_last_one() -> None:
    one = follower()
    looks(one, (0, [tick(1, 50_000)]), *every_200(200, 3_200))
    own = claim(2, 53_010)
    one.claimed(own.record, 3_010)
    assert looks(one, (3_020, [claim(3, 53_005), own])) == [Action.WAIT], "another one was first"
    other = follower(3)
    looks(other, (0, [tick(1, 50_000)]))
    other.claimed(claim(3, 53_005).record, 3_005)
    assert looks(other, (3_020, [claim(3, 53_005), own])) == [Action.LEAD]
    other.begin_anew()
    assert looks(other, (3_220, [])) == [Action.WAIT], "the claim has been used"


def test_a_claim_that_did_not_count_is_made_again_but_not_at_once() -> None:
    one = follower()
    looks(one, (0, [tick(1, 50_000)]), *every_200(200, 3_200))
    early = claim(2, 52_990)  # Kafka's clock says that it hasn't been silent for long enough
    one.claimed(early.record, 3_010)
    assert looks(one, (3_020, [early]), (3_220, []), (4_020, [])) == [
        Action.WAIT,
        Action.WAIT,
        Action.CLAIM,
    ]


def test_a_hand_over_is_answered_at_once_by_whoever_is_meant() -> None:
    for to, meant in (("", True), ("h:2", True), ("h:3", False)):
        action = Action.CLAIM if meant else Action.WAIT
        assert looks(
            follower(), (0, [tick(1, 50_000)]), (200, [tick(1, 50_200, ends=True, to=to)])
        ) == [Action.WAIT, action]
