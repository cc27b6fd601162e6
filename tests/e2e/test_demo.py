"""`lbctl demo` as a user runs it: real Kafka, the real job, in a folder of its own.

Nothing may be left running, whatever happens.
"""

import fcntl
import json
import os
import pty
import random
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lb_stream.query.explanations import explain_decision
from lb_stream.query.health import Facts, JobFacts
from lb_stream.query.lake import open_lake, records, run
from lb_stream.query.past.report_figures import list_logged_clusters, load_cluster_figures
from lb_stream.query.snapshot import load_snapshot, measure_imbalance
from lb_stream.store import Store
from tests.support.scrape import scrape

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

Samples = dict[tuple[str, ...], float]
LBCTL = str(Path(sys.executable).with_name("lbctl"))


def running_in(folder: Path) -> list[str]:
    """Command lines of the processes that work in the folder: the demo, Kafka, the job's JVM, its
    driver, its workers."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                inside = os.readlink(process / "cwd").startswith(str(folder))
                if inside and state not in "ZX":
                    found.append((process / "cmdline").read_text().replace("\0", " ")[:100])
            except OSError:
                continue
    return found


def until(condition: Callable[[], object], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


class Demo:
    """A demo under way. What it says goes to a file."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder, self.output = folder, folder / "output.txt"
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("LB_") or name == "LB_JARS_DIR"
        }
        with self.output.open("w") as out:
            command = [LBCTL, "demo", *arguments]
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=out,
                stderr=out,
                env=clean | environment,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def says(self, words: str, within_s: float = 60.0) -> None:
        until(lambda: words in self.text or self.process.poll() is not None, within_s)
        assert words in self.text, self.text

    def ends(self, within_s: float = 45.0) -> int:
        return self.process.wait(within_s)

    def scraped(self, within_s: float) -> tuple[Samples, Samples]:
        """What the job serves while the demo runs, seen again and again till its end: the stream's
        and the brokers' last answers."""
        log = self.folder / ".lb/demo/job.log"
        until(lambda: log.exists() and "metrics: http://" in log.read_text(), within_s)
        (url,) = re.findall(r"metrics: (http://\S+/metrics)$", log.read_text(), re.MULTILINE)
        seen: tuple[Samples, Samples] = ({}, {})
        while self.process.poll() is None:
            with suppress(OSError, HTTPException):  # the job ends before the demo does
                seen = scrape(url), scrape(f"{url}/brokers")
            time.sleep(0.5)
        return seen


