"""`lbctl audit`: rows by filters, the check of the chain, and its anchors."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lb_stream.contracts.tables import AUDIT
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording
from tests.support.written_tables import Job, answer, rows_of


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path)
    for batch in range(3):
        more = {"outcome": "refused", "rule": "unsigned"} if batch == 1 else {}
        logged = job.log.append_once(batch, job.rounds(batch, results=[answer(batch, **more)]))
        job.tables_of.project(logged)
    return job


def ask(job: Job, *words: str) -> Result:
    return lbctl("audit", *words, "--set", f"stream.tables={job.tables}", cwd=job.folder)


def rewrite(job: Job, rows: pa.Table) -> None:
    """What somebody does who may write to the tables."""
    write_deltalake(str(job.tables / AUDIT.name), rows, mode="overwrite")


def test_rows_are_shown_with_what_changed_and_the_answer(job: Job) -> None:
    (refused,) = ask(job, "--refused", "--json").objects
    assert (refused["command_id"], refused["number"], refused["rule"]) == ("c1", 2, "unsigned")
    assert refused["by_unproven"] and "(unproven)" in ask(job, "--refused").out
    assert refused["new_value"] == {"drained": ["b-1:8080"]}
    assert [row["command_id"] for row in ask(job, "--last", "2", "--json").objects] == ["c1", "c2"]
    assert ask(job, "--what", "b-2", "-o", "name").out == "c2\n"
    within = ("--from", "1970-01-01T00:01Z", "--to", "1970-01-01T00:02Z")
    assert ask(job, *within, "-o", "name").out == "c1\n"
    words = ask(job, "--what", "b-2").out.split()
    assert "(unproven)" not in words
    assert {"alice", "drain-broker", "broker", "done", "right:"} <= set(words)
    check_wording(ask(job, "--by", "mallory").err.splitlines()[-1])


def test_a_wrong_time_is_named(job: Job) -> None:
    wrong = ask(job, "--from", "yesterday")
    assert wrong.code == 2 and "--from" in wrong.err and "yesterday" in wrong.err


def test_verify_holds_and_then_names_the_row_that_was_changed(job: Job) -> None:
    good = ask(job, "verify")
    assert good.code == 0
    check_wording(good.out[: good.out.index("last hash")])
    rows = rows_of(job, AUDIT).sort_by("number").to_pylist()
    rows[1]["by"] = "mallory"
    rewrite(job, pa.Table.from_pylist(rows, AUDIT.schema))
    bad = ask(job, "verify", "--json")
    (report,) = bad.objects
    assert bad.code == 1
    assert (report["cluster"], report["holds"], report["rows"]) == ("a", False, 3)
    assert [(fault["number"], fault["what"]) for fault in report["faults"]] == [(2, "changed")]
    assert "a: does not hold from row 2 on" in ask(job, "verify").out


def test_rows_cut_off_at_the_end_are_seen_by_an_anchor(job: Job) -> None:
    anchors = job.folder / "anchors.jsonl"
    assert ask(job, "anchor", "--out", str(anchors)).code == 0
    assert ask(job, "verify", "--anchor", str(anchors)).code == 0
    rewrite(job, rows_of(job, AUDIT).sort_by("number").slice(0, 2))
    assert ask(job, "verify").code == 0
    cut = ask(job, "verify", "--anchor", str(anchors), "--json")
    assert cut.code == 1
    assert [(fault["number"], fault["what"]) for fault in cut.objects[0]["faults"]] == [(3, "cut")]
    (head,) = ask(job, "anchor", "--json", "--out", str(anchors)).objects
    assert head["number"] == 2
    kept = [json.loads(line) for line in anchors.read_text().splitlines()]
    assert [anchor["number"] for anchor in kept] == [3, 2] and kept[1] == head


def test_wrong_files_of_anchors_are_named(job: Job) -> None:
    missing = ask(job, "verify", "--anchor", "nowhere.jsonl")
    assert missing.code == 2 and "nowhere.jsonl" in missing.err
    (job.folder / "wrong.jsonl").write_text("{}\n")
    wrong = ask(job, "verify", "--anchor", "wrong.jsonl")
    assert wrong.code == 2 and "wrong.jsonl, line 1" in wrong.err
    (job.folder / "folder").mkdir()
    assert "folder" in ask(job, "anchor", "--out", "folder").err
