"""`python -m tests.bench.fleet`: progress on stderr, a table, and one JSON object as the last line
of stdout."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from lb_stream.contracts.tables import BATCHES
from lb_stream.io.tables.delta import existing_table, numeric_dataset
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.store import Store
from tests.bench.fleet.mixed import SIZES, MixedFleet
from tests.bench.fleet.model import Model, Run, clusters_within, fitted, needed, tick_limit
from tests.bench.stream.__main__ import stop_on_signal
from tests.bench.stream.figures import GIB, WARM_UP
from tests.bench.stream.stepped import LONGEST_END_S, Place, Stepped, progress

_SIZES = "; ".join(
    f"{share:.0%} have {brokers} brokers with {bundles} bundles each"
    for share, brokers, bundles in SIZES.values()
)
ABOUT = f"""How a batch grows with the number of clusters, of bundles and of cores.

Clusters are of mixed sizes: {_SIZES}.
Each job runs in a process of its own on Spark's local master with that many cores; the driver
beside them has the machine's. Every batch reads one new report of every broker, then a batch of
nothing but a tick follows. At the least number of clusters, on the most cores, there is one more
run, with brokers of `--weight` times as many bundles: it tells what a bundle costs from what a
cluster costs. The formula

  seconds = a + b·clusters + (c·clusters + d·bundles) / cores

