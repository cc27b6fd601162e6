"""Assessments of recorded real clusters, whose cpu hardly follows load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lb_stream.io.messages.shown import in_html
from tests.support.html_page import Page
from tests.support.lbctl_runner import lbctl

DATA = Path(__file__).parents[2] / "data"
REPORTS = DATA / "modular-load-reports.jsonl.gz"
"""Three brokers of 4.0.7, mostly busy with their start, while load moves between namespaces."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded")
    assert lbctl("assess", "--reports", str(REPORTS), cwd=path).code == 0
    done = lbctl("assess", "--reports", str(REPORTS), "--json", cwd=path)
    (path / "found.json").write_text(json.dumps(done.objects[0]))
    return path


def test_least_moves_is_not_shown_worse_than_no_moves_beyond_the_error(folder: Path) -> None:
    found = json.loads((folder / "found.json").read_text())
    played = {play["policy"]: play for play in found["plays"]}
    none, least = played["no moves"], played["LeastMoves"]
    assert least["max_usage_end"] <= none["max_usage_end"] + min(found["model_error"], 0.02)
    # both stay even: neither is wrong about the brokers' speeds
    assert least["over_bound_median"] < 1.15
    assert found["present"]["max_usage_end"] <= found["bound"]["max_usage"]


def test_the_page_shows_no_usage_that_the_reports_do_not_show(folder: Path) -> None:
    found = json.loads((folder / "found.json").read_text())
    assert not found["can_tell"] and 0.1 < found["model_error"] < 0.15
    text = (folder / "assessment.html").read_text()
    shown = Page(text)
    first, _, more = in_html(found["verdict"]).partition(". ")
    assert f'<h1 class="pending">{first}.</h1><p>{more}</p>' in text
    names = {name for _, name in shown.tiles}
    assert "of a broker: error of simulated usages" in names
    assert [name for name in names if "max" in name] == ["max ÷ mean of reported usage now"]
    assert not any("max" in head for head in shown.tables["plays"][0])
    assert not any(name.startswith("plays-") for name in shown.charts)
    assert "Simulated usages miss the reported ones by ± 12% of a broker" in text
