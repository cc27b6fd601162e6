"""What a broker owns is asked by questions that can't block it, and not again while it is silent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from lb_stream.agent import BrokerError
from lb_stream.agent.pulsar.adapter import PulsarAdapter
from lb_stream.agent.pulsar.admin import AdminClient, AdminResponse, AdminSettings, AdminTimeout
from lb_stream.agent.pulsar.ownership import LIST_MAX_AGE_S, OwnedBundles
from tests.pulsar.fake_cluster import (
    NAMESPACE,
    PULSAR_CLUSTER,
    FakeCluster,
    fake_cluster,
)
from tests.support.wordings import check_wording


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


@pytest.fixture
def large() -> Iterator[FakeCluster]:
    """One broker with forty bundles, more than are asked for one by one."""
    with fake_cluster(1, boundaries=[*range(0, 40 << 24, 1 << 24), 0xFFFFFFFF]) as started:
        yield started


class Clock:
    """Time that passes only when it is told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Line(AdminClient):
    """A line to a broker on which questions for bundles may get lost."""

    lost = False
    sent = 0

    def get(self, path: str, *rest: Any, **options: Any) -> AdminResponse:
        """Count the questions for bundles, and lose them if they are to be lost."""
        self.sent += "/non-persistent/" in path
        if self.lost and "/non-persistent/" in path:
            raise AdminTimeout(f"GET {path}: no answer in time")
        return super().get(path, *rest, **options)


def line_to(cluster: FakeCluster) -> Line:
    return Line(AdminSettings(f"http://{cluster.names[0]}"))


def owned_bundles(cluster: FakeCluster, clock: Clock, line: Line | None = None) -> OwnedBundles:
    admin = line or line_to(cluster)
    return OwnedBundles(admin, cluster.names[0], lambda: PULSAR_CLUSTER, clock)


def lists(cluster: FakeCluster) -> int:
    """How often a broker has been asked for the list of its bundles."""
    return sum(call.path.endswith("/ownedNamespaces") for call in cluster.calls)


def test_a_modular_broker_of_few_bundles_is_never_asked_for_their_list(
    cluster: FakeCluster,
) -> None:
    source, destination = cluster.adapter(0), cluster.adapter(1)
    bundle = cluster.bundle(0)
    for adapter in (source, destination):
        adapter.report()
    source.transfer(bundle, cluster.names[1])
    destination.acquire(bundle)
    assert source.report() == destination.report() == [], "the statistics are older than the move"
    assert (source.owns(bundle), destination.owns(bundle)) == (False, True)
    assert lists(cluster) == 0


def test_to_ask_for_a_bundle_places_it_nowhere_and_goes_to_no_other_broker(
    cluster: FakeCluster,
) -> None:
    owned = owned_bundles(cluster, Clock())
    cluster.owners[cluster.ranges[0]] = None
    no_bundle, no_namespace = (
        f"{NAMESPACE}/0x00000000_0x20000000",
        "shop/gone/0x00000000_0xffffffff",
    )
    found = [
        owned.is_owned(bundle)
        for bundle in (cluster.bundle(0), cluster.bundle(1), cluster.bundle(3), no_bundle)
    ]
    assert found == [False, False, True, False]
    cluster.before = lambda call: (404, {"reason": "Namespace not found"}, {})
    assert not owned.is_owned(no_namespace)
    assert cluster.owners[cluster.ranges[0]] is None
    assert {call.broker for call in cluster.calls} == {0}


def test_a_bundle_that_is_being_unloaded_is_no_longer_owned(cluster: FakeCluster) -> None:
    owned, bundle = owned_bundles(cluster, Clock()), cluster.bundle(3)
    reason = f"Namespace bundle {bundle} is being unloaded"  # as 5.0.1 says it
    cluster.before = lambda call: (500, {"reason": reason}, {})
    assert not owned.is_owned(bundle)
    cluster.before = lambda call: (500, {"reason": "out of memory"}, {})
    with pytest.raises(BrokerError, match="out of memory"):
        owned.is_owned(bundle)


def test_a_broker_that_may_not_be_asked_is_an_error(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (403, b"", {})
    with pytest.raises(BrokerError) as error:
        owned_bundles(cluster, Clock()).is_owned(cluster.bundle(0))
    check_wording(error.value)


def test_a_list_of_many_bundles_serves_for_a_while_and_changes_are_asked_for_one_by_one(
    large: FakeCluster,
) -> None:
    clock = Clock()
    owned = owned_bundles(large, clock)
    names = {large.bundle(number) for number in range(len(large.ranges))}
    assert owned.find_owned(names) == names and lists(large) == 1

    # A bundle that the agent gives up is void at once, and owned again if it comes back.
    owned.note_gone(large.bundle(0))
    large.owners[large.ranges[0]] = None
    assert owned.find_owned(names) == names - {large.bundle(0)}
    large.owners[large.ranges[0]] = 0
    assert owned.find_owned(names) == names and lists(large) == 1

    # What somebody else has moved is noticed with the next list.
    large.owners[large.ranges[1]] = None
    assert owned.find_owned(names) == names
    clock.now_s += LIST_MAX_AGE_S
    assert owned.find_owned(names) == names - {large.bundle(1)} and lists(large) == 2


def test_a_broker_that_has_not_answered_in_time_is_left_alone_for_longer_and_longer(
    cluster: FakeCluster,
) -> None:
    clock, line = Clock(), line_to(cluster)
    owned, bundle = owned_bundles(cluster, clock, line), cluster.bundle(3)
    line.lost, sent_at_s = True, list[float]()
    for _ in range(80):
        before = line.sent
        with pytest.raises(AdminTimeout):
            owned.is_owned(bundle)
        if line.sent > before:
            sent_at_s.append(clock.now_s)
        clock.now_s += 1
    waits_s = [later - sooner for sooner, later in pairwise(sent_at_s)]
    assert waits_s == [1, 2, 4, 8, 16, 30]

    # An answer ends it; the next silence begins with a short pause.
    line.lost = False
    clock.now_s += 30
    assert owned.is_owned(bundle)
    line.lost, before = True, line.sent
    for _ in range(2):
        with pytest.raises(AdminTimeout, match="no answer in time"):
            owned.is_owned(bundle)
        clock.now_s += 1
    assert line.sent == before + 2


def test_a_report_says_why_a_broker_without_an_answer_is_not_asked_again(
    cluster: FakeCluster,
) -> None:
    line = line_to(cluster)
    adapter = PulsarAdapter(line, clock=Clock())
    assert isinstance(adapter.report(), bytes)
    line.lost = True
    with suppress(AdminTimeout):
        adapter.report()
    line.lost = False
    with pytest.raises(AdminTimeout) as error:
        adapter.report()
    check_wording(error.value)

    # A broker that was away and is back is asked at once.
    cluster.before = lambda call: (503, b"", {}) if call.path.endswith("/ready") else None
    assert not adapter.alive()
    report = adapter.report()
    assert isinstance(report, bytes)
    assert list(json.loads(report)["lastStats"]) == [cluster.bundle(0), cluster.bundle(3)]
