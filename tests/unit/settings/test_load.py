"""Where settings come from and which of them win."""

from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.contracts.unread import MAX_NAMES, WHY, UnreadKeys
from lb_stream.contracts.unread_scalable import ScalableTopicKeys
from lb_stream.settings.load import load, load_settings
from lb_stream.settings.resolve import cluster_config, resolve
from tests.support.wordings import check_wording

IMPL = "org.apache.pulsar.broker.loadbalance.impl"


def given(
    tmp_path: Path,
    *,
    arguments: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    toml: str | None = None,
    broker_conf: str | None = None,
):
    """Load settings from texts, with no variable of the machine."""
    files: list[Path | None] = []
    for name, text in (("lb.toml", toml), ("broker.conf", broker_conf)):
        files.append(None if text is None else tmp_path / name)
        if text is not None:
            (tmp_path / name).write_text(text)
    return load(files[0], files[1], arguments, environment or {})


def effective(settings: Settings, cluster: str = "") -> dict[str, object]:
    """Every key in force in a cluster."""
    return resolve(settings.of_cluster(cluster)).values


def refused(tmp_path: Path, **layers) -> SettingError:
    with pytest.raises(SettingError) as caught:
        given(tmp_path, **layers)
    return caught.value


LAYERS = {
    "broker_conf": "loadBalancerSheddingIntervalMinutes=2\n",
    "toml": "[balancer]\nshedding_interval_ms = 3000\n",
    "environment": {"LB_BALANCER__SHEDDING_INTERVAL_MS": "4000"},
    "arguments": ("shedding_interval_ms=5000",),
}


@pytest.mark.parametrize(
    ("layers", "interval_ms"),
    [
        ((), 60_000),
        (("broker_conf",), 120_000),
        (("broker_conf", "toml"), 3_000),
        (("broker_conf", "toml", "environment"), 4_000),
        (("broker_conf", "toml", "environment", "arguments"), 5_000),
        (("broker_conf", "arguments"), 5_000),
    ],
)
def test_a_later_layer_wins_over_every_earlier_one(tmp_path: Path, layers, interval_ms) -> None:
    settings = given(tmp_path, **{name: LAYERS[name] for name in layers}).settings
    assert effective(settings)["shedding_interval_ms"] == interval_ms


def test_a_key_beats_the_profile_and_the_profile_beats_the_default(tmp_path: Path) -> None:
    documented = effective(given(tmp_path, arguments=("profile=documented",)).settings)
    assert (documented["usage_profile"], documented["placement_weighting"]) == ("2.x", "documented")
    both = effective(
        given(
            tmp_path,
            toml='[balancer]\nprofile = "documented"\n',
            broker_conf="",
            arguments=("usage_profile=4.0",),
        ).settings
    )
    assert (both["usage_profile"], both["placement_weighting"]) == ("4.0", "documented")
    assert effective(given(tmp_path).settings)["usage_profile"] == "4.0"


def test_both_spellings_of_a_key_meet_whichever_layer_uses_which(tmp_path: Path) -> None:
    ours_below = given(
        tmp_path,
        toml="[balancer]\nshedding_grace_period_ms = 1000\n",
        arguments=("loadBalancerSheddingGracePeriodMinutes=2",),
    )
    assert effective(ours_below.settings)["shedding_grace_period_ms"] == 120_000
    ours_above = given(
        tmp_path,
        toml="[balancer]\nloadBalancerSheddingGracePeriodMinutes = 2\n",
        arguments=("shedding_grace_period_ms=1000",),
    )
    assert effective(ours_above.settings)["shedding_grace_period_ms"] == 1_000


def test_one_file_that_spells_a_key_in_both_ways_is_refused(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        toml="[balancer]\nshedding_interval_ms = 1\nloadBalancerSheddingIntervalMinutes = 2\n",
    )
    check_wording(error.expected)


