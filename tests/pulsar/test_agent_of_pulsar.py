"""A Pulsar broker's agent without Kafka: decisions come in, what it would send is collected."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace

import pytest

from lb_stream.agent import Agent, AgentConfig, AgentVerdict, SplitWatch
from lb_stream.agent.reporter import BALANCING_MAX_AGE_S
from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.reports import Ack, Heartbeat, SplitAsk
from lb_stream.core.model.memory import Memory
from lb_stream.settings.resolve import cluster_config
from lb_stream.stream.cluster_input import ClusterInput
from lb_stream.stream.records import parse_agent_record
from tests.pulsar.fake_cluster import Call, FakeCluster, Reply, fake_cluster
from tests.support.wordings import check_wording

FAR_MS = 4_000_000_000_000


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


class Told:
    """An agent of one broker, and all that it has sent: (kind, bytes)."""

    def __init__(self, cluster: FakeCluster, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.adapter = cluster, cluster.adapter(number)
        self.sent: list[tuple[str, bytes]] = []
        self.done: list[AgentVerdict | None] = []
        self.reports: list[object] = []
        self.agent = Agent(
            AgentConfig("unused:9092", "eu-1"),
            [self.adapter],
            on_report=lambda _, report: self.reports.append(report),
            on_decision=lambda _decision, _broker, verdict: self.done.append(verdict),
        )
        monkeypatch.setattr(self.agent.reporter, "send", self._keep)

    def _keep(self, broker: str, value: str | bytes, kind: str, headers: object = ()) -> None:
        assert broker == self.adapter.name
        self.sent.append((kind, value if isinstance(value, bytes) else value.encode()))

    def take(self, decision: Decision) -> Ack:
        """What it acknowledges."""
        before = len(self.sent)
        self.agent._take(decision.to_json().encode())
        ((kind, value),) = self.sent[before:]
        assert kind == "ack"
        return Ack.model_validate_json(value)


@pytest.fixture
def agent(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Told]:
    return lambda number: Told(cluster, number, monkeypatch)


def decision(cluster: FakeCluster, bundle: int = 0, **changes: object) -> Decision:
    fields = {
        "source": cluster.names[0],
        "destination": cluster.names[1],
        "bundle": cluster.bundle(bundle),
        "expires_ms": FAR_MS,
    }
    return example_decision(**fields | changes)


def test_an_unload_is_carried_out_by_pulsar_and_its_assignment_finds_it_done(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    assert agent(0).take(decision(cluster)).outcome == "released"
    assert cluster.owners[cluster.ranges[0]] == 1
    assignment = decision(cluster, kind="assign", source=None, decision_id="eu-1:43:0")
    assert agent(1).take(assignment).outcome == "acquired"
    assert len(cluster.acts()) == 1  # the assignment only looks


def test_a_move_that_took_two_unloads_is_acknowledged_once_and_says_so(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    def elsewhere_first(call: Call) -> Reply | None:
        if call.method != "PUT" or cluster.owners[cluster.ranges[0]] != 0:
            return None
        cluster.owners[cluster.ranges[0]] = 2
        return 204, b"", {}

    cluster.before = elsewhere_first
    ack = agent(0).take(decision(cluster))
    assert ack.outcome == "released" and cluster.owners[cluster.ranges[0]] == 1
    check_wording(ack.reason)


def test_an_unload_that_names_no_destination_and_comes_back_is_told_as_failed(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    told = agent(0)
    ack = told.take(decision(cluster, destination=None))
    assert ack.outcome == "failed" and "given it back" in ack.reason
    assert told.done == [AgentVerdict("release", ack.reason)]


def test_a_bundle_that_is_served_elsewhere_is_not_unloaded(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    ack = agent(0).take(decision(cluster, bundle=1))
    assert (ack.outcome, ack.reason) == ("refused", f"{cluster.bundle(1)} is not served here")
    assert not cluster.acts()  # Pulsar would unload it all the same


def test_a_refusal_is_told_with_its_reason_and_nothing_has_changed(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    cluster.runtimes[0]["loadBalancerSheddingEnabled"] = "true"
    told = agent(0)
    ack = told.take(decision(cluster))
    assert ack.outcome == "refused" and "lbctl agent own-balancing off" in ack.reason
    assert told.done == [AgentVerdict("refuse", ack.reason)]


def test_a_split_is_asked_for_with_the_decisions_word_on_its_children(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    split = decision(
        cluster,
        kind="split",
        destination=None,
        boundaries=[0x20000000],
        algorithm="range_equally_divide",
        unload_children=True,
    )
    assert agent(0).take(split).outcome == "split"
    assert [call.query["unload"] for call in cluster.acts()] == ["true"]


def test_pulsars_brokers_do_not_say_that_they_can_merge_and_refuse_it(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    told = agent(0)
    told.agent.reporter.send_heartbeat(told.adapter.name)
    assert [(kind, "merges" in json.loads(value)) for kind, value in told.sent] == [
        ("heartbeat", False)
    ]
    told.sent.clear()
    ack = told.take(
        decision(
            cluster,
            kind="merge",
            destination=None,
            neighbour=cluster.bundle(3),
            children=[cluster.bundle(0)],
        )
    )
    assert (ack.outcome, ack.reason, cluster.acts()) == ("refused", "this broker can't merge", [])


def test_a_broker_that_cannot_be_asked_is_told_as_failed_without_a_traceback(
    cluster: FakeCluster, agent: Callable[[int], Told], caplog: pytest.LogCaptureFixture
) -> None:
    told = agent(0)
    cluster.stop(0)
    ack = told.take(decision(cluster))
    assert ack.outcome == "failed" and "Connection refused" in ack.reason
    assert [record.exc_info for record in caplog.records] == [None]


def test_reports_are_sent_as_the_broker_wrote_them(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    told = agent(0)
    told.agent.reporter.send_report(told.adapter.name)
    ((kind, value),) = told.sent
    assert kind == "report" and value == told.adapter.report()
    assert told.reports == [json.loads(value)]


def test_a_report_that_is_kept_back_sends_nothing(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    told = agent(0)
    told.agent.reporter.send_report(told.adapter.name)
    told.take(decision(cluster))
    told.agent.reporter.send_report(told.adapter.name)
    assert [kind for kind, _ in told.sent] == ["report", "ack"]


def test_a_broker_that_does_not_answer_gets_no_heartbeat_and_one_line_in_the_log(
    cluster: FakeCluster, agent: Callable[[int], Told], caplog: pytest.LogCaptureFixture
) -> None:
    told = agent(2)
    told.agent.reporter.send_heartbeat(told.adapter.name)
    assert [kind for kind, _ in told.sent] == ["heartbeat"]
    cluster.stop(2)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            told.agent.reporter.send_heartbeat(told.adapter.name)
            told.agent.reporter.send_report(told.adapter.name)
    assert len(told.sent) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"{told.adapter.name} does not answer: no heartbeat is sent for it"
    ]


def test_heartbeats_tell_what_pulsar_balances_by_itself_as_it_was_when_the_last_report_was_made(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    told, key = agent(0), "loadBalancerSheddingEnabled"
    clock = [100.0]
    told.adapter.guard._clock = lambda: clock[0]
    beats = []
    for switched in ("true", "true", "false"):
        cluster.runtimes[0][key] = switched
        clock[0] += 10
        if len(beats) == 1:  # who can't be asked is still taken for what he said last
            cluster.before = lambda call: (500, b"", {}) if call.path.endswith("runtime") else None
        else:
            cluster.before = lambda call: None
        told.agent.reporter.read_own_balancing(told.adapter.name)
        told.agent.reporter.send_heartbeat(told.adapter.name)
        beats.append(json.loads(told.sent[-1][1])["balances"])
    assert beats == [[key], [key], []]


def test_heartbeats_do_not_repeat_for_long_what_cannot_be_read_any_more(
    cluster: FakeCluster, agent: Callable[[int], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster counted as balancing by itself long after both keys were off."""
    told, key = agent(0), "loadBalancerSheddingEnabled"
    reporter, clock = told.agent.reporter, [100.0]
    monkeypatch.setattr(
        "lb_stream.agent.reporter.time", SimpleNamespace(monotonic=lambda: clock[0])
    )
    cluster.runtimes[0][key] = "true"
    beats = []
    reporter.send_heartbeat(told.adapter.name)  # nothing has been read yet
    beats.append(json.loads(told.sent[-1][1])["balances"])
    for later_s in (0, BALANCING_MAX_AGE_S - 1, 1):
        clock[0] += later_s
        reporter.read_own_balancing(told.adapter.name)
        cluster.before = lambda call: (500, b"", {}) if call.path.endswith("runtime") else None
        told.adapter.guard.forget()
        reporter.send_heartbeat(told.adapter.name)
        beats.append(json.loads(told.sent[-1][1])["balances"])
    assert beats == [None, [key], [key], None]


