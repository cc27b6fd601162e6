"""A cluster goes from one pipeline to another: what is remembered of it goes along, and nothing is
decided twice."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from lb_stream.core.model.memory import Pending
from lb_stream.io.leadership.leader import announce_leader
from lb_stream.io.leadership.take_over import TakeOverError, take_over
from lb_stream.store import Store
from lb_stream.stream.ports import Logged
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording
from tests.support.written_tables import Job, ownership


@pytest.fixture
def east(tmp_path: Path) -> Job:
    """The pipeline that has had `a` and `b` for three rounds; of `a` a decision is under way."""
    job = Job(tmp_path / "east", pipeline="east")
    for batch in range(3):
        job.log.append_once(
            batch,
            job.rounds(
                batch, clusters=("a", "b"), ownership=[ownership("a", "x", "b-0", version=7)]
            ),
        )
    (row,) = (one for one in job.rounds(3, clusters=("a",)).to_pylist())
    memory = json.loads(row["memory"]) | {
        "pending": [asdict(Pending("a:4:0", "unload", "x", "b", None, 1, 2, 7))],
        "versions": {"x": 7},
    }
    job.log.append_once(
        3,
        type(job.rounds(3)).from_pylist(
            [row | {"memory": json.dumps(memory), "epoch": 5}], job.rounds(3).schema
        ),
    )
    return job


def west(folder: Path) -> Job:
    return Job(folder / "west", pipeline="west")


def taken(folder: Path, cluster: str = "a") -> object:
    return take_over(
        cluster,
        Store.at(folder / "east" / "tables"),
        Store.at(folder / "west" / "tables"),
        "west",
        ["r"],
    )


def test_the_next_start_has_the_memory_and_a_greater_epoch(east: Job, tmp_path: Path) -> None:
    before = west(tmp_path)
    before.log.append_once(0, before.rounds(0, clusters=("w",)))
    done = take_over("a", Store.at(east.tables), Store.at(before.tables), "west", ["r"])
    assert (done.seq, done.epoch, done.pending, done.log_seq) == (4, 5, 1, 1)
    log = west(tmp_path).log
    assert sorted(log.memories) == ["a", "w"]
    assert log.memories["a"] == east.log.memories["a"]
    assert announce_leader(Store.at(before.tables), "west", log.last_epoch) == 6, (
        "brokers refuse decisions of an epoch that is over"
    )
    assert log.next_offsets(["r"]) == {("r", 0): 1}, "the pipeline reads on where it was"


def test_a_pipeline_that_has_never_run_begins_with_it_where_the_other_has_ended(
    east: Job, tmp_path: Path
) -> None:
    taken(tmp_path)
    log = west(tmp_path).log
    assert (log.last_seq, log.last_epoch, sorted(log.memories)) == (0, 5, ["a"])
    assert log.next_offsets(["r"]) == east.log.next_offsets(["r"]) == {("r", 0): 4}


def test_what_was_decided_before_is_neither_published_nor_shown_again(
    east: Job, tmp_path: Path
) -> None:
    taken(tmp_path)
    (logged,) = west(tmp_path).log.since(0)
    assert isinstance(logged, Logged)
    assert [
        logged.entries("decisions"),
        logged.entries("outcomes"),
        logged.entries("ownership"),
        logged.entries("refusals"),
        logged.entries("results"),
    ] == [[[]]] * 5
    assert west(tmp_path).tables_of.catch_up(west(tmp_path).log.since) == 1


def test_it_may_go_back_again(east: Job, tmp_path: Path) -> None:
    taken(tmp_path)
    job = west(tmp_path)
    rows = [row | {"epoch": 6, "seq": 9} for row in job.rounds(8, clusters=("a",)).to_pylist()]
    job.log.append_once(0, type(job.rounds(8)).from_pylist(rows, job.rounds(8).schema))
    take_over("a", Store.at(job.tables), Store.at(east.tables), "east", ["r"])
    log = Job(tmp_path / "east", pipeline="east").log
    assert (json.loads(log.memories["a"])["seq"], log.last_epoch, sorted(log.memories)) == (
        9,
        6,
        ["a", "b"],
    )


def twice(folder: Path) -> None:
    taken(folder)
    taken(folder)


def forgotten(folder: Path) -> None:
    job = Job(folder / "east", pipeline="east")
    rows = [
        row | {"memory": "", "blocks": "[]"} for row in job.rounds(9, clusters=("b",)).to_pylist()
    ]
    job.log.append_once(9, type(job.rounds(9)).from_pylist(rows, job.rounds(9).schema))
    taken(folder, "b")


def into_anothers(folder: Path) -> None:
    job = Job(folder / "west", pipeline="north")
    job.log.append_once(0, job.rounds(0))
    taken(folder)


def while_it_runs(folder: Path) -> None:
    announce_leader(Store.at(folder / "east" / "tables"), "east", 5)
    taken(folder)


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (twice, "taken over already"),
        (forgotten, "has no cluster b"),
        (lambda folder: taken(folder, "c"), "has no cluster c"),
        (into_anothers, "holds the log of the pipeline 'north', not of 'west'"),
        (while_it_runs, "stop it first"),
    ],
)
def test_what_would_lose_or_double_something_is_refused(
    east: Job, tmp_path: Path, attempt: Callable[[Path], None], expected: str
) -> None:
    with pytest.raises(TakeOverError, match=expected):
        attempt(tmp_path)


def test_the_command_says_what_came_along_and_refuses_a_cluster_that_the_settings_leave_out(
    east: Job, tmp_path: Path
) -> None:
    def ask(*settings: str) -> Result:
        given = (
            "stream.pipeline_id=west",
            f"stream.tables={tmp_path / 'west' / 'tables'}",
            *settings,
        )
        settings_of = [part for one in given for part in ("--set", one)]
        return lbctl(
            "tables",
            "take-over",
            "a",
            "--from",
            str(east.tables),
            "--json",
            *settings_of,
            cwd=tmp_path,
        )

    refused = ask("stream.clusters=w.*")
    assert refused.code == 2
    check_wording(refused.err)
    (result,) = ask("stream.clusters=a|w.*").objects
    assert (result["cluster"], result["pipeline"], result["pending"]) == ("a", "west", 1)
    again = ask("stream.clusters=a|w.*")
    assert again.code == 1 and "taken over already" in again.err
