"""The table `audit`: its rows follow from the log, once each, and are chained in each cluster."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.audit import CUT
from lb_stream.contracts.settings import UpkeepSettings
from lb_stream.contracts.tables import AUDIT, COMMANDS
from lb_stream.core.commands.audited import NOT_AUDITED, TAKE_OVER, JobChange
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.io.tables.rebuild import rebuild
from lb_stream.io.tables.upkeep import HOUR_MS, maintain
from lb_stream.query.lake import open_lake
from lb_stream.query.past.audit import ChainReport, verify_audit
from lb_stream.store import Store
from lb_stream.stream.ports import Logged
from tests.support.written_tables import Job, answer, rows_of

NOW = 1_000 * HOUR_MS


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def log(job: Job, batch: int, *answers: dict[str, Any], **content: Any) -> Logged:
    return job.log.append_once(batch, job.rounds(batch, results=answers, **content))


def rows(job: Job) -> list[dict[str, Any]]:
    return (
        rows_of(job, AUDIT).sort_by([("cluster", "ascending"), ("number", "ascending")]).to_pylist()
    )


def verified(job: Job) -> list[ChainReport]:
    return verify_audit(open_lake(Store.at(job.tables)))


def versions(job: Job) -> int:
    return len(list((job.tables / AUDIT.name / "_delta_log").glob("*.json")))


def test_each_answer_is_a_row_that_copies_the_log(job: Job) -> None:
    refused = {"outcome": "refused", "rule": "unknown_broker"}
    job.tables_of.project(log(job, 0, answer(1), answer(2, **refused), answer(1, repeated=True)))
    first, second, third = rows(job)
    assert {name: first[name] for name in AUDIT.schema.names[:-2]} == {
        "cluster": "a",
        "number": 1,
        "log_seq": 0,
        "seq": 1,
        "at_ms": 1_001,
        "now_ms": 0,
        "by": "alice",
        "key_id": "3f1c22a09b7d4e10",
        "right": "drain b-1:8080",
        "kind": "drain-broker",
        "objects": ["broker b-1:8080"],
        "arguments": '{"broker": "b-1:8080"}',
        "old_value": '{"drained":[]}',
        "new_value": '{"drained":["b-1:8080"]}',
        "command_id": "c1",
        "outcome": "done",
        "rule": None,
        "text": "b-1:8080 has no bundle, and gets none from now on",
        "decision_ids": [],
        "repeated": False,
    }
    assert (second["outcome"], second["rule"]) == ("refused", "unknown_broker")
    assert third["repeated"] and third["number"] == 3


def test_a_change_by_the_job_is_a_row_without_a_command_and_no_command(job: Job) -> None:
    change = JobChange(TAKE_OVER, "host:7", "leads as a standby: no leader was known")
    forged = answer(1, kind=TAKE_OVER, outcome="refused", rule="unreadable")
    job.tables_of.project(log(job, 0, CommandAnswer.of_job(change, 5).to_dict(), forged))
    first, second = rows(job)
    assert (first["kind"], first["by"], first["command_id"]) == ("take-over", "host:7", None)
    assert (second["kind"], second["command_id"]) == ("'take-over'", "c1")
    assert [row["id"] for row in rows_of(job, COMMANDS).to_pylist()] == ["c1"]
    assert all(report.holds for report in verified(job))


def test_a_hash_is_made_as_the_page_for_auditors_says(job: Job) -> None:
    job.tables_of.project(log(job, 0, answer(1, text="ä"), answer(2, by="")))
    previous = ""
    for row in rows(job):

        def field(value: Any) -> bytes:
            if value is None:
                return b"-"
            if isinstance(value, list):
                text = b"".join(map(field, value))
            elif isinstance(value, bool):
                text = str(value).lower().encode()
            else:
                text = str(value).encode()
            return str(len(text)).encode() + b":" + text

        columns = [name for name in AUDIT.schema.names if name not in ("previous_hash", "hash")]
        content = b"".join(field(row[name]) for name in columns)
        assert row["previous_hash"] == previous
        previous = sha256(field("lb-audit-1") + field(previous) + content).hexdigest()
        assert row["hash"] == previous


def test_each_cluster_has_a_chain_of_its_own_which_a_restart_continues(job: Job) -> None:
    for batch in range(4):
        cluster = "ab"[batch % 2]
        job.tables_of.project(log(job, batch, answer(batch), clusters=(cluster,)))
        if batch == 1:
            job = Job(job.folder)
    assert [(row["cluster"], row["number"]) for row in rows(job)] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
        ("b", 2),
    ]
    assert [report.holds for report in verified(job)] == [True, True]


def test_a_batch_without_commands_writes_nothing(job: Job) -> None:
    before = versions(job)
    job.tables_of.project(log(job, 0, ownership=[]))
    assert versions(job) == before


def test_a_batch_that_was_logged_and_not_projected_is_projected_once(job: Job) -> None:
    job.tables_of.project(log(job, 0, answer(0)))
    log(job, 1, answer(1), answer(2))  # killed here
    for _ in range(2):
        again = Job(job.folder)
        again.tables_of.catch_up(again.log.since)
    again.tables_of.project(log(again, 2, answer(3)))
    assert [row["command_id"] for row in rows(job)] == ["c0", "c1", "c2", "c3"]
    assert verified(job)[0].holds


def test_a_batch_that_another_job_has_projected_is_not_chained_twice(job: Job) -> None:
    other = Job(job.folder)
    logged = log(job, 0, answer(0))
    other.tables_of.project(logged)
    job.tables_of.project(logged)
    job.tables_of.project(log(job, 1, answer(1)))
    assert [row["command_id"] for row in rows(job)] == ["c0", "c1"]
    assert verified(job)[0].holds


def test_a_commit_that_fails_is_made_with_the_same_hashes(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.tables_of.project(log(job, 0, answer(0)))
    real, failures = type(job.tables_of._tables[AUDIT.name]).commit, [OSError("away")]

    def commit(self: Any, *given: Any, **named: Any) -> None:
        if failures:
            raise failures.pop()
        real(self, *given, **named)

    monkeypatch.setattr("lb_stream.io.tables.commits.Table.commit", commit)
    job.tables_of.project(log(job, 1, answer(1)))
    assert [row["number"] for row in rows(job)] == [1, 2]
    assert verified(job)[0].holds and not failures


# --- rebuild and upkeep ---


def test_a_rebuild_gives_the_same_bytes_also_of_a_lost_table(job: Job) -> None:
    for batch in range(5):
        job.tables_of.project(log(job, batch, answer(batch), answer(batch + 10)))
    before = rows(job)
    list(rebuild(Store.at(job.tables), [AUDIT.name]))
    assert rows(job) == before
    shutil.rmtree(job.tables / AUDIT.name)
    list(rebuild(Store.at(job.tables), [AUDIT.name]))
    assert rows(job) == before
    again = Job(job.folder)
    again.tables_of.project(log(again, 5, answer(5)))
    assert verified(job)[0].holds


def old_batches(job: Job) -> None:
    """Six batches: the first three are ten days old."""
    for batch in range(6):
        now_ms = NOW - (240 * HOUR_MS if batch < 3 else HOUR_MS)
        job.tables_of.project(log(job, batch, answer(batch), now_ms=now_ms))


def keep(job: Job, now_ms: int = NOW, **settings: int) -> int:
    done = maintain(Store.at(job.tables), UpkeepSettings(**settings), now_ms)
    return {one.table: one.rows_deleted for one in done}[AUDIT.name]


def test_upkeep_keeps_the_audit_unless_a_setting_says_otherwise(job: Job) -> None:
    old_batches(job)
    before = rows(job)
    assert keep(job, NOW * 10) == 0
    assert rows(job) == before


def test_a_row_stands_for_what_upkeep_has_deleted(job: Job) -> None:
    old_batches(job)
    before = rows(job)
    assert keep(job, keep_audit_hours=48) == 3
    stands, *others = rows(job)
    assert others == before[3:]
    assert (stands["kind"], stands["number"], stands["hash"]) == (CUT, 3, before[2]["hash"])
    assert json.loads(stands["old_value"]) == {"first": 1, "last": 3}
    assert (stands["objects"], stands["at_ms"]) == (["rows 1 to 3"], NOW)
    (report,) = verified(job)
    assert report.holds and "1 to 3" in report.deleted

    # Nothing more is old; later, one row stands for all that was deleted. The job goes on beside.
    assert keep(job, keep_audit_hours=48) == 0
    job.tables_of.project(log(job, 6, answer(6), now_ms=NOW + 200 * HOUR_MS))
    assert keep(job, NOW + 200 * HOUR_MS, keep_audit_hours=48) == 3
    job.tables_of.project(log(job, 7, answer(7), now_ms=NOW + 200 * HOUR_MS))
    assert [row["number"] for row in rows(job)] == [6, 7, 8]
    assert json.loads(rows(job)[0]["old_value"]) == {"first": 1, "last": 6}
    assert verified(job)[0].holds


def test_a_command_that_calls_itself_a_cut_stands_for_no_deleted_rows(job: Job) -> None:
    """Whoever may write to the topic chooses the kind of a command that can't be read."""
    forged = answer(1, kind=CUT, outcome="refused", rule="unreadable", audited=NOT_AUDITED)
    job.tables_of.project(log(job, 0, answer(0), forged, now_ms=0))
    assert [row["kind"] for row in rows(job)] == ["drain-broker", f"'{CUT}'"]
    assert verified(job)[0].holds
    assert keep(job, keep_audit_hours=1) == 2
    assert [row["kind"] for row in rows(job)] == [CUT]


def test_a_rebuild_brings_back_nothing_that_upkeep_has_deleted(job: Job) -> None:
    old_batches(job)
    keep(job, keep_audit_hours=48, keep_rounds_hours=0)
    before = rows(job)
    list(rebuild(Store.at(job.tables), [AUDIT.name]))
    assert rows(job) == before
    keep(job, keep_rounds_hours=48)  # the log loses its older rounds, too
    list(rebuild(Store.at(job.tables), [AUDIT.name]))
    assert rows(job) == before and verified(job)[0].holds


def test_rows_whose_rounds_are_gone_from_the_log_stay(job: Job) -> None:
    old_batches(job)
    before = rows(job)
    keep(job, keep_rounds_hours=48)
    list(rebuild(Store.at(job.tables), [AUDIT.name]))
    assert rows(job) == before
