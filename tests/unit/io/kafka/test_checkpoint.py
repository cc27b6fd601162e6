"""Where the next batch begins, and whether Kafka still has that. No JVM, no Kafka needed."""

import json
from pathlib import Path
from typing import Self

import pytest
from kafka.admin import ConfigResource

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.kafka import checkpoint as module
from lb_stream.io.kafka import preflight, rights
from lb_stream.io.kafka.checkpoint import (
    LostRecords,
    Offsets,
    next_offsets,
    require_none_lost,
    starting_offsets,
)
from lb_stream.store import Store
from tests.support.wordings import check_wording

REPORTS, COMMANDS = "lb-load-reports", "lb-commands"


def write(folder: Path, name: str, *lines: str) -> None:
    """One file of a checkpoint."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def ends(**offsets: int) -> str:
    """One source's line: partition 0 of the reports and of the commands."""
    return json.dumps({REPORTS: {"0": offsets["reports"]}, COMMANDS: {"0": offsets["commands"]}})


def test_the_next_batch_begins_where_the_last_finished_one_has_ended(tmp_path: Path) -> None:
    assert next_offsets(Store.at(tmp_path)) == {}
    write(tmp_path, "sources/0/0", "\0v1", ends(reports=2, commands=0))
    write(tmp_path, "offsets/0", "v1", "{}", ends(reports=5, commands=1))
    assert next_offsets(Store.at(tmp_path)) == {(REPORTS, 0): 2, (COMMANDS, 0): 0}
    write(tmp_path, "commits/0", "v1", "{}")
    assert next_offsets(Store.at(tmp_path)) == {(REPORTS, 0): 5, (COMMANDS, 0): 1}
    write(tmp_path, "offsets/1", "v1", "{}", ends(reports=9, commands=1))
    assert next_offsets(Store.at(tmp_path)) == {(REPORTS, 0): 5, (COMMANDS, 0): 1}, (
        "batch 1 was planned, not finished"
    )
    write(tmp_path, "commits/1", "v1", "{}")
    assert next_offsets(Store.at(tmp_path)) == {(REPORTS, 0): 9, (COMMANDS, 0): 1}


def settings(**stream: str) -> Settings:
    """Those of a job with a checkpoint somewhere."""
    return Settings(stream=StreamSettings(checkpoint="/checkpoints/eu", **stream))


@pytest.fixture
def kafka_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports 100 to 199, commands 0 to 9."""
    begin: Offsets = {(REPORTS, 0): 100, (COMMANDS, 0): 0}
    end: Offsets = {(REPORTS, 0): 200, (COMMANDS, 0): 10}
    monkeypatch.setattr(module, "read_offset_bounds", lambda _: (begin, end))


class Unseen:
    """A consumer and an admin client to whom Kafka tells nothing of the topics but this error code,
    as its metadata answers do."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __call__(self, **_: object) -> Self:
        return self

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return set()

    def beginning_offsets(self, partitions: list[object]) -> dict[object, int]:
        return dict.fromkeys(partitions, 0)

    end_offsets = beginning_offsets

    def describe_topics(self, topics: list[str]) -> list[dict[str, object]]:
        return [{"name": topic, "error_code": self.code} for topic in topics]

    def describe_configs(
        self, resources: list[ConfigResource], config_filter: str
    ) -> dict[str, dict[str, dict[str, object]]]:
        assert config_filter == "all"
        return {"topic": {resource.name: {} for resource in resources}}

    def describe_groups(self, names: list[str]) -> dict[str, dict[str, object]]:
        return {name: {"error": None} for name in names}

    def describe_transactions(self, names: list[str]) -> dict[str, object]:
        return dict.fromkeys(names)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("code", "expected"), [(29, rights.AccessDenied), (3, LostRecords)])
def test_topics_that_may_not_be_described_are_told_from_those_that_are_gone(
    monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    monkeypatch.setattr(module, "KafkaConsumer", Unseen(code))
    monkeypatch.setattr(preflight, "KafkaAdminClient", Unseen(code))
    with pytest.raises(expected) as error:
        require_none_lost(settings(), {(REPORTS, 0): 5}, new_checkpoint=False)
    assert ("stream.checkpoint" in str(error.value)) == (expected is LostRecords)


@pytest.mark.usefixtures("kafka_has")
class TestWithKafka:
    """What Kafka has against what comes next."""

    def test_nothing_is_lost_as_long_as_kafka_has_what_comes_next(self) -> None:
        for reports in (100, 150, 200):
            assert (
                require_none_lost(
                    settings(), {(REPORTS, 0): reports, (COMMANDS, 0): 10}, new_checkpoint=False
                )
                == ""
            )
        assert require_none_lost(settings(), {}, new_checkpoint=True) == ""

    @pytest.mark.parametrize("new", [False, True])
    def test_deleted_records_are_told_by_topic_partition_and_offsets(self, new: bool) -> None:
        wanted = {(REPORTS, 0): 60, (COMMANDS, 0): 0}
        with pytest.raises(LostRecords) as error:
            require_none_lost(settings(), wanted, new)
        check_wording(str(error.value))
        assert "--set stream.lost_records=skip" in str(error.value)
        assert "offsets 60 to 99, 40 records" in require_none_lost(
            settings(lost_records="skip"), wanted, new
        )

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({(REPORTS, 0): 201}, "offset 201 comes next, and it ends at 200"),
            ({(REPORTS, 1): 5}, "5"),
        ],
    )
    def test_topics_made_anew_need_a_new_checkpoint(self, wanted: Offsets, expected: str) -> None:
        for one in (settings(), settings(lost_records="skip")):
            with pytest.raises(LostRecords) as error:
                require_none_lost(one, wanted, new_checkpoint=False)
            check_wording(error.value)
            assert expected in str(error.value)
        assert expected in require_none_lost(
            settings(lost_records="skip"), wanted, new_checkpoint=True
        )

    def test_a_new_checkpoint_begins_at_the_wanted_offset_if_there_is_one_else_at_the_first(
        self,
    ) -> None:
        for wanted, start in ((150, 150), (200, 200), (60, 100), (201, 100)):
            assert starting_offsets(settings(), {(REPORTS, 0): wanted}) == {
                REPORTS: {"0": start},
                COMMANDS: {"0": 0},
            }