is fitted to the medians by least squares of relative errors. A fleet's second job goes on where
its first one has ended: only in the first one every cluster is new. Each job's figures are a line
of JSON on stdout as soon as there are any. One that fails is named in the last line, and the other
fleets' go on; Ctrl-C ends with the figures that there are.
"""
TARGET = {"clusters": 100_000, "bundles": 100_000_000}
WITHIN_S, MOST_CORES = 60.0, 64
"""What the formula is asked for: that fleet, if every broker reports once a minute, on machines of
so many cores."""

WARM_AFTER_S = 30.0
"""A job whose first batch took longer has run all of its code often enough: no other batch of it is
left out."""

DRIVER_PHASES = (
    "offsets_ms",
    "planning_ms",
    "wal_ms",
    "log_ms",
    "publish_ms",
    "project_ms",
    "next_ms",
    "commit_ms",
)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fleet",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="A glance: python -m tests.bench.fleet --clusters 50 200 --runs 2 --weight 4",
    )
    parser.add_argument(
        "--clusters",
        type=int,
        nargs="+",
        default=[1_000, 10_000, 30_000],
        help="how many, job by job",
    )
    parser.add_argument(
        "--cores", type=int, nargs="+", default=[1, 2], help="of the executors, job by job"
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="measured batches of each job, at most (3)"
    )
    parser.add_argument(
        "--enough",
        type=float,
        default=40,
        help="seconds of measured batches after which a job needs no more of them (40)",
    )
    parser.add_argument(
        "--weight",
        type=int,
        default=8,
        help="how many times the bundles of the one heavier run (8)",
    )
    parser.add_argument("--partitions", type=int, default=4, help="of the reports topic (4)")
    parser.add_argument(
        "--folder",
        type=Path,
        help="a new folder for Kafka's data, tables, checkpoints and logs, to be kept",
    )
    given = parser.parse_args()
    for name, least, values in (
        ("clusters", 3, given.clusters),
        ("cores", 1, given.cores),
        ("runs", 1, [given.runs]),
        ("weight", 2, [given.weight]),
        ("partitions", 1, [given.partitions]),
    ):
        if min(values) < least:
            parser.error(f"--{name} {min(values)}: at least {least}")
    return given


class Job(NamedTuple):
    """What is measured in one process."""

    clusters: int
    weight: int
    cores: int

    def __str__(self) -> str:
        return f"fleet-{self.clusters}-{self.weight}-{self.cores}"


def jobs(clusters: Sequence[int], weight: int, cores: Sequence[int]) -> list[list[Job]]:
    """Those of each fleet, the small ones first: whoever ends it early has whole comparisons.

    Of one fleet the quicker one is first.

    The heavier fleet has only that one: what bundles take in tasks is divided by the cores as all
    of it is.
    """
    most = sorted(cores, reverse=True)
    return [
        [Job(min(clusters), weight, most[0])],
        *([Job(count, 1, number) for number in most] for count in sorted(clusters)),
    ]


def measure(place: Place, of_fleet: Sequence[Job], runs: int, enough_s: float) -> Iterator[Run]:
    """The jobs of one fleet.

    Each goes on where the one before has ended: only for the first one every cluster is new.
    """
    clusters, weight, cores = of_fleet[0]
    fleet = MixedFleet(clusters, weight)
    with closing(
        Stepped(place, f"fleet-{clusters}-{weight}", fleet, view_only=False, cores=cores)
    ) as job:
        for one in of_fleet:
            if one is not of_fleet[0]:
                job.go_on(one.cores)
                job.tick()
            batches, cpu, ticks = steps(job, runs, enough_s)
            first_s = job.first_s if one is of_fleet[0] else 0.0
            job.driver.stop(LONGEST_END_S)  # then it writes what its batches have taken
            medians = (
                statistics.median(batches),
                driver_seconds(job, len(batches)),
                statistics.median(ticks),
                statistics.median(cpu),
            )
            yield Run(
                clusters,
                fleet.bundles,
                weight,
                one.cores,
                *medians,
                len(batches),
                first_s,
                job.driver.peak_bytes / GIB,
            )


def steps(job: Stepped, runs: int, enough_s: float) -> tuple[list[float], list[float], list[float]]:
    """Batches that read a report of every broker, their CPU time, and the ticks between them; in
    seconds."""
    batches: list[float] = []
    cpu: list[float] = []
    ticks: list[float] = []
    for _ in range(0 if job.first_s > WARM_AFTER_S else WARM_UP - 1):
        job.step()
        job.tick()
    while len(batches) < runs and sum(batches) < enough_s:
        before_s = job.driver.cpu_s()
        batches.append(job.step())
        cpu.append(job.driver.cpu_s() - before_s)
        ticks.append(job.tick())
    return batches, cpu, ticks


def driver_seconds(job: Stepped, count: int) -> float:
    """Median of what the driver did in the last `count` whole batches while no task ran, by the
    job's own table."""
    table = existing_table(Store.at(job.tables), BATCHES)
    assert table is not None
    rows = [
        row
        for row in numeric_dataset(table).to_table().to_pylist()
        if (row["input_records"] or 0) >= job.reports
    ]
    last = sorted(rows, key=lambda row: int(row["batch_id"]))[-count:]
    return statistics.median(
        sum(row[phase] or 0.0 for phase in DRIVER_PHASES) / 1_000 for row in last
    )


@dataclass
class Measured:
    """What there is so far."""

    runs: list[Run] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # job → why it has no figures


def run(given: argparse.Namespace, folder: Path, measured: Measured) -> None:
    """All jobs, one after another."""
    fleets = jobs(given.clusters, given.weight, given.cores)
    measured.missing |= {str(job): "not measured" for of_fleet in fleets for job in of_fleet}
    with EmbeddedKafka(folder / "kafka") as kafka:
        place = Place(kafka.bootstrap, folder, given.partitions, keeps=given.folder is not None)
        for of_fleet in fleets:
            begin, left = time.monotonic(), list(of_fleet)
            progress(f"{of_fleet[0].clusters:,} clusters, bundles × {of_fleet[0].weight}")
            try:
                for one in measure(place, of_fleet, given.runs, given.enough):
                    measured.runs.append(one)
                    del measured.missing[str(left.pop(0))]
                    print(json.dumps(as_dict(one)), flush=True)
                    progress(
                        f"{of_fleet[0].clusters:,} clusters on {one.cores} cores: "
                        f"{one.batch_s:.1f} s a batch"
                    )
            except (RuntimeError, TimeoutError) as error:
                measured.missing[str(left[0])] = str(error).partition("\n")[0]
                progress(f"{left[0]} has failed: {error}")
            progress(f"this has taken {time.monotonic() - begin:.0f} s")


