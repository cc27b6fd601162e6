"""`python -m tests.bench.start`: where the time of a job's start goes, from spark-submit to the
first logged round.

Each run starts a job on a prefilled topic with a new checkpoint. Seconds are since spark-submit was
started; CPU is that of all of the job's processes until the first round. With `--code FOLDER` the
same is measured with the package of another checkout; with `--compare` without the archive of
Java's classes (`plain`) and as the demo starts it (`demo`); run by run in turns. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.kit.record_classes import record_classes
from tests.e2e import backlog
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.killing import processes
from tests.support.topics import topics_named

STAGES = {"leads": "leads the pipeline", "ready": "supervise: ready: "}
"""Stage → what the job's log says when it is reached."""
LONGEST_S = 600


PROJECT = Path(__file__).parents[2]


@dataclass
class OfCheckout(Pipeline):
    """A pipeline whose job is that of another checkout, or starts without the archive of Java's
    classes."""

    short_lived: bool = False
    checkout: Path = PROJECT
    archive: bool = True

    def command(self, *extra: str) -> tuple[list[str], dict[str, str]]:
        """Return spark-submit's command line and environment."""
        command, environment = super().command(*extra)
        here, there = f"{PROJECT}/lb_stream/", f"{self.checkout}/lb_stream/"
        command = [part.replace(here, there) for part in command]
        if not self.archive:
            command = [re.sub(r"-XX:SharedArchiveFile=\S+", "", part) for part in command]
        return command, environment | {"PYTHONPATH": str(self.checkout)}


def cpu_s(job: int) -> float:
    """Return the CPU seconds of a job's living processes and of those that they have waited for."""
    ticks = 0
    for pid in processes(job):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def run(pipeline: Pipeline) -> dict[str, float]:
    """Start a job, wait for its first round, kill it; the seconds of each stage."""
    pipeline.folder.mkdir()
    pipeline.create_topics(reports=backlog.PARTITIONS)
    pipeline.send(backlog.records(1))
    seen: dict[str, float] = {}
    with pipeline.running() as job:
        began = time.monotonic()

        def reached() -> bool:
            said = pipeline.log()
            for stage, mark in STAGES.items():
                if mark in said:
                    seen.setdefault(stage, time.monotonic() - began)
            return pipeline.table("rounds").num_rows > 0 or job.poll() is not None

        wait_until(reached, "the first round", LONGEST_S)
        assert job.poll() is None, pipeline.log()[-3000:]
        return seen | {"first_round": time.monotonic() - began, "cpu": cpu_s(job.pid)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="starts of each (5)")
    parser.add_argument(
        "--code", type=Path, help="another checkout, measured in turns with this one"
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="measure starts without the archive of Java's classes, and the demo's, too",
    )
    options = parser.parse_args()
    record_classes()
    sides: dict[str, dict[str, Any]] = {"this": {}}
    if options.code:
        sides["other"] = {"checkout": options.code.resolve()}
    if options.compare:
        sides |= {"plain": {"archive": False}, "demo": {"short_lived": True}}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as place, EmbeddedKafka(Path(place, "kafka")) as kafka:
        settings = backlog.SETTINGS | {"stream.metrics_address": ""}
        for number in range(options.runs):
            for name, side in sides.items():
                label = f"{name}-{number}"
                topics = topics_named(f"start-{label}")
                found[name].append(
                    run(OfCheckout(kafka.bootstrap, topics, Path(place, label), settings, **side))
                )
                print(
                    label,
                    {stage: round(value, 1) for stage, value in found[name][-1].items()},
                    flush=True,
                )
    print(json.dumps({name: medians(runs) for name, runs in found.items()}))


def medians(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the median of each figure, s."""
    return {stage: round(statistics.median(run[stage] for run in runs), 1) for stage in runs[0]}


if __name__ == "__main__":
    main()
