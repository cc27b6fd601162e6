"""`python -m tests.bench.start`: where a start's time goes, beside an empty Spark session.

Each run starts, one after another, a Spark session that does nothing, with the same jars and
settings; a job on a prefilled topic, with a new checkpoint; and the same job again after a kill -9,
without a standby. A start is from `lbctl balance` until the first decision can be read, a restart
from `lbctl balance` after the kill until the job is ready.

With `--code FOLDER` the same is measured with the package of another checkout; with `--compare`
without the archive of Java's classes (`plain`) and as the demo starts it (`demo`); run by run in
turns. The table has the median of each part, in seconds. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from lb_stream.io.local.jars import default_folder
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.kit.record_classes import record_classes
from tests.bench.empty_session import UP
from tests.e2e import backlog
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.killing import processes
from tests.support.topics import topics_named

STAGES = {
    "spark": "Spark is up",
    "leads": "leads the pipeline",
    "query": "continuing after batch",
    "ready": "supervise: ready: ",
}
"""Stage → what the job's log says when it is reached."""
PARTS = {
    "lbctl": "lbctl's own checks",
    "driver": "the JVM, until the job's Python starts",
    "spark": "Spark session, settings, checks with Kafka",
    "leads": "tables and log read, earlier jobs fenced",
    "query": "stream planned and started",
    "decision": "first batch, until a decision can be read",
}
"""Stage → what is done until it is reached."""
AIMS = {"start": 2.0, "restart": 2.0}
"""Most times an empty session that a start and a restart should take."""
ROUNDS = 3
"""Rounds of the backlog that a start finds."""
LONGEST_S = 600
POLL_S = 0.05
LBCTL = """
from lb_stream.cli.run import balance
balance._run = lambda command, environment: 0
from lb_stream.cli.main import main
main()
"""
"""`lbctl` that ends where it would start spark-submit."""
SUBMIT = """
import json, sys
from pathlib import Path
from lb_stream.job.submit import JOB, submit_command
arguments, program, short_lived = json.loads(sys.argv[1])
program = JOB if program is None else Path(program)
print(json.dumps(submit_command(arguments, "1g", program, short_lived=short_lived)))
"""
"""Prints the command line and environment of spark-submit."""
PROJECT = Path(__file__).parents[2]

Figures = dict[str, float]


