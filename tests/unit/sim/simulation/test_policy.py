"""Which settings a policy's name or file stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.sim.simulation import PolicyError, read_policy


@pytest.mark.parametrize(
    ("name", "manager", "shedding", "placing"),
    [
        (
            "ThresholdShedder+LeastLongTermMessageRate",
            "modular",
            "ThresholdShedder",
            "LeastLongTermMessageRate",
        ),
        (
            "UniformLoadShedder+LeastResourceUsageWithWeight",
            "modular",
            "UniformLoadShedder",
            "LeastResourceUsageWithWeight",
        ),
        ("AvgShedder", "modular", "AvgShedder", "AvgShedder"),
        ("TransferShedder", "extensible", "TransferShedder", "LeastResourceUsageWithWeight"),
        ("OverloadShedder", "modular", "OverloadShedder", "LeastLongTermMessageRate"),
        ("OverloadShedder+leastLoadedServer", "simple", None, "leastLoadedServer"),
    ],
)
def test_a_name_is_a_shedder_and_a_placement(
    name: str, manager: str, shedding: str | None, placing: str
) -> None:
    config = read_policy(name).resolve().config
    assert (config.balancer.load_manager, config.placement.name) == (manager, placing)
    assert shedding in (None, config.shedder.name)


def test_none_sheds_nothing() -> None:
    assert not read_policy("none").resolve().config.balancer.enabled


def test_a_file_gives_a_clusters_settings(tmp_path: Path) -> None:
    file = tmp_path / "careful.toml"
    file.write_text(
        "[balancer]\nthreshold_percent = 20\n[cluster.eu-1]\nshedding_strategy = "
        '"OverloadShedder"\n'
    )
    policy = read_policy(str(file))
    assert policy.name == "careful" and policy.resolve().config.shedder.name == "OverloadShedder"
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "loadBalancerLoadSheddingStrategy=org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder\n"
        "other=1\n"
    )
    assert read_policy(str(conf)).resolve().config.shedder.name == "UniformLoadShedder"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[balancer]\nthreshold_percnt = 20\n",
            "balancer.threshold_percnt = 20 ({file}): expected one of the known keys; nearest: thr",
        ),
        (
            "[balancer]\nthreshold_percent = 'x'\n",
            "balancer.threshold_percent = 'x' ({file}): expected a number",
        ),
        ("[balancer\n", "--config = '{file}': expected a TOML file"),
    ],
)
def test_a_file_with_a_fault_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text)
    with pytest.raises(PolicyError) as error:
        read_policy(str(file))
    assert str(error.value).startswith(told.format(file=file)) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["ThresholdSheder", "ThresholdShedder+Nowhere", "", "nothing.toml"]
)
def test_a_policy_that_there_is_not_is_told_with_those_there_are(name: str) -> None:
    with pytest.raises(PolicyError, match=r"expected .*(ThresholdShedder|AvgShedder|a file)"):
        read_policy(name)
