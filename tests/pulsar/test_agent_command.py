"""`lbctl agent`: what it checks, what it shows, how it fails."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.operations.import_namespaces import ImportNamespaces
from tests.pulsar.fake_cluster import NAMESPACE, FakeCluster, default_runtime, fake_cluster
from tests.support.lbctl_runner import lbctl
from tests.support.pulsar_keys import RELEASES
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
        f"{name}: modular manager of cluster testbed, Pulsar 5.0.1: ok\n" for name in cluster.names
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


def balance_off(cluster: FakeCluster, release: str) -> None:
    """Brokers of a release with an empty broker.conf, without Pulsar's own balancing."""
    cluster.version = f"{release}.1"
    for number, runtime in enumerate(cluster.runtimes):
        cluster.runtimes[number] = default_runtime(release) | runtime
    cluster.dynamic = dict.fromkeys(
        ("loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled"), "false"
    )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("is_set", [True, False])
def test_a_check_of_brokers_with_their_releases_defaults_has_nothing_to_say_under_its_profile(
    cluster: FakeCluster, tmp_path: Path, release: str, is_set: bool
) -> None:
    """Without a profile it is that of the brokers' release."""
    balance_off(cluster, release)
    profile = ["--set", f"cluster.eu-1.profile=pulsar-{release}"] if is_set else []
    result = lbctl(*check(cluster), *profile, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out == "".join(
        f"{name}: modular manager of cluster testbed, Pulsar {release}.1: ok\n"
        for name in cluster.names
    )


def test_a_check_under_another_releases_profile_names_each_default_that_differs(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """It passed over every difference: one of the brokers' values could not be read."""
    balance_off(cluster, "5.0")
    old = ["--set", "cluster.eu-1.profile=pulsar-4.0"]
    result = lbctl(*check(cluster), *old, cwd=tmp_path)
    assert result.code == 0
    check_wording("\n".join(line for line in result.out.splitlines() if "modular" not in line))
    rows = lbctl(*check(cluster), *old, "--json", cwd=tmp_path).objects
    assert all(row["profile"] == "pulsar-4.0" and row["version"] == "5.0.1" for row in rows)
    assert set(rows[0]["settings"]) == {
        "loadBalancerLoadSheddingStrategy",
        "loadBalancerLoadPlacementStrategy",
        "loadBalancerDistributeBundlesEvenlyEnabled",
        "maxUnloadPercentage",
        "defaultNumberOfNamespaceBundles",
    }


def test_a_check_names_the_settings_with_which_the_brokers_run_and_the_balancer_would_not(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """Without --broker-conf the job ran with its own defaults, and nothing said so."""
    balance_off(cluster, "4.0")
    for runtime in cluster.runtimes:
        runtime |= {"loadBalancerBrokerThresholdShedderPercentage": "5"}
    result = lbctl(*check(cluster), cwd=tmp_path)
    assert result.code == 0
    first, *advice = [line for line in result.out.splitlines() if "modular" not in line]
    assert first == (
        "  loadBalancerBrokerThresholdShedderPercentage: 5 % in the broker, 10 % here "
        "(threshold_percent, default)"
    )
    assert "--broker-conf FILE" in advice[0]
    (tmp_path / "broker.conf").write_text("loadBalancerBrokerThresholdShedderPercentage=5\n")
    by_file, by_name = (
        ["--broker-conf", "broker.conf"],
        ["--set", "cluster.eu-1.threshold_percent=20"],
    )
    assert "in the broker" not in lbctl(*check(cluster), *by_file, cwd=tmp_path).out
    assert "in the broker" not in lbctl(*check(cluster), *by_name, cwd=tmp_path).out
    (tmp_path / "broker.conf").write_text("loadBalancerBrokerThresholdShedderPercentage=8\n")
    assert "8 % here" in lbctl(*check(cluster), *by_file, cwd=tmp_path).out


def test_a_check_says_which_settings_no_file_of_the_brokers_has(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    balance_off(cluster, "5.0")
    cluster.dynamic["maxUnloadPercentage"] = "0.3"
    result = lbctl(*check(cluster), cwd=tmp_path)
    assert result.code == 0
    check_wording("\n".join(line for line in result.out.splitlines() if "modular" not in line))


@pytest.mark.parametrize("version", ["4.9.3", "nightly"])
def test_a_check_says_that_no_profile_fits_a_version(
    cluster: FakeCluster, tmp_path: Path, version: str
) -> None:
    balance_off(cluster, "4.2")
    cluster.version = version
    result = lbctl(*check(cluster), cwd=tmp_path)
    assert result.code == 0
    (line,) = [line for line in result.out.splitlines() if "modular" not in line]
    check_wording(line)


def test_a_check_names_a_class_of_the_clusters_own_and_compares_the_rest(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    balance_off(cluster, "5.0")
    for runtime in cluster.runtimes:
        runtime["loadBalancerLoadSheddingStrategy"] = "org.example.OwnShedder"
        runtime["loadBalancerBrokerMaxTopics"] = "7"
    result = lbctl(*check(cluster), cwd=tmp_path)
    assert result.code == 0
    check_wording("\n".join(line for line in result.out.splitlines() if "modular" not in line))


def test_a_check_says_what_must_be_changed_first(cluster: FakeCluster, tmp_path: Path) -> None:
    for runtime in cluster.runtimes:
        runtime["loadBalancerSheddingEnabled"] = "true"
    cluster.stop(2)
    result = lbctl(*check(cluster), "--json", cwd=tmp_path)
    assert result.code == 1
    first, _, third = result.objects
    assert first["alive"] and "lbctl agent own-balancing off" in first["troubles"][0]
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
        "extensible manager of cluster testbed, Pulsar 5.0.1: must be changed\n" in result.out
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
