"""Moves that arrive, and some that don't: a destination must answer, before and after, and Pulsar
may give the bundle to another one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from lb_stream.agent import BrokerError, Refused
from lb_stream.agent.pulsar.admin import AdminClient, AdminSettings
from lb_stream.agent.pulsar.peers import Peers
from lb_stream.core.model.names import parse_bundle
from tests.pulsar.fake_cluster import Call, FakeCluster, Reply, fake_cluster
from tests.support.wordings import check_wording


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


@pytest.fixture
def extensible() -> Iterator[FakeCluster]:
    with fake_cluster(manager="extensible") as started:
        yield started


def hook(cluster: FakeCluster, owner: int | None, times: int = 1, dies: int | None = None) -> None:
    """When the bundle's owner is told to unload it, it goes to another one than it was told; so
    many times. `dies`: a broker, meanwhile."""
    left = [times]

    def unloaded(call: Call) -> Reply | None:
        if call.method != "PUT" or cluster.owners[cluster.ranges[0]] != call.broker or not left[0]:
            return None
        left[0] -= 1
        cluster.owners[cluster.ranges[0]] = owner
        if owner is None:
            cluster.affinity[cluster.ranges[0]] = cluster.names.index(
                call.query["destinationBroker"]
            )
        if dies is not None:
            cluster.stop(dies)
        return 204, b"", {}

    cluster.before = unloaded


def has_authority(call: Call) -> bool:
    """Whether a broker is asked to take a bundle that has no owner, without asking the leader."""
    return call.path.startswith("/lookup/") and call.query.get("authoritative") == "true"


def asked_to_unload(cluster: FakeCluster) -> list[int]:
    return [call.broker for call in cluster.acts()]


def test_a_bundle_stays_where_it_is_when_its_destination_does_not_answer(
    cluster: FakeCluster,
) -> None:
    cluster.stop(1)
    with pytest.raises(
        Refused,
        match=f"{cluster.names[1]} does not answer: {cluster.bundle(0)} stays at {cluster.names[0]}",
    ):
        cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert not cluster.acts() and cluster.owners[cluster.ranges[0]] == 0


def test_a_destination_that_wants_a_token_answers(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (
        (401, b"", {}) if call.broker == 1 and call.path.endswith("ready") else None
    )
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert cluster.owners[cluster.ranges[0]] == 1


def test_a_destination_that_answers_and_is_not_active_is_refused_with_pulsars_reason(
    cluster: FakeCluster,
) -> None:
    with pytest.raises(Refused) as error:
        cluster.adapter(0).transfer(
            cluster.bundle(0), cluster.names[1].replace("127.0.0.1", "localhost")
        )
    check_wording(error.value)
    assert cluster.owners[cluster.ranges[0]] == 0


def test_a_bundle_that_nobody_uses_is_placed_at_its_destination_at_once(
    cluster: FakeCluster,
) -> None:
    cluster.clients = False
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert cluster.owners[cluster.ranges[0]] == 1


def test_a_bundle_that_another_lookup_has_placed_elsewhere_is_asked_for_once_more(
    cluster: FakeCluster,
) -> None:
    hook(cluster, owner=2)
    detour = cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert cluster.owners[cluster.ranges[0]] == 1 and asked_to_unload(cluster) == [0, 0, 2]
    check_wording(detour)


def test_a_bundle_that_the_leader_has_given_back_to_its_source_is_asked_for_once_more(
    cluster: FakeCluster,
) -> None:
    hook(cluster, owner=0)
    assert cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert cluster.owners[cluster.ranges[0]] == 1


def test_a_destination_takes_its_bundle_though_another_lookup_has_used_its_name_up(
    cluster: FakeCluster,
) -> None:
    """A client's first lookup got the destination's name and is on its way; for each further one
    the leader would draw a broker."""

    def name_used_up(call: Call) -> Reply | None:
        if call.method == "PUT" and call.broker == 0:
            cluster.owners[cluster.ranges[0]] = None
            cluster.affinity.clear()
            return 204, b"", {}
        return None

    cluster.before = name_used_up
    assert cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1]) == ""
    assert cluster.owners[cluster.ranges[0]] == 1 and asked_to_unload(cluster) == [0]


def test_a_destination_that_loses_to_another_broker_has_not_taken_the_bundle(
    cluster: FakeCluster,
) -> None:
    """It answers 500 then, before any broker's lookup names the other one."""
    hook(cluster, owner=None)
    unload, lost = cluster.before, list[int]()

    def lose_once(call: Call) -> Reply | None:
        bounds = cluster.ranges[0]
        if cluster.owners[bounds] is None and has_authority(call) and not lost:
            lost.append(call.broker)
            cluster.owners[bounds] = 2
            return 500, {"reason": "Failed to acquire ownership for namespace bundle"}, {}
        return unload(call)

    cluster.before = lose_once
    assert cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert lost == [1] and cluster.owners[cluster.ranges[0]] == 1


