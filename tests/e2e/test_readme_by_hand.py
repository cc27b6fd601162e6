"""docs/getting-started.md by hand, line by line: broker, topics, job, brokers, decisions.

Then a Kafka of one's own.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.pages import blocks, lines, words

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

PROJECT = Path(__file__).parents[2]
BLOCKS = blocks("docs/getting-started.md")
(BY_HAND,) = (block for block in BLOCKS if "lbctl kafka start" in block)
(OWN_KAFKA,) = (block for block in BLOCKS if "LB_KAFKA__BOOTSTRAP_SERVERS" in block)
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
"""As `source .venv/bin/activate` leaves it."""
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith("LB_") or name == "LB_JARS_DIR"
} | {"PATH": PATH}


def commands(block: str) -> list[list[str]]:
    return [words(line) for line in lines(block)]


def done(command: list[str], folder: Path, **environment: str) -> str:
    """What a command prints that ends by itself, and well."""
    result = subprocess.run(
        command,
        cwd=folder,
        env=CLEAN | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, (command, result.stdout, result.stderr)
    return result.stdout


@contextmanager
def running(command: list[str], folder: Path, output: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A command in a terminal of its own; what it says goes to a file."""
    with output.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=CLEAN, stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(45)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


OUTCOMES = ["lbctl", "sql", "select outcome from outcomes"]


def until_said(
    pattern: str, output: Path, processes: list["subprocess.Popen[bytes]"], within_s: float
) -> None:
    deadline = time.monotonic() + within_s
    while not re.search(pattern, output.read_text(), re.MULTILINE):
        said = {file.name: file.read_text()[-2000:] for file in output.parent.glob("*.txt")}
        assert (
            all(process.poll() is None for process in processes) and time.monotonic() < deadline
        ), said
        time.sleep(0.2)


def test_the_way_by_hand_leads_to_decisions_that_brokers_obey(tmp_path: Path) -> None:
    start, create, balance, brokers, follow = commands(BY_HAND)
    (tmp_path / "conf").symlink_to(PROJECT / "conf")
    try:
        address = done(start, tmp_path).strip()
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address), "prints host:port"
        done(create, tmp_path)
        balance += [
            "--set",
            "stream.metrics_address=127.0.0.1:0",
        ]  # another job may be on this machine
        job_said, brokers_said, seen = (
            tmp_path / f"{name}.txt" for name in ("job", "brokers", "follow")
        )
        with (
            running(brokers, tmp_path, brokers_said) as sim,
            running(balance, tmp_path, job_said) as job,
        ):
            with running(follow, tmp_path, seen) as reader:
                until_said(
                    r"^\d\d:\d\d:\d\d test \S+ unload shop/\S+ .*\(above_average",
                    seen,
                    [sim, job, reader],
                    180,
                )
                until_said(
                    r"^\d\d:\d\d:\d\d test \S+ assign shop/\S+ .*\(released",
                    seen,
                    [sim, job, reader],
                    60,
                )
            assert reader.returncode == 130, "Ctrl-C ends it"
            deadline = (
                time.monotonic() + 90
            )  # a move is confirmed when its destination reports the bundle
            while "confirmed" not in done(OUTCOMES, tmp_path) and time.monotonic() < deadline:
                time.sleep(1)
            os.killpg(job.pid, signal.SIGINT)  # Ctrl-C reaches the JVM and the driver
            assert job.wait(60) in (0, 130), job_said.read_text()[-2000:]
            assert not re.search(r"Traceback|^\tat ", job_said.read_text(), re.MULTILINE), (
                job_said.read_text()[-4000:]
            )
        assert "confirmed" in done(OUTCOMES, tmp_path), "the tables are where the README's are"
        own_kafka(tmp_path / "elsewhere", address)
    finally:
        subprocess.run(
            ["lbctl", "kafka", "stop"],
            cwd=tmp_path,
            env=CLEAN,
            capture_output=True,
            timeout=60,
            check=False,
        )


def own_kafka(folder: Path, address: str) -> None:
    """The topics are there; of the job only its command is asked for: what it does is above, and in
    other tests."""
    folder.mkdir()
    export, create, observe, act, status = commands(OWN_KAFKA)
    assert export[0] == "export" and status == ["lbctl", "status"]
    given = {export[1].partition("=")[0]: address}
    done(create, folder, **given)
    done(["lbctl", "topics", "check"], folder, **given)
    for command in (observe, act):
        assert "SparkSubmit" in done([*command, "--print"], folder, **given)
    dry = ["lbctl", "config", "explain", "dry_run", "bootstrap_servers"]
    assert f'bootstrap_servers = "{address}"' in done(
        dry, folder, **given
    ) and 'mode = "observe"' in done(dry, folder, **given)
    assert 'mode = "act"' in done([*dry, *act[2:]], folder, **given)
