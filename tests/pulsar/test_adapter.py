"""What the adapter makes of a Pulsar cluster's answers, traps included, and what it asks for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lb_stream.agent import (
    BrokerError,
    MeasuringAdapter,
    ProbingAdapter,
    Refused,
    SplittingAdapter,
    TransferringAdapter,
)
from lb_stream.agent.pulsar.admin import AdminClient, AdminError, AdminSettings
from lb_stream.agent.pulsar.guard import SettingsGuard
from lb_stream.agent.pulsar.report import find_broker_id
from lb_stream.core.model.topics import topic_hash
from tests.pulsar.fake_cluster import NAMESPACE, Call, FakeCluster, Reply, fake_cluster
from tests.support.wordings import check_wording

HALVES = ["0x00000000_0x20000000", "0x20000000_0x40000000"]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


@pytest.fixture
def extensible() -> Iterator[FakeCluster]:
    with fake_cluster(manager="extensible") as started:
        yield started


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


# --- who it is, what it reports ---


def test_an_adapter_reports_splits_hands_over_and_can_be_probed(cluster: FakeCluster) -> None:
    adapter = cluster.adapter(0)
    assert all(
        isinstance(adapter, kind)
        for kind in (SplittingAdapter, TransferringAdapter, ProbingAdapter)
    )
    assert (adapter.name, adapter.manager, adapter.pulsar_cluster) == (
        cluster.names[0],
        "modular",
        "testbed",
    )


def test_the_report_is_sent_byte_for_byte(cluster: FakeCluster) -> None:
    report = cluster.adapter(0).report()
    assert isinstance(report, bytes) and b"1.5214729790815713E-7" in report
    assert list(json.loads(report)["lastStats"]) == [cluster.bundle(0), cluster.bundle(3)]


def test_an_address_that_answers_for_another_broker_is_named_with_those_that_are_active(
    cluster: FakeCluster,
) -> None:
    with pytest.raises(
        BrokerError,
        match=rf"no active broker broker-1:8080; active: .*{cluster.names[0]}.*--broker",
    ):
        cluster.adapter(0, broker="broker-1:8080").report()


def test_what_is_no_report_is_an_error_that_shows_it(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (
        (200, b"<html>proxy</html>", {}) if call.path.endswith("load-report") else None
    )
    with pytest.raises(BrokerError, match="expected a JSON object, got '<html>proxy</html>'"):
        cluster.adapter(0).report()


def test_a_broker_with_a_load_manager_of_somebody_elses_is_an_error_that_names_it(
    cluster: FakeCluster,
) -> None:
    cluster.runtimes[0]["loadManagerClassName"] = "org.example.OwnManager"
    with pytest.raises(BrokerError) as error:
        cluster.adapter(0).report()
    check_wording(error.value)


class Waiting:
    """Load data that waits to be taken."""

    def __init__(self, *records: bytes) -> None:
        self.records = list(records)

    def take(self, broker: str) -> list[bytes]:
        records, self.records = self.records, []
        return records


LOAD = b'{"weightedMaxEMA":0.5,"msgRateIn":1.0,"reportedAt":7}'


def top_bundles(*names: str) -> bytes:
    return json.dumps(
        {"topBundlesLoadData": [{"bundleName": name, "stats": {"topics": 2}} for name in names]}
    ).encode()


def test_an_extensible_brokers_reports_come_from_its_load_data_and_name_all_of_its_bundles(
    extensible: FakeCluster,
) -> None:
    adapter = extensible.adapter(
        0, load_data=Waiting(LOAD, top_bundles(extensible.bundle(0)), b"no JSON"), topic_shares_s=0
    )
    load, *others = adapter.report()
    assert json.loads(load) == json.loads(LOAD) | {
        "brokerVersionString": "5.0.1",
        "bundles": [extensible.bundle(0), extensible.bundle(3)],
    }
    assert others == [top_bundles(extensible.bundle(0)), b"no JSON"], "as the broker wrote them"
    assert adapter.report() == [], "nothing is new"
    assert not any(
        call.path.endswith("load-report") for call in extensible.calls
    )  # it would answer 500
    with pytest.raises(BrokerError) as error:
        extensible.adapter(1).report()
    check_wording(error.value)


def test_an_extensible_brokers_load_is_told_again_when_it_has_other_bundles(
    extensible: FakeCluster,
) -> None:
    adapter = extensible.adapter(0, load_data=Waiting(LOAD))
    adapter.report()
    adapter.transfer(extensible.bundle(0), extensible.names[1])
    (load,) = adapter.report()
    assert json.loads(load)["bundles"] == [extensible.bundle(3)]
    fresh = extensible.adapter(1, load_data=Waiting())
    assert fresh.report() == [], "nothing is said of a broker of which no load is known"


@pytest.mark.parametrize(
    "reply",
    [
        (404, {"reason": "HTTP 404 Not Found"}, {}),
        (401, b"", {}),
        (200, b"<html> a proxy's page </html>", {}),
        (200, b"", {}),
    ],
)
def test_an_extensible_broker_that_does_not_give_its_version_reports_without_it(
    extensible: FakeCluster, reply: Reply
) -> None:
    extensible.before = lambda call: reply if call.path.endswith("/version") else None
    (load,) = extensible.adapter(0, load_data=Waiting(LOAD)).report()
    assert "brokerVersionString" not in json.loads(load) and json.loads(load)["bundles"]


def test_a_version_is_read_again_after_the_broker_did_not_answer_and_after_a_minute(
    extensible: FakeCluster,
) -> None:
    clock, waiting = Clock(), Waiting()
    adapter = extensible.adapter(0, load_data=waiting, clock=clock)

    def version() -> str:
        waiting.records.append(LOAD)
        (load,) = adapter.report()
        return str(json.loads(load)["brokerVersionString"])

    assert version() == "5.0.1"
    extensible.version = "5.0.2"
    assert version() == "5.0.1", "it is not read for each report"
    clock.now_s += 60
    assert version() == "5.0.2"
    extensible.version = "5.1.0"
    extensible.before = lambda call: (503, b"", {}) if call.path.endswith("/ready") else None
    assert not adapter.alive()
    extensible.before = lambda call: None
    assert version() == "5.1.0"


def test_an_extensible_broker_that_was_down_reports_when_it_was_seen_again(
    extensible: FakeCluster,
) -> None:
    waiting = Waiting()
    adapter = extensible.adapter(0, load_data=waiting)

    def start_ms() -> object:
        waiting.records.append(LOAD)
        (load,) = adapter.report()
        return json.loads(load).get("startTimestamp")

    assert adapter.alive() and start_ms() is None, "the agent has not seen it start"
    extensible.before = lambda call: (503, b"", {}) if call.path.endswith("/ready") else None
    assert not adapter.alive()
    extensible.before = lambda call: None
    assert adapter.alive() and start_ms() is None, "a broker that is not ready has not stopped"

    extensible.stop(0)
    assert not adapter.alive()
    stopped_ms = time.time() * 1_000
    extensible.start(0)
    assert adapter.alive()
    (again,) = adapter.report()
    started_ms = json.loads(again)["startTimestamp"]
    assert stopped_ms - 1 <= started_ms <= time.time() * 1_000, "before it has written load data"
    assert adapter.report() == []
    assert adapter.alive() and start_ms() == started_ms


def test_top_bundles_that_have_gone_are_not_told(extensible: FakeCluster) -> None:
    named = top_bundles(
        extensible.bundle(1), extensible.bundle(0)
    )  # its statistics know 1 still, which has gone
    (told,) = extensible.adapter(0, load_data=Waiting(named)).report()
    assert json.loads(told) == json.loads(top_bundles(extensible.bundle(0)))


def test_load_data_waits_while_the_broker_cannot_be_asked_for_its_bundles(
    extensible: FakeCluster,
) -> None:
    waiting = Waiting(LOAD)
    adapter = extensible.adapter(0, load_data=waiting)
    extensible.before = lambda call: (
        (500, b"", {}) if call.path.endswith("ownedNamespaces") else None
    )
    with pytest.raises(AdminError, match="ownedNamespaces answers 500"):
        adapter.report()
    assert waiting.records == [LOAD]


def test_a_broker_lives_while_it_answers(cluster: FakeCluster) -> None:
    adapter = cluster.adapter(1)
    assert adapter.alive()
    cluster.before = lambda call: (401, b"", {}) if call.path.endswith("ready") else None
    assert adapter.alive()
    cluster.before = lambda call: (
        (500, b"", {}) if call.path.endswith("ready") else None
    )  # not started yet
    assert not adapter.alive()
    cluster.stop(1)
    assert not adapter.alive()
    with pytest.raises(BrokerError, match="Connection refused"):
        adapter.report()


def test_a_broker_that_comes_back_with_other_settings_is_asked_anew(cluster: FakeCluster) -> None:
    clock = Clock()
    adapter = cluster.adapter(0, clock=clock)
    assert adapter.manager == "modular"
    cluster.runtimes[0]["loadManagerClassName"] = cluster.runtimes[0][
        "loadManagerClassName"
    ].replace("Modular", "Simple")
    assert adapter.manager == "modular"
    clock.now_s += 10
    assert adapter.manager == "simple"


# --- unloads ---


@pytest.mark.parametrize("asked", [0, 1])
def test_an_unload_with_a_destination_goes_by_the_leader_to_the_owner_and_arrives(
    cluster: FakeCluster, asked: int
) -> None:
    bundle, here = cluster.bundle(asked), cluster.adapter(asked)
    cluster.leader = 2
    here.transfer(bundle, cluster.names[2])
    assert cluster.owners[cluster.ranges[asked]] == 2 and not here.owns(bundle)
    assert [call.broker for call in cluster.acts()] == [asked, 2, asked]
    assert all(call.query["destinationBroker"] == cluster.names[2] for call in cluster.acts())


def test_the_destination_knows_that_it_has_the_bundle_and_nobody_else_takes_it(
    cluster: FakeCluster,
) -> None:
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    cluster.adapter(1).acquire(cluster.bundle(0))
    with pytest.raises(Refused) as error:
        cluster.adapter(2).acquire(cluster.bundle(0))
    check_wording(error.value)


def test_a_transfer_to_where_the_bundle_is_is_refused_without_asking_pulsar(
    extensible: FakeCluster,
) -> None:
    with pytest.raises(Refused, match="which has it"):
        extensible.adapter(0).transfer(
            extensible.bundle(0), extensible.names[0]
        )  # Pulsar would answer 500
    assert not extensible.acts()


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        (f"{NAMESPACE}/0x00000000_0x00000001", r"412 \(Invalid upper boundary"),
        ("shop/nowhere/0x00000000_0x40000000", r"404 \(Namespace not found\)"),
    ],
)
def test_what_pulsar_refuses_is_a_refusal_with_its_reason(
    cluster: FakeCluster, bundle: str, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        cluster.adapter(0).transfer(bundle, cluster.names[1])
    assert cluster.owners[cluster.ranges[0]] == 0


def test_a_brokers_own_bundle_is_never_touched(cluster: FakeCluster) -> None:
    with pytest.raises(Refused) as error:
        cluster.adapter(0).transfer(
            f"pulsar/{cluster.names[0]}/0x00000000_0xffffffff", cluster.names[1]
        )
    check_wording(error.value)
    assert not cluster.acts()


def test_an_unload_without_a_destination_that_comes_back_has_failed(cluster: FakeCluster) -> None:
    with pytest.raises(BrokerError) as error:
        cluster.adapter(0).release(cluster.bundle(0))
    check_wording(error.value)
    cluster.clients = False  # nobody looks its topics up
    cluster.adapter(1).release(cluster.bundle(1))
    assert cluster.owners[cluster.ranges[1]] is None


def test_an_unload_whose_answer_is_lost_is_done_when_the_bundle_has_gone(
    cluster: FakeCluster,
) -> None:
    def hang_up(call: Call) -> Reply | None:
        if call.method == "PUT" and call.broker == 0:
            cluster.owners[cluster.ranges[0]] = 1
            raise ConnectionResetError
        return None

    cluster.before = hang_up
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert len(cluster.acts()) == 1


def test_an_unload_without_an_answer_has_failed_if_the_bundle_is_here_and_is_not_sent_twice(
    cluster: FakeCluster,
) -> None:
    def hang_up(call: Call) -> Reply | None:
        if call.method == "PUT":
            raise ConnectionResetError
        return None

    cluster.before = hang_up
    with pytest.raises(AdminError, match="PUT http://"):
        cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert len(cluster.acts()) == 1


def test_an_unload_that_is_answered_and_not_done_has_failed(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (204, b"", {}) if call.method == "PUT" else None
    with pytest.raises(BrokerError, match=f"twice, and {cluster.names[0]} has it"):
        cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])


# --- reports after acts ---


def test_a_report_that_still_names_what_was_given_up_is_kept_back_until_the_statistics_are_new(
    cluster: FakeCluster,
) -> None:
    adapter = cluster.adapter(0)
    adapter.report()
    adapter.transfer(cluster.bundle(0), cluster.names[1])
    assert adapter.report() == []
    cluster.take_statistics()
    report = adapter.report()
    assert isinstance(report, bytes) and list(json.loads(report)["lastStats"]) == [
        cluster.bundle(3)
    ]


def test_a_report_that_does_not_name_yet_what_was_taken_is_kept_back_too(
    cluster: FakeCluster,
) -> None:
    adapter = cluster.adapter(1)
    adapter.report()
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    adapter.acquire(cluster.bundle(0))
    assert adapter.report() == []
    cluster.take_statistics()
    report = adapter.report()
    assert isinstance(report, bytes) and cluster.bundle(0) in json.loads(report)["lastStats"]


def test_a_bundle_that_came_back_is_reported_again(cluster: FakeCluster) -> None:
    adapter = cluster.adapter(0)
    adapter.transfer(cluster.bundle(0), cluster.names[1])
    cluster.adapter(1).transfer(cluster.bundle(0), cluster.names[0])
    assert isinstance(adapter.report(), bytes)


def test_a_report_that_names_a_split_bundle_is_kept_back_too(cluster: FakeCluster) -> None:
    adapter = cluster.adapter(0)
    adapter.report()
    adapter.split(cluster.bundle(0), [], "range_equally_divide")
    assert adapter.report() == []
    cluster.take_statistics()
    report = adapter.report()
    assert isinstance(report, bytes)
    assert sorted(json.loads(report)["lastStats"]) == [
        *(f"{NAMESPACE}/{half}" for half in HALVES),
        cluster.bundle(4),
    ]


@pytest.mark.parametrize("version", ["4.2.4", "5.0.1"])
def test_the_brokers_id_is_read_from_its_report_where_that_gives_one(version: str) -> None:
    with fake_cluster(version=version) as cluster:
        admin = AdminClient(
            AdminSettings(f"http://{cluster.names[1]}".replace("127.0.0.1", "[::1]"))
        )
        assert find_broker_id(admin) is None  # does not answer there
        admin = AdminClient(AdminSettings(f"http://{cluster.names[1]}"))
        assert find_broker_id(admin) == (cluster.names[1] if version == "5.0.1" else None)


def test_the_report_of_another_broker_is_not_sent_under_this_ones_name(
    cluster: FakeCluster,
) -> None:
    """As behind an address that leads to any broker."""
    wrong = cluster.adapter(1, broker=cluster.names[0])
    with pytest.raises(BrokerError, match=f"names {cluster.names[1]} as its broker"):
        wrong.report()


# --- splits ---


@pytest.mark.parametrize(
    ("boundaries", "algorithm", "query", "body"),
    [
        ([0x20000000], "topic_count_equally_divide", "range_equally_divide", None),
        ([0x10000000], "topic_count_equally_divide", "specified_positions_divide", [0x10000000]),
        (
            [0x10000000, 0x30000000],
            "flow_or_qps_equally_divide",
            "specified_positions_divide",
            [0x10000000, 0x30000000],
        ),
        ([], "topic_count_equally_divide", "topic_count_equally_divide", None),
        ([], "", "range_equally_divide", None),
    ],
)
def test_a_split_is_asked_for_so_that_pulsar_cuts_where_it_was_decided(
    cluster: FakeCluster, boundaries: list[int], algorithm: str, query: str, body: list[int] | None
) -> None:
    cluster.adapter(0).split(cluster.bundle(0), boundaries, algorithm, unload_children=True)
    (act,) = cluster.acts()
    assert (act.query, act.body) == ({"unload": "true", "splitAlgorithmName": query}, body)
    assert set(boundaries or [0x20000000]) < set(cluster.boundaries)


@pytest.mark.parametrize("manager", ["modular", "extensible"])
@pytest.mark.parametrize("version", ["4.2.4", "5.0.1"])
def test_a_split_that_does_nothing_is_refused_with_the_reason_that_pulsar_does_not_give(
    manager: str, version: str
) -> None:
    """Pulsar answers 204 all the same; before 5.0 the extensible manager answers 500."""
    clock = Clock()

    def pass_time(call: Call) -> Reply | None:
        clock.now_s += 1
        return None

    with fake_cluster(manager=manager, version=version, before=pass_time) as cluster:
        cluster.topics[cluster.ranges[0]] = 1
        with pytest.raises(Refused) as refused:
            cluster.adapter(0, clock=clock).split(
                cluster.bundle(0), [], "topic_count_equally_divide"
            )
        assert "lists only 1 of its topics" in str(refused.value) and cluster.acts()
        assert len(cluster.boundaries) == 5


def test_what_pulsar_answers_to_a_split_is_not_hidden_by_a_reason_that_is_likely(
    cluster: FakeCluster,
) -> None:
    answer = {"reason": "the metadata store is gone"}
    cluster.before = lambda call: (500, answer, {}) if call.method == "PUT" else None
    with pytest.raises(Refused, match=r"finds no position .*the metadata store is gone"):
        cluster.adapter(0).split(cluster.bundle(0), [], "topic_count_equally_divide")


def test_a_split_that_fails_for_another_reason_has_failed(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (500, b"", {}) if call.method == "PUT" else None
    with pytest.raises(AdminError, match=r"/split answers 500"):
        cluster.adapter(0).split(cluster.bundle(0), [], "range_equally_divide")


def test_a_bundle_that_was_split_meanwhile_is_refused(cluster: FakeCluster) -> None:
    bundle = cluster.bundle(0)
    cluster.adapter(1).split(bundle, [], "range_equally_divide")
    with pytest.raises(Refused, match=r"412 \(Invalid upper boundary"):
        cluster.adapter(0).split(bundle, [], "range_equally_divide")


def test_a_split_whose_answer_is_lost_is_done_when_the_bundle_is_no_more(
    cluster: FakeCluster,
) -> None:
    def hang_up(call: Call) -> Reply | None:
        if call.method == "PUT":
            cluster._split(call, cluster.ranges[0])
            raise ConnectionResetError
        return None

    cluster.before = hang_up
    cluster.adapter(0).split(cluster.bundle(0), [], "range_equally_divide")
    assert cluster.ranges[:2] == HALVES


def test_a_split_by_flow_is_refused_before_5_0_where_that_is_not_pulsars_default(
    cluster: FakeCluster,
) -> None:
    cluster.version = "4.2.4"
    with pytest.raises(
        Refused, match="set defaultNamespaceBundleSplitAlgorithm=flow_or_qps_equally_divide"
    ):
        cluster.adapter(0).split(cluster.bundle(0), [], "flow_or_qps_equally_divide")
    assert not cluster.acts()
    cluster.runtimes[0]["defaultNamespaceBundleSplitAlgorithm"] = "flow_or_qps_equally_divide"
    cluster.adapter(0).split(cluster.bundle(0), [], "flow_or_qps_equally_divide")


def test_pulsar_5_0_splits_by_flow_whatever_the_default_is(cluster: FakeCluster) -> None:
    cluster.adapter(0).split(cluster.bundle(0), [], "flow_or_qps_equally_divide")
    assert cluster.acts()[-1].query["splitAlgorithmName"] == "flow_or_qps_equally_divide"
    cluster.version = "no version at all"
    with pytest.raises(Refused, match=r"before 5\.0"):
        cluster.adapter(1).split(cluster.bundle(2), [], "flow_or_qps_equally_divide")


def test_an_extensible_cluster_is_not_asked_for_more_than_one_cut(extensible: FakeCluster) -> None:
    with pytest.raises(Refused) as error:
        extensible.adapter(0).split(
            extensible.bundle(0), [0x10000000, 0x30000000], "flow_or_qps_equally_divide"
        )
    check_wording(error.value)
    assert not extensible.acts()


# --- which bundles are too large ---


def test_an_extensible_broker_tells_all_of_its_bundles_and_their_topics(
    extensible: FakeCluster,
) -> None:
    extensible.topics[extensible.ranges[0]] = 5
    adapter = extensible.adapter(0)
    assert isinstance(adapter, MeasuringAdapter)
    found = adapter.stats()
    assert sorted(found) == [extensible.bundle(0), extensible.bundle(3)], "not the broker's own"
    five = found[extensible.bundle(0)]
    assert (
        five.topics,
        five.msg_rate_in,
        five.msg_rate_out,
        five.msg_throughput_in,
        five.msg_throughput_out,
    ) == (5, 50, 100, 5000, 10_000)
    assert (five.producer_count, five.consumer_count) == (15, 10)
    topics = adapter.topics(extensible.bundle(0))
    assert sorted(topics.hashes) == sorted(
        topic_hash(name) for name in extensible.topics_of(extensible.ranges[0])
    )
    assert (topics.rate.tolist(), topics.throughput.tolist(), topics.known.all()) == (
        [30.0] * 5,
        [3000.0] * 5,
        True,
    )


def test_a_bundle_that_has_gone_since_the_statistics_were_taken_is_not_told(
    extensible: FakeCluster,
) -> None:
    extensible.owners[extensible.ranges[0]] = 1
    assert list(extensible.adapter(0).stats()) == [extensible.bundle(3)]


def test_of_a_modular_broker_the_leader_sees_all_bundles_and_the_agent_asks_for_no_split(
    cluster: FakeCluster,
) -> None:
    assert cluster.adapter(0).stats() == {}
    assert not any(call.path.endswith("broker-stats/topics") for call in cluster.calls)


@pytest.mark.parametrize(
    "answer",
    [[], {"shop/orders": []}, {"shop/orders": {"0x00000000_0x40000000": {"persistent": {"t": 3}}}}],
)
def test_statistics_of_another_form_are_an_error_that_says_so(
    extensible: FakeCluster, answer: object
) -> None:
    extensible.before = lambda call: (
        (200, answer, {}) if call.path.endswith("broker-stats/topics") else None
    )
    with pytest.raises(BrokerError) as error:
        extensible.adapter(0).stats()
    check_wording(error.value)


# --- Pulsar's own balancing ---

ACTS: dict[str, Callable[[Any, str, str], None]] = {
    "transfer": lambda adapter, bundle, other: adapter.transfer(bundle, other),
    "release": lambda adapter, bundle, _: adapter.release(bundle),
    "split": lambda adapter, bundle, _: adapter.split(bundle, [], "range_equally_divide"),
}


@pytest.mark.parametrize("act", sorted(ACTS))
@pytest.mark.parametrize(
    "key", ["loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled"]
)
@pytest.mark.parametrize("where", [0, 2], ids=["here", "at the leader"])
def test_nothing_is_done_while_pulsar_balances_by_itself(
    cluster: FakeCluster, act: str, key: str, where: int
) -> None:
    cluster.leader, cluster.runtimes[where][key] = 2, "true"
    with pytest.raises(Refused) as refused:
        ACTS[act](cluster.adapter(0), cluster.bundle(0), cluster.names[1])
    assert f"is on at {cluster.names[where]} ({key} = true)" in str(refused.value)
    check_wording(str(refused.value))
    assert not cluster.acts()


def test_what_nobody_has_set_is_on(cluster: FakeCluster) -> None:
    del cluster.runtimes[0]["loadBalancerSheddingEnabled"]
    assert len(cluster.adapter(0).guard.explain_conflicts()) == 1


def test_a_cluster_without_load_balancing_balances_nothing_by_itself(cluster: FakeCluster) -> None:
    for runtime in cluster.runtimes:
        runtime |= {"loadBalancerEnabled": "false", "loadBalancerSheddingEnabled": "true"}
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])


def test_a_look_for_pulsars_own_balancing_is_at_most_ten_seconds_old(cluster: FakeCluster) -> None:
    """It took the broker's settings from another look, which may have been as old again."""
    clock = Clock()
    guard = cluster.adapter(0, clock=clock).guard
    assert guard.active_balancers() == {}
    clock.now_s += 9.5
    guard.forget()
    guard.runtime()
    cluster.runtimes[0]["loadBalancerSheddingEnabled"] = "true"
    clock.now_s += 0.5
    assert list(guard.active_balancers()) == ["loadBalancerSheddingEnabled"]


