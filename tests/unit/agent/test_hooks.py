"""Hooks of moves, with a real server: who is asked and told what, how a veto goes back, and that
the balancer doesn't insist."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from lb_stream.agent import Agent, AgentConfig, AgentMemory, HookConfig
from lb_stream.agent.carry_out import carry_out
from lb_stream.agent.hooks import HookError, MoveHooks, call_hook
from lb_stream.agent.obey import AgentVerdict
from lb_stream.contracts.decisions import Decision, Ownership, example_decision
from lb_stream.contracts.reports import Ack
from lb_stream.core.observing.outcomes import MAX_BACK_OFF
from lb_stream.sim import SimBroker, build_cluster
from tests.support.sim_loop import ClosedLoop
from tests.support.webhook import Call, Webhook, webhook
from tests.support.wordings import check_wording

START = 1_700_000_000_000
A, B = "broker-1:8080", "broker-2:8080"


@pytest.fixture
def server() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


def veto(reason: str = "") -> bytes:
    return json.dumps({"allow": False, "reason": reason}).encode()


class Moved:
    """Broker 1 of a simulated cluster is told to give its first bundle to broker 2, and hooks are
    asked."""

    def __init__(self, **config: Any) -> None:
        self.cluster = cluster = build_cluster(2, 8, start_ms=START)
        self.broker, self.hooks = (
            SimBroker(cluster, A),
            MoveHooks(HookConfig(**{"timeout_s": 30.0} | config)),
        )
        self.bundle = next(name for name in cluster.bundles if self.broker.owns(name))
        self.decision = self.made()

    def made(self, **changes: Any) -> Decision:
        fields = {
            "bundle": self.bundle,
            "source": A,
            "destination": B,
            "issued_ms": START,
            "expires_ms": START + 60_000,
        }
        return example_decision(**(fields | changes))

    def carry_out(
        self, decision: Decision | None = None, now_ms: int = START
    ) -> tuple[AgentVerdict, Ack]:
        verdict, ack = obeyed(
            self.broker, AgentMemory(), decision or self.decision, now_ms, self.hooks
        )
        assert ack is not None
        return verdict, ack


def obeyed(
    broker: SimBroker, seen: AgentMemory, decision: Decision, now_ms: int, hooks: MoveHooks
) -> tuple[AgentVerdict, Ack | None]:
    """What an agent does, which waits for the hook's answer."""
    verdict, ack = carry_out(broker, seen, decision, now_ms, hooks)
    if verdict.action != "wait":
        return verdict, ack
    assert ack is None
    until(lambda: decision in hooks.list_answered())
    return carry_out(broker, seen, decision, now_ms, hooks)


def until(there: Callable[[], bool], timeout_s: float = 90.0) -> None:
    end = time.monotonic() + timeout_s
    while not there():
        assert time.monotonic() < end
        time.sleep(0.005)


# --- before ---


def test_a_move_is_asked_for_with_all_that_is_to_be_known_and_allowed(server: Webhook) -> None:
    moved = Moved(before_move=server.url("/before?team=a"), secret="s3cret")
    server.reply = lambda _: (200, b'{"allow": true}')
    _, ack = moved.carry_out()
    assert ack.outcome == "released" and not moved.broker.owns(moved.bundle)
    (asked,) = server.calls
    fields = asked.fields
    assert asked.path == "/before?team=a" and fields.pop("sent_ms") > 0
    decision = moved.decision
    assert fields == {
        "event": "before_move",
        "decision_id": "eu-1:42:0",
        "cluster": "eu-1",
        "kind": "unload",
        "bundle": moved.bundle,
        "source": A,
        "destination": B,
        "reason": "Overloaded",
        "rule": "above_average",
        "strategy": "ThresholdShedder",
        "issued_ms": decision.issued_ms,
        "expires_ms": decision.expires_ms,
    }
    assert (
        asked.headers["Lb-Signature"]
        == f"sha256={hmac.new(b's3cret', asked.body, hashlib.sha256).hexdigest()}"
    )


def test_a_veto_is_a_refusal_with_its_reason_and_nothing_moves(server: Webhook) -> None:
    moved = Moved(before_move=server.url())
    server.reply = lambda _: (200, veto("a release\nis on"))
    verdict, ack = moved.carry_out()
    assert (verdict.action, ack.outcome, ack.reason) == (
        "refuse",
        "refused",
        "vetoed by the hook: a release is on",
    )
    assert moved.broker.owns(moved.bundle) and "Lb-Signature" not in server.calls[0].headers