def check_explanations(tables: Path, figures: dict[str, Any]) -> None:
    """Every decision can be explained, with the brokers' loads before and after; the dashboard and
    the report have the demo's figures."""
    with open_lake(Store.at(tables)) as lake:
        ids = [
            row["decision_id"] for row in records(run(lake, "SELECT decision_id FROM decisions"))
        ]
        found = [explain_decision(lake, one) for one in ids]
        (cluster,) = list_logged_clusters(lake)
        page = load_cluster_figures(
            lake, cluster, 0, 2**62, within=100, facts=Facts(0, JobFacts("p"))
        )
    assert len(found) == figures["decisions"]
    assert [
        one.decision["decision_id"]
        for one in found
        if not all(part.before and part.after for part in one.parts)
    ] == []
    assert all("A report confirmed it after" in one.sentence for one in found)
    seen = load_snapshot(Store.at(tables))
    assert (len(seen.brokers), seen.pending, seen.timings["batches"] > 0) == (6, [], True)
    assert page.max_over_mean[-1] == pytest.approx(measure_imbalance(seen.brokers))
    assert (len(page.decisions), page.thrash.moves) == (
        figures["decisions"],
        figures["decisions"] / 2,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert running_in(tmp_path) == [], "processes were left running"


@pytest.mark.loop
def test_from_nothing_to_a_balanced_cluster_with_queries_that_work(folder: Path) -> None:
    demo = Demo(folder, "--set", "stream.metrics_address=127.0.0.1:0", LB_SETUP_SECONDS="7")
    stream, brokers = demo.scraped(within_s=120)
    assert demo.ends(within_s=300) == 0, demo.text
    assert running_in(folder) == []
    *lines, last = demo.text.splitlines()
    figures = json.loads(last)
    assert figures["max_over_mean_before"] >= 1.8 and figures["max_over_mean_after"] <= 1.25
    assert (
        figures["decisions"] == figures["confirmed"] > 0
        and figures["rounds"] > 0
        and figures["balanced"]
    )
    assert figures["seconds_setup"] == 7
    assert figures["seconds_to_first_decision"] > 0
    assert "\x1b" not in demo.text, "no control characters where there is no terminal"
    unloads = [line for line in lines if re.search(r" s  unload shop/app-\d\d/0x", line)]
    assert (
        len(unloads)
        == sum("confirmed after" in line and ": unload " in line for line in lines)
        == figures["decisions"] / 2
    )
    queries = [line.strip() for line in lines if "lbctl sql" in line]
    assert len(queries) == 3
    for query in queries:
        answer = subprocess.run(
            [LBCTL, *shlex.split(query)[1:], "--json"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert [json.loads(line) for line in answer.stdout.splitlines()], query

    check_metrics(stream, brokers, figures["decisions"])
    check_batches(folder / ".lb/demo/tables/batches", stream)
    check_explanations(folder / ".lb/demo/tables", figures)


def check_metrics(stream: Samples, brokers: Samples, decisions: int) -> None:
    """What was scraped last, shortly before the end, agrees with what the demo says."""
    published = {
        key: value for key, value in stream.items() if key[0] == "lb_stream_decisions_total"
    }
    assert {(kind, dry) for _, _, dry, kind, _, _ in published} == {
        ("unload", "false"),
        ("assign", "false"),
    }
    assert sum(published.values()) == decisions
    confirmed = {
        key[2:]: value for key, value in stream.items() if key[0] == "lb_stream_outcomes_total"
    }
    assert set(confirmed) == {("unload", "confirmed"), ("assign", "confirmed")}
    assert stream["lb_stream_batches_total",] > 5 and stream["lb_stream_input_records_total",] > 50
    for phase in (
        "offsets",
        "planning",
        "wal",
        "decide",
        "log",
        "publish",
        "project",
        "next",
        "commit",
    ):
        assert stream["lb_stream_phase_seconds_sum", phase] > 0, phase
    phases = sum(value for key, value in stream.items() if key[0] == "lb_stream_phase_seconds_sum")
    assert phases == pytest.approx(stream["lb_stream_batch_seconds_sum",], rel=0.35), (
        "the phases are the batch"
    )
    assert stream["lb_stream_state_rows",] >= 1 and stream["lb_stream_clusters",] == 1
    assert (
        stream["lb_stream_rejected_records_total", "demo"]
        == stream["lb_stream_round_errors_total", "demo"]
        == 0
    )
    assert {key[1] for key in stream if key[0] == "lb_stream_lag_records"} == {
        "lb-load-reports",
        "lb-commands",
    }
    alive = {key[1:]: value for key, value in brokers.items() if key[0] == "lb_stream_broker_alive"}
    assert len(alive) == stream["lb_stream_brokers", "demo"] == 6 and set(alive.values()) == {1}
    bundles = [value for key, value in brokers.items() if key[0] == "lb_stream_broker_bundles"]
    assert sum(bundles) == stream["lb_stream_bundles", "demo"] > 0
    usages = [value for key, value in brokers.items() if key[0] == "pulsar_lb_bandwidth_in_usage"]
    assert len(usages) == 6 and 0 < min(usages) <= max(usages) <= 100
    assert not [key for key in stream if key[0] == "lb_stream_monitoring_errors_total"]


def check_batches(table: Path, stream: Samples) -> None:
    """The table has every batch, with its time; few commits for many batches."""
    batches = DeltaTable(str(table))
    rows = batches.to_pyarrow_table().sort_by("batch_id").to_pylist()
    assert [row["batch_id"] for row in rows] == list(range(len(rows))) and len(rows) >= stream[
        "lb_stream_batches_total",
    ]
    assert batches.version() < len(rows) / 2
    assert all(row["whole_ms"] >= row["decide_ms"] > 0 for row in rows[:-1])
    assert (
        sum(row["input_records"] or 0 for row in rows) >= stream["lb_stream_input_records_total",]
    )


def test_ctrl_c_leaves_nothing_running_while_kafka_and_spark_start(folder: Path) -> None:
    demo = Demo(folder)
    demo.says("Kafka and Spark are starting")
    time.sleep(0.7)
    demo.process.send_signal(signal.SIGINT)
    assert demo.ends() == 130 and "stopped; nothing is left running" in demo.text


def test_sigterm_leaves_nothing_running_while_bundles_move(folder: Path) -> None:
    demo = Demo(folder)
    demo.says(" decisions, ", within_s=120)
    demo.process.send_signal(signal.SIGTERM)
    demo.process.send_signal(signal.SIGINT)  # impatience changes nothing
    assert demo.ends() == 130


def test_a_job_that_dies_is_told_with_the_end_of_its_log_and_a_second_demo_waits_its_turn(
    folder: Path,
) -> None:
    demo = Demo(folder)
    demo.says("the brokers report")
    second = subprocess.run(
        [LBCTL, "demo"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert second.returncode == 1 and "another demo runs in" in second.stderr
    os.kill(json.loads((folder / ".lb/demo/job.json").read_text())["pid"], signal.SIGKILL)
    assert demo.ends() == 1
    assert "the job has ended (exit code -9). The end of its output, .lb/demo/job.log:" in demo.text


def test_what_can_not_be_is_told_before_anything_starts(folder: Path) -> None:
    for arguments, words in (
        (["--shedder", "Foo"], "balancer.shedding_strategy = 'Foo'"),
        (["--workload", "calm"], "expected one of steady, skewed, hot_spot"),
        (["--set", "least_moves_trigger_ratio=0.5"], "least_moves_trigger_ratio"),
    ):
        result = subprocess.run(
            [LBCTL, "demo", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        assert result.returncode == 2 and words in result.stderr, result.stderr
    assert not (folder / ".lb/demo/kafka").exists()


@pytest.mark.long
@pytest.mark.kills
@pytest.mark.parametrize("after_s", [0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0])
def test_a_stop_at_any_moment_leaves_nothing_running(
    folder: Path, after_s: float, seed: int
) -> None:
    demo = Demo(folder)
    demo.says("lb_stream demo")  # from here on it is up to the demo
    time.sleep(after_s + random.Random(seed).uniform(0, 1))
    demo.process.send_signal(signal.SIGTERM)
    assert demo.ends() == 130


@pytest.mark.long
@pytest.mark.kills
def test_what_a_killed_demo_has_left_is_ended_by_the_next_one(folder: Path) -> None:
    demo = Demo(folder)
    demo.says("Spark is up", within_s=90)
    demo.process.kill()
    demo.ends()
    assert len(running_in(folder)) >= 3, "Kafka, the JVM and its driver"
    again = Demo(folder)
    again.says("the brokers report")
    again.process.send_signal(signal.SIGINT)
    assert again.ends() == 130


@pytest.mark.long
@pytest.mark.parametrize(
    "shedder", ["ThresholdShedder", "AvgShedder", "OverloadShedder", "UniformLoadShedder"]
)
def test_every_shedder_balances_the_demos_cluster(folder: Path, shedder: str) -> None:
    demo = Demo(folder, "--shedder", shedder, "--json")
    assert demo.ends(within_s=300) == 0, demo.text
    figures = json.loads(demo.text.splitlines()[-1])
    assert (
        figures["max_over_mean_after"] <= 1.25 and figures["decisions"] == figures["confirmed"] > 0
    )


@pytest.mark.long
def test_a_terminal_of_60_columns_gets_a_live_table_that_fits(folder: Path) -> None:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    process = subprocess.Popen(
        [LBCTL, "demo"],
        cwd=folder,
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment | {"TERM": "xterm"},
        start_new_session=True,
    )
    os.close(child)
    seen = ""
    deadline = time.monotonic() + 120
    while "round 1" not in seen and time.monotonic() < deadline:
        seen += os.read(parent, 65536).decode(errors="replace")
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        try:
            seen += os.read(parent, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            break
    assert process.wait(45) == 130
    assert "\x1b[" in seen and "█" in seen
    tables = [
        line
        for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).splitlines()
        if line.startswith("broker-")
    ]
    assert tables and max(map(len, tables)) <= 60
