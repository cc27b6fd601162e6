"""`lbctl backtest`: what is wrong is told in a line before Spark starts; its program's lines become
a bar, results, an exit code."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lbctl_runner import lbctl
from tests.support.past_tables import write_past
from tests.support.wordings import check_wording

CAPTURED = Path(__file__).parents[3] / "data" / "modular-load-reports.jsonl.gz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the clusters eu and us, and files of reports that are cut short."""
    made = tmp_path_factory.mktemp("backtest")
    write_past(made / "tables")
    (made / "empty").mkdir()
    whole = CAPTURED.read_bytes()
    (made / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (made / "torn.jsonl.gz").write_bytes(whole[:1000] + bytes(1000) + whole[2000:])
    (made / "cut.jsonl").write_bytes(gzip.decompress(whole)[:50_000])
    (made / "none.jsonl").write_bytes(b"\n")
    (made / "typo.toml").write_text("[balancer]\nshedding_stratgy = 'AvgShedder'\n")
    return made


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policy", "NoSuch"),
        ("--policy", "missing.toml"),
        ("--policy", "typo.toml"),
        ("--tables", "nowhere"),
        ("--tables", "empty"),
        (),
        ("--cluster", "eu", "--cluster", "nowhere"),
        ("--cluster", "eu", "--from", "noon"),
        ("--cluster", "eu", "--to", "26-1-1"),
        ("--cluster", "eu", "--from", "2026-01-02", "--to", "2026-01-01"),
        ("--reports", "missing.jsonl"),
        ("--reports", "cut.jsonl.gz"),
        ("--reports", "torn.jsonl.gz"),
        ("--reports", "cut.jsonl"),
        ("--reports", "none.jsonl"),
    ],
)
def test_bad_input_is_a_line_before_spark_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    given = arguments if "--policy" in arguments else ("--policy", "none", *arguments)
    done = lbctl(
        "backtest",
        *given,
        *(() if {"--tables", "--reports"} & {*arguments} else ("--tables", "tables")),
        cwd=folder,
    )
    assert (done.code, len(done.err.splitlines()), done.out) == (2, 1, ""), done.err
    check_wording(done.err)


PROGRAM = """
import json, signal, subprocess, sys, time
print("note of the program", flush=True)
print("0 of 2 trials", flush=True)
if sys.argv[1] == "hangs":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    signal.signal(signal.SIGTERM, lambda *_: (print("a trace\\n" * 30, flush=True), sys.exit(1)))
    print("up", flush=True)
    time.sleep(60)
print("2 of 2 trials", flush=True)
if sys.argv[1] != "3":
    print(json.dumps({"run": "x", "rows": []}), flush=True)
sys.exit(int(sys.argv[1]))
"""


def program(tmp_path: Path, behaviour: str) -> subprocess.Popen[str]:
    """What runs spark-submit, with a stand-in for it. Prints what came of it."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), behaviour]
    text = f"""
import os, signal, sys
# What runs tests in the background may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
from typer import Exit
from lb_stream.cli.backtest.command import _run
try:
    print(_run({command!r}, dict(os.environ)))
except Exit as end:
    sys.exit(end.exit_code)
"""
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [("0", {"run": "x", "rows": []}), ("1", {"run": "x", "rows": []}), ("3", None)],
)
def test_the_programs_lines_become_progress_notes_and_a_result(
    tmp_path: Path, behaviour: str, found: object
) -> None:
    out, err = program(tmp_path, behaviour).communicate(timeout=60)
    assert out == f"{(found, int(behaviour))}\n"
    assert err.splitlines() == [
        "note of the program",
        "simulating: 0 of 2 steps",
        "simulating: 2 of 2 steps",
    ]


def test_ctrl_c_is_one_line_and_leaves_nothing_running(tmp_path: Path) -> None:
    process = program(tmp_path, "hangs")
    assert process.stderr is not None
    while process.stderr.readline() != "up\n":
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)  # until the last one that has the pipe is gone
    assert (process.returncode, out, err) == (130, "", "stopped: no row of this run is kept\n")
