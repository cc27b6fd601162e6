"""`lbctl assess tables`: a job's history becomes a recording and a page."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from lb_stream.assess import tables_recorder
from tests.support.html_page import Page
from tests.support.lbctl_runner import Result, lbctl
from tests.support.past_tables import BUNDLES, MINUTE_MS, START_MS, write_past
from tests.support.wordings import check_wording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history")
    write_past(path / "tables")
    return path


def assess(folder: Path, *arguments: str) -> Result:
    return lbctl("assess", "tables", *arguments, cwd=folder)


def recorded(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "assessment.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if '"report":' in line]


def test_a_jobs_history_becomes_a_recording_and_a_page(folder: Path) -> None:
    before = sorted(path for path in (folder / "tables").rglob("*"))
    done = assess(folder, "tables", "--cluster", "eu")
    assert (done.code, done.out.splitlines()[0][:5]) == (0, "Even:"), done.err
    text = (folder / "assessment.html").read_text()
    assert "from the tables in tables" in text and "eu: 2 brokers" in text
    assert Page(text).fetched == []
    reports = recorded(folder)
    assert len(reports) == 12
    last = reports[-1]
    assert (last["broker"], last["capturedAtMs"]) == ("b:8080", START_MS + 5 * MINUTE_MS)
    assert last["report"]["bundles"] == [  # type: ignore[index]
        bundle for bundle, owner in BUNDLES.items() if owner == "b:8080"
    ]
    # rules of operators are known, and nothing was written beside the tables
    assert "anti-affinity groups are not known" not in text
    assert sorted(path for path in (folder / "tables").rglob("*")) == before


def test_only_the_end_of_history_is_read(folder: Path) -> None:
    assert assess(folder, "tables", "--cluster", "eu", "--since", "2m", "--json").code == 0
    assert [line["capturedAtMs"] for line in recorded(folder)] == [
        START_MS + minute * MINUTE_MS for minute in (3, 4, 5) for _ in range(2)
    ]


def test_long_spans_of_large_clusters_leave_slots_out_but_not_the_last(folder: Path) -> None:
    with mock.patch.object(tables_recorder, "MOST_ENTRIES", 6):
        assert assess(folder, "tables", "--cluster", "eu", "--json").code == 0
    minutes = {(line["capturedAtMs"] - START_MS) // MINUTE_MS for line in recorded(folder)}  # type: ignore[operator]
    assert minutes == {1, 3, 5}


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-tables"],
        ["tables"],
        ["tables", "--cluster", "asia"],
        ["tables", "--cluster", "eu", "--since", "soon"],
        ["tables", "--minutes", "3"],
    ],
)
def test_what_holds_no_history_is_one_line(folder: Path, arguments: list[str]) -> None:
    done = assess(folder, *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    check_wording(done.err)


def test_without_the_extra_the_line_says_what_to_install(folder: Path) -> None:
    with mock.patch("lb_stream.io.messages.missing_packages.find_spec", return_value=None):
        done = assess(folder, "tables")
    assert (done.code, done.out) == (2, "")
    assert done.err == "lbctl: lbctl assess tables needs more packages: " + (
        "pip install 'lb_stream[cli]'\n"
    )
