"""How decisions end, and how long a bundle whose decision failed has to wait."""

import pytest

from lb_stream.contracts.reports import Ack, BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import BackOff, Memory, Pending
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.liveness import judge_liveness
from lb_stream.core.observing.move_progress import follow_moves
from lb_stream.core.observing.outcomes import (
    Outcome,
    Settled,
    retry_after_failure,
    select_valid_acks,
    settle_decisions,
)
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Event, Report, batch_of

X = "t/n/0x00000000_0x80000000"
TIMEOUT_MS = 60_000


def seen_at(now_ms: int, *records: Report | Event) -> ClusterView:
    """What these records come to, with the dead marked."""
    reports = [record for record in records if isinstance(record, Report)]
    shard, _ = fold(
        Shard.empty(),
        batch_of(reports, [record for record in records if isinstance(record, Event)]),
        now_ms,
        FoldConfig(),
    )
    config = cluster_config({}).balancer
    return judge_liveness(
        view_of("c", [shard], now_ms, config.weights), Memory(), config, caught_up=True
    ).view


def pending(kind: str, source: str | None, destination: str | None) -> Memory:
    return Memory(
        pending=(Pending("c:1:0", kind, X, source, destination, 5_000, 5_000 + TIMEOUT_MS, 2),)
    )


def outcome(view: ClusterView, memory: Memory) -> Outcome | None:
    settled = settle_decisions(view, memory, ())
    assert len(settled.ended) + len(settled.pending) == 1
    return settled.ended[0][1] if settled.ended else None


def test_an_unload_ends_with_the_report_that_lacks_the_bundle() -> None:
    view = seen_at(
        9_000, Report("a:1", 1_000, {X: BundleStats()}), Report("a:1", 8_000), Report("b:1", 9_000)
    )
    ended = outcome(view, pending("unload", "a:1", None))
    assert ended == Outcome("c:1:0", X, "confirmed", "gone from its source", 8_000, 3_000, 8_000)


def test_an_unload_from_a_dead_broker_ends_when_that_is_seen_and_not_before_it_was_decided() -> (
    None
):
    view = seen_at(
        40_000,
        Report("a:1", 1_000, {X: BundleStats()}),
        Event("goodbye", "a:1", 39_000),
        Report("b:1", 40_000),
    )
    ended = outcome(view, pending("unload", "a:1", None))
    assert ended == Outcome("c:1:0", X, "confirmed", "gone from its source", 40_000, 35_000, 39_000)


@pytest.mark.parametrize(
    ("now_ms", "expected"), [(5_000 + TIMEOUT_MS - 1, None), (5_000 + TIMEOUT_MS, "expired")]
)
def test_a_decision_that_nothing_confirms_expires_at_its_time(
    now_ms: int, expected: str | None
) -> None:
    view = seen_at(
        now_ms, Report("a:1", 1_000, {X: BundleStats()}), Report("a:1", now_ms, {X: BundleStats()})
    )
    ended = outcome(view, pending("unload", "a:1", None))
    assert (ended and ended.outcome) == expected


@pytest.mark.parametrize(
    ("kind", "steps"), [("unload", [1, 2, 4, 8, 10, 10]), ("assign", [0, 1, 3, 7, 10, 10])]
)
def test_each_failure_doubles_the_wait_up_to_ten_time_outs(kind: str, steps: list[int]) -> None:
    retry = None
    for attempts, step in enumerate(steps, 1):
        retry = retry_after_failure(retry, kind, 1_000, TIMEOUT_MS)
        assert retry == BackOff(attempts, 1_000 + step * TIMEOUT_MS, kind)
    assert (
        retry_after_failure(BackOff(5_000, 0, kind), kind, 1_000, TIMEOUT_MS).not_before_ms
        == 1_000 + 10 * TIMEOUT_MS
    )
    assert retry_after_failure(retry, "split", 1_000, TIMEOUT_MS).attempts == 1