def test_settings_that_change_count_within_ten_seconds(cluster: FakeCluster) -> None:
    clock = Clock()
    adapter = cluster.adapter(0, clock=clock)
    adapter.transfer(cluster.bundle(0), cluster.names[1])
    cluster.runtimes[0]["loadBalancerSheddingEnabled"] = "true"
    clock.now_s += 10
    with pytest.raises(Refused):
        adapter.transfer(cluster.bundle(3), cluster.names[1])


def test_pulsars_own_balancing_that_has_been_turned_off_hinders_nothing(
    cluster: FakeCluster,
) -> None:
    """What was read of it is newer than ten seconds, and yet it is read again."""
    cluster.runtimes[0]["loadBalancerSheddingEnabled"] = "true"
    adapter = cluster.adapter(0, clock=Clock())
    with pytest.raises(Refused):
        adapter.transfer(cluster.bundle(0), cluster.names[1])
    cluster.runtimes[0]["loadBalancerSheddingEnabled"] = "false"
    adapter.transfer(cluster.bundle(0), cluster.names[1])
    assert cluster.acts()


def test_settings_that_are_forgotten_while_they_are_looked_at_count_all_the_same(
    cluster: FakeCluster,
) -> None:
    cluster.runtimes[0]["loadBalancerSheddingEnabled"] = "true"
    adapter = cluster.adapter(0)
    admin = cluster.adapter(0)._admin

    def clock() -> float:
        # as a heartbeat does, in a thread of its own, when the broker doesn't answer
        guard.forget()
        return 100.0

    guard = SettingsGuard(admin, clock)
    adapter.guard = guard
    assert adapter.manager == "modular"
    with pytest.raises(Refused, match="loadBalancerSheddingEnabled"):
        adapter.transfer(cluster.bundle(0), cluster.names[1])
    assert not cluster.acts()


