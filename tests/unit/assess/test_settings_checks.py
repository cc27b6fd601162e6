"""What is wrong in a cluster's balancer settings, given what it carries."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.agent.pulsar.guard import RUNTIME
from lb_stream.agent.pulsar.recorder import line_aside
from lb_stream.assess.assessment import Observation
from lb_stream.assess.settings_checks import SettingFinding
from tests.support.assessed_cluster import EVEN, UNEVEN, minutes, observed
from tests.support.wordings import check_wording

SHEDDERS = "org.apache.pulsar.broker.loadbalance.impl"


def findings(found: Observation, kind: str) -> dict[str, SettingFinding]:
    return {finding.key: finding for finding in found.setting_findings if finding.kind == kind}


def shedder(name: str) -> str:
    return f"loadBalancerLoadSheddingStrategy={SHEDDERS}.{name}"


PLACEMENT = f"loadBalancerLoadPlacementStrategy={SHEDDERS}.LeastLongTermMessageRate"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (
            (shedder("ThresholdShedder"), "loadBalancerBrokerThresholdShedderPercentage=70"),
            "loadBalancerBrokerThresholdShedderPercentage",
        ),
        (
            (shedder("ThresholdShedder"), "loadBalancerBundleUnloadMinThroughputThreshold=10"),
            "loadBalancerBundleUnloadMinThroughputThreshold",
        ),
        (
            (
                shedder("UniformLoadShedder"),
                "loadBalancerMsgRateDifferenceShedderThreshold=0",
                "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold=0",
            ),
            "loadBalancerMsgRateDifferenceShedderThreshold",
        ),
        ((shedder("UniformLoadShedder"),), "minUnloadMessage"),
        (
            (
                "loadManagerClassName=org.apache.pulsar.broker.loadbalance.extensions."
                "ExtensibleLoadManagerImpl",
                "loadBalancerBrokerLoadTargetStd=0.5",
            ),
            "loadBalancerBrokerLoadTargetStd",
        ),
    ],
)
def test_a_threshold_that_can_never_be_reached_is_found(
    tmp_path: Path, settings: tuple[str, ...], key: str
) -> None:
    found = findings(observed(tmp_path, minutes(UNEVEN, 2), PLACEMENT, *settings), "never")
    assert key in found
    check_wording(found[key].description)


def test_a_threshold_that_is_not_reached_now_says_how_far_it_is(tmp_path: Path) -> None:
    found = findings(
        observed(tmp_path, minutes(UNEVEN, 2), PLACEMENT, shedder("OverloadShedder")), "waits"
    )
    (finding,) = found.values()
    assert finding.description.endswith("a broker sheds at 85%; the fullest is at 60%")


def test_a_threshold_that_is_reached_causes_no_finding(tmp_path: Path) -> None:
    found = observed(tmp_path, minutes(UNEVEN, 2), PLACEMENT, shedder("ThresholdShedder"))
    assert not {
        finding.key
        for finding in found.setting_findings
        if finding.key == "loadBalancerBrokerThresholdShedderPercentage"
    }


def test_pairs_that_contradict_each_other_are_found(tmp_path: Path) -> None:
    low = findings(
        observed(tmp_path, minutes(EVEN, 2), "loadBalancerAvgShedderLowThreshold=50"),
        "contradiction",
    )
    assert "loadBalancerAvgShedderLowThreshold" in low
    hits = findings(
        observed(tmp_path, minutes(EVEN, 2), "loadBalancerAvgShedderHitCountHighThreshold=9"),
        "contradiction",
    )
    assert "loadBalancerAvgShedderHitCountHighThreshold" in hits
    alone = observed(tmp_path, minutes(EVEN, 2), PLACEMENT)
    assert any("AvgShedder" in finding.description for finding in alone.setting_findings)


def test_balancing_that_is_off_is_found(tmp_path: Path) -> None:
    found = findings(observed(tmp_path, minutes(EVEN, 2), "loadBalancerEnabled=false"), "off")
    assert "although loadBalancerSheddingEnabled and" in found["loadBalancerEnabled"].description
    found = findings(
        observed(tmp_path, minutes(EVEN, 2), "loadBalancerSheddingEnabled=false"), "off"
    )
    assert "loadBalancerSheddingEnabled" in found


def test_excluded_namespaces_are_named_with_their_part_of_the_traffic(tmp_path: Path) -> None:
    names = "loadBalancerSheddingExcludedNamespaces=shop/orders,shop/oders"
    found = observed(tmp_path, minutes(EVEN, 2), names)
    lines = [line.description for line in found.setting_findings if line.kind == "excluded"]
    assert lines[0] == "shop/orders is never shed: 100% of the traffic stays where it is"
    assert lines[1].endswith("is it misspelt?")


def test_automatic_splits_without_a_bundle_near_a_limit_are_idle(tmp_path: Path) -> None:
    found = findings(observed(tmp_path, minutes(UNEVEN, 2)), "idle")
    finding = found["loadBalancerAutoBundleSplitEnabled"]
    # 4 of 1,000 topics and sessions, 100 of 30,000 msg/s
    assert "the largest bundle has 0% of a limit" in finding.description
    assert "11% of the cluster's traffic" in finding.description
    near = "loadBalancerNamespaceBundleMaxMsgRate=150"
    assert not findings(observed(tmp_path, minutes(UNEVEN, 2), near), "idle")


def test_full_namespaces_are_split_no_further(tmp_path: Path) -> None:
    settings = ("loadBalancerNamespaceBundleMaxMsgRate=50", "loadBalancerNamespaceMaximumBundles=9")
    found = findings(observed(tmp_path, minutes(UNEVEN, 2), *settings), "never")
    assert "loadBalancerNamespaceMaximumBundles" in found


def test_settings_that_the_strategy_does_not_read_are_listed(tmp_path: Path) -> None:
    found = findings(
        observed(tmp_path, minutes(EVEN, 2), "loadBalancerBrokerThresholdShedderPercentage=20"),
        "unread",
    )
    assert "loadBalancerBrokerThresholdShedderPercentage = 20.0" in found[""].description


def test_settings_in_force_come_from_the_recorded_brokers(tmp_path: Path) -> None:
    runtime = {"loadBalancerLoadSheddingStrategy": f"{SHEDDERS}.ThresholdShedder"}
    runtime |= {"loadBalancerLoadPlacementStrategy": f"{SHEDDERS}.LeastLongTermMessageRate"}
    lines = [
        line_aside(
            RUNTIME, runtime | {"loadBalancerSheddingIntervalMinutes": value}, broker
        ).rstrip()
        for broker, value in (("a:8080", "1"), ("b:8080", "5"))
    ]
    found = observed(tmp_path, [*lines, *minutes(EVEN, 2)])
    assert found.strategy == "ThresholdShedder"
    assert found.settings_from == "those in force in a:8080; profile pulsar-5.0"
    (finding,) = (line for line in found.setting_findings if line.kind == "differs")
    assert finding.key == "loadBalancerSheddingIntervalMinutes"
    assert finding.description == "brokers differ: 1 at a:8080, 5 at b:8080"


def test_all_settings_that_balancing_reads_are_listed(tmp_path: Path) -> None:
    found = {setting.key: setting for setting in observed(tmp_path, minutes(EVEN, 2)).settings}
    assert found["loadBalancerAvgShedderLowThreshold"].value == 15
    assert "loadBalancerBrokerThresholdShedderPercentage" not in found