@pytest.mark.parametrize(
    ("pulsar", "ours", "value"),
    [
        ("loadBalancerSheddingIntervalMinutes=1", "shedding_interval_ms", 60_000),
        ("loadBalancerSheddingIntervalMinutes=0.5", "shedding_interval_ms", 30_000),
        ("loadBalancerReportUpdateMaxIntervalMinutes=10", "report_max_interval_ms", 600_000),
        ("loadBalancerReportUpdateMaxIntervalMinutes=10", "report_timeout_ms", 1_200_000),
        ("loadBalancerBrokerThresholdShedderPercentage=12", "threshold_percent", 12),
        ("loadBalancerBundleUnloadMinThroughputThreshold=0.01", "min_throughput_mb", 0.01),
        ("lowerBoundarySheddingEnabled=true", "lower_boundary", True),
        ("namespaceBundleUnloadingTimeoutMs=1000", "unloading_timeout_ms", 1_000),
        ("loadBalancerBandwidthOutResourceWeight=0", "bandwidth_out_weight", 0.0),
    ],
)
def test_pulsars_keys_are_understood_in_their_own_units(
    tmp_path: Path, pulsar, ours, value
) -> None:
    assert effective(given(tmp_path, broker_conf=pulsar).settings)[ours] == value
    assert effective(given(tmp_path, arguments=(pulsar,)).settings)[ours] == value


def test_a_strategy_may_be_named_by_pulsars_class(tmp_path: Path) -> None:
    loaded = given(
        tmp_path,
        broker_conf=f"loadBalancerLoadSheddingStrategy={IMPL}.ThresholdShedder\n",
    )
    assert cluster_config(loaded.settings.of_cluster("any")).shedder.name == "ThresholdShedder"


def test_a_broker_conf_of_hundreds_of_foreign_keys_yields_only_the_balancers(
    tmp_path: Path,
) -> None:
    lines = [f"managedLedgerSetting{number}={number}" for number in range(400)]
    lines += [
        "# comment=1",
        "",
        "enabled=nonsense",
        "clusterName=x",
        "loadBalancerSheddingEnabled = false ",
    ]
    lines += ["#loadBalancerEnabled=false", "loadBalancerBrokerMaxTopics="]
    loaded = given(tmp_path, broker_conf="\n".join(lines))
    assert loaded.settings.balancer == {"shedding_enabled": False}
    assert loaded.origins == {
        ("balancer", "shedding_enabled"): f"{tmp_path / 'broker.conf'}, loadBalancerSheddingEnabled"
    }


def test_a_clusters_own_section_goes_over_the_general_one(tmp_path: Path) -> None:
    general = "[balancer]\ndry_run = true\nthreshold_percent = 20\n"
    toml = (
        general
        + "[cluster.eu-1]\ndry_run = false\n[cluster.us-1]\nloadBalancerSheddingEnabled = false\n"
    )
    settings = given(tmp_path, toml=toml, arguments=("cluster.eu.west.enabled=no",)).settings
    assert [effective(settings, name)["mode"] for name in ("", "eu-1", "us-1", "eu.west")] == [
        "observe",
        "act",
        "observe",
        "observe",
    ]
    assert [effective(settings, name)["enabled"] for name in ("", "eu.west")] == [True, False]
    assert effective(settings, "eu-1")["threshold_percent"] == 20
    assert effective(settings, "us-1")["shedding_enabled"] is False


def test_values_given_as_text_get_the_types_of_their_keys(tmp_path: Path) -> None:
    settings = given(
        tmp_path,
        environment={
            "LB_STREAM__DEFAULT_CLUSTER": "007",
            "LB_BALANCER__DRY_RUN": "false",
            "LB_KAFKA__BOOTSTRAP_SERVERS": "a:1,b:2",
        },
        arguments=(
            "stream.tick_interval_ms=0",
            "kafka.options.request_timeout_ms=9000",
            "kafka.options.security_protocol=SSL",
            "cpu_weight=2",
        ),
    ).settings
    assert (
        settings.stream.default_cluster,
        settings.stream.tick_interval_ms,
        settings.kafka.bootstrap_servers,
    ) == ("007", 0, "a:1,b:2")
    assert settings.kafka.options == {"request_timeout_ms": 9000, "security_protocol": "SSL"}
    assert settings.balancer == {"mode": "act", "cpu_weight": 2.0}


def test_options_of_the_client_add_up_over_the_layers(tmp_path: Path) -> None:
    toml = '[kafka]\noptions = { sasl_mechanism = "PLAIN", security_protocol = "SASL_SSL" }\n'
    settings = given(
        tmp_path, toml=toml, arguments=("kafka.options.sasl_mechanism=SCRAM-SHA-512",)
    ).settings
    assert settings.kafka.options == {
        "sasl_mechanism": "SCRAM-SHA-512",
        "security_protocol": "SASL_SSL",
    }