def as_dict(one: Run) -> dict[str, float]:
    """A run's figures, as they are told."""
    return {
        name: round(value, 4)
        for name, value in (asdict(one) | {"driver_share": one.driver_share}).items()
    }


def speed_up(runs: list[Run]) -> dict[str, float]:
    """For each fleet: its batch on the fewest cores ÷ on the most."""
    cores = [run.cores for run in runs]
    found = {
        side: {(run.clusters, run.bundles): run for run in runs if run.cores == side}
        for side in (min(cores), max(cores))
    }
    few, many = found[min(cores)], found[max(cores)]
    return {
        f"{size[0]}x{size[1]}": round(few[size].batch_s / many[size].batch_s, 3)
        for size in few
        if size in many
    }


def summary(measured: Measured) -> dict[str, Any]:
    """The last line; of a formula only if there are enough runs for one."""
    runs = measured.runs
    usual = [run for run in runs if run.weight == 1]
    told: dict[str, Any] = {
        "runs": [as_dict(run) for run in runs],
        "missing": measured.missing,
        "speed_up": speed_up(runs) if runs else {},
    }
    told |= {
        "model": None,
        "clusters_of_one_second_ticks": None,
        "clusters_within_seconds": None,
        "needed": None,
    }
    if len(runs) < len(fields(Model)) or not usual:
        return told
    model = fitted(runs)
    each = max(usual, key=lambda one: one.clusters)
    within = {
        str(cores): clusters_within(model, each.bundles / each.clusters, cores, WITHIN_S)
        for cores in sorted({run.cores for run in runs})
    }
    need = needed(model, TARGET["clusters"], TARGET["bundles"], WITHIN_S, MOST_CORES)
    return told | {
        "model": model.as_dict() | {"greatest_error": round(model.error(runs), 4)},
        "clusters_of_one_second_ticks": tick_limit(usual),
        "clusters_within_seconds": {"seconds": WITHIN_S, "by_cores": within},
        "needed": TARGET
        | {
            "seconds": WITHIN_S,
            "pipelines": need and need.pipelines,
            "cores_each": need and need.cores,
        },
    }


def show(measured: Measured) -> None:
    """The table, then the line of JSON."""
    names = (
        "clusters",
        "bundles",
        "cores",
        "batch, s",
        "of",
        "CPU, s",
        "driver",
        "tick, s",
        "first, s",
        "memory",
        "formula, s",
    )
    table = Table(*names, title=f"{os.cpu_count()} cores in the machine")
    model = fitted(measured.runs) if len(measured.runs) >= len(fields(Model)) else None
    for run in measured.runs:
        formula = f"{model.seconds(run.clusters, run.bundles, run.cores):.2f}" if model else ""
        size = f"{run.clusters:,}", f"{run.bundles:,}", str(run.cores)
        batch = (
            f"{run.batch_s:.2f}",
            str(run.measured),
            f"{run.cpu_s:.1f}",
            f"{run.driver_share:.0%}",
        )
        table.add_row(
            *size,
            *batch,
            f"{run.tick_s:.2f}",
            f"{run.first_s:.1f}",
            f"{run.peak_gib:.1f} GiB",
            formula,
        )
    Console(width=130).print(table)
    print(json.dumps(summary(measured)), flush=True)


def main() -> int:
    """Measure and show. 1: a job has failed, or it was ended early."""
    given = options()
    signal.signal(signal.SIGTERM, stop_on_signal)
    measured = Measured()
    try:
        with ExitStack() as stack:
            folder = given.folder or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-fleet-"))
            )
            run(given, folder.resolve(), measured)
    except KeyboardInterrupt:
        progress("ended early")
    show(measured)
    return int(bool(measured.missing))


if __name__ == "__main__":
    sys.exit(main())
