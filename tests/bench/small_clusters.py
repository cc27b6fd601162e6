"""`python -m tests.bench.small_clusters`: what a small cluster costs a batch, without a JVM.

Many clusters of ten brokers with a hundred bundles each, and one cluster with as many bundles in
all, take turns: each batch has a new report of every broker, and each decision is obeyed. Medians
of CPU time in ms for a thousand bundles, which is one small cluster: of decode, fold, round, and of
the next directory. The last line is one JSON object. `--profile STAGE` shows instead where the time
of one stage goes.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.bench.stages import Cost, Stages
from tests.bench.stream.fleet import Fleet, Shape
from tests.bench.stream.stepped import ALL_RECORDS, BALANCER

BROKERS, BUNDLES = 10, 100
LARGE_BUNDLES = 1_000
WARM_UP, TASKS = 4, 4


class Side:
    """The clusters of one shape, with the stages that they go through."""

    def __init__(self, shape: Shape, folder: Path, prefix: str) -> None:
        self._fleet = Fleet(shape, seed=2, prefix=prefix)
        stream = {"max_first_records": ALL_RECORDS}
        self._stages = Stages(folder, balancer=BALANCER, tasks=TASKS, stream=stream)
        self._thousands = shape.all_bundles / 1_000

    def run(self) -> Cost:
        """Run a batch with a report of every broker; return ms for a thousand bundles."""
        cost = self._stages.run([(key, value, None) for key, value in self._fleet.generation()])
        self._fleet.obey(self._stages.decisions())
        return Cost(*(ms / self._thousands for ms in cost))


def measure(clusters: int, runs: int) -> dict[str, Any]:
    """Return the medians of both sides, and of their ratios run by run."""
    with tempfile.TemporaryDirectory() as folder:
        small = Side(Shape(clusters, BROKERS, BUNDLES), Path(folder, "small"), "small")
        bundles = clusters * BROKERS * BUNDLES
        shape = Shape(1, max(1, bundles // LARGE_BUNDLES), min(bundles, LARGE_BUNDLES))
        large = Side(shape, Path(folder, "large"), "large")
        for _ in range(WARM_UP):
            small.run()
            large.run()
        gc.freeze()  # as workers do
        pairs = [(small.run(), large.run()) for _ in range(runs)]
    found: dict[str, Any] = {"clusters": clusters, "runs": runs}
    for at, stage in enumerate(Cost._fields):
        found[stage] = {
            "small_ms": round(statistics.median(one[at] for one, _ in pairs), 3),
            "large_ms": round(statistics.median(other[at] for _, other in pairs), 3),
            "ratio": round(statistics.median(one[at] / other[at] for one, other in pairs), 2),
        }
    return found


def profile(clusters: int, runs: int, stage: str) -> None:
    """Print the functions of a stage that take most time."""
    profiler, method = cProfile.Profile(time.process_time), f"_{stage}"
    run_stage = getattr(Stages, method)

    def profiled(*given: Any) -> Any:
        return profiler.runcall(run_stage, *given)

    with tempfile.TemporaryDirectory() as folder:
        small = Side(Shape(clusters, BROKERS, BUNDLES), Path(folder, "small"), "small")
        for _ in range(WARM_UP):
            small.run()
        gc.freeze()
        with patch.object(Stages, method, profiled):
            for _ in range(runs):
                small.run()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main(arguments: list[str] | None = None) -> int:
    """Measure, or profile."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.small_clusters",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--clusters", type=int, default=100, help="small clusters (100)")
    parser.add_argument("--runs", type=int, default=7, help="runs of each side (7)")
    parser.add_argument("--profile", choices=["decode", "fold", "decide"], help="a stage")
    given = parser.parse_args(arguments)
    if given.profile:
        profile(given.clusters, given.runs, given.profile)
        return 0
    print(json.dumps(measure(given.clusters, given.runs)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
