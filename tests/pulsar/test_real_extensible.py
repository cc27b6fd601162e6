"""A real Pulsar cluster under the extensible load manager: its load data is heard, its brokers
obey. `make test-pulsar`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lb_stream.agent import Refused, SplitWatch
from lb_stream.agent.pulsar.adapter import PulsarAdapter
from lb_stream.agent.pulsar.admin import AdminError
from lb_stream.agent.pulsar.load_topics import LoadDataTopics
from lb_stream.contracts.reports import SplitAsk, find_report_kind
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.settings.resolve import cluster_config
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.real_cluster import (
    SCRIPTS,
    agent_log,
    agents,
    confirmed,
    kill_a_destination,
    missing,
    owners,
    rows,
    spread_over_the_brokers,
    unload,
)
from tests.pulsar.testbed import NAMESPACE, PATIENCE_S, PULSAR_CLUSTER, Bed, started_bed

pytestmark = [pytest.mark.long, pytest.mark.e2e]

TOPICS = [f"t{number}" for number in range(8)]
SETTINGS = {
    "dry_run": "false",
    "load_manager": "extensible",
    "assign_unowned": "on_lookup",
    "shedding_enabled": "false",  # what one machine's brokers say of their usage is the same
    "stream.tick_interval_ms": 1000,
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if reason := missing():
        pytest.skip(reason)
    with started_bed(SCRIPTS, tmp_path_factory.mktemp("extensible"), "extensible") as started:
        started.create_namespace(4)
        yield started


def operated(bed: Bed) -> dict[str, PulsarAdapter]:
    """Each broker's adapter, for all but load data."""
    return {name: PulsarAdapter(bed.admin(number)) for number, name in enumerate(bed.names, 1)}


def test_the_load_data_of_every_broker_is_heard_and_a_transfer_and_a_split_are_carried_out(
    bed: Bed,
) -> None:
    load_data = LoadDataTopics(lambda: bed.service_url, bed.admin(1).settings)
    brokers = {
        name: PulsarAdapter(bed.admin(number), load_data=load_data)
        for number, name in enumerate(bed.names, 1)
    }
    kinds: dict[str, set[str | None]] = {name: set() for name in brokers}

    def heard() -> bool:
        for name, adapter in brokers.items():
            reports = [json.loads(value) for value in adapter.report()]
            kinds[name] |= {find_report_kind(report) for report in reports}
        return all("broker_load" in found for found in kinds.values()) and any(
            "top_bundles" in found for found in kinds.values()
        )

    with bed.traffic(dict.fromkeys(TOPICS, 20.0)):
        wait_until(
            lambda: all(bed.owner_of(topic) for topic in TOPICS), "owners of all topics", PATIENCE_S
        )
        heard()  # subscribes
        wait_until(heard, "load data of all brokers, and of some bundles", PATIENCE_S)
        bundle = bed.bundle_of(TOPICS[0])
        source = bed.owner_of(TOPICS[0]) or ""
        destination = next(name for name in brokers if name != source)
        with pytest.raises(Refused, match="does not answer"):
            brokers[source].transfer(bundle, "127.0.0.1:1")
        brokers[source].transfer(bundle, destination)
        brokers[destination].acquire(bundle)
        assert bed.owner_of(TOPICS[0]) == destination
        brokers[destination].split(bundle, [], "range_equally_divide")
        assert bed.bundle_of(TOPICS[0]) != bundle and brokers[destination].owns(
            bed.bundle_of(TOPICS[0])
        )
        with pytest.raises(Refused, match="412"):
            brokers[destination].split(bundle, [], "range_equally_divide")
        with pytest.raises(AdminError, match="500"):
            bed.admin(1).get_json("/admin/v2/broker-stats/load-report")
    load_data.close()


