"""What makes an existing topic unfit, and what the message says."""

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import (
    TopicMismatch,
    TopicSpec,
    TopicState,
    find_mismatches,
    topic_specs,
)

SPEC = TopicSpec("lb-load-reports", 4)
FIT = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "max.message.bytes": "10485760",
}


def test_a_topic_as_we_make_it_is_fit() -> None:
    assert find_mismatches(SPEC, TopicState(4, SPEC.configs), "b:1") == []


def test_more_partitions_and_larger_records_are_fine() -> None:
    assert (
        find_mismatches(SPEC, TopicState(64, {**FIT, "max.message.bytes": "20971520"}), "b:1") == []
    )


@pytest.mark.parametrize(
    ("setting", "found", "expected"),
    [
        ("message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("max.message.bytes", "1048588", "at least 10485760"),
    ],
)
def test_each_wrong_setting_is_named_with_the_command_that_fixes_it(
    setting: str, found: str, expected: str
) -> None:
    (mismatch,) = find_mismatches(SPEC, TopicState(4, {**FIT, setting: found}), "10.1.1.1:9092")
    value = expected.removeprefix("at least ")
    assert str(TopicMismatch([mismatch])) == (
        f"topic lb-load-reports: {setting} is {found}, must be {expected}. To fix it: "
        "kafka-configs.sh --bootstrap-server 10.1.1.1:9092 "
        f"--entity-type topics --entity-name lb-load-reports --alter --add-config {setting}={value}"
    )


def test_commands_must_be_one_ordered_stream() -> None:
    (commands,) = [spec for spec in topic_specs() if spec.name == TopicSettings().commands]
    (mismatch,) = find_mismatches(commands, TopicState(3, commands.configs), "b:1")
    assert (
        mismatch.setting == "partition count"
        and "kafka-topics.sh" in mismatch.fix
        and "--delete" in mismatch.fix
    )


def test_all_mismatches_are_named_at_once() -> None:
    mismatches = find_mismatches(SPEC, TopicState(4), "b:1")
    assert len(str(TopicMismatch(mismatches)).splitlines()) == 3


def test_only_ownership_is_compacted_and_names_are_free() -> None:
    specs = topic_specs(TopicSettings(ownership="own", reports="rep"), reports=12)
    assert {spec.name for spec in specs if spec.cleanup_policy == "compact"} == {"own"}
    assert next(spec for spec in specs if spec.name == "rep").partitions == 12
