"""`lbctl agent own-balancing`: Pulsar's own shedding and splitting, on and off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.agent.pulsar.guard import OWN_BALANCING
from tests.pulsar.fake_cluster import Call, FakeCluster, Reply, fake_cluster
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        started.dynamic = dict.fromkeys(OWN_BALANCING, "true")
        yield started


def turn(cluster: FakeCluster, cwd: Path, *arguments: str) -> Result:
    url = f"http://{cluster.names[0]}"
    return lbctl("agent", "own-balancing", *arguments, "--admin-url", url, cwd=cwd)


def test_it_is_turned_off_and_on_in_all_brokers(cluster: FakeCluster, tmp_path: Path) -> None:
    result = turn(cluster, tmp_path, "off", "--json")
    assert result.objects == [{"cluster": "testbed", **dict.fromkeys(OWN_BALANCING, False)}]
    assert set(cluster.dynamic.values()) == {"false"}
    result = turn(cluster, tmp_path, "on", "--json")
    assert result.objects == [{"cluster": "testbed", **dict.fromkeys(OWN_BALANCING, True)}]
    assert set(cluster.dynamic.values()) == {"true"}


def test_without_a_word_it_is_shown_and_nothing_is_changed(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    result = turn(cluster, tmp_path)
    assert result.code == 0
    assert {call.method for call in cluster.calls} == {"GET"}


@pytest.mark.parametrize("switch", ["off", "on"])
def test_it_says_what_to_do_next(cluster: FakeCluster, tmp_path: Path, switch: str) -> None:
    result = turn(cluster, tmp_path, switch)
    assert result.code == 0
    check_wording(result.out.replace(cluster.names[0], "BROKER"))


def test_a_token_without_the_right_is_one_line(cluster: FakeCluster, tmp_path: Path) -> None:
    def refuse(call: Call) -> Reply | None:
        return (403, {"reason": "not a superuser"}, {}) if call.method == "POST" else None

    cluster.before = refuse
    result = turn(cluster, tmp_path, "off")
    assert result.code == 1
    check_wording(result.err.replace(cluster.names[0], "BROKER"))
