"""`python -m tests.bench.fleet`: progress on stderr, a table, and one JSON object as the last line of stdout."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lb_stream.contracts.tables import BATCHES
from lb_stream.io.local.embedded_kafka import EmbeddedKafka
from lb_stream.io.tables.delta import by_numbers, existing_table
from lb_stream.store import Store
from tests.bench.fleet.mixed import SIZES, MixedFleet
from tests.bench.fleet.model import Model, Run, fitted, needed, tick_limit
from tests.bench.stream.__main__ import stop_on_signal
from tests.bench.stream.figures import WARM_UP
from tests.bench.stream.stepped import Place, Stepped, progress

_SIZES = "; ".join(f"{share:.0%} have {brokers} brokers with {bundles} bundles each" for share, brokers, bundles in SIZES.values())
ABOUT = f"""How a batch grows with the number of clusters, of bundles and of cores.

Clusters are of mixed sizes: {_SIZES}.
Each job runs in a process of its own on Spark's local master with that many cores; the driver beside them has the machine's. Every batch
reads one new report of every broker, then a batch of nothing but a tick follows. At the least number of clusters there is one more run,
with brokers that have `--weight` times as many bundles: it tells what a bundle costs from what a cluster costs. The formula

  seconds = a + b·clusters + (c·clusters + d·bundles) / cores

is fitted to the medians by least squares of relative errors.
"""
TARGET = {"clusters": 100_000, "bundles": 100_000_000}
WITHIN_S, MOST_CORES = 60.0, 64
"""What the formula is asked for: that fleet, if every broker reports once a minute, on machines of so many cores."""

WARM_AFTER_S = 60.0
"""A job whose first batch took longer has run all of its code often enough: no other batch of it is left out."""

DRIVER_PHASES = ("offsets_ms", "planning_ms", "wal_ms", "log_ms", "publish_ms", "project_ms", "next_ms", "commit_ms")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fleet",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="A glance: python -m tests.bench.fleet --clusters 50 200 --runs 2 --weight 4",
    )
    parser.add_argument("--clusters", type=int, nargs="+", default=[1_000, 10_000, 30_000], help="how many, job by job")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="of the executors, job by job")
    parser.add_argument("--runs", type=int, default=3, help="measured batches of each job (3)")
    parser.add_argument("--weight", type=int, default=8, help="how many times the bundles of the one heavier run (8)")
    parser.add_argument("--partitions", type=int, default=4, help="of the reports topic (4)")
    parser.add_argument("--folder", type=Path, help="a new folder for Kafka's data, tables, checkpoints and logs, to be kept")
    given = parser.parse_args()
    for name, least, values in (
        ("clusters", 3, given.clusters), ("cores", 1, given.cores), ("runs", 1, [given.runs]), ("weight", 2, [given.weight]),
        ("partitions", 1, [given.partitions]),
    ):  # fmt: skip
        if min(values) < least:
            parser.error(f"--{name} {min(values)}: at least {least}")
    return given


def measure(place: Place, name: str, fleet: MixedFleet, cores: int, runs: int) -> Run:
    """One job, from its start to its end."""
    batches: list[float] = []
    ticks: list[float] = []
    with closing(Stepped(place, name, fleet, view_only=False, cores=cores)) as job:
        for run in range(0 if job.first_s > WARM_AFTER_S else 1 - WARM_UP, runs):
            batch_s, tick_s = job.step(), job.tick()
            if run >= 0:
                batches.append(batch_s)
                ticks.append(tick_s)
        reports, tables = job.reports, job.tables
    table = existing_table(Store.at(tables), BATCHES)  # written when the job has ended
    assert table is not None
    rows = by_numbers(table).to_table().to_pylist()
    whole = sorted((row for row in rows if (row["input_records"] or 0) >= reports), key=lambda row: int(row["batch_id"]))[-runs:]
    driver_s = statistics.median(sum(row[phase] or 0.0 for phase in DRIVER_PHASES) / 1_000 for row in whole)
    medians = statistics.median(batches), driver_s, statistics.median(ticks)
    return Run(len(fleet.cluster_names), fleet.bundles, fleet.weight, cores, *medians)


def run(given: argparse.Namespace, folder: Path) -> list[Run]:
    """All jobs, one after another."""
    runs: list[Run] = []
    with EmbeddedKafka(folder / "kafka") as kafka:
        place = Place(kafka.bootstrap, folder, given.partitions)
        for cores in given.cores:
            for clusters, weight in [(min(given.clusters), given.weight), *((count, 1) for count in sorted(given.clusters))]:
                runs.append(measure(place, f"fleet-{clusters}-{weight}-{cores}", MixedFleet(clusters, weight), cores, given.runs))
                progress(f"{runs[-1]}")
    return runs


def speed_up(runs: list[Run]) -> dict[str, float]:
    """For each fleet: its batch on the fewest cores ÷ on the most."""
    cores = [run.cores for run in runs]
    found = {side: {(run.clusters, run.bundles): run for run in runs if run.cores == side} for side in (min(cores), max(cores))}
    few, many = found[min(cores)], found[max(cores)]
    return {f"{size[0]}x{size[1]}": round(few[size].batch_s / many[size].batch_s, 3) for size in few}


def summary(runs: list[Run], model: Model) -> dict[str, Any]:
    """The last line."""
    need = needed(model, TARGET["clusters"], TARGET["bundles"], WITHIN_S, MOST_CORES)
    return {
        "runs": [{name: round(value, 4) for name, value in (asdict(one) | {"driver_share": one.driver_share}).items()} for one in runs],
        "speed_up": speed_up(runs),
        "model": model.as_dict() | {"greatest_error": round(model.error(runs), 4)},
        "clusters_of_one_second_ticks": tick_limit([one for one in runs if one.weight == 1]),
        "needed": TARGET | {"seconds": WITHIN_S, "pipelines": need and need.pipelines, "cores_each": need and need.cores},
    }


def show(runs: list[Run]) -> None:
    """The table, then the line of JSON."""
    names = ("clusters", "bundles", "cores", "batch, s", "driver", "tick, s", "formula, s")
    table = Table(*names, title=f"{os.cpu_count()} cores in the machine")
    model = fitted(runs)
    for one in runs:
        formula = model.seconds(one.clusters, one.bundles, one.cores)
        figures = (f"{one.batch_s:.2f}", f"{one.driver_share:.0%}", f"{one.tick_s:.2f}", f"{formula:.2f}")
        table.add_row(f"{one.clusters:,}", f"{one.bundles:,}", str(one.cores), *figures)
    Console(width=110).print(table)
    print(json.dumps(summary(runs, model)), flush=True)


def main() -> None:
    """Measure and show."""
    given = options()
    signal.signal(signal.SIGTERM, stop_on_signal)
    if given.folder:
        show(run(given, given.folder.resolve()))
        return
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
        show(run(given, Path(folder)))


if __name__ == "__main__":
    main()
