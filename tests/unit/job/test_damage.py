"""Faults of the machine are told in one line that names the file and the way back.

No JVM, no Kafka needed.
"""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.tables.commits import CHECKPOINT_EVERY
from lb_stream.job.damage import DamagedFile, DiskUnusable, find_machine_fault
from lb_stream.store import Store
from lb_stream.stream.shards.directory import NEW, write_directory
from tests.support.written_tables import Job, decision

SOME = RuntimeError("something deep in Spark")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job's folders after some batches."""
    folder = tmp_path_factory.mktemp("sound")
    job = Job(folder)
    for batch in range(CHECKPOINT_EVERY + 2):
        job.tables_of.project(
            job.log.append_once(batch, job.rounds(batch, decisions=[decision("a")], loads=1))
        )
    for name, lines in {
        "offsets": ["v1", '{"conf":{}}', '{"reports":{"0":5}}', "{}"],
        "commits": ["v1", '{"nextBatchWatermarkMs":0}'],
    }.items():
        (job.checkpoint / name).mkdir()
        for number in (10, 11):
            (job.checkpoint / name / str(number)).write_text("\n".join(lines))
    write_directory(Store.at(job.checkpoint), 12, 1, {"a": NEW})
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(sound, tmp_path / "job")
    return tmp_path / "job"


def find_text(folder: Path, error: Exception = SOME) -> str | None:
    """Return the job's message; None without a fault."""
    fault = find_machine_fault(
        Settings(
            stream=StreamSettings(
                tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint")
            )
        ),
        error,
    )
    return None if fault is None else str(fault)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def test_nothing_is_told_of_folders_that_are_sound(folder: Path) -> None:
    assert find_text(folder) is None
    assert find_text(folder / "not-there-yet") is None


NEW_CHECKPOINT, BACKUP = (
    "--set stream.checkpoint=FOLDER. Decisions and their numbers go on",
    "Restore the tables and the checkpoint of one time",
)


@pytest.mark.parametrize("damage", [cut_off, empty, zeros])
@pytest.mark.parametrize(
    ("pattern", "way_back"),
    [
        ("checkpoint/offsets/11", NEW_CHECKPOINT),
        ("checkpoint/commits/11", NEW_CHECKPOINT),
        ("checkpoint/metadata", NEW_CHECKPOINT),
        ("checkpoint/lb-shards/12-e1.json", NEW_CHECKPOINT),
        ("tables/rounds/_delta_log/*.json", BACKUP),
        ("tables/rounds/_delta_log/*.checkpoint.parquet", BACKUP),
        ("tables/rounds/*.parquet", BACKUP),
        ("tables/decisions/*.parquet", "it fills a new table from the log"),
        ("tables/broker_loads/_delta_log/*.json", "it fills a new table from the log"),
    ],
)
def test_a_damaged_file_is_named_with_the_way_back(
    folder: Path, pattern: str, way_back: str, damage: Callable[[Path], None]
) -> None:
    path = max(folder.glob(pattern))
    damage(path)
    text = find_text(folder)
    assert text is not None and text.startswith(f"{path} is "), text
    assert way_back in text and "\n" not in text


@pytest.mark.parametrize(
    ("table", "way_back"),
    [("rounds", BACKUP), ("decisions", "from the log"), ("broker_loads", "from the log")],
)
def test_a_missing_file_of_a_table_is_named_with_the_way_back(
    folder: Path, table: str, way_back: str
) -> None:
    path = min((folder / "tables" / table).glob("*.parquet"))
    path.unlink()
    text = find_text(folder)
    assert text is not None and text.startswith(f"{path} is gone: ") and way_back in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/tables/rounds/1.parquet"),
            "the disk is full (/data/tables/rounds/1.parquet)",
        ),
        (RuntimeError("java.io.IOException: No space left on device"), "the disk is full: "),
        (
            RuntimeError("Generic error: Disk quota exceeded (os error 122)"),
            "the quota of the disk is used up",
        ),
        (OSError(errno.EROFS, "Read-only file system", "/data"), "it is mounted read-only (/data)"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/data/checkpoint/offsets"),
            "a right to read or write is missing",
        ),
    ],
)
def test_a_disk_that_takes_nothing_is_told_however_deep_the_error_lies(
    folder: Path, error: Exception, words: str
) -> None:
    outer = RuntimeError("the stream ended")
    outer.__cause__ = error
    for raised in (error, outer):
        text = find_text(folder, raised)
        assert (
            text is not None
            and words in text
            and str(folder / "checkpoint") in text
            and "it goes on where it was" in text
        )


def test_both_are_errors_that_end_the_job_with_their_own_words(folder: Path) -> None:
    settings = Settings(
        stream=StreamSettings(tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint"))
    )
    assert isinstance(find_machine_fault(settings, OSError(errno.ENOSPC, "full")), DiskUnusable)
    (folder / "checkpoint" / "metadata").write_text(json.dumps({})[:1])
    assert isinstance(find_machine_fault(settings, SOME), DamagedFile)