@pytest.mark.parametrize("unanswered", ["allow", "veto"])
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((500, b""), "answers 500"),
        ((302, b""), "answers 302"),
        ((200, b"yes"), 'no JSON object with "allow"'),
        ((200, b'{"allow": "false"}'), 'no JSON object with "allow"'),
        ((200, b"[" * 100_000), 'no JSON object with "allow"'),
    ],
)
def test_an_answer_that_is_none_counts_as_it_is_set(
    server: Webhook,
    unanswered: str,
    reply: tuple[int, bytes],
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    moved = Moved(before_move=server.url("/t0ken"), unanswered=unanswered)
    server.reply = lambda _: reply
    _, ack = moved.carry_out()
    assert ack.outcome == ("released" if unanswered == "allow" else "refused")
    told = caplog.text if unanswered == "allow" else ack.reason
    assert words in told and "t0ken" not in caplog.text + ack.reason


def test_a_hook_that_hangs_costs_its_time_out(server: Webhook) -> None:
    server.hold = True
    moved = Moved(before_move=server.url(), timeout_s=0.2, unanswered="veto")
    _, ack = moved.carry_out()
    assert ack.outcome == "refused" and "gave no answer within 0.2 s" in ack.reason


def test_a_hook_that_sends_a_byte_now_and_then_costs_no_more() -> None:
    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            while not done.is_set():
                try:
                    connection.sendall(b"H")
                except OSError:
                    ended.set()
                    return
                time.sleep(0.05)

    done, ended = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(HookError) as error:
            call_hook(f"http://127.0.0.1:{listening.getsockname()[1]}/", b"{}", HookConfig(), 0.5)
        check_wording(error.value)
        assert ended.wait(30), "the connection was closed from this side"
        done.set()
        thread.join()


def test_a_hook_is_not_waited_for_longer_than_the_decision_lives(server: Webhook) -> None:
    server.hold = True
    moved = Moved(before_move=server.url(), timeout_s=60.0, unanswered="veto")
    _, ack = moved.carry_out(now_ms=moved.decision.expires_ms - 3_000)
    assert re.search(
        r"gave no answer within [0-3]\.\d s|before the decision expired", ack.reason
    ), ack.reason


def test_nobody_there_is_no_answer() -> None:
    _, ack = Moved(before_move="http://127.0.0.1:1/x", unanswered="veto").carry_out()
    assert ack.outcome == "refused"
    check_wording(ack.reason)


def test_only_moves_are_asked_for(server: Webhook) -> None:
    moved = Moved(before_move=server.url())
    moved.carry_out(moved.made(kind="assign", source=B, destination=A))
    moved.carry_out(
        moved.made(decision_id="eu-1:43:0", kind="split", destination=None, boundaries=[])
    )
    assert moved.carry_out(moved.made(expires_ms=START))[1].outcome == "refused"
    assert server.calls == []


@pytest.mark.parametrize(
    "address",
    ["ftp://h/x", "http://", "http://h:99999/", "h:80", "http://h/a b", "http://h/\nX: y"],
)
def test_an_address_that_can_not_be_one_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(ValueError, match=r"hooks\.after_move = '\*\*\*': expected http") as raised:
        HookConfig(after_move=address)
    assert address not in str(raised.value)


class Vetoed(ClosedLoop):
    """A closed loop whose brokers' agents ask a hook. `asked`: bundle → when it was asked for."""

    hooks: MoveHooks
    asked: dict[str, list[int]]

    def _obey(self, decision: Decision) -> None:
        self.decisions.append(decision)
        if decision.source is None:
            return super()._obey(decision)
        self.asked[decision.bundle].append(self.now_ms)
        _, ack = obeyed(self.brokers[decision.source], self.seen, decision, self.now_ms, self.hooks)
        self.acks += [ack] if ack is not None and ack.outcome == "refused" else []
        return None


def test_the_balancer_learns_a_veto_and_does_not_insist(server: Webhook) -> None:
    server.reply = lambda _: (200, veto("not today"))
    settings = {
        "shedding_interval_ms": 5_000,
        "unloading_timeout_ms": 10_000,
        "shedding_grace_period_ms": 1_800_000,
    }
    loop = Vetoed(build_cluster(4, 24, "hot_spot", 1, START), settings, START)
    loop.hooks, loop.asked = (
        MoveHooks(HookConfig(before_move=server.url(), timeout_s=30.0)),
        defaultdict(list),
    )
    for _ in range(120):
        loop.step(5_000)
    assert {(outcome.outcome, outcome.detail) for outcome in loop.outcomes} == {
        ("refused", "vetoed by the hook: not today")
    }
    often = max(loop.asked.values(), key=len)
    gaps = [after - before for before, after in pairwise(often)]
    assert len(gaps) >= 6 and all(
        gap >= 10_000 * min(2**number, MAX_BACK_OFF) for number, gap in enumerate(gaps)
    ), gaps
    assert len(server.calls) == sum(map(len, loop.asked.values()))


# --- after ---


def owned(decision: Decision, owner: str, version: int = 5) -> Ownership:
    return Ownership(
        cluster=decision.cluster,
        bundle=decision.bundle,
        state="Owned",
        owner=owner,
        destination=owner,
        version=version,
    )


def test_a_move_is_told_once_when_a_record_confirms_it(server: Webhook) -> None:
    moved = Moved(after_move=server.url("/after"), secret="s3cret")
    moved.carry_out()
    moved.hooks.follow("acme/other/0x0_0x1", owned(moved.decision, B))
    moved.hooks.follow(moved.bundle, owned(moved.decision, A, moved.decision.expected_version))
    moved.hooks.follow(
        moved.bundle,
        owned(moved.decision, B).model_copy(update={"state": "Assigning", "owner": None}),
    )
    assert server.calls == []
    moved.hooks.follow(moved.bundle, owned(moved.decision, B))
    moved.hooks.follow(moved.bundle, owned(moved.decision, A, 6))
    moved.hooks.close(30)
    (told,) = server.calls
    fields = told.fields
    assert told.path == "/after" and (fields["event"], fields["owner"], fields["moved"]) == (
        "after_move",
        B,
        True,
    )
    assert (
        fields["decision_id"] == moved.decision.decision_id
        and fields["took_ms"] >= 0
        and told.headers["Lb-Signature"]
    )


def test_a_move_that_came_back_is_told_as_such_and_one_that_was_refused_is_not_told(
    server: Webhook,
) -> None:
    moved = Moved(after_move=server.url(), before_move=server.url())
    server.reply = lambda _: (200, veto())
    moved.carry_out()
    moved.hooks.follow(moved.bundle, owned(moved.decision, B))
    assert [asked.fields["event"] for asked in server.calls] == ["before_move"]
    server.reply = lambda _: (200, b"")
    moved.carry_out(moved.made(decision_id="eu-1:44:0"))
    moved.hooks.follow(moved.bundle, owned(moved.decision, A))
    moved.hooks.close(30)
    assert (server.calls[-1].fields["event"], server.calls[-1].fields["moved"]) == (
        "after_move",
        False,
    )


def test_a_hook_after_moves_that_fails_is_tried_again_and_holds_nobody_up(
    server: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lb_stream.agent.hooks.PAUSE_S", 0.0)
    answers: list[int] = [500, 500, 200, 500, 500, 500]

    def reply(_: Call) -> tuple[int, bytes]:
        return answers.pop(0), b""

    server.reply = reply
    moved = Moved(after_move=server.url("/t0ken"))
    for number in (1, 2):
        moved.hooks.note_move(moved.made(decision_id=f"eu-1:{number}:0"))
        moved.hooks.follow(moved.bundle, owned(moved.decision, B))
    moved.hooks.close(60)
    assert [one.fields["decision_id"] for one in server.calls] == ["eu-1:1:0"] * 3 + [
        "eu-1:2:0"
    ] * 3
    assert caplog.text.count("a call after a move failed") == 1 and "t0ken" not in caplog.text


class Spoken:
    """An agent without Kafka: what it sent, and a turn of its loop."""

    def __init__(self, moved: Moved, **config: Any) -> None:
        self.moved, self.sent = moved, list[Ack]()
        self.agent = Agent(
            AgentConfig("127.0.0.1:1", "eu-1", hooks=HookConfig(**{"timeout_s": 60.0} | config)),
            [moved.broker],
        )
        self.agent.reporter.send = lambda _broker, value, _kind, _headers: self.sent.append(
            Ack.model_validate_json(value)
        )
        self.agent.clock.now_ms = lambda: START

    def turn(self, *decisions: Decision) -> list[str | None]:
        """Answers that have come, then decisions. Returns the brokers whose ownership changed."""
        taken = [self.agent._carry_out(decision) for decision in self.agent._hooks.list_answered()]
        return taken + [self.agent._take(decision.to_json().encode()) for decision in decisions]

    def turns(self, count: int) -> None:
        """So many as are needed until so many acknowledgements were sent."""
        until(lambda: bool(self.turn()) and len(self.sent) >= count)


def test_the_agent_asks_and_tells_by_the_records_that_it_reads(server: Webhook) -> None:
    moved = Moved()
    spoken = Spoken(moved, before_move=server.url("/b"), after_move=server.url("/a"))
    server.hold = True
    assert spoken.turn(moved.decision) == [None] and spoken.sent == []
    server.release.set()
    until(lambda: spoken.turn() == [A])
    assert [ack.outcome for ack in spoken.sent] == ["released"] and spoken.turn(moved.decision) == [
        None
    ]
    record = type(
        "Record",
        (),
        {
            "key": f"eu-1/{moved.bundle}".encode(),
            "value": owned(moved.decision, B).to_json().encode(),
        },
    )
    spoken.agent._follow([record])
    assert [one.path for one in server.wait_for(2)] == ["/b", "/a"]
    assert not [
        part for part in (server.url("/b"), server.url("/a")) if part in repr(spoken.agent.config)
    ]


def test_a_slow_hook_holds_up_the_moves_that_it_is_asked_about_and_nothing_else(
    server: Webhook,
) -> None:
    moved = Moved()
    first, second = moved.cluster.owned(A)[:2]
    foreign = moved.cluster.owned(B)[0]
    moved.cluster.release(B, foreign)
    slow, quick = moved.made(bundle=first), moved.made(bundle=second, decision_id="eu-1:43:0")

    def reply(call: Call) -> tuple[int, bytes]:
        if call.fields["bundle"] == first:
            server.release.wait(60)
        return 200, b""

    server.reply = reply
    spoken = Spoken(moved, before_move=server.url())
    spoken.turn(
        slow,
        quick,
        moved.made(bundle=foreign, source=B, destination=A, kind="assign", decision_id="eu-1:44:0"),
    )
    spoken.turns(2)
    assert sorted((ack.decision_id, ack.outcome) for ack in spoken.sent) == [
        ("eu-1:43:0", "released"),
        ("eu-1:44:0", "acquired"),
    ]
    spoken.turn(slow)
    assert moved.broker.owns(first) and len(server.calls) == 2, (
        "a decision that comes again is not asked for again"
    )
    server.release.set()
    until(lambda: spoken.turn() == [A])
    assert [ack.decision_id for ack in spoken.sent[2:]] == [
        slow.decision_id
    ] and not moved.broker.owns(first)


def test_what_expires_while_the_hook_is_asked_does_not_move(server: Webhook) -> None:
    moved, seen = Moved(before_move=server.url()), AgentMemory()
    server.hold = True
    assert carry_out(moved.broker, seen, moved.decision, START, moved.hooks)[0].action == "wait"
    server.release.set()
    until(lambda: moved.decision in moved.hooks.list_answered())
    verdict, ack = carry_out(moved.broker, seen, moved.decision, START + 60_001, moved.hooks)
    assert ack is not None
    assert (verdict.action, ack.reason) == ("refuse", "expired 1 ms ago") and moved.broker.owns(
        moved.bundle
    )
    assert moved.hooks.list_answered() == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (b'"no \\ud800 \\u001b[2J"', "no ? ?[2J"),
        (b'["a"]', "it gave no reason"),
        (b'"' + b"x" * 5_000 + b'"', "x" * 299 + "…"),
    ],
)
def test_a_reason_can_be_written_and_shown_whatever_it_is(
    server: Webhook, reason: bytes, words: str
) -> None:
    moved = Moved(before_move=server.url())
    server.reply = lambda _: (200, b'{"allow": false, "reason": ' + reason + b"}")
    _, ack = moved.carry_out()
    assert ack.to_json()
    check_wording(ack.reason)


def test_a_huge_answer_is_read_in_part_and_counts_as_none(server: Webhook) -> None:
    moved = Moved(before_move=server.url(), unanswered="veto")
    server.reply = lambda _: (200, b'{"allow": true, "more": "' + b"x" * 20_000_000 + b'"}')
    assert "no JSON object" in moved.carry_out()[1].reason
