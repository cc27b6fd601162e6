"""What an agent does with a decision to split, without Kafka: what it would send is collected."""

import pytest

from lb_stream.agent import Agent, AgentConfig, SplittingAdapter
from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.reports import Ack
from lb_stream.sim import SimBroker, build_cluster

FAR_MS = 4_000_000_000_000
BROKER = "broker-1:8080"


class NoSplits:
    """A broker that knows nothing of splits."""

    name = BROKER

    def owns(self, bundle: str) -> bool:
        return True


def obeyed(adapter: object, decision: Decision, monkeypatch: pytest.MonkeyPatch) -> tuple[Ack, str | None]:
    """The acknowledgement, and the broker that reports at once."""
    agent = Agent(AgentConfig("unused:9092", decision.cluster), [adapter])  # type: ignore[list-item]
    sent: list[str] = []
    monkeypatch.setattr(agent.reporter, "send", lambda broker, value, kind: sent.append(value))
    changed = agent._take(decision.to_json().encode())
    (ack,) = sent
    return Ack.model_validate_json(ack), changed


def split_of(bundle: str, boundaries: list[int]) -> Decision:
    return example_decision(kind="split", bundle=bundle, source=BROKER, destination=None, boundaries=boundaries, expires_ms=FAR_MS)


def test_a_split_is_done_acknowledged_and_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = build_cluster(bundles=6)
    bundle = min(cluster.owned(BROKER))
    lower = int(bundle.rpartition("/")[2][2:10], 16)
    broker = SimBroker(cluster, BROKER)
    assert isinstance(broker, SplittingAdapter)
    ack, changed = obeyed(broker, split_of(bundle, [lower + 16]), monkeypatch)
    assert (ack.outcome, changed) == ("split", BROKER)
    assert not cluster.owns(BROKER, bundle) and f"{bundle[:-10]}0x{lower + 16:08x}" in cluster.owners()


def test_a_broker_that_cannot_split_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    ack, changed = obeyed(NoSplits(), split_of("t/n/0x00000000_0x80000000", []), monkeypatch)
    assert (ack.outcome, ack.reason, changed) == ("refused", "this broker can't split", None)


def test_a_split_that_goes_wrong_is_told_to_the_balancer(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = build_cluster(bundles=6)
    bundle = min(cluster.owned(BROKER))
    ack, _ = obeyed(SimBroker(cluster, BROKER), split_of(bundle, [0]), monkeypatch)
    assert ack.outcome == "failed" and "strictly inside" in ack.reason
    assert cluster.owns(BROKER, bundle)
