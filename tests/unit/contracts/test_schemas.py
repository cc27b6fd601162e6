"""The published contract: up to date, and its examples are what it says."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from lb_stream.contracts import schemas
from lb_stream.contracts.columns.comments import COMMENTS
from lb_stream.contracts.columns.times import DURATIONS, is_time, shown_as
from lb_stream.contracts.reports import REPORT_KINDS, find_report_kind
from lb_stream.contracts.schemas import (
    FOLDER,
    RECORDS,
    RecordSchema,
    find_differing,
    main,
    record_schema,
)
from lb_stream.contracts.tables import BROKER_LOADS, COMMANDS, OUTCOMES, ROUNDS, TABLES

EVERY_RECORD = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)


def test_the_published_files_are_what_the_models_say() -> None:
    assert find_differing() == [], (
        "run `python -m lb_stream.contracts.schemas` and look at the diff"
    )


def test_the_check_names_a_file_that_was_changed_one_that_is_missing_and_one_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schemas, "FOLDER", tmp_path)
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "ack.schema.json").write_text("{}")
    (tmp_path / "tables.sql").unlink()
    (tmp_path / "old.schema.json").write_text("{}")
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines()[:3] == [
        "differs: schemas/ack.schema.json",
        "differs: schemas/old.schema.json",
        "differs: schemas/tables.sql",
    ]
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert main(["--verify"]) == 2


@EVERY_RECORD
def test_every_schema_is_one_and_its_example_fits(record: RecordSchema) -> None:
    published = json.loads((FOLDER / f"{record.name}.schema.json").read_text())
    Draft202012Validator.check_schema(published)
    Draft202012Validator(published).validate(
        json.loads((FOLDER / "examples" / f"{record.name}.json").read_text())
    )


@EVERY_RECORD
def test_every_example_is_read_by_its_model_without_a_field_left_over(record: RecordSchema) -> None:
    text = (FOLDER / "examples" / f"{record.name}.json").read_text()
    read = record.model.model_validate_json(text).model_dump(mode="json", by_alias=True)
    for name, value in json.loads(text).items():
        assert name in read
        if isinstance(value, str | int | float):
            assert read[name] == value, name


@pytest.mark.parametrize("kind", REPORT_KINDS)
def test_the_example_reports_are_told_apart_also_without_their_type(kind: str) -> None:
    (record,) = (record for record in RECORDS if record.name == f"{kind}-report")
    assert find_report_kind(record.example) == kind
    assert (
        find_report_kind(
            {name: value for name, value in record.example.items() if name != "loadReportType"}
        )
        == kind
    )


def test_an_examples_sums_are_those_of_its_bundles() -> None:
    for name, stats_of in (("modular-report", "lastStats"), ("simple-report", "bundleStats")):
        (record,) = (record for record in RECORDS if record.name == name)
        bundles = record.example[stats_of].values()
        for total in ("msgRateIn", "msgRateOut"):
            assert record.example[total] == sum(stats[total] for stats in bundles)
        assert record.example["numTopics"] == sum(stats["topics"] for stats in bundles)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("modular-report", {"msgRateIn": -1}),
        ("simple-report", {"numTopics": "three"}),
        ("ack", {"outcome": "perhaps"}),
        ("decision", {"kind": "guess"}),
        ("ownership", {"state": "Lost"}),
    ],
)
def test_a_schema_refuses_what_the_model_refuses(name: str, change: dict[str, object]) -> None:
    (record,) = (record for record in RECORDS if record.name == name)
    assert not Draft202012Validator(record_schema(record)).is_valid(record.example | change)


def test_the_ddl_has_every_table_with_every_column() -> None:
    statements = (FOLDER / "tables.sql").read_text().split("CREATE TABLE ")[1:]
    assert len(statements) == len(TABLES)
    for spec, statement in zip(TABLES, statements, strict=True):
        assert statement.startswith(f"{spec.name} (")
        assert [
            line.split("`")[1] for line in statement.splitlines() if line.startswith("  `")
        ] == spec.schema.names


def test_every_column_of_every_table_has_a_comment_and_every_comment_a_column() -> None:
    assert all(spec.comment(column) for spec in TABLES for column in spec.schema.names)
    for spec in TABLES:
        assert spec.comments.keys() <= set(spec.schema.names), spec.name
    used = {
        column for spec in TABLES for column in spec.schema.names if column not in spec.comments
    }
    assert COMMENTS.keys() <= used, "no table has it, or each has a comment of its own"
    with pytest.raises(KeyError, match="add a comment"):
        ROUNDS.comment("new_column")


def test_the_comments_of_families_are_words() -> None:
    assert (
        BROKER_LOADS.comment("short_rate_in_msgs_per_s")
        == "message rate in, short-term average, messages/s"
    )
    assert BROKER_LOADS.comment("direct_memory_ratio") == "usage ÷ limit of direct memory"
    assert OUTCOMES.comment("at_ms") != COMMANDS.comment("at_ms")


def test_columns_in_ms_are_times_or_durations_and_the_view_shows_times_as_timestamps() -> None:
    names = {column for spec in TABLES for column in spec.schema.names if column.endswith("_ms")}
    assert names > DURATIONS and {name for name in names if not is_time(name)} == DURATIONS
    text = (FOLDER / "views.sql").read_text()
    for spec in TABLES:
        assert f"CREATE OR REPLACE VIEW {spec.name}_at AS SELECT\n" in text
        shown = [shown_as(column) for column in spec.schema.names]
        assert len(set(shown)) == len(shown) and all(
            one in DURATIONS or not one.endswith("_ms") for one in shown
        )
    assert "timestamp_millis(`issued_ms`) AS `issued_at`" in text and "\n  `took_ms`,\n" in text