@pytest.mark.parametrize(
    ("destination", "owner", "expected"),
    [
        (None, None, ("confirmed", "gone from its source")),
        (None, "b:1", ("confirmed", "reported by b:1")),
        ("b:1", None, ("released", "gone from its source")),
        ("b:1", "b:1", ("confirmed", "reported by b:1")),
        ("b:1", "c:1", ("superseded", "reported by c:1 instead")),
    ],
)
def test_a_move_that_names_its_destination_is_confirmed_there(
    destination: str | None, owner: str | None, expected: tuple[str, str]
) -> None:
    takes = [Report(owner, 9_000, {X: BundleStats()})] if owner else []
    view = seen_at(9_000, Report("a:1", 1_000, {X: BundleStats()}), Report("a:1", 8_000), *takes)
    ended = outcome(view, pending("unload", "a:1", destination))
    assert (
        ended is not None
        and (ended.outcome, ended.detail) == expected
        and ended.released_ms == (9_000 if owner else 8_000)
    )


def test_a_moves_detour_is_kept_from_its_acknowledgement_until_its_outcome() -> None:
    at_source = seen_at(6_000, Report("a:1", 1_000, {X: BundleStats()}))
    ack = Ack(decision_id="c:1:0", outcome="released", reason="at the second unload")
    still_pending = settle_decisions(at_source, pending("unload", "a:1", "b:1"), (ack,)).pending
    arrived = seen_at(
        9_000,
        Report("a:1", 1_000, {X: BundleStats()}),
        Report("a:1", 8_000),
        Report("b:1", 9_000, {X: BundleStats()}),
    )
    ended = outcome(arrived, Memory(pending=still_pending))
    assert ended is not None
    assert ended.detail == "reported by b:1, at the second unload"


def test_a_moves_detour_is_kept_while_no_broker_has_reported_the_bundle() -> None:
    gone = seen_at(8_000, Report("a:1", 1_000, {X: BundleStats()}), Report("a:1", 8_000))
    ack = Ack(decision_id="c:1:0", outcome="released", reason="at the second unload")
    memory = pending("unload", "a:1", "b:1")
    moves = follow_moves(gone, memory, settle_decisions(gone, memory, (ack,)), 8_000, TIMEOUT_MS)
    arrived = seen_at(9_000, Report("b:1", 9_000, {X: BundleStats()}))
    (ended,) = follow_moves(
        arrived, Memory(moves=moves.moves), Settled((), ()), 9_000, TIMEOUT_MS
    ).outcomes
    assert (ended.outcome, ended.detail) == ("confirmed", "reported by b:1, at the second unload")


@pytest.mark.parametrize(("how", "expected"), [("failed", "failed"), ("refused", "released")])
def test_a_move_whose_agent_has_seen_it_fail_is_not_waited_for(how: str, expected: str) -> None:
    """A refusal says that nothing was done: then somebody else has taken the bundle from its
    source."""
    view = seen_at(
        9_000, Report("a:1", 1_000, {X: BundleStats()}), Report("a:1", 8_000), Report("b:1", 9_000)
    )
    ack = Ack.model_validate(
        {"decision_id": "c:1:0", "outcome": how, "reason": "b:1 does not answer any more"}
    )
    ((_, ended),) = settle_decisions(view, pending("unload", "a:1", "b:1"), (ack,)).ended
    assert ended.outcome == expected


def test_an_acknowledgement_counts_from_the_asked_broker_and_for_a_pending_decision_only() -> None:
    given = Pending(
        "c:1:0", "assign", "t/n/0x00000000_0x80000000", None, "b:1", 1_000, 61_000, version=2
    )
    taken = Pending(
        "c:1:1", "unload", "t/n/0x80000000_0xffffffff", "a:1", "b:1", 1_000, 61_000, version=2
    )
    memory = Memory(pending=(given, taken))
    acks = {name: Ack(decision_id=name, outcome="refused") for name in ("c:1:0", "c:1:1", "c:1:2")}
    every = [(broker, ack) for broker in ("a:1", "b:1", "c:1") for ack in acks.values()]
    assert select_valid_acks(every, memory) == (acks["c:1:1"], acks["c:1:0"])