def test_statistics_of_all_topics_find_a_too_large_bundle_and_its_split_is_carried_out(
    bed: Bed,
) -> None:
    config = cluster_config({"bundle_max_topics": 1, "split_hit_count": 0})
    watch = SplitWatch(config.splitting, config.split_algorithms)
    asked: list[tuple[PulsarAdapter, SplitAsk]] = []

    def look() -> bool:
        for adapter in operated(bed).values():
            asked.extend(
                (adapter, ask)
                for ask in watch.find_splits(adapter)
                if ask.bundle.startswith(f"{NAMESPACE}/")
            )
        return any(adapter.stats()[ask.bundle].msg_rate_in > 0 for adapter, ask in asked[-1:])

    with bed.traffic(dict.fromkeys(TOPICS, 20.0)):
        wait_until(
            look, "a bundle with two topics and traffic in a broker's statistics", PATIENCE_S
        )
        adapter, ask = asked[-1]
        path = (
            f"/admin/v2/namespaces/{NAMESPACE}/{ask.bundle.rpartition('/')[2]}/topicHashPositions"
        )
        positions = bed.admin().get_json(path)["topicHashPositions"]
        assert sorted(adapter.topics(ask.bundle).hashes) == sorted(positions.values())
        sent_to = [
            name for name in positions if name.rpartition("/")[2] in TOPICS
        ]  # Pulsar may have one of its own in the namespace
        assert adapter.stats()[ask.bundle].producer_count >= len(sent_to) > 0
        adapter.split(ask.bundle, ask.boundaries, ask.algorithm)
    assert f"0x{ask.boundaries[0]:08x}" in bed.boundaries()


def test_nothing_is_done_while_shedding_was_turned_on_in_the_running_cluster(bed: Bed) -> None:
    source = wait_for_owner(bed)
    adapter, bundle = operated(bed)[source], bed.bundle_of(TOPICS[0])
    destination = next(name for name in bed.names if name != source)
    bed.post("brokers/configuration/loadBalancerSheddingEnabled/true")
    wait_until(adapter.guard.explain_conflicts, "the setting to be seen", PATIENCE_S)
    with pytest.raises(Refused, match="loadBalancerSheddingEnabled = true"):
        adapter.transfer(bundle, destination)
    bed.post("brokers/configuration/loadBalancerSheddingEnabled/false")
    wait_until(lambda: not adapter.guard.explain_conflicts(), "the setting to be seen", PATIENCE_S)
    adapter.transfer(bundle, destination)
    assert bed.owner_of(TOPICS[0]) == destination


def wait_for_owner(bed: Bed) -> str:
    wait_until(lambda: bed.owner_of(TOPICS[0]), f"an owner of {TOPICS[0]}", PATIENCE_S)
    return bed.owner_of(TOPICS[0]) or ""