@pytest.mark.parametrize(
    "layers",
    [
        {"arguments": ("shed_interval=5",)},
        {"arguments": ("kafka.bootstrap=h:1",)},
        {"arguments": ("strem.tables=x",)},
        {"arguments": ("dry_run",)},
        {"arguments": ("dry_run=perhaps",)},
        {"arguments": ("short_samples=0",)},
        {"arguments": ("history_ratio=2",)},
        {"arguments": ("profile=pulsar",)},
        {"arguments": ("kafka.bootstrap_servers=host",)},
        {"arguments": ("cluster.eu-1.dry_run=9",)},
        {"environment": {"LB_BALANCER__SHORT_SAMPLES": "few"}},
        {"environment": {"LB_KAFKA_BOOTSTRAP_SERVERS": "h:1"}},
        {"environment": {"LB_BALANCER_DRY_RUN": "0"}},
        {"broker_conf": "loadBalancerSheddingIntervalMinutes=soon"},
        {"broker_conf": "loadBalancerSheddingIntervalMinutes=-1"},
        {"toml": "[balancer]\nshedding_strategy = 'NoShedder'\n"},
        {"toml": "[balancer]\ndry_run = [1]\n"},
        {"toml": "balancer = 4\n"},
        {"toml": "[cluster]\neu = 4\n"},
        {"toml": "[kafka]\noptions = 4\n"},
        {"toml": "[balancer\n"},
    ],
)
def test_a_wrong_setting_is_named_with_its_place_and_what_was_expected(
    tmp_path: Path, layers
) -> None:
    check_wording(str(refused(tmp_path, **layers)))


def test_a_cluster_that_inherits_a_wrong_value_blames_the_general_section(tmp_path: Path) -> None:
    error = refused(
        tmp_path, toml="[balancer]\nthreshold_percent = -3\n[cluster.eu-1]\ndry_run = false\n"
    )
    assert error.key == "balancer.threshold_percent"


def test_variables_of_other_programs_are_let_be(tmp_path: Path) -> None:
    environment = {
        "LB_KAFKA_PORT": "tcp://10.0.0.1:9092",
        "LB_KAFKA_SERVICE_HOST": "10.0.0.1",
        "LB_JARS_DIR": "/x",
        "PATH": "/bin",
    }
    assert given(tmp_path, environment=environment).origins == {}


def test_a_file_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as error:
        load_settings(broker_conf=tmp_path / "missing", environment={})
    check_wording(error.value)


MORE_KEYS = {
    "loadBalancerReportUpdateThresholdPercentage": ("5", "report_threshold_percent", 5),
    "loadBalancerReportUpdateMinIntervalMillis": ("500", "report_min_interval_ms", 500),
    "loadBalancerReportUpdateMaxIntervalMinutes": ("3", "report_max_interval_ms", 180_000),
}


@pytest.mark.parametrize("name", MORE_KEYS)
def test_keys_of_the_reporting_broker_are_settings_too(tmp_path: Path, name) -> None:
    text, ours, value = MORE_KEYS[name]
    loaded = given(tmp_path, broker_conf=f"{name}={text}\n")
    assert (effective(loaded.settings)[ours], loaded.warnings) == (value, ())
    assert getattr(resolve(loaded.settings.of_cluster("")).reporting, ours) == value


def test_who_sends_no_heartbeat_may_be_silent_for_two_report_intervals_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    short = given(tmp_path, arguments=("report_max_interval_ms=1000",))
    assert effective(short.settings)["report_timeout_ms"] == 2_000
    both = given(tmp_path, arguments=("report_max_interval_ms=1000", "report_timeout_ms=7"))
    assert effective(both.settings)["report_timeout_ms"] == 7