def test_a_destination_that_names_the_former_owner_for_a_moment_is_asked_again(
    cluster: FakeCluster,
) -> None:
    hook(cluster, owner=None)
    unload, outdated = cluster.before, list[int]()

    def late_news(call: Call) -> Reply | None:
        if cluster.owners[cluster.ranges[0]] is None and has_authority(call) and len(outdated) < 3:
            outdated.append(call.broker)
            return 200, {"httpUrl": f"http://{cluster.names[0]}"}, {}
        return unload(call)

    cluster.before = late_news
    assert cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1]) == ""
    assert outdated == [1] * 3 and asked_to_unload(cluster) == [0]


def test_an_extensible_destination_is_not_asked_to_take_a_bundle(extensible: FakeCluster) -> None:
    extensible.adapter(0).transfer(extensible.bundle(0), extensible.names[1])
    assert extensible.owners[extensible.ranges[0]] == 1
    assert not any(map(has_authority, extensible.calls))


def test_a_bundle_that_is_placed_elsewhere_again_is_a_failure_that_says_where(
    cluster: FakeCluster,
) -> None:
    def to_the_third(call: Call) -> Reply | None:
        if call.method == "PUT" and call.broker == cluster.owners[cluster.ranges[0]]:
            cluster.owners[cluster.ranges[0]] = 2
            return 204, b"", {}
        return None

    cluster.before = to_the_third
    with pytest.raises(
        BrokerError,
        match=f"was unloaded to {cluster.names[1]} twice, and {cluster.names[2]} has it",
    ):
        cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])


def test_a_bundle_whose_destination_dies_during_the_unload_is_taken_back(
    cluster: FakeCluster,
) -> None:
    hook(cluster, owner=None, dies=1)
    text = f"was unloaded to {cluster.names[1]}, which no longer answers: {cluster.names[0]} has it"
    with pytest.raises(BrokerError, match=text):
        cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert cluster.owners[cluster.ranges[0]] == 0


def test_a_dead_destination_that_an_extensible_cluster_still_names_is_told_as_such(
    extensible: FakeCluster,
) -> None:
    hook(extensible, owner=1, dies=1)
    text = (
        f"was unloaded to {extensible.names[1]}, which no longer answers: no broker serves "
        f"it until Pulsar counts {extensible.names[1]} as dead"
    )
    with pytest.raises(BrokerError, match=text) as failure:
        extensible.adapter(0).transfer(extensible.bundle(0), extensible.names[1])
    assert not isinstance(failure.value, Refused), "the bundle has left its place"


def test_where_lookups_tell_nothing_a_bundle_that_has_gone_counts_as_handed_over(
    cluster: FakeCluster,
) -> None:
    cluster.before = lambda call: (
        (404, {"reason": "Topic not found"}, {}) if call.path.startswith("/lookup/") else None
    )
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    assert cluster.owners[cluster.ranges[0]] == 1


def test_the_owner_of_a_bundle_that_no_name_falls_into_is_not_looked_up(
    cluster: FakeCluster,
) -> None:
    peers = Peers(cluster.adapter(0)._admin, cluster.names[0])
    assert peers.find_owner(parse_bundle("shop/orders/0x00000000_0x00000001")) is None
    assert not cluster.calls


