"""Tables in an object store: written as the job writes them, read and kept by `lbctl` as those in a
folder are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.contracts.tables import DECISIONS, OWNERSHIP, ROUNDS
from lb_stream.io.tables.delta import dataset, existing_table
from lb_stream.io.tables.log import LogError, RoundLog
from lb_stream.job.damage import find_damaged_checkpoint_files, find_damaged_table_files
from lb_stream.store import Store
from tests.support.lbctl_runner import Result, lbctl
from tests.support.recorded_tables import record
from tests.support.s3_server import S3Server, s3_server
from tests.support.written_tables import JobInBucket, decision, ownership

KEPT_FOR_EVER = (
    "rounds",
    "decisions",
    "outcomes",
    "refusals",
    "broker_loads",
    "bundle_history",
    "broker_history",
)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, server: S3Server) -> Path:
    """What a cluster has decided in some rounds, in a folder and in a bucket."""
    folder = tmp_path_factory.mktemp("recorded")
    record(folder / "tables", steps=6, workload="hot_spot")
    copy(folder, Store.at("s3://lb/recorded", server.options))
    return folder


def copy(folder: Path, to: Store) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            to.put(str(file.relative_to(folder)), file.read_bytes())


def on_s3(server: S3Server, *arguments: str, cwd: Path) -> Result:
    settings = {
        "stream.tables": "s3a://lb/recorded/tables",
        "stream.checkpoint": "s3://lb/recorded/tables-checkpoint",
    }
    settings |= {f"stream.store_options.{name}": value for name, value in server.options.items()}
    return lbctl(
        *arguments,
        *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
        cwd=cwd,
    )


def on_disk(folder: Path, *arguments: str) -> Result:
    return lbctl(
        *arguments,
        *(
            "--set",
            f"stream.tables={folder}/tables",
            "--set",
            f"stream.checkpoint={folder}/tables-checkpoint",
        ),
        cwd=folder,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("decisions", "--json"),
        (
            "sql",
            "SELECT kind, count(*) AS n FROM decisions GROUP BY kind ORDER BY kind",
            "--format",
            "csv",
        ),
        ("explain", "--json"),
        ("brokers", "list", "--json"),
        ("monitor", "--once", "--json"),
        ("leader", "--json"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_says_the_same_of_a_bucket_as_of_a_folder(
    server: S3Server, folder: Path, arguments: tuple[str, ...]
) -> None:
    here, there = on_disk(folder, *arguments), on_s3(server, *arguments, cwd=folder)
    assert (there.code, there.out) == (here.code, here.out) and (here.out or here.err)
    assert server.options["aws_secret_access_key"] not in there.out + there.err


def test_rounds_are_replayed_from_a_bucket(server: S3Server, folder: Path) -> None:
    here, there = on_disk(folder, "replay", "--json"), on_s3(server, "replay", "--json", cwd=folder)
    assert there.objects == here.objects and len(there.objects) > 3


def test_tables_in_a_bucket_are_kept_and_rebuilt(server: S3Server, folder: Path) -> None:
    before = sorted(
        on_s3(server, "decisions", "--json", cwd=folder).out.splitlines()
    )  # those of one round have no order
    ages = [part for name in KEPT_FOR_EVER for part in ("--set", f"upkeep.keep_{name}_hours=0")]
    kept = on_s3(server, "tables", "maintain", "--json", *ages, cwd=folder)
    assert kept.code == 0 and not any(one["left"] for one in kept.objects), kept.err
    rebuilt = on_s3(server, "tables", "rebuild", "decisions", "broker_loads", "--json", cwd=folder)
    assert rebuilt.code == 0 and [one["lost"] for one in rebuilt.objects] == [0, 0], rebuilt.err
    assert sorted(on_s3(server, "decisions", "--json", cwd=folder).out.splitlines()) == before != []


def test_a_bucket_without_tables_is_said_in_one_line(server: S3Server, folder: Path) -> None:
    options = [
        part
        for name, value in server.options.items()
        for part in ("--set", f"stream.store_options.{name}={value}")
    ]
    result = lbctl("decisions", "--set", "stream.tables=s3://lb/empty", *options, cwd=folder)
    assert result.code == 1 and "no tables in s3://lb/empty yet" in " ".join(result.err.split())
    refused = lbctl("decisions", "--set", "stream.tables=ftp://lb/empty", cwd=folder)
    assert (
        refused.code == 2
        and "stream.tables = 'ftp://lb/empty': expected a folder's path"
        in " ".join(refused.err.split())
    )


@pytest.fixture
def job(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobInBucket:
    names = {
        "aws_endpoint": "AWS_ENDPOINT_URL",
        "aws_access_key_id": "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    }
    for name, variable in names.items():
        monkeypatch.setenv(variable, server.options[name])
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return JobInBucket(Store.at(f"s3://lb/{tmp_path.name}"))


def test_a_batch_is_logged_once_and_projected_and_a_second_writer_is_refused(
    job: JobInBucket,
) -> None:
    other = RoundLog(job.root / "tables", "p", job.root / "checkpoint")
    logged = job.log.append_once(
        0, job.rounds(0, decisions=[decision("a")], ownership=[ownership("a", "t/n/0", "b-0")])
    )
    job.tables_of.project(logged)
    again = JobInBucket(job.root)
    assert again.log.find(0) is not None and again.tables_of.catch_up(again.log.since) == 0
    for spec in (DECISIONS, OWNERSHIP):
        table = existing_table(job.root / "tables", spec)
        assert table is not None and dataset(table).count_rows() == 1
        assert list(find_damaged_table_files(job.root / "tables", spec)) == []
    with pytest.raises(LogError, match="another job"):
        other.append_once(1, job.rounds(1))


def test_a_commit_in_a_bucket_is_two_writes_and_no_look(job: JobInBucket, server: S3Server) -> None:
    def batch(number: int) -> None:
        assert job.log.find(number) is None
        job.tables_of.project(
            job.log.append_once(
                number,
                job.rounds(number, decisions=[decision("a")], ownership=[ownership("a", "x", "b")]),
            )
        )

    job.tables_of.catch_up(job.log.since)
    batch(0)
    server.requests()
    batch(1)
    asked = Counter(
        (request.kind, request.key.partition("/tables/")[2].partition("/")[0])
        for request in server.requests()
    )
    commits = {("PUT", table): 2 for table in ("rounds", "decisions", "ownership")}
    assert asked == commits | {("HEAD", "rounds"): 1, ("GET", "ownership"): 1}, (
        "whether others have logged; the rows that change"
    )


def test_a_commit_whose_answer_is_lost_is_made_once(job: JobInBucket, server: S3Server) -> None:
    job.tables_of.catch_up(job.log.since)
    for number, table in enumerate(("rounds", "decisions", "ownership")):
        server.fail_next(f"{table}/_delta_log", "after")
        job.tables_of.project(
            job.log.append_once(
                number,
                job.rounds(number, decisions=[decision("a")], ownership=[ownership("a", "x", "b")]),
            )
        )
    for spec, count in ((ROUNDS, 3), (DECISIONS, 3), (OWNERSHIP, 1)):
        table = existing_table(job.root / "tables", spec)
        assert table is not None and dataset(table).count_rows() == count, spec.name


def test_damage_in_a_bucket_is_found_and_named(job: JobInBucket) -> None:
    job.tables_of.project(job.log.append_once(0, job.rounds(0, decisions=[decision("a")])))
    tables = job.root / "tables"
    (name,) = (entry.name for entry in (tables / "decisions").list())
    tables.put(f"decisions/{name}", b"cut")
    assert list(find_damaged_table_files(tables, DECISIONS)) == [
        (str(tables / "decisions" / name), "is damaged")
    ]
    tables.delete(f"decisions/{name}")
    assert list(find_damaged_table_files(tables, DECISIONS)) == [
        (str(tables / "decisions" / name), "is gone")
    ]
    checkpoint = job.root / "checkpoint"
    checkpoint.put("offsets/0", b"v1\n{}")
    assert list(find_damaged_checkpoint_files(checkpoint)) == [
        (f"{checkpoint}/offsets/0", "is cut off")
    ]