OTHER_VALUES = {
    "loadBalancerHostUsageCheckIntervalMinutes": "2",
    "loadBalancerOverrideBrokerNicSpeedGbps": "10",
    "loadBalancerResourceQuotaUpdateIntervalMinutes": "5",
    "topicBundleAssignmentStrategy": "com.example.Assigner",
    "loadBalancerMultiPhaseBundleUnload": "false",
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": "1000",
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": "6",
    "loadBalancerServiceUnitStateMaxConcurrentOverrides": "1",
    "loadManagerServiceUnitStateTableViewClassName": "com.example.View",
    "loadBalancerServiceUnitTableViewSyncer": "MetadataStoreToSystemTopicSyncer",
    "loadBalancerOverrideBrokerNics": "eth0,eth1",
    "loadManagerMigrationEnabled": "true",
    "defaultNumberOfSystemNamespaceBundles": "16",
    "brokerCloseInactiveTopicsEnabled": "true",
    **dict.fromkeys(ScalableTopicKeys.model_fields, "7"),
    "scalableTopicsEnabled": "false",
    "scalableTopicAutoScaleEnabled": "false",
}


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_key_of_pulsars_that_means_nothing_here_is_taken_and_told_of(
    tmp_path: Path, name
) -> None:
    (warning,) = given(tmp_path, broker_conf=f"{name}={OTHER_VALUES[name]}\n").warnings
    assert warning.startswith(f"{name} = ") and warning.endswith(
        f"{WHY[name]} (in Pulsar: {UnreadKeys.model_fields[name].description})"
    )


def test_every_key_that_means_nothing_says_why_and_has_another_value_to_be_tested_with() -> None:
    assert set(UnreadKeys.model_fields) == set(WHY) == set(OTHER_VALUES)


def test_keys_that_mean_nothing_and_stand_at_their_defaults_are_told_of_in_one_line(
    tmp_path: Path,
) -> None:
    (warning,) = given(
        tmp_path,
        broker_conf="loadBalancerResourceQuotaUpdateIntervalMinutes=15\n"
        "loadBalancerHostUsageCheckIntervalMinutes=1\n",
    ).warnings
    assert warning.startswith(
        "loadBalancerHostUsageCheckIntervalMinutes, "
        "loadBalancerResourceQuotaUpdateIntervalMinutes: Pulsar's default"
    )


def test_of_many_such_keys_at_their_defaults_the_first_are_named(tmp_path: Path) -> None:
    fields = ScalableTopicKeys.model_fields.items()
    text = "".join(f"{name}={str(field.default).lower()}\n" for name, field in fields)
    (warning,) = given(tmp_path, broker_conf=text).warnings
    assert warning.count("scalableTopic") == MAX_NAMES
    check_wording(warning)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("loadBalancerSheddingIntervalMinute", "loadBalancerSheddingIntervalMinutes"),
        ("loadbalancerSheddingEnabled", "loadBalancerSheddingEnabled"),
        ("loadManagerClass", "loadManagerClassName"),
        ("namespaceBundleUnloadingTimeoutSeconds", "namespaceBundleUnloadingTimeoutMs"),
        ("defaultNumberOfBundles", "defaultNumberOfNamespaceBundles"),
        ("scalableTopicSplitCooldown", "scalableTopicSplitCooldownSeconds"),
        ("loadBlancerEnabled", "loadBalancerEnabled"),
        ("maxUnloadPercent", "maxUnloadPercentage"),
    ],
)
def test_a_misspelt_key_of_balancing_in_a_broker_conf_is_a_warning_with_the_nearest_name(
    tmp_path: Path, typed: str, meant: str
) -> None:
    loaded = given(tmp_path, broker_conf=f"{typed}=5\nclusterName=eu\n")
    (warning,) = loaded.warnings
    assert warning.startswith(f"{typed} = '5'") and warning.endswith(meant)
    assert loaded.settings.balancer == {}


def test_the_warning_about_a_misspelt_key_says_that_it_does_not_count(tmp_path: Path) -> None:
    (warning,) = given(tmp_path, broker_conf="loadBalancerSheddingInterval=5\n").warnings
    check_wording(warning.replace(str(tmp_path), "FOLDER"))


