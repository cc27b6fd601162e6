"""The settings that `lbctl run` makes of those in force in a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.cli.shared.output import CommandError
from lb_stream.kit.run.folder import ClusterFolder, require_settings, write_settings
from lb_stream.settings.load import load
from lb_stream.settings.names import to_our_name
from lb_stream.settings.resolve import resolve
from tests.pulsar.fake_cluster import default_runtime
from tests.support.pulsar_keys import RELEASES

BOOTSTRAP, BROKER = "127.0.0.1:1", "broker-1:8080"


@pytest.mark.parametrize("release", RELEASES)
def test_the_brokers_settings_hold_but_its_switches_and_strategies(
    tmp_path: Path, release: str
) -> None:
    runtime = default_runtime(release) | {
        "loadBalancerBrokerThresholdShedderPercentage": "17",
        "loadBalancerSheddingEnabled": "false",
        "statsUpdateFrequencyInSecs": "20",
    }
    folder = ClusterFolder(tmp_path / "lb-eu-1")
    assert write_settings(folder, "eu-1", BOOTSTRAP, BROKER, runtime) == ()
    assert require_settings(folder) == BOOTSTRAP

    loaded = load(folder.config, folder.broker_conf)
    assert loaded.warnings == ()
    config = resolve(loaded.settings.of_cluster("eu-1")).config
    assert config.balancer.shedding_enabled  # off in the broker: this balancer takes over
    assert config.balancer.shedding_strategy == "LeastMoves"
    assert loaded.settings.of_cluster("eu-1")["unloading_timeout_ms"] == 50_000
    key = to_our_name("loadBalancerBrokerThresholdShedderPercentage", "17")
    assert float(loaded.settings.balancer[key]) == 17.0
    assert loaded.settings.stream.tables == str(tmp_path / "lb-eu-1" / "tables")


def test_a_value_that_is_no_setting_here_is_a_remark_in_the_file(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    own = {"loadBalancerLoadSheddingStrategy": "com.acme.OwnShedder"}
    (line,) = write_settings(folder, "eu.1", BOOTSTRAP, BROKER, own)
    assert "com.acme.OwnShedder" in line
    assert f"# {line}" in folder.broker_conf.read_text().splitlines()
    assert require_settings(folder) == BOOTSTRAP  # the name of the cluster has a dot


def test_kafka_is_started_here_where_its_data_and_its_address_are(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    assert folder.find_kafka_port("") == 0  # the first run
    assert folder.find_kafka_port("127.0.0.1:9092") is None  # a Kafka of the user's
    folder.kafka.mkdir()
    assert folder.find_kafka_port("127.0.0.1:9092") == 9092
    for elsewhere in ("kafka-1:9092", "127.0.0.1:9092,127.0.0.1:9093,b:1", "127.0.0.1"):
        assert folder.find_kafka_port(elsewhere) is None


def test_kafkas_address_is_the_folders_own_whatever_the_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ClusterFolder(tmp_path)
    write_settings(folder, "eu-1", BOOTSTRAP, BROKER, {})
    monkeypatch.setenv("LB_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:2")
    assert require_settings(folder) == BOOTSTRAP
    assert require_settings(folder, ["kafka.bootstrap_servers=127.0.0.1:3"]) == "127.0.0.1:3"


def test_settings_that_were_spoilt_are_one_line(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    write_settings(folder, "eu-1", BOOTSTRAP, BROKER, {})
    folder.config.write_text("[kafka]\nbootstrap_servers = 7\n")
    with pytest.raises(CommandError, match="bootstrap_servers") as caught:
        require_settings(folder)
    assert caught.value.code == 2