@pytest.mark.parametrize(
    ("url", "own", "broker", "asked"),
    [
        ("http://b-1:8080", "b-1:8080", "b-2:8080", "http://b-2:8080"),
        ("http://b-1:8081", "b-1:8081", "b-1:8082", "http://b-1:8082"),
        ("https://b-1:8443", "b-1:8080", "b-2:8080", "https://b-2:8443"),
        ("https://b-1:8443", "b-1:8443", "b-2:8443", "https://b-2:8443"),
        ("http://10.0.0.1:8080", "b-1:8080", "b-2:8080", "http://b-2:8080"),
        ("http://[::1]:8080", "[::1]:8080", "[::2]:8080", "http://[::2]:8080"),
    ],
)
def test_another_broker_is_asked_at_the_port_that_differs_from_its_id_as_our_own_does(
    url: str, own: str, broker: str, asked: str
) -> None:
    assert Peers(AdminClient(AdminSettings(url)), own)._client(broker).settings == replace(
        AdminSettings(url), url=asked
    )
    assert urlsplit(asked).port


@pytest.mark.parametrize("name", ["", "b-2", "b-2:port", "b-2:8080/admin"])
def test_an_id_that_is_no_address_answers_nobody(name: str) -> None:
    assert not Peers(AdminClient(AdminSettings("http://b-1:8080")), "b-1:8080").is_answering(name)


# --- reports ---


class Clock:
    """Time that passes only when it is told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_an_agent_that_was_restarted_does_not_take_a_bundle_back_that_it_has_given_up(
    cluster: FakeCluster,
) -> None:
    cluster.adapter(0).transfer(cluster.bundle(0), cluster.names[1])
    anew = cluster.adapter(0)
    for _ in range(2):
        report = anew.report()
        assert isinstance(report, bytes)  # at once, also while the statistics are old
        assert list(json.loads(report)["lastStats"]) == [cluster.bundle(3)]
        cluster.take_statistics()


def test_a_bundle_that_an_operator_has_unloaded_by_hand_is_not_taken_back(
    cluster: FakeCluster,
) -> None:
    adapter = cluster.adapter(0)
    assert isinstance(adapter.report(), bytes)
    cluster.owners[cluster.ranges[0]] = 2
    assert adapter.report() == []


def test_where_the_statistics_stay_old_the_report_is_sent_without_what_has_gone(
    cluster: FakeCluster,
) -> None:
    clock = Clock()
    adapter = cluster.adapter(0, clock=clock)
    assert isinstance(adapter.report(), bytes)
    cluster.owners[cluster.ranges[0]] = 2
    for now_s, sent in (
        (100.0, False),
        (114.9, False),
        (115.0, True),
        (115.1, False),
        (130.1, True),
    ):
        clock.now_s = now_s
        report = adapter.report()
        assert isinstance(report, bytes) == sent, now_s
        if isinstance(report, bytes):
            fields = json.loads(report)
            assert (
                list(fields["lastStats"]) == fields["bundles"] == [cluster.bundle(3)]
                and fields["lastUpdate"] == 1795270116153
            )


def test_a_bundle_without_topics_that_came_by_a_decision_is_named_though_no_statistics_do(
    cluster: FakeCluster,
) -> None:
    clock = Clock()
    adapter = cluster.adapter(1, clock=clock)
    assert isinstance(adapter.report(), bytes)
    cluster.owners[cluster.ranges[0]] = 1
    adapter.acquire(cluster.bundle(0))
    assert adapter.report() == []
    clock.now_s += 15
    report = adapter.report()
    assert isinstance(report, bytes)
    assert json.loads(report)["bundles"] == [cluster.bundle(0), cluster.bundle(1)]
    assert list(json.loads(report)["lastStats"]) == [cluster.bundle(1)]


def test_a_report_costs_a_request_and_one_for_each_bundle_and_once_in_a_while_the_settings(
    cluster: FakeCluster,
) -> None:
    adapter = cluster.adapter(0)
    adapter.report()
    before = len(cluster.calls)
    for _ in range(5):
        adapter.report()
    assert len(cluster.calls) - before == 5 * (1 + len(cluster.owned(0)))
