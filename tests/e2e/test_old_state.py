"""What a job of an earlier version has left (tests/data/old_state) is gone on with: its unfinished batch, then new records."""

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from lb_stream.contracts.base import canonical_json
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline
from tests.old_state import (
    BEFORE,
    COMPARED,
    EXPECTED,
    NEXT,
    SETTINGS,
    TOPICS,
    fill,
    read_records,
    unpack,
    watermark,
    without_changes,
)

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]


@dataclass(frozen=True)
class GoneOn:
    """The tables before and after."""

    run: Pipeline
    rounds: list[dict[str, Any]]
    averages: dict[tuple[str, str], dict[str, Any]]

    def new_rounds(self) -> list[dict[str, Any]]:
        return in_order(self.run)[len(self.rounds) :]


def in_order(run: Pipeline) -> list[dict[str, Any]]:
    """The log."""
    found: list[dict[str, Any]] = (
        run.table("rounds")
        .sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
        .to_pylist()
    )
    return found


def averages(run: Pipeline) -> dict[tuple[str, str], dict[str, Any]]:
    """Cluster and bundle → its row."""
    return {
        (row["cluster"], row["bundle"]): row for row in run.table("bundle_averages").to_pylist()
    }


def in_todays_words(inputs: str) -> str:
    """What a round was given, with the name that a setting has had since: `mode` for `dry_run`."""
    told = json.loads(inputs)
    settings = told["settings"]
    return canonical_json(
        told | {"settings": settings | {"mode": "observe" if settings.pop("dry_run") else "act"}}
    )


@pytest.fixture(scope="module")
def gone_on(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> GoneOn:
    """Today's job, on the old tables and checkpoint, and on topics of a new Kafka with the old records."""
    folder = tmp_path_factory.mktemp("old-state")
    unpack(folder)
    fill(kafka.bootstrap, [*read_records(BEFORE), *read_records(NEXT)], watermark())
    run = Pipeline(kafka.bootstrap, TOPICS, folder, SETTINGS)
    before = GoneOn(run, in_order(run), averages(run))
    run.run_once()
    return before


def test_the_rounds_that_follow_are_those_that_the_earlier_version_would_have_made_byte_for_byte(
    gone_on: GoneOn,
) -> None:
    expected = [json.loads(line) for line in gzip.decompress(EXPECTED.read_bytes()).splitlines()]
    made = gone_on.new_rounds()
    assert [(row["log_seq"], row["cluster"]) for row in made] == [
        (row["log_seq"], row["cluster"]) for row in expected
    ]
    for ours, theirs in zip(made, expected, strict=True):
        for name in COMPARED:
            then = in_todays_words(theirs[name]) if name == "inputs" else theirs[name]
            assert without_changes(ours[name]) == without_changes(then), (
                ours["log_seq"],
                ours["cluster"],
                name,
            )
    before = in_order(gone_on.run)[
        : len(gone_on.rounds)
    ]  # with the columns that have been added since
    assert [
        {name: row[name] for name in known}
        for row, known in zip(before, gone_on.rounds, strict=True)
    ] == gone_on.rounds


def test_every_decision_is_published_once_the_killed_jobs_own_among_them_and_numbers_go_on(
    gone_on: GoneOn,
) -> None:
    ids = [
        one["decision_id"] for row in in_order(gone_on.run) for one in json.loads(row["decisions"])
    ]
    known = {
        json.loads(record.value or "{}")["decision_id"]
        for record in read_records(BEFORE)
        if record.topic == "decisions"
    }
    left_over = {
        one["decision_id"] for row in gone_on.rounds for one in json.loads(row["decisions"])
    } - known
    assert known and left_over and set(ids) - known - left_over
    assert (
        Counter(decision.decision_id for decision in gone_on.run.decisions())
        == Counter(ids)
        == Counter(set(ids))
    )
    assert Counter(gone_on.run.table("decisions")["decision_id"].to_pylist()) == Counter(ids)
    numbers: dict[str, list[int]] = {}
    for row in in_order(gone_on.run):
        numbers.setdefault(row["cluster"], []).append(row["seq"])
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
    assert {row["epoch"] for row in gone_on.rounds} == {1, 2} and {
        row["epoch"] for row in gone_on.new_rounds()
    } == {3}


def test_averages_have_a_sample_for_every_report_old_or_new(gone_on: GoneOn) -> None:
    refused = {
        (row["topic"], row["partition"], row["offset"])
        for row in gone_on.run.table("rejected_reports").to_pylist()
    }
    named: Counter[str] = Counter()
    for record in read_records(BEFORE) + read_records(NEXT):
        place = (getattr(TOPICS, record.topic), record.partition, record.offset)
        if (
            place[0] == TOPICS.reports
            and place not in refused
            and str(record.key).startswith("east/")
        ):
            named.update(json.loads(str(record.value)).get("lastStats", {}).keys())
    samples = {
        bundle: row["long_samples"]
        for (cluster, bundle), row in averages(gone_on.run).items()
        if cluster == "east"
    }
    assert len(refused) == 2
    assert samples == {bundle: named[bundle] for bundle in samples}
    assert max(samples.values()) > max(row["long_samples"] for row in gone_on.averages.values())