def test_other_keys_of_a_broker_conf_are_passed_over(tmp_path: Path) -> None:
    """They concern no load balancer, though one of them is named like one."""
    text = "clusterName=eu\nloadBalanceSheddingDelayInSeconds=1\nstatsUpdateFrequencyInSecs=60\n"
    assert given(tmp_path, broker_conf=text).warnings == ()


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("loadBalancerBandwithInResourceWeight=0.5\n", 0.5),
        (
            "loadBalancerBandwithInResourceWeight=0.5\nloadBalancerBandwidthInResourceWeight=1.0\n",
            0.5,
        ),
        (
            "loadBalancerBandwidthInResourceWeight=0.25\n"
            "loadBalancerBandwithInResourceWeight=1.0\n",
            0.25,
        ),
    ],
)
def test_an_old_broker_confs_misspelt_weights_count_as_in_pulsar(
    tmp_path: Path, text: str, weight: float
) -> None:
    loaded = given(tmp_path, broker_conf=text)
    assert effective(loaded.settings)["bandwidth_in_weight"] == weight
    assert loaded.warnings == ()


def test_a_key_that_means_nothing_is_checked_all_the_same(tmp_path: Path) -> None:
    error = refused(tmp_path, broker_conf="loadBalancerMultiPhaseBundleUnload=perhaps\n")
    assert "loadBalancerMultiPhaseBundleUnload" in str(error)
    check_wording(str(error))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unloading_timeout_ms", 2**63 - 1),
        ("namespaceBundleUnloadingTimeoutMs", 10**400),
        ("loadBalancerSheddingIntervalMinutes", 2**63 - 1),
        ("loadBalancerSheddingGracePeriodMinutes", 10**400),
        ("heartbeat_timeout_ms", 2**64),
    ],
)
def test_a_time_of_more_than_a_hundred_years_is_refused_as_a_setting(key: str, value: int) -> None:
    with pytest.raises(SettingError) as error:
        cluster_config({key: value})
    check_wording(error.value)


BROKER_CONF_LINES = ["{} = 5", "{}: 5", "{} 5", "  {}=5  ", "{}=\\\n    5", "!{}=7\n#{}=8\n{}=5\r"]


@pytest.mark.parametrize(
    "line", BROKER_CONF_LINES, ids=["=", ":", "space", "indented", "continued", "comments"]
)
def test_a_broker_conf_is_read_as_java_reads_properties(tmp_path: Path, line: str) -> None:
    key = "loadBalancerBrokerThresholdShedderPercentage"
    assert (
        effective(given(tmp_path, broker_conf=line.replace("{}", key) + "\nother=1\n").settings)[
            "threshold_percent"
        ]
        == 5
    )


def test_a_toml_file_that_puts_other_values_over_those_of_the_broker_conf_is_told_of_each(
    tmp_path: Path,
) -> None:
    """A file with every key, defaults and all, made nothing of the cluster's thresholds without a
    word."""
    conf = (
        "loadBalancerBrokerThresholdShedderPercentage=5\n"
        "loadBalancerHistoryResourcePercentage=0.9\n"
        "loadBalancerSheddingEnabled=true\n"
        f"loadBalancerLoadSheddingStrategy={IMPL}.ThresholdShedder\n"
    )
    toml = (
        "[balancer]\nthreshold_percent = 10\nhistory_ratio = 0.90\nshedding_enabled = "
        'true\nshedding_strategy = "ThresholdShedder"\n'
    )
    loaded = given(tmp_path, toml=toml, broker_conf=conf)
    assert effective(loaded.settings)["threshold_percent"] == 10
    (warning,) = (warning for warning in loaded.warnings if "broker.conf doesn't count" in warning)
    for word in (
        "loadBalancerBrokerThresholdShedderPercentage = 5",
        "balancer.threshold_percent = 10",
        "lb.toml",
    ):
        assert word in warning


def test_settings_of_one_cluster_and_arguments_go_over_a_broker_conf_without_a_warning(
    tmp_path: Path,
) -> None:
    loaded = given(
        tmp_path,
        toml="[cluster.eu-1]\nthreshold_percent = 10\n",
        broker_conf="loadBalancerBrokerThresholdShedderPercentage=5\n",
        arguments=("history_ratio=0.5",),
    )
    assert loaded.warnings == ()


def test_the_file_to_start_from_replaces_nothing_of_a_broker_conf(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"loadBalancerLoadSheddingStrategy={IMPL}.UniformLoadShedder\n")
    loaded = load(Path(__file__).parents[3] / "conf" / "default.toml", conf, (), {})
    assert (
        loaded.settings.balancer["shedding_strategy"].endswith("UniformLoadShedder")
        and loaded.warnings == ()
    )
