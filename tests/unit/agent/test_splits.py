"""What an agent does with a decision to split or merge, without Kafka: what it would send is
collected."""

import json

import pytest

from lb_stream.agent import Agent, AgentConfig, MergingAdapter, SplittingAdapter
from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.reports import Ack
from lb_stream.core.model.names import bundle_name, parse_bundle
from lb_stream.sim import SimBroker, SimCluster, build_cluster

FAR_MS = 4_000_000_000_000
BROKER = "broker-1:8080"


class NoSplits:
    """A broker that knows nothing of splits and merges."""

    name = BROKER

    def owns(self, bundle: str) -> bool:
        return True


def obeyed(
    adapter: object, decision: Decision, monkeypatch: pytest.MonkeyPatch
) -> tuple[Ack, str | None]:
    """The acknowledgement, and the broker that reports at once."""
    agent = Agent(AgentConfig("unused:9092", decision.cluster), [adapter])
    sent: list[str] = []
    monkeypatch.setattr(
        agent.reporter, "send", lambda broker, value, kind, headers: sent.append(value)
    )
    changed = agent._take(decision.to_json().encode())
    (ack,) = sent
    return Ack.model_validate_json(ack), changed


def split_of(bundle: str, boundaries: list[int]) -> Decision:
    return example_decision(
        kind="split",
        bundle=bundle,
        source=BROKER,
        destination=None,
        boundaries=boundaries,
        expires_ms=FAR_MS,
    )


def test_a_split_is_done_acknowledged_and_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = build_cluster(bundles=6)
    bundle = min(cluster.owned(BROKER))
    lower = int(bundle.rpartition("/")[2][2:10], 16)
    broker = SimBroker(cluster, BROKER)
    assert isinstance(broker, SplittingAdapter)
    ack, changed = obeyed(broker, split_of(bundle, [lower + 16]), monkeypatch)
    assert (ack.outcome, changed) == ("split", BROKER)
    assert (
        not cluster.owns(BROKER, bundle) and f"{bundle[:-10]}0x{lower + 16:08x}" in cluster.owners()
    )


def merge_of(cluster: SimCluster, at: int) -> Decision:
    """Of two bundles of the broker, the later one first."""
    namespace, _, upper = parse_bundle(first := sorted(cluster.owned(BROKER))[at])
    second = sorted(cluster.owned(BROKER))[at + 1]
    merged = bundle_name(namespace, parse_bundle(first).lower, parse_bundle(second).upper)
    assert parse_bundle(second)[:2] == (namespace, upper)
    common = {"source": BROKER, "destination": None, "expires_ms": FAR_MS}
    return example_decision(
        kind="merge", bundle=first, neighbour=second, children=[merged], **common
    )


def one_broker() -> SimCluster:
    return build_cluster(brokers=1, bundles=6, workload_name="steady")


def test_a_merge_is_done_acknowledged_and_reported_at_once_and_the_bundle_carries_what_both_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = one_broker()
    decision, broker = merge_of(cluster, 0), SimBroker(cluster, BROKER)
    carried = sum(cluster.bundle_load(name, 0).throughput_bytes_per_s for name in decision.bundles)
    assert isinstance(broker, MergingAdapter)
    ack, changed = obeyed(broker, decision, monkeypatch)
    assert (ack.outcome, ack.bundle, changed) == ("merged", None, BROKER)
    assert len(cluster.bundles) == 5 and not set(decision.bundles) & set(cluster.bundles)
    assert cluster.bundle_load(decision.children[0], 0).throughput_bytes_per_s == pytest.approx(
        carried
    )


def test_a_merge_of_which_one_half_is_elsewhere_is_refused_and_one_that_goes_wrong_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = one_broker()
    wrong = merge_of(cluster, 0).model_copy(update={"children": [merge_of(cluster, 1).children[0]]})
    ack, _ = obeyed(SimBroker(cluster, BROKER), wrong, monkeypatch)
    assert ack.outcome == "failed" and "are not the two halves of" in ack.reason
    decision = merge_of(cluster, 0)
    cluster.release(BROKER, str(decision.neighbour))
    ack, changed = obeyed(SimBroker(cluster, BROKER), decision, monkeypatch)
    assert (ack.outcome, changed) == (
        "refused",
        None,
    ) and f"or {decision.neighbour} is not served here" in ack.reason


def test_a_broker_that_cannot_merge_refuses_and_its_heartbeats_do_not_say_that_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = one_broker()
    ack, _ = obeyed(NoSplits(), merge_of(cluster, 0), monkeypatch)
    assert (ack.outcome, ack.reason) == ("refused", "this broker can't merge")
    said = []
    for adapter in (NoSplits(), SimBroker(cluster, BROKER)):
        agent = Agent(AgentConfig("unused:9092", "eu"), [adapter])
        monkeypatch.setattr(
            agent.reporter,
            "send",
            lambda broker, value, kind: said.append("merges" in json.loads(value)),
        )
        agent.reporter.send_heartbeat(BROKER)
    assert said == [False, True]


def test_a_broker_that_cannot_split_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    ack, changed = obeyed(NoSplits(), split_of("t/n/0x00000000_0x80000000", []), monkeypatch)
    assert (ack.outcome, ack.reason, changed) == ("refused", "this broker can't split", None)


def test_a_split_that_goes_wrong_is_told_to_the_balancer(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = build_cluster(bundles=6)
    bundle = min(cluster.owned(BROKER))
    ack, _ = obeyed(SimBroker(cluster, BROKER), split_of(bundle, [0]), monkeypatch)
    assert ack.outcome == "failed" and "strictly inside" in ack.reason
    assert cluster.owns(BROKER, bundle)
