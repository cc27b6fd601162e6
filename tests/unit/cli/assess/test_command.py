"""`lbctl assess --reports`: the page, the JSON, exit codes, and input that can't be used."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from lb_stream.agent.pulsar.recorder import BROKERS, line_aside
from tests.support.assessed_cluster import EVEN, UNEVEN, minutes, write
from tests.support.html_page import Page
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording


def assess(path: Path, lines: list[str], *more: str) -> Result:
    write(path / "reports.jsonl", lines)
    return lbctl("assess", "--reports", "reports.jsonl", *more, cwd=path)


def page(path: Path) -> str:
    return (path / "assessment.html").read_text()


def test_the_page_says_what_is_uneven_why_and_what_to_do(tmp_path: Path) -> None:
    done = assess(tmp_path, minutes(UNEVEN), "--cluster", "eu-1")
    assert done.code == 0
    text = page(tmp_path)
    shown = Page(text)
    verdict = done.out.splitlines()[0]
    assert verdict.startswith("Uneven: the fullest broker is at 60%, 2 times the mean; 3 moves")
    assert f'<h1 class="failed">{verdict}</h1>' in text
    tiles = {name: value for value, name in shown.tiles}
    assert tiles["max ÷ mean usage now"] == "2.00"
    assert tiles["moves that LeastMoves would make"] == "3"
    assert [row[0] for row in shown.tables["evenness"]][:2] == ["resource", "cpu"]
    assert shown.tables["hot"][1][0] == "a:8080"
    assert len(shown.tables["moves"]) == 1 + 3
    assert [row[0] for row in shown.tables["plays"][1:]] == ["no moves", "AvgShedder", "LeastMoves"]
    assert len(re.findall("<pre>(lbctl|pip) ", text)) == 3
    assert {"evenness-eu-1", "heat-eu-1", "plays-eu-1"} == set(shown.charts)
    assert shown.fetched == []
    check_wording(done.out)


def test_a_page_of_an_even_cluster_draws_and_moves_nothing(tmp_path: Path) -> None:
    assert assess(tmp_path, minutes(EVEN, 1)).code == 0
    shown = Page(page(tmp_path))
    assert "moves" not in shown.tables
    assert "doubts" not in shown.tables
    assert set(shown.charts) == {"plays-recorded"}


def test_json_has_all_figures_and_writes_no_page(tmp_path: Path) -> None:
    done = assess(tmp_path, minutes(UNEVEN), "--json")
    (found,) = done.objects
    assert (found["is_uneven"], len(found["moves"])) == (True, 3)
    assert found["observed"]["brokers"] == 3
    assert not (tmp_path / "assessment.html").exists()


def test_names_that_hold_markup_are_text(tmp_path: Path) -> None:
    evil = '<b onload="x">&:1'
    loads = {evil: UNEVEN["a:8080"], "b:8080": UNEVEN["b:8080"]}
    assert assess(tmp_path, minutes(loads, 3)).code == 0
    text = page(tmp_path)
    assert evil not in text
    assert Page(text).tables["hot"][1][0] == evil


@pytest.mark.parametrize(
    "arguments",
    [[], ["pulsar"], ["kafka", "localhost:9092"], ["pulsar", "http://a:1", "--reports", "x"]],
)
def test_wrong_usage_says_what_is_expected(tmp_path: Path, arguments: list[str]) -> None:
    done = lbctl("assess", *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "expected one of: pulsar URL" in done.err


def test_settings_come_from_a_broker_conf_and_its_misspelt_keys_are_shown(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(
        "loadBalancerEnabled=true\nloadBalancerSheddingEnable=false\n"
    )
    done = assess(tmp_path, minutes(EVEN), "--broker-conf", "broker.conf")
    assert done.code == 0
    assert "warning" not in done.err
    found = " ".join(cell for row in Page(page(tmp_path)).tables["settings"] for cell in row)
    assert "loadBalancerSheddingEnable = &#x27;false&#x27;" in found or "SheddingEnable =" in found


def test_a_gzipped_recording_is_read(tmp_path: Path) -> None:
    lines = minutes(UNEVEN, 2)
    (tmp_path / "reports.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    done = lbctl("assess", "--reports", "reports.jsonl.gz", "--json", cwd=tmp_path)
    assert done.objects[0]["observed"]["reports"] == 6


def test_missing_brokers_are_exit_code_3(tmp_path: Path) -> None:
    silent = line_aside(BROKERS, {"d:8080": "no answer in time"}).rstrip()
    done = assess(tmp_path, [silent, *minutes(EVEN, 2)])
    assert done.code == 3
    assert "d:8080" in page(tmp_path)
    check_wording(done.err.splitlines()[-1])


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["<html><body>401 Unauthorized</body></html>"],
        ['{"capturedAtMs": 1, "broker": "a:8080", "report": {"cpu": {"usage": "much"}}}'],
        ['{"cpu": {"usage": 1, "limit": 100}, "lastStats": {}}'],
        ['{"topic": "t", "key": "a:8080", "report": {"cpu": {}}}'],
        ['{"path": "/admin/v2/namespaces", "data": {"namespaces": 1}}', *minutes(EVEN, 1)],
    ],
    ids=["empty", "html", "not a report", "no broker", "extensible", "not namespaces"],
)
def test_input_that_cannot_be_used_is_one_line_and_exit_code_2(
    tmp_path: Path, lines: list[str]
) -> None:
    done = assess(tmp_path, lines)
    assert (done.code, done.out) == (2, "")
    (line,) = [line for line in done.err.splitlines() if not line.startswith("assessing:")]
    assert "reports.jsonl" in line
    assert not (tmp_path / "assessment.html").exists()
    check_wording(line)


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    done = assess(tmp_path, minutes(EVEN, 1), "--html", "no/such/folder.html")
    assert done.code == 1
    assert done.err.splitlines()[-1] == "lbctl: no/such/folder.html: No such file or directory"
