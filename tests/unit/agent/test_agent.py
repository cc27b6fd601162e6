"""What an agent does beside obeying: heartbeats, its clock, reports that are left out, giving up what
is somebody else's. Without Kafka."""

import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from kafka.future import Future

from lb_stream.access.refusals import RefusalLog
from lb_stream.agent import Agent, AgentConfig, AgentMemory, ReportThrottle, YieldingAdapter, judge
from lb_stream.agent.carry_out import must_give_up
from lb_stream.agent.clock import RecordClock
from lb_stream.agent.obey import REMEMBERED_MS
from lb_stream.agent.producer import RecoveringProducer
from lb_stream.agent.report_throttle import CHANGES
from lb_stream.agent.reporter import HeartbeatSender
from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.decisions import Ownership, OwnershipState, example_decision
from lb_stream.contracts.reports import ReportConfig
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.reports import make_report

A, B = "broker-1:8080", "broker-2:8080"
MINUTE_MS = 60_000
CLUSTER = example_decision().cluster


def record(
    bundle: str, version: int, owner: str | None = None, decision_id: str | None = None
) -> Ownership:
    state = "Owned" if owner else "Assigning"
    return Ownership(
        cluster=CLUSTER,
        bundle=bundle,
        state=state,
        owner=owner,
        destination=owner or A,
        version=version,
        decision_id=decision_id,
    )


# --- heartbeats and the clock ---


def test_heartbeats_go_on_while_a_broker_takes_its_time_and_end_when_they_are_told_to() -> None:
    beats: list[str] = []
    pulse = HeartbeatSender([A, B], beats.append, 0.01)
    pulse.start()
    deadline = time.monotonic() + 5
    while len(beats) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    pulse.stop(5)
    count = len(beats)
    time.sleep(0.05)
    assert beats[:4] == [A, B, A, B] and len(beats) == count >= 6