@dataclass
class OfCheckout(Pipeline):
    """A pipeline whose job is that of another checkout, or starts without the archive of Java's
    classes."""

    short_lived: bool = False
    checkout: Path = PROJECT
    archive: bool = True

    def command(self, *extra: str) -> tuple[list[str], dict[str, str]]:
        """Return spark-submit's command line and environment."""
        return self._submit(self.arguments(*extra), None)

    def empty_session(self) -> tuple[list[str], dict[str, str]]:
        """Return the same for a Spark session that does nothing."""
        return self._submit([], Path(__file__).with_name("empty_session.py"))

    def _submit(
        self, arguments: list[str], program: Path | None
    ) -> tuple[list[str], dict[str, str]]:
        """Return what the checkout's own `submit_command` makes. `program`: None is its job."""
        given = [arguments, None if program is None else str(program), self.short_lived]
        printed = subprocess.run(
            [sys.executable, "-c", SUBMIT, json.dumps(given)],
            env=self.environment,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        command, environment = json.loads(printed)
        if not self.archive:
            command = [re.sub(r"-XX:SharedArchiveFile=\S+", "", part) for part in command]
        return command, environment

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which Python finds the checkout's package, and these jars."""
        return os.environ | {
            "PYTHONPATH": str(self.checkout),
            # `python -m`, as which Spark starts Python workers, would take the current folder's.
            "PYTHONSAFEPATH": "1",
            "LB_JARS_DIR": str(default_folder().resolve()),
        }


def cpu_s(job: int) -> float:
    """Return the CPU seconds of a job's living processes and of those that they have waited for."""
    ticks = 0
    for pid in processes(job):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def has_driver(job: int) -> bool:
    """Return whether a job's Python has been started."""
    for pid in processes(job):
        with suppress(OSError):
            program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"python" in program and any(part.endswith(b"balance.py") for part in arguments):
                return True
    return False


def time_session(pipeline: OfCheckout) -> float:
    """Return the seconds until an empty Spark session is up."""
    command, environment = pipeline.empty_session()
    began = time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if UP in line:
                return time.monotonic() - began
    raise AssertionError("the empty session has ended before it was up")


def time_lbctl(pipeline: OfCheckout) -> float:
    """Return the seconds that `lbctl balance` takes before it starts spark-submit."""
    arguments = ["balance", "--set", f"kafka.bootstrap_servers={pipeline.bootstrap}"]
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", LBCTL, *arguments],
        env=pipeline.environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began


def time_stages(
    pipeline: OfCheckout, end: str, reached_end: Callable[[], bool], lbctl_s: float
) -> Figures:
    """Start the job, wait for an end, and kill it; return the seconds until each stage.

    `lbctl_s`: what lbctl has taken before. CPU is that of all of the job's processes.
    """
    log_before = len(pipeline.log()) if (pipeline.folder / "job.log").exists() else 0
    seen: Figures = {"lbctl": lbctl_s}
    with pipeline.running() as job:
        began = time.monotonic() - lbctl_s

        def note(stage: str) -> None:
            seen.setdefault(stage, time.monotonic() - began)

        def is_over() -> bool:
            if "driver" not in seen and has_driver(job.pid):
                note("driver")
            text = pipeline.log()[log_before:]
            for stage, mark in STAGES.items():
                if mark in text:
                    note(stage)
            if reached_end():
                note(end)
            return end in seen or job.poll() is not None

        wait_until(is_over, "the end of a start", LONGEST_S, POLL_S)
        assert job.poll() is None, pipeline.log()[-3000:]
        return seen | {"cpu": cpu_s(job.pid)}


def run(pipeline: OfCheckout) -> dict[str, Figures]:
    """Measure one side once; the figures of a start, of a restart, and of the empty session."""
    session, lbctl = time_session(pipeline), time_lbctl(pipeline)
    pipeline.folder.mkdir()
    pipeline.create_topics(reports=backlog.PARTITIONS)
    pipeline.send(backlog.records(ROUNDS))
    with KafkaConsumer(
        bootstrap_servers=pipeline.bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    ) as consumer:
        topic = pipeline.topics.decisions
        partitions = [
            TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        start = time_stages(pipeline, "decision", lambda: bool(consumer.poll(timeout_ms=50)), lbctl)
    restart = time_stages(pipeline, "ready", lambda: False, lbctl)
    ratios = {"start": start["decision"] / session, "restart": restart["ready"] / session}
    return {"session": {"s": session}, "start": start, "restart": restart, "ratio": ratios}


def medians(runs: list[dict[str, Figures]]) -> dict[str, Figures]:
    """Return the median of each figure: s, or times an empty session."""
    return {
        phase: {
            name: round(statistics.median(run[phase][name] for run in runs), 2)
            for name in runs[0][phase]
        }
        for phase in runs[0]
    }


def describe_parts(figures: Mapping[str, Figures]) -> str:
    """Return the table of one side's medians: what each part adds to a start and a restart."""
    start, restart, session = figures["start"], figures["restart"], figures["session"]["s"]
    columns = [_parts(start), _parts(restart)]
    lines = ["| part | start | restart |", "|---|---:|---:|"]
    for stage, description in PARTS.items():
        cells = [f"{column[stage]:.1f} s" if stage in column else "–" for column in columns]
        lines.append(f"| {description} | {' | '.join(cells)} |")
    ends = start["decision"], restart["ready"]
    together = (f"{end:.1f} s" for end in ends)
    lines.append(f"| together | {' | '.join(together)} |")
    times = (f"{figures['ratio'][phase]:.2f}" for phase in ("start", "restart"))
    lines.append(f"| times an empty session ({session:.1f} s) | {' | '.join(times)} |")
    lines.append(f"| CPU | {start['cpu']:.1f} s | {restart['cpu']:.1f} s |")
    return "\n".join(lines)


def _parts(seen: Figures) -> Figures:
    """Return the seconds that each stage has taken after the stage before it."""
    reached = [(stage, seen[stage]) for stage in PARTS if stage in seen]
    parts = {after[0]: after[1] - before[1] for before, after in pairwise(reached)}
    return {"lbctl": seen["lbctl"], **parts}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.start",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=5, help="starts and restarts of each (5)")
    parser.add_argument(
        "--code",
        type=Path,
        metavar="FOLDER",
        help="another checkout, measured in turns with this one",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="measure starts without the archive of Java's classes, and the demo's, too",
    )
    parser.add_argument("--json", action="store_true", help="print only the last line, JSON")
    options = parser.parse_args()
    record_classes()
    sides: dict[str, dict[str, Any]] = {"this": {}}
    if options.code:
        sides["other"] = {"checkout": options.code.resolve()}
    if options.compare:
        sides |= {"plain": {"archive": False}, "demo": {"short_lived": True}}
    found: dict[str, list[dict[str, Figures]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as place, EmbeddedKafka(Path(place, "kafka")) as kafka:
        settings = backlog.SETTINGS | {"stream.metrics_address": ""}
        for number in range(options.runs):
            for name, side in sides.items():
                label = f"{name}-{number}"
                topics = topics_named(f"start-{label}")
                found[name].append(
                    run(OfCheckout(kafka.bootstrap, topics, Path(place, label), settings, **side))
                )
                print(label, medians(found[name][-1:]), file=sys.stderr, flush=True)
    results = {name: medians(runs) for name, runs in found.items()}
    if not options.json:
        for name, figures in results.items():
            print(f"\n{name}:\n\n{describe_parts(figures)}\n")
    print(json.dumps({**results, "runs": options.runs, "aims": AIMS}))


if __name__ == "__main__":
    main()