def test_a_broker_that_gives_no_report_is_still_asked_whether_pulsar_balances(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    told, key = agent(0), "loadBalancerSheddingEnabled"
    cluster.before = lambda call: (500, b"", {}) if call.path.endswith("load-report") else None
    beats = []
    for switched in ("true", "false"):
        cluster.runtimes[0][key] = switched
        told.adapter.guard.forget()
        told.agent.reporter.send_report(told.adapter.name)
        told.agent.reporter.read_own_balancing(told.adapter.name)
        told.agent.reporter.send_heartbeat(told.adapter.name)
        beats.append(json.loads(told.sent[-1][1])["balances"])
    assert beats == [[key], []]


def test_a_heartbeat_of_an_agent_that_does_not_know_ends_what_the_round_has_heard() -> None:
    payload = parse_agent_record("heartbeat", Heartbeat(balances=None).to_json().encode())
    event = {"kind": "heartbeat", "broker": "a:1", "append_ms": 1, "partition": 0, "offset": 1}
    arrived = ClusterInput("eu-1", [], [event | {"payload": payload}], (), [], forgotten=False)
    assert arrived.balances(Memory(balances={"a:1": ("key",)})) == {"a:1": ()}
    assert arrived.balances(Memory()) == {}


def test_heartbeats_name_the_settings_that_differ_and_compare_only_what_has_changed(
    cluster: FakeCluster, agent: Callable[[int], Told]
) -> None:
    told, compared = agent(0), []
    key = "loadBalancerBrokerMaxTopics"

    def compare(runtime: Mapping[str, object], version: str | None) -> list[str]:
        compared.append(version)
        return [key] if runtime.get(key) else []

    told.adapter._compare = compare
    beats = []
    for value in ("7", "7", ""):
        cluster.runtimes[0][key] = value
        told.adapter.guard.forget()
        told.agent.reporter.read_own_balancing(told.adapter.name)
        told.agent.reporter.send_heartbeat(told.adapter.name)
        beats.append(json.loads(told.sent[-1][1]).get("differing"))
    assert (beats, compared) == ([[key], [key], None], ["5.0.1", "5.0.1"])


def test_the_round_hears_of_settings_that_differ_when_its_memory_has_others() -> None:
    beats = {"a:1": ["k1"], "b:1": [], "c:1": []}
    events = [
        {"kind": "heartbeat", "broker": broker, "append_ms": 1, "partition": 0, "offset": at}
        | {"payload": parse_agent_record("heartbeat", Heartbeat(differing=keys).to_json().encode())}
        for at, (broker, keys) in enumerate(beats.items())
    ]
    arrived = ClusterInput("eu-1", [], events, (), [], forgotten=False)
    assert arrived.differing(Memory(differing={"k2": ("b:1",)})) == {"a:1": ("k1",), "b:1": ()}
    assert arrived.differing(Memory(differing={"k1": ("a:1",)})) == {}


def test_the_round_hears_of_brokers_that_balance_by_themselves_and_of_those_that_did() -> None:
    beats = {"a:1": ["loadBalancerSheddingEnabled"], "b:1": [], "c:1": []}
    events = [
        {"kind": "heartbeat", "broker": broker, "append_ms": 1, "partition": 0, "offset": at}
        | {
            "payload": parse_agent_record(
                "heartbeat", Heartbeat(sent_ms=1, balances=keys).to_json().encode()
            )
        }
        for at, (broker, keys) in enumerate(beats.items())
    ]
    events.append(events[0] | {"broker": "d:1", "payload": parse_agent_record("heartbeat", b"")})
    arrived = ClusterInput("eu-1", [], events, (), [], forgotten=False)
    assert arrived.balances(Memory(balances={"b:1": ("key",)})) == {
        "a:1": ("loadBalancerSheddingEnabled",),
        "b:1": (),
    }


def test_an_extensible_broker_asks_for_the_split_of_a_large_bundle_and_carries_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = cluster_config({"bundle_max_topics": 4, "split_hit_count": 1})
    with fake_cluster(manager="extensible") as cluster:
        cluster.topics[cluster.ranges[3]] = 5
        told = Told(cluster, 0, monkeypatch)
        watch = SplitWatch(config.splitting, config.split_algorithms)
        for asks in ([], [("ask", cluster.bundle(3), "Topics", [0xDFFFFFFF])]):
            told.agent.reporter.request_splits(told.adapter, watch)
            assert [
                (kind, ask.bundle, ask.reason, ask.boundaries) for kind, ask in sent_asks(told)
            ] == asks
        ask = sent_asks(told)[0][1]
        split = decision(
            cluster,
            3,
            kind="split",
            destination=None,
            boundaries=ask.boundaries,
            algorithm=ask.algorithm,
        )
        assert told.take(split).outcome == "split" and 0xDFFFFFFF in cluster.boundaries


def sent_asks(told: Told) -> list[tuple[str, SplitAsk]]:
    return [(kind, SplitAsk.model_validate_json(value)) for kind, value in told.sent]


def test_bundles_that_cannot_be_looked_at_are_one_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = cluster_config({})
    with fake_cluster(manager="extensible") as cluster:
        told = Told(cluster, 0, monkeypatch)
        cluster.before = lambda call: (403, b"", {}) if call.path.endswith("topics") else None
        told.agent.reporter.request_splits(
            told.adapter, SplitWatch(config.splitting, config.split_algorithms)
        )
    (line,) = caplog.records
    assert (
        line.exc_info is None
        and "broker-stats/topics answers 403: the token's role must be a superuser"
        in line.getMessage()
    )
    assert told.sent == []


def test_the_bundles_of_a_broker_that_does_not_answer_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = cluster_config({})
    with fake_cluster(manager="extensible") as cluster:
        told = Told(cluster, 2, monkeypatch)
        cluster.stop(2)
        told.agent.reporter.send_heartbeat(told.adapter.name)
        told.agent.reporter.request_splits(
            told.adapter, SplitWatch(config.splitting, config.split_algorithms)
        )
    assert [record.getMessage() for record in caplog.records] == [
        f"{told.adapter.name} does not answer: no heartbeat is sent for it"
    ]


def test_an_adapter_that_fails_to_compare_settings_does_not_end_its_agent(
    agent: Callable[[int], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = agent(0)

    def fail() -> list[str]:
        raise KeyError("a defect of the adapter's")

    monkeypatch.setattr(told.adapter, "differing", fail)
    told.agent.reporter.read_own_balancing(told.adapter.name)
    told.agent.reporter.send_heartbeat(told.adapter.name)
    assert told.sent