class Producer:
    """Keeps what is sent, and acknowledges it at once with Kafka's own time."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.ahead_ms = ahead_ms
        self.away = False
        self.refused = False

    def send(self, _topic: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> Any:
        self.sent.append((headers[0][1].decode(), value))
        future = Future()
        if self.refused:
            return future.failure(TopicAuthorizationFailedError("reports"))
        if self.away:
            return future.failure(KafkaTimeoutError("too late"))
        return future.success(
            SimpleNamespace(timestamp=time.time_ns() // 1_000_000 + self.ahead_ms)
        )

    def recover(self) -> None:
        pass

    def close(self, timeout: float) -> None:
        pass


def test_a_producer_that_lost_a_record_is_replaced_once_kafka_answers() -> None:
    made: list[Producer | KafkaError] = [Producer(), KafkaConnectionError(), Producer()]
    closed: list[Producer] = []

    def make() -> Any:
        one = made.pop(0)
        if isinstance(one, KafkaError):
            raise one
        one.close = lambda timeout: closed.append(one)
        return one

    lasting = RecoveringProducer(make, lambda _error, _doing: False)
    first = lasting._producer
    record: Any = {"key": b"k", "value": b"1", "headers": [("kind", b"report")]}
    lasting.send("reports", **record)
    lasting.recover()
    assert lasting._producer is first and len(made) == 2
    first.away = True
    lasting.send("reports", **record)
    lasting.recover()
    assert lasting._producer is first and not closed, "Kafka does not answer yet"
    lasting.recover()
    assert lasting._producer is not first and closed == [first]
    first.send("reports", **record)  # what the old one still loses
    lasting.recover()
    assert not made and closed == [first]


def test_a_producer_that_was_refused_is_replaced_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = RefusalLog("kafka-1:9093", {})
    made = [Producer(), Producer()]
    made[0].refused = True
    lasting = RecoveringProducer(lambda: made.pop(0), refusals.note)
    first, record = (
        lasting._producer,
        dict[str, Any](**{"key": b"k", "value": b"1", "headers": [("kind", b"report")]}),
    )
    lasting.send("reports", **record)
    lasting.recover()
    assert lasting._producer is first, "it is too soon to try again"
    monkeypatch.setattr(lasting, "_wait_until", 0.0)
    lasting.recover()
    assert lasting._producer is not first and not made


class Consumer:
    """Hands out some records, once."""

    def __init__(self, *records: tuple[str, str, Ownership | None]) -> None:
        values = [
            (topic, key.encode(), None if value is None else value.to_json().encode())
            for topic, key, value in records
        ]
        self.records = [
            SimpleNamespace(topic=topic, key=key, value=value) for topic, key, value in values
        ]

    def poll(self, timeout_ms: int) -> Mapping[int, list[Any]]:
        records, self.records = self.records, []
        time.sleep(0.001)
        return {0: records}

    def close(self) -> None:
        pass


def started(
    agent: Agent, producer: Producer, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> Agent:
    def connect() -> None:
        agent.connection.producer, agent.connection.consumer = producer, consumer

    monkeypatch.setattr(agent.connection, "open", connect)
    agent.start()
    return agent


def until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_broker_whose_agent_waits_for_it_is_heard_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, entered = threading.Event(), threading.Event()

    class Slow(SimBroker):
        def report(self) -> dict[str, Any]:
            entered.set()
            slow.wait(10)
            return super().report()

    producer = Producer(ahead_ms=3_600_000)
    config = AgentConfig("unused:9092", CLUSTER, heartbeat_interval_s=0.01)
    agent = started(
        Agent(config, [Slow(build_cluster(bundles=6), A)]), producer, Consumer(), monkeypatch
    )
    entered.wait(10)
    until(lambda: sum(kind == "heartbeat" for kind, _ in producer.sent) >= 3)
    assert not any(kind == "report" for kind, _ in producer.sent)
    slow.set()
    until(lambda: any(kind == "report" for kind, _ in producer.sent))
    agent.stop(goodbye=True)
    assert producer.sent[-1][0] == "goodbye" and agent.failure is None
    assert abs(agent.clock.ahead_ms - 3_600_000) < 1_000, "its time is that of the records"


def test_the_clock_follows_the_stamps_of_records_that_were_acknowledged_soon() -> None:
    now = [1_000_000]
    clock = RecordClock(lambda: now[0])
    assert clock.now_ms() == 1_000_000
    clock.note(sent_ms=999_980, append_ms=2_000_000)
    assert clock.now_ms() == 2_000_010
    now[0] += 60_000
    clock.note(sent_ms=1_000_000, append_ms=5_000_000)
    clock.note(sent_ms=now[0], append_ms=-1)
    assert clock.now_ms() == 2_060_010, (
        "one that took a minute tells nothing, nor does one without a stamp"
    )


# --- stale decisions ---


@pytest.mark.parametrize(
    ("known", "refused"),
    [
        (None, False),
        ((4, "earlier"), False),
        ((5, "earlier"), False),
        ((6, "own"), False),
        ((6, "other"), True),
        ((7, "own"), True),
    ],
)
def test_a_decision_is_refused_when_a_later_record_of_its_bundle_is_known(
    known: tuple[int, str] | None, refused: bool
) -> None:
    decision = example_decision(source=A, expected_version=5, decision_id="own")
    seen = AgentMemory()
    if known is not None:
        seen.note_record(
            decision.bundle, record(decision.bundle, known[0], B, known[1]), decision.issued_ms
        )
    verdict = judge(A, seen, decision, owns=True, now_ms=decision.issued_ms)
    assert verdict.action == ("refuse" if refused else "release")
    assert not refused or f"at {known[0] if known else 0} now" in verdict.reason


def test_records_are_remembered_only_as_long_as_they_are_of_use() -> None:
    seen = AgentMemory()
    seen.note_record("t/n/1", record("t/n/1", 2), 0)
    seen.note_record("t/n/2", record("t/n/2", 1), 0)
    assert list(seen.records) == ["t/n/1"], "nothing comes before a first record"
    seen.note_record("t/n/3", record("t/n/3", 2), REMEMBERED_MS + 1)
    assert list(seen.records) == ["t/n/3"]
    seen.note_record("t/n/3", None, REMEMBERED_MS + 2)
    assert not seen.records


# --- what is somebody else's ---


def test_a_broker_gives_up_what_another_one_owns_by_now_and_reports_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = build_cluster(bundles=6)
    broker, (mine, kept, *_) = SimBroker(cluster, A), sorted(cluster.bundles)
    cluster.model.owner[[cluster.row(mine), cluster.row(kept)]] = cluster.broker_row(A)
    assert isinstance(broker, YieldingAdapter)
    of = "lb-ownership"
    consumer = Consumer(
        (of, f"{CLUSTER}/{mine}", record(mine, 3)),
        (of, f"{CLUSTER}/{mine}", record(mine, 4, B)),
        (of, f"{CLUSTER}/{kept}", record(kept, 4, B)),
        (of, f"{CLUSTER}/{kept}", record(kept, 5, A)),
        (of, f"other/{kept}", record(kept, 6, B)),
        (of, f"{CLUSTER}/gone", None),
    )
    producer = Producer()
    agent = started(
        Agent(AgentConfig("unused:9092", CLUSTER, report_interval_s=600), [broker]),
        producer,
        consumer,
        monkeypatch,
    )
    until(lambda: sum(kind == "report" for kind, _ in producer.sent) == 2)
    agent.stop()
    assert not cluster.owns(A, mine) and cluster.owns(A, kept)
    assert set(agent.memory.records) == {mine, kept}


@pytest.mark.parametrize(
    ("state", "owner", "gives_up"),
    [
        ("Owned", B, True),
        ("Owned", A, False),
        ("Deleted", None, True),
        ("Splitting", A, False),
        ("Assigning", None, False),
        ("Free", None, False),
    ],
)
def test_what_was_split_or_merged_is_given_up_as_what_another_one_owns(
    state: OwnershipState, owner: str | None, gives_up: bool
) -> None:
    ended = record("t/n/0", 4).model_copy(update={"state": state, "owner": owner})
    assert must_give_up(A, ended) is gives_up


# --- reports that are left out ---


def report(broker_cpu: float, bundles: int = 4, **changes: Any) -> dict[str, Any]:
    stats = {f"t/n/{number}": {"msgRateIn": 10.0} for number in range(bundles)}
    return {
        "cpu": {"usage": broker_cpu, "limit": 100.0},
        "lastStats": stats,
        "numBundles": bundles,
        "msgRateIn": 40.0,
    } | changes


@pytest.mark.parametrize(
    ("next_report", "after_ms", "needed"),
    [
        (report(50.0), 14 * MINUTE_MS, False),
        (report(50.0), 15 * MINUTE_MS + 1, True),
        (report(59.9), 5_000, False),
        (report(60.1), 5_000, True),
        (report(50.0, msgRateIn=44.1), 5_000, True),
        (report(50.0, bundles=5), 5_000, True),
        (report(50.0, lastStats={f"t/n/{number}": {} for number in range(1, 5)}), 5_000, True),
    ],
)
def test_a_report_is_sent_when_something_has_changed_enough_or_long_ago(
    next_report: dict[str, Any], after_ms: int, needed: bool
) -> None:
    throttle = ReportThrottle(ReportConfig())
    assert throttle.take(report(50.0), 0, forced=False) == report(50.0), "the first one always"
    assert throttle.take(next_report, after_ms, forced=False) == (next_report if needed else None)
    assert throttle.take(report(50.0), after_ms, forced=True) == report(50.0)


def test_the_extensible_managers_brokers_look_at_their_plain_usage() -> None:
    only_memory = BalancerConfig(cpu_weight=0)
    for manager, needed in (("modular", False), ("extensible", True)):
        throttle = ReportThrottle.for_manager(
            ReportConfig(), only_memory.model_copy(update={"load_manager": manager})
        )()
        throttle.take(report(50.0), 0, forced=False)
        assert (throttle.take(report(70.0), 1, forced=False) is not None) is needed


@pytest.mark.parametrize(
    ("usage", "bundles", "needed"), [(108.9, 2, False), (109.0, 2, True), (98.0, 3, True)]
)
def test_the_simple_managers_brokers_look_at_each_resource_in_whole_percent(
    usage: float, bundles: int, needed: bool
) -> None:
    def simple(used: float, count: int) -> dict[str, Any]:
        return {
            "systemResourceUsage": {"cpu": {"usage": used, "limit": 100.0}},
            "bundleStats": {f"t/n/{n}": {} for n in range(count)},
        }

    throttle = ReportThrottle(ReportConfig())
    throttle.take(simple(98.0, 2), 0, forced=False)
    assert (throttle.take(simple(usage, bundles), 1, forced=False) is not None) is needed


def test_load_data_that_its_broker_has_chosen_to_write_is_sent_as_it_is() -> None:
    throttle, written = ReportThrottle(ReportConfig()), b'{"weightedMaxEMA": 0.5}'
    assert [throttle.take(written, at, forced=False) for at in (0, 1)] == [written, written]


def test_what_was_gained_and_lost_in_reports_that_were_not_sent_is_told_by_the_next_one() -> None:
    throttle = ReportThrottle(ReportConfig())
    throttle.take(report(50.0), 0, forced=False)
    assert throttle.take(report(50.0, lastBundleGains=["t/n/9"]), 1, forced=False) is None
    sent = throttle.take(
        report(50.0, lastBundleGains=["t/n/8"], lastBundleLosses=["t/n/7"]), 2, forced=True
    )
    assert isinstance(sent, dict)
    assert {name: sent.get(name) for name in CHANGES[:2]} == {
        "lastBundleGains": ["t/n/8", "t/n/9"],
        "lastBundleLosses": ["t/n/7"],
    }


def test_an_agent_that_spares_its_reports_sends_the_first_and_the_forced_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = build_cluster(bundles=6, workload_name="steady")
    cluster.model.noise_ratio = 0.0
    config = AgentConfig(
        "unused:9092",
        CLUSTER,
        report_interval_s=0.005,
        make_throttle=lambda: ReportThrottle(ReportConfig()),
    )
    producer, looked = Producer(), []
    broker = SimBroker(cluster, A)
    monkeypatch.setattr(
        broker, "report", lambda: looked.append(1) or make_report(cluster, A, 1_000)
    )
    agent = started(Agent(config, [broker]), producer, Consumer(), monkeypatch)
    until(lambda: len(looked) > 5)
    agent.stop()
    assert sum(kind == "report" for kind, _ in producer.sent) == 1


class Mortal(SimBroker):
    """A broker that its agent can find dead. It says the same in all of its reports."""

    def __init__(self) -> None:
        self.dead = False
        self.given = report(50.0)
        super().__init__(build_cluster(bundles=6), A)

    def alive(self) -> bool:
        return not self.dead

    def report(self) -> dict[str, Any]:
        return self.given


class Sparingly:
    """An agent of one broker that leaves needless reports out, and what it sends."""

    def __init__(self) -> None:
        self.broker, self.producer = Mortal(), Producer()
        self.agent = Agent(
            AgentConfig(
                "unused:9092", CLUSTER, make_throttle=lambda: ReportThrottle(ReportConfig())
            ),
            [self.broker],
        )
        self.agent.connection.producer = self.producer

    def reports(self, looks: int) -> int:
        """How many reports come of so many looks."""
        before = len(self.producer.sent)
        for _ in range(looks):
            self.agent.reporter.send_report(A)
        return sum(kind == "report" for kind, _ in self.producer.sent[before:])


def test_a_broker_that_was_silent_reports_when_it_is_back_whatever_has_changed() -> None:
    one = Sparingly()
    assert one.reports(3) == 1
    one.broker.dead = True
    one.agent.reporter.send_heartbeat(
        A
    )  # it may be taken for dead now, and its bundles be given to others
    one.broker.dead = False
    one.agent.reporter.send_heartbeat(A)
    assert one.reports(3) == 1


@pytest.mark.parametrize("kind", ["report", "heartbeat", "ack"])
def test_after_a_record_that_did_not_reach_kafka_a_report_is_sent_whatever_has_changed(
    kind: str,
) -> None:
    one = Sparingly()
    assert one.reports(1) == 1
    one.producer.away = True
    if kind == "report":
        one.broker.given = report(80.0)
        assert one.reports(1) == 1
    else:
        one.agent.reporter.send(A, "{}", kind)
    one.producer.away = False
    assert one.reports(3) == 1


def test_a_balancer_that_was_started_anew_gets_a_report() -> None:
    one = Sparingly()
    for epoch, reports in ((3, 1), (3, 0), (4, 1), (3, 0)):
        one.agent._take(example_decision(epoch=epoch, source="elsewhere:1").to_json().encode())
        assert one.reports(2) == reports, epoch


def test_a_report_that_is_owed_stays_so_while_the_broker_keeps_its_reports_back() -> None:
    one = Sparingly()
    assert one.reports(1) == 1
    one.agent.reporter.note_trouble(A, "does not answer")
    kept, one.broker.given = one.broker.given, []
    assert one.reports(1) == 0
    one.broker.given = kept
    assert one.reports(2) == 1


# --- rollouts ---


def test_an_agent_says_that_a_rollout_empties_its_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = build_cluster(bundles=6)
    broker = SimBroker(cluster, A)
    mine = sorted(cluster.bundles)[0]
    cluster.model.owner[:] = cluster.broker_row(B)
    cluster.model.owner[cluster.row(mine)] = cluster.broker_row(A)
    agent = Agent(AgentConfig("unused:9092", CLUSTER, report_interval_s=600), [broker])
    now_ms = time.time_ns() // 1_000_000
    decision = example_decision(
        source=A, bundle=mine, rule="rollout", issued_ms=now_ms, expires_ms=now_ms + 60_000
    )
    consumer = Consumer()
    consumer.records = [
        SimpleNamespace(
            topic="lb-decisions",
            key=None,
            value=decision.to_json().encode(),
            headers=[],
            timestamp=now_ms,
        )
    ]
    started(agent, Producer(), consumer, monkeypatch)
    until(lambda: "is empty" in caplog.text)
    agent.stop()
    lines = [
        record.getMessage() for record in caplog.records if record.name.endswith("rollout_log")
    ]
    assert [line.partition(": ")[0] for line in lines] == [
        f"{A} is to be restarted by a rollout",
        f"{A} is empty",
    ]
