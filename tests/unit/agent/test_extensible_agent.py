"""What an agent of the extensible manager's brokers sends: load data, top bundles, and asks for
splits."""

import json
from typing import Any

import numpy as np
import pytest

from lb_stream.agent import Agent, AgentConfig, MeasuringAdapter, SplitWatch
from lb_stream.contracts.reports import BrokerLoadReport, SplitAsk, TopBundlesReport
from lb_stream.settings.resolve import cluster_config
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.stream.records import parse_report

A = "broker-1:8080"
EXTENSIBLE = {"load_manager": "extensible", "split_hit_count": 1}


def broker(now: list[int], **changes: Any) -> SimBroker:
    cluster = build_cluster(brokers=2, bundles=24, workload_name="steady", **changes)
    cluster.model.noise_ratio = 0.0
    return SimBroker(cluster, A, "extensible", clock=lambda: now[0])


def test_a_simulated_broker_writes_both_records_as_the_stream_takes_them() -> None:
    simulated = broker([1_000])
    load, top = simulated.report()
    read = BrokerLoadReport.model_validate(load)
    assert read.bundles is not None and read.bundle_count == len(read.bundles) == 12
    assert 0.0 < read.weighted_max_ema <= read.max_resource_usage < 1.0, (
        "the first measurement is taken as it is"
    )
    named = [one.bundle_name for one in TopBundlesReport.model_validate(top).top_bundles_load_data]
    assert len(named) == 10 and set(named) < set(read.bundles)
    flows = [
        round(one.stats.msg_throughput_in / 1e5)
        for one in TopBundlesReport.model_validate(top).top_bundles_load_data
    ]
    assert flows == sorted(flows), "from the lowest to the highest"
    assert parse_report(json.dumps(load).encode(), A).fields["load_ema"] == read.weighted_max_ema


def test_its_load_is_smoothed_and_begins_anew_when_its_bundles_change() -> None:
    now = [1_000]
    simulated = broker(now)
    first = simulated.report()[0]
    cluster = simulated._cluster
    cluster.model.factor[:] = 0.5  # a broker that is half as fast is twice as busy
    second = simulated.report()[0]
    assert second["weightedMaxEMA"] == pytest.approx(
        first["weightedMaxEMA"] * 0.9 + second["maxResourceUsage"] * 0.1
    )
    cluster.release(A, cluster.owned(A)[0])
    third = simulated.report()[0]
    assert third["weightedMaxEMA"] == pytest.approx(third["maxResourceUsage"])


def test_a_bundle_that_stays_too_large_is_asked_about_with_its_boundary() -> None:
    simulated = broker([1_000])
    assert isinstance(simulated, MeasuringAdapter)
    bundle = max(
        simulated.stats(),
        key=lambda name: simulated.stats()[name].msg_rate_in + simulated.stats()[name].msg_rate_out,
    )
    stats = simulated.stats()[bundle]
    limit = int(stats.msg_rate_in + stats.msg_rate_out) - 1
    config = cluster_config(EXTENSIBLE | {"bundle_max_msgs_per_s": limit})
    make = SplitWatch.for_cluster(config)
    assert make is not None and make().interval_s == 60.0
    watch = make()
    assert watch.find_splits(simulated) == []
    (one,) = watch.find_splits(simulated)
    assert (one.bundle, one.reason, one.limit) == (bundle, "MsgRate", limit) and one.saw > limit
    assert one.boundaries == [
        sum(int(bound, 16) for bound in bundle.rpartition("/")[2].split("_")) // 2
    ]
    assert watch.find_splits(simulated) == [], "it counts anew"


def test_boundaries_follow_the_topics_where_the_algorithm_looks_at_them() -> None:
    simulated = broker([1_000])
    topics = simulated.topics(max(simulated.stats()))
    assert len(topics) >= 2 and (np.diff(topics.hashes) > 0).all()
    make = SplitWatch.for_cluster(
        cluster_config(
            EXTENSIBLE | {"bundle_max_topics": 0, "split_algorithm": "topic_count_equally_divide"}
        )
    )
    assert make is not None
    watch = make()
    watch.find_splits(simulated)
    asks = watch.find_splits(simulated)
    assert len(asks) == 10, "the most in one look"
    for ask in asks:
        hashes = simulated.topics(ask.bundle).hashes
        below = int((hashes < ask.boundaries[0]).sum())
        assert below == len(hashes) // 2


@pytest.mark.parametrize(
    "settings",
    [{"load_manager": "modular"}, {"load_manager": "extensible", "split_enabled": False}],
)
def test_nobody_looks_where_the_leader_does_or_nobody_splits(settings: dict[str, Any]) -> None:
    assert SplitWatch.for_cluster(cluster_config(settings)) is None


def test_an_agent_sends_what_its_brokers_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = broker([1_000])
    make = SplitWatch.for_cluster(
        cluster_config(
            EXTENSIBLE | {"bundle_max_topics": 0, "split_hit_count": 0, "max_splits_per_cycle": 1}
        )
    )
    agent = Agent(AgentConfig("unused:9092", "eu-1", make_split_watch=make), [simulated])
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(
        agent.reporter, "send", lambda _broker, value, kind: sent.append((kind, value))
    )
    ((adapter, watch),) = agent._watches
    agent.reporter.request_splits(adapter, watch)
    ((kind, value),) = sent
    assert kind == "ask" and SplitAsk.model_validate_json(value).reason == "Topics"
    monkeypatch.setattr(simulated, "stats", lambda: 1 / 0)
    agent.reporter.request_splits(adapter, watch)
    assert len(sent) == 1, "a trouble stays its own"
