"""`lbctl agent`: what it checks, what it shows, how it fails."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.operations.import_namespaces import ImportNamespaces
from tests.pulsar.fake_cluster import NAMESPACE, FakeCluster, fake_cluster
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


def check(cluster: FakeCluster) -> list[str]:
    return [
        "agent",
        "pulsar",
        "--check",
        "--cluster",
        "eu-1",
        *(part for name in cluster.names for part in ("--admin-url", f"http://{name}")),
    ]


def test_a_check_says_that_all_is_fit(cluster: FakeCluster, tmp_path: Path) -> None:
    result = lbctl(*check(cluster), cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out == "".join(
        f"{name}: modular manager of cluster testbed: ok\n" for name in cluster.names
    )
    assert not cluster.acts()


def test_a_check_says_how_long_decisions_must_be_waited_for(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.runtimes[1]["statsUpdateFrequencyInSecs"] = "60"
    result = lbctl(*check(cluster), cwd=tmp_path)
    assert result.code == 0
    (line,) = [line for line in result.out.splitlines() if line.startswith("  ")]
    check_wording(line)


def test_a_check_names_the_settings_with_which_the_brokers_run_and_the_balancer_would_not(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """Without --broker-conf the job ran with its own defaults, and nothing said so."""
    for runtime in cluster.runtimes:
        runtime |= {
            "loadBalancerBrokerThresholdShedderPercentage": "5",
            "loadBalancerHistoryResourcePercentage": "0.9",
        }
        runtime["loadBalancerLoadSheddingStrategy"] = (
            "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder"
        )
        runtime |= {
            "loadBalancerSheddingGracePeriodMinutes": "30",
            "maxUnloadPercentage": "0.9",
            "statsUpdateFrequencyInSecs": "10",
        }
    result = lbctl(*check(cluster), cwd=tmp_path)
    assert result.code == 0
    found = [line.strip() for line in result.out.splitlines() if line.startswith("  ")]
    assert found == [
        "loadBalancerBrokerThresholdShedderPercentage: threshold_percent is 10 here (default), and "
        "5.0 in the broker",
        "these brokers run with other settings: give the job and the agents their --broker-conf",
    ]
    (tmp_path / "broker.conf").write_text("loadBalancerBrokerThresholdShedderPercentage=5\n")
    assert (
        "in the broker"
        not in lbctl(*check(cluster), "--broker-conf", "broker.conf", cwd=tmp_path).out
    )
    assert (
        "in the broker"
        not in lbctl(
            *check(cluster), "--set", "cluster.eu-1.threshold_percent=20", cwd=tmp_path
        ).out
    )
    (tmp_path / "broker.conf").write_text("loadBalancerBrokerThresholdShedderPercentage=8\n")
    assert "is 8.0 here" in lbctl(*check(cluster), "--broker-conf", "broker.conf", cwd=tmp_path).out


def test_a_check_says_what_must_be_changed_first(cluster: FakeCluster, tmp_path: Path) -> None:
    for runtime in cluster.runtimes:
        runtime["loadBalancerSheddingEnabled"] = "true"
    cluster.stop(2)
    result = lbctl(*check(cluster), "--json", cwd=tmp_path)
    assert result.code == 1
    first, _, third = result.objects
    assert (
        first["alive"]
        and "--config loadBalancerSheddingEnabled --value false" in first["troubles"][0]
    )
    assert not third["alive"] and "Connection refused" in third["troubles"][0]


@pytest.mark.skipif(
    importlib.util.find_spec("pulsar") is not None, reason="the package pulsar-client is installed"
)
def test_a_check_of_an_extensible_cluster_says_that_its_load_data_cannot_be_read(
    tmp_path: Path,
) -> None:
    with fake_cluster(brokers=1, manager="extensible") as cluster:
        result = lbctl(*check(cluster), cwd=tmp_path)
    assert result.code == 1
    assert (
        "extensible manager of cluster testbed: must be changed\n" in result.out
        and "pip install 'lb_stream[pulsar]'" in result.out
    )


@pytest.mark.parametrize(
    "more",
    [
        ["--admin-url", "broker-1:8080"],
        ["--admin-url", "http://["],
        ["--broker", "a:1", "--broker", "b:1"],
        ["--token", "t", "--token-file", "f"],
        ["--admin-url", "http://broker-1:8080"],
        ["--ca-file", "missing.pem"],
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_line_that_says_why(
    tmp_path: Path, more: list[str]
) -> None:
    result = lbctl(
        "agent",
        "pulsar",
        "--cluster",
        "eu-1",
        "--admin-url",
        "http://broker-1:8080",
        *more,
        cwd=tmp_path,
    )
    assert (result.code, result.out) == (2, "")
    check_wording(result.err)


def test_without_kafka_an_agent_ends_at_once_and_says_what_to_do(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    url = ["--admin-url", f"http://{cluster.names[0]}", "--cluster", "eu-1"]
    result = lbctl("agent", "pulsar", *url, "--kafka", "127.0.0.1:1", cwd=tmp_path)
    assert result.code == 1
    check_wording(result.err)


def test_namespaces_are_shown_for_people_and_for_programs(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.group = "payments"
    command = ["agent", "namespaces", "--admin-url", f"http://{cluster.names[0]}"]
    lines = lbctl(*command, cwd=tmp_path).out.splitlines()
    assert lines[:2] == [
        f"{NAMESPACE}: 4 bundles, anti-affinity group payments",
        "isolation p1: shop/.* on 127.*, else 10.*",
    ]
    (found,) = lbctl(*command, "--json", cwd=tmp_path).objects
    assert found["namespaces"][0] == {
        "name": NAMESPACE,
        "boundaries": cluster.boundaries,
        "anti_affinity_group": "payments",
    }
    assert json.dumps(found["failure_domains"]) == json.dumps(
        dict.fromkeys(sorted(cluster.names[:2]), "east")
    )


def test_what_is_shown_for_programs_can_be_imported_by_a_command(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.group = "payments"
    (found,) = lbctl(
        "agent", "namespaces", "--admin-url", f"http://{cluster.names[0]}", "--json", cwd=tmp_path
    ).objects
    content = ImportNamespaces(id="c-1", content=found).content
    assert content == cluster.adapter(0).namespaces()
    assert content.namespaces[0].bundles[0] == cluster.bundle(0)


def test_a_token_may_come_from_the_environment(cluster: FakeCluster, tmp_path: Path) -> None:
    command = ["agent", "namespaces", "--admin-url", f"http://{cluster.names[0]}", "--json"]
    assert lbctl(*command, cwd=tmp_path, env={"LB_PULSAR_TOKEN": "t0"}).code == 0
    assert {call.authorization for call in cluster.calls} == {"Bearer t0"}