def test_the_whole_loop_splits_and_unloads_and_follows_a_crash(
    bed: Bed,
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    splitting = {"bundle_max_topics": 1, "split_hit_count": 0, "split_interval_ms": 5000}
    room_for_one = {"namespace_max_bundles": len(bed.boundaries())}
    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS | splitting | room_for_one)
    pipeline.create_topics()
    begun = time.monotonic()

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"{time.monotonic() - begun:6.1f} s  extensible: {text}", flush=True)

    def agree() -> bool:
        """Whether our table says what Pulsar's lookups say, of the bundles with traffic."""
        truth, ours = (
            {bed.bundle_of(topic): bed.owner_of(topic) for topic in TOPICS},
            owners(pipeline),
        )
        return None not in truth.values() and all(
            ours.get(bundle) == owner for bundle, owner in truth.items()
        )

    def shown() -> str:
        return f"{owners(pipeline)}\nagents: {agent_log(pipeline)}\njob: {pipeline.log()[-3000:]}"

    with ExitStack() as stack:
        stack.enter_context(bed.traffic(dict.fromkeys(TOPICS, 20.0)))
        spread_over_the_brokers(bed, TOPICS)
        stack.enter_context(pipeline.running())
        speaking = stack.enter_context(agents(bed, pipeline, **splitting))
        try:
            wait_until(
                lambda: bool(confirmed(pipeline, "split")),
                "a split that an agent asked for to be confirmed",
                PATIENCE_S,
            )
            split = confirmed(pipeline, "split")[0]
            assert {child[-10:] for child in split["children"][:-1]} <= set(bed.boundaries())
            tell(f"split: {split['bundle']} into {len(split['children'])} ({split['detail']})")
            wait_until(agree, "our table to say what lookups say", PATIENCE_S)
            destination = bed.names[bed.a_follower() - 1]  # it is killed below
            moved = next(
                topic for topic in TOPICS if bed.owner_of(topic) not in (None, destination)
            )
            bundle, source = bed.bundle_of(moved), bed.owner_of(moved)
            # A broker whose load stays as it is writes it once a minute.
            wait_until(
                lambda: {row["broker"] for row in rows(pipeline, "broker_loads")} >= set(bed.names),
                "the load of all brokers",
                PATIENCE_S,
            )
            done = unload(pipeline, bundle, destination)
            assert done.code == 0 and bed.owner_of(moved) == destination, done
            wait_until(
                lambda: bool(confirmed(pipeline, "transfer")) and agree(),
                "the transfer to be confirmed",
                PATIENCE_S,
            )
            tell(
                f"moved: {bundle} {source} -> {destination} "
                f"({confirmed(pipeline, 'transfer')[0]['detail']}); lbctl: {done.out.strip()}"
            )
            elsewhere = next(
                topic for topic in TOPICS if bed.owner_of(topic) not in (None, destination)
            )
            kill_a_destination(
                bed, pipeline, speaking, bed.names.index(destination) + 1, elsewhere, tell
            )
            killed = time.monotonic()
            wait_until(
                lambda: destination not in owners(pipeline).values() and agree(),
                "our table to follow the crash",
                PATIENCE_S,
            )
            tell(
                "the killed broker's bundles have new owners, known to us after "
                f"{time.monotonic() - killed:.0f} s"
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\nours: {shown()}") from None


def test_namespaces_bundles_and_policies_of_the_cluster_are_imported(bed: Bed) -> None:
    """The last one: with a domain of its own gone, Pulsar finds no broker for a namespace with an
    anti-affinity group."""
    failover = {
        "policy_type": "min_available",
        "parameters": {"min_limit": "2", "usage_threshold": "80"},
    }
    policy = {
        "namespaces": ["other/.*"],
        "primary": ["127.0.0.1"],
        "secondary": ["10.*"],
        "auto_failover_policy": failover,
    }
    bed.post(f"clusters/{PULSAR_CLUSTER}/namespaceIsolationPolicies/p1", policy)
    bed.post(f"clusters/{PULSAR_CLUSTER}/failureDomains/east", {"brokers": bed.names[:2]})
    adapter = operated(bed)[bed.names[0]]
    assert (
        next(
            namespace
            for namespace in adapter.namespaces().namespaces
            if namespace.name == NAMESPACE
        ).anti_affinity_group
        is None
    )
    bed.post(f"namespaces/{NAMESPACE}/antiAffinity", b"payments")
    found = adapter.namespaces()
    namespace = next(namespace for namespace in found.namespaces if namespace.name == NAMESPACE)
    assert [f"0x{bound:08x}" for bound in namespace.boundaries] == bed.boundaries()
    assert namespace.anti_affinity_group == "payments"
    assert [(one.name, one.namespaces, one.primary, one.secondary) for one in found.isolation] == [
        ("p1", ["other/.*"], ["127.0.0.1"], ["10.*"])
    ]
    assert (found.isolation[0].min_available, found.isolation[0].usage_threshold_percent) == (
        2,
        80.0,
    )
    assert found.failure_domains == dict.fromkeys(bed.names[:2], "east")
