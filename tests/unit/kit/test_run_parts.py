"""The processes of `lbctl run`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.cli.shared.output import CommandError
from lb_stream.io.local import processes
from lb_stream.kit.run.parts import Part


@pytest.fixture
def leftover() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def start_and_stop(folder: Path) -> None:
    part = Part("job", ["--version"], folder / "job.log", {})
    part.start()
    part.stop()


def test_the_output_of_a_part_that_has_ended_is_in_its_error(tmp_path: Path) -> None:
    part = Part("job", ["nonsense"], tmp_path / "job.log", {})
    part.start()
    with pytest.raises(CommandError, match="nonsense"):
        while True:
            part.require_running()
            time.sleep(0.05)


def test_what_a_killed_run_has_left_ends_before_a_part_starts(
    tmp_path: Path, leftover: subprocess.Popen[bytes]
) -> None:
    state = {"pid": leftover.pid, "started": processes.start_mark(leftover.pid)}
    (tmp_path / "job.json").write_text(json.dumps(state))
    start_and_stop(tmp_path)
    assert processes.start_mark(leftover.pid) is None


def test_another_process_with_a_leftovers_id_is_left_alone(
    tmp_path: Path, leftover: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"pid": leftover.pid, "started": "before"}))
    start_and_stop(tmp_path)
    assert leftover.poll() is None