def test_nothing_is_done_while_the_leader_cannot_be_asked(cluster: FakeCluster) -> None:
    cluster.leader = 2
    cluster.stop(2)
    with pytest.raises(Refused, match=f"{cluster.names[2]}.*Connection refused"):
        cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert not cluster.acts()


# --- namespaces and policies ---


def test_namespaces_bundles_and_policies_are_read(cluster: FakeCluster) -> None:
    cluster.group = "payments"
    found = cluster.adapter(0).namespaces()
    (namespace,) = (
        found.namespaces
    )  # not those of other clusters, of brokers, nor one that was deleted meanwhile
    assert namespace.bundles == [cluster.bundle(number) for number in range(4)]
    assert namespace.anti_affinity_group == "payments"
    (policy,) = found.isolation
    assert (policy.name, policy.namespaces, policy.primary, policy.secondary) == (
        "p1",
        ["shop/.*"],
        ["127.*"],
        ["10.*"],
    )
    assert (policy.min_available, policy.usage_threshold_percent) == (2, 80.0)
    assert found.failure_domains == dict.fromkeys(cluster.names[:2], "east")


def test_a_cluster_without_policies_has_none(cluster: FakeCluster) -> None:
    found = cluster.adapter(0).namespaces()
    assert (found.isolation, found.failure_domains, found.namespaces[0].anti_affinity_group) == (
        [],
        {},
        None,
    )


def test_boundaries_that_are_no_whole_ring_are_an_error_that_names_the_namespace(
    cluster: FakeCluster,
) -> None:
    cluster.boundaries = [0, 0x40000000]
    with pytest.raises(BrokerError) as error:
        cluster.adapter(0).namespaces()
    check_wording(error.value)
