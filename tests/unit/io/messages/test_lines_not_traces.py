"""Whatever goes wrong is one line that says what to do, with the right exit code: damaged tables,
full disks, poor terminals, signals."""

import errno
import inspect
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kafka import cluster
from kafka.errors import Cancelled, KafkaTimeoutError
from kafka.net import selector

from lb_stream.cli.run import balance
from lb_stream.contracts.tables import DECISIONS
from lb_stream.io.local.signals import StopRequest
from lb_stream.io.messages.errors import describe_error
from lb_stream.io.messages.logs import KAFKA_EVERY_S, SLOW_TASK, KafkaLogRateLimiter, Lines
from lb_stream.settings.secrets import remember_secrets
from tests.support.lbctl_runner import lbctl
from tests.support.table_rows import NOW, decided, fill
from tests.support.wordings import check_wording

LBCTL = [sys.executable, "-c", "from lb_stream.cli.main import main; main()"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with tables in which one decision stands, its log in two files."""
    from lb_stream.contracts.decisions import example_decision

    for seq in (1, 2):
        fill(
            tmp_path / "tables",
            DECISIONS,
            [decided(example_decision(decision_id=f"eu-1:{seq}:0", seq=seq, issued_ms=NOW))],
        )
    return tmp_path


def asked(folder: Path, *command: str) -> str:
    """The one line that the command says when it fails with code 1, after the banner on the tables'
    age."""
    result = lbctl(*(command or ("decisions",)), "--set", "stream.tables=tables", cwd=folder)
    lines = [line for line in result.err.splitlines() if not line.startswith("NOT UP TO DATE")]
    assert (result.code, result.out, len(lines)) == (1, "", 1), result.err
    return lines[0]


@pytest.mark.parametrize("content", [b'{"add":{"pa', b"\x00\xff", b"{}\n{"])
def test_a_damaged_delta_log_is_told_with_its_table_and_the_way_back(
    folder: Path, content: bytes
) -> None:
    (folder / "tables" / "decisions" / "_delta_log" / f"{1:020}.json").write_bytes(content)
    line = asked(folder)
    assert line.startswith("lbctl: tables/decisions can't be read (")
    assert "`lbctl tables rebuild decisions`" in line


def test_a_missing_and_a_damaged_data_file_are_told(folder: Path) -> None:
    data = next((folder / "tables" / "decisions").glob("*.parquet"))
    data.write_bytes(b"PAR1 no longer")
    assert "lbctl tables rebuild" in asked(folder)
    data.unlink()
    assert "lbctl tables rebuild" in asked(folder)


@pytest.mark.parametrize(
    "command", [("decisions",), ("explain", "last"), ("monitor",), ("brokers",)]
)
def test_a_table_of_an_older_version_is_told_with_the_column_that_it_lacks(
    folder: Path, command: tuple[str, ...]
) -> None:
    rows = (
        DeltaTable(str(folder / "tables" / "decisions"))
        .to_pyarrow_table()
        .drop_columns(["explain"])
    )
    shutil.rmtree(folder / "tables" / "decisions")
    write_deltalake(str(folder / "tables" / "decisions"), rows)
    line = asked(folder, *command)
    assert (
        "tables/decisions has no column explain: another version wrote it" in line
        and "tables rebuild decisions" in line
    )
    query = (
        "sql",
        "select decision_id from decisions order by all",
        "--json",
        "--set",
        "stream.tables=tables",
    )
    assert len(lbctl(*query, cwd=folder).objects) == 2, "what there is can still be asked for"


def test_a_damaged_log_is_not_rebuilt_from_itself(folder: Path) -> None:
    write_deltalake(str(folder / "tables" / "rounds"), pa.table({"cluster": ["eu-1"]}))
    line = asked(folder)
    assert (
        "tables/rounds has no column" in line
        and "restore it from a backup" in line
        and "rebuild" not in line
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/tables/x"),
            "the disk is full at /data/tables/x: make room there",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/data"),
            "Read-only file system at /data: give this user the right",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", ".lb/demo"),
            "Permission denied at .lb/demo: give this user the right",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "x"),
            "x: No such file or directory",
        ),
        (
            RuntimeError("java.io.IOException: No space left on device\n at org.x.Y"),
            "the disk is full",
        ),
    ],
)
def test_what_a_disk_refuses_is_told_with_the_place(error: Exception, words: str) -> None:
    found = describe_error(error)
    assert found is not None and words in found[0] and "\n" not in found[0] and found[1] == 1


def test_the_disk_that_stands_behind_another_error_is_found() -> None:
    outer = ValueError("the batch failed")
    outer.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/data")
    check_wording(str(describe_error(outer)))
    assert describe_error(ValueError("a fault of ours")) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_one_line(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [*LBCTL, "decisions", "--json", "--set", "stream.tables=tables"]
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert done.stderr.splitlines()[-1].startswith("lbctl: the disk is full")


@pytest.mark.parametrize(
    "poor",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_a_terminal_that_knows_ascii_only_gets_letters_that_look_alike(
    folder: Path, poor: dict[str, str]
) -> None:
    for arguments in (
        ["decisions"],
        ["explain", "last"],
        ["monitor"],
        ["--help"],
        ["sql", "select 'ü→名' as x"],
    ):
        command = [
            *LBCTL,
            *arguments,
            *([] if arguments == ["--help"] else ["--set", "stream.tables=tables"]),
        ]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("LANG", "PYTHONUTF8")
        } | poor
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        done.stdout.decode("ascii")
        if arguments == ["decisions"]:
            assert b" -> " in done.stdout
        if arguments[0] == "sql":
            assert b"\\xfc->\\u540d" in done.stdout


# --- requests to stop ---

JOB = """
import signal, sys, time
print("up", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(sys.argv[2])) if sys.argv[2] != "never" else None)
signal.signal(signal.SIGINT, lambda *_: print("Ctrl-C came through", flush=True))
while True: time.sleep(0.1)
"""


def running_job(tmp_path: Path, code: str) -> "subprocess.Popen[str]":
    """`lbctl balance` with a stand-in for spark-submit: it has a driver as the JVM has one."""
    (tmp_path / "balance.py").write_text(JOB)
    submit = [sys.executable, str(tmp_path / "balance.py"), "x", code]
    parent = f"import subprocess, sys; p = subprocess.Popen({submit!r}); sys.exit(p.wait())"
    program = (
        "from lb_stream.cli.run.balance import _run; import sys; "
        f"sys.exit(_run([sys.executable, '-c', {parent!r}], {{}}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("code", [0, 7])
def test_a_request_to_stop_reaches_the_jobs_driver_alone_and_its_exit_code_comes_back(
    tmp_path: Path, number: int, code: int
) -> None:
    process = running_job(tmp_path, str(code))
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == code
    (line,) = out.splitlines()
    assert line.startswith("stopping: ")


def test_a_second_request_ends_a_job_that_does_not_end(tmp_path: Path) -> None:
    process = running_job(tmp_path, "never")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stdout.readline().startswith("stopping")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=balance.GRACE_S)
    assert process.returncode > 128


def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)


# --- logs ---


def test_kafkas_client_says_one_line_a_minute_in_an_outage_and_how_many_it_kept_back() -> None:
    now = [100.0]
    limiter, passed_on = KafkaLogRateLimiter(lambda: now[0]), []
    for second in range(130):
        now[0] = 100.0 + second
        record = logging.LogRecord(
            "kafka.net.manager", logging.WARNING, "f", 1, "no connection to %s", ("b:1",), None
        )
        passed_on += [record.getMessage()] if limiter.filter(record) else []
        assert limiter.filter(
            logging.LogRecord(
                "lb_stream.io.leadership.clock", logging.WARNING, "f", 1, "ours", (), None
            )
        )
    kept = int(KAFKA_EVERY_S) - 1
    assert passed_on == [
        "no connection to b:1",
        *[f"no connection to b:1 (and {kept} lines before it)"] * 2,
    ]


def test_kafkas_clients_advice_to_those_with_one_event_loop_is_left_out() -> None:
    text = (
        "Task <Task x> ran for 0.130s (>0.100s threshold). It is blocking the event loop -- likely "
        "a "
        "tight sync loop inside a coroutine. Other pollers will time out."
    )
    limiter = KafkaLogRateLimiter(lambda: 100.0)
    record = logging.LogRecord("kafka.net.selector", logging.WARNING, "f", 1, text, (), None)
    assert not limiter.filter(record)
    other = logging.LogRecord("kafka.net.manager", logging.WARNING, "f", 1, "no broker", (), None)
    assert limiter.filter(other) and other.getMessage() == "no broker", "it counts as no line"
    source = inspect.getsource(selector)
    assert SLOW_TASK in source, "kafka-python has another wording: change SLOW_TASK"


def test_a_client_that_is_closed_early_logs_no_error() -> None:
    limiter = KafkaLogRateLimiter(lambda: 100.0)
    assert cluster.log.name.startswith("kafka.")
    for error, logged in ((Cancelled(), False), (KafkaTimeoutError(), True)):
        record = logging.LogRecord(
            cluster.log.name, logging.ERROR, "f", 1, "Metadata refresh: failed %s", (error,), None
        )
        assert limiter.filter(record) is logged
    assert "'Metadata refresh: failed %s'" in inspect.getsource(cluster), (
        "kafka-python has another wording: change CLOSED"
    )


def test_a_log_shows_names_and_hides_secrets() -> None:
    remember_secrets(("kafka", "options", "sasl_plain_password"), "hunter2z")
    record = logging.LogRecord(
        "x", logging.WARNING, "f", 1, "%s with hunter2z", ("b\x1b[31m",), None
    )
    assert Lines("%(message)s").format(record) == "b\\x1b[31m with ***"
