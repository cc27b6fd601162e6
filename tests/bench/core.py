"""`make bench-core`: what the core's strategies cost on clusters of three sizes; the last line is
one JSON object.

The load has the shape of the reference's own speed table: the hot brokers (10 %; 50 at the largest
size) at 90 to 98 % usage, the others at 20 to 30 %, bundles spread evenly, loads within a broker
skewed, hit-count thresholds such that every call decides. Medians of wall milliseconds after a
warm-up; this says what grows with what, not how fast the machine is.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import (
    BROKER_SCHEMA,
    BUNDLE_SCHEMA,
    EVENT_SCHEMA,
    RATE_COLUMNS,
    REPORT_SCHEMA,
    SAMPLE_SCHEMA,
    Batch,
    Shard,
)
from lb_stream.core.model.view import ClusterView
from lb_stream.core.placement import placement, simple_placement
from lb_stream.core.round.split import find_too_large
from lb_stream.core.round.state import RoundInputs, RoundState
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import ShedContext, traits_of
from lb_stream.core.shedding.transfer import build_load_store, shed_loads
from lb_stream.core.splitting import SplittingConfig
from lb_stream.settings.resolve import cluster_config

SIZES = {
    "100x10000": (100, 10_000, 10),
    "1000x100000": (1_000, 100_000, 100),
    "5000x1000000": (5_000, 1_000_000, 50),
}
PLACED = 1_000
RUNS = 7
WARM_UP_S = 1.0
SHEDDERS = {
    "overload": "OverloadShedder",
    "threshold": "ThresholdShedder",
    "uniform": "UniformLoadShedder",
    "avg": "AvgShedder",
    "transfer": "TransferShedder",
}
DECIDES_AT_ONCE = {
    "AvgShedder": {"hit_count_high": 0, "hit_count_low": 0},
    "TransferShedder": {"hit_count_threshold": 0},
}

Work = Callable[[], Any]


def bundle_names(count: int) -> pa.Array:
    """Sorted names: namespaces of up to 256 bundles."""
    step = 0x100000000 // 256
    ranges = [f"0x{at * step:08x}_0x{min((at + 1) * step, 0xFFFFFFFF):08x}" for at in range(256)]
    return pa.array([f"acme/n{at // 256:05d}/{ranges[at % 256]}" for at in range(count)])


def shard_of_size(brokers: int, bundles: int, hot: int, heaviest: float = np.inf) -> Shard:
    """One shard with all bundles of a cluster, averages full.

    `heaviest`: the most that a bundle carries, the lightest one being 0.1.
    """
    rng = np.random.default_rng(1)
    usage = np.where(
        np.arange(brokers) < hot, rng.uniform(90, 98, brokers), rng.uniform(20, 30, brokers)
    )
    owner = (np.arange(bundles) % brokers).astype(np.int32)
    weight = np.minimum(rng.pareto(1.5, bundles) + 0.1, heaviest)
    rate = weight * usage[owner] * 10
    four = {
        RATE_COLUMNS[0]: rate * 1_000,
        RATE_COLUMNS[1]: rate * 1_500,
        RATE_COLUMNS[2]: rate,
        RATE_COLUMNS[3]: rate * 1.5,
    }
    columns: dict[str, Any] = {
        "name": bundle_names(bundles),
        "owner": owner,
        "short_samples": np.full(bundles, 10),
        "long_samples": np.full(bundles, 1000),
        "topics": rng.integers(1, 900, bundles),
        **{
            f"{span}_{name}": column
            for span in ("latest", "short", "long")
            for name, column in four.items()
        },
    }
    sums = {f"latest_{name}": np.bincount(owner, column, brokers) for name, column in four.items()}
    names = [f"broker-{at:05d}:8080" for at in range(brokers)]
    full = np.full(brokers, 100.0)
    broker_columns = {
        "name": names,
        "cpu_usage": usage,
        "cpu_limit": full,
        "persistent_topics": [True] * brokers,
        **sums,
    }
    return Shard(
        _table(BROKER_SCHEMA, broker_columns, brokers), _table(BUNDLE_SCHEMA, columns, bundles)
    )


def _table(schema: pa.Schema, columns: dict[str, Any], rows: int) -> pa.Table:
    """A block with the given columns, everything else zero, false or unknown; brokers of the
    modular manager report no smoothed load."""
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    filled = {}
    for field in schema:
        if field.name in columns:
            filled[field.name] = pa.array(columns[field.name]).cast(field.type)
        elif "_ema" in field.name or not any(kind(field.type) for kind in numeric):
            filled[field.name] = pa.nulls(rows, field.type)
        else:
            filled[field.name] = pa.array(np.zeros(rows, np.int8)).cast(field.type)
    return pa.table(filled, schema=schema)


def reports_of(shard: Shard, digest: bytes) -> Batch:
    """A new report of every broker: a sample of every bundle.

    `digest`: 8 bytes, others than those of the reports before.
    """
    brokers, bundles = shard.brokers, shard.bundles
    order = np.argsort(bundles["owner"].to_numpy(), kind="stable")
    samples = {
        name: bundles[name].take(pa.array(order))
        for name in SAMPLE_SCHEMA.names
        if name in bundles.column_names
    }
    samples |= {
        "report": bundles["owner"].take(pa.array(order)),
        "has_stats": pa.array(np.ones(len(order), np.bool_)),
    }
    columns: dict[str, Any] = {name: brokers[name] for name in brokers.column_names}
    columns |= {
        "offset": np.arange(len(brokers)),
        "append_ms": np.full(len(brokers), 1_000),
        "digest": [digest] * len(brokers),
    }
    reports = _table(
        REPORT_SCHEMA,
        {name: columns[name] for name in columns if name in REPORT_SCHEMA.names},
        len(brokers),
    )
    return Batch(
        reports,
        pa.table({name: samples[name] for name in SAMPLE_SCHEMA.names}).cast(SAMPLE_SCHEMA),
        EVENT_SCHEMA.empty_table(),
    )


def works(brokers: int, bundles: int, hot: int) -> Iterator[tuple[str, Work]]:
    """Every measured piece of work on a cluster of one size."""
    shard = shard_of_size(brokers, bundles, hot)
    weights = {"cpu": 1.0}
    view = view_of("bench", [shard], 2_000, weights)
    batch = reports_of(shard, b"sample 2")
    once_folded = fold(shard, reports_of(shard, b"sample 1"), 500, FoldConfig())[0]
    yield (
        "fold",
        lambda: view_of(
            "bench", [fold(once_folded, batch, 1_000, FoldConfig())[0]], 1_000, weights
        ),
    )
    eligible = np.ones(bundles, np.bool_)
    for name, strategy in SHEDDERS.items():
        config = cluster_config(
            {
                "shedding_strategy": strategy,
                "min_throughput_mb": 0,
                **DECIDES_AT_ONCE.get(strategy, {}),
            }
        )
        memory = config.shedder.memory({})
        if (observe := traits_of(config.shedder).observe) is not None:
            # As after the rounds before: the reference's brokers smooth their load themselves.
            memory = observe(view, config.shedder_config, memory)
        yield (
            name,
            lambda config=config, memory=memory: _sheds(
                config.shedder.function(
                    ShedContext.build(view, config.shedder_config, memory, eligible)
                )[0]
            ),
        )
        if strategy == "TransferShedder":
            yield "transfer_ready", _transfer_ready(view, config, memory)
    only_hot = {
        "least_moves_trigger_ratio": 1.6,
        "least_moves_acceptable_ratio": 1.4,
    }  # bundles drawn by chance make some brokers a little hot
    yield "least_moves", _least_moves(brokers, bundles, max(brokers // 200, 1), **only_hot)
    yield "least_moves_plan", _least_moves(brokers, bundles, brokers // 2)
    limits = SplittingConfig()
    yield "split_task", lambda: find_too_large(view, eligible, [], limits)
    for strategy in placement.names:
        both = (
            {"shedding_strategy": strategy} if strategy in shedder.names else {}
        )  # AvgShedder is both or neither
        yield f"place_{strategy}", _placing(view, {"placement_strategy": strategy, **both})
    for strategy in simple_placement.names:
        yield (
            f"place_{strategy}",
            _placing(view, {"load_manager": "simple", "simple_placement_strategy": strategy}),
        )
    yield (
        "place_LeastResourceUsageWithWeight_extensible",
        _placing(view, {"load_manager": "extensible"}),
    )


def _least_moves(brokers: int, bundles: int, hot: int, **settings: float) -> Work:
    """A pass of LeastMoves that has learned from two reports of every broker, with so many hot
    ones. No bundle is a broker's whole load."""
    config = cluster_config(
        {"shedding_strategy": "LeastMoves", "least_moves_hot_for_ms": 0, **settings}
    )
    shard, memory = shard_of_size(brokers, bundles, hot, heaviest=20.0), config.shedder.memory({})
    observe = traits_of(config.shedder).observe
    assert observe is not None
    for digest, now_ms in ((b"sample 1", 500), (b"sample 2", 1_000)):
        shard = fold(shard, reports_of(shard, digest), now_ms, FoldConfig())[0]
        view = view_of("bench", [shard], now_ms, {"cpu": 1.0})
        memory = observe(view, config.shedder_config, memory)
    context = ShedContext.build(view, config.shedder_config, memory)
    return lambda: _sheds(config.shedder.function(context)[0])


def _transfer_ready(view: ClusterView, config: Any, memory: Any) -> Work:
    """A pass of TransferShedder that is given each broker's load and top bundles, as the
    reference's brokers report them: what the reference's own class does in its pass."""
    context = ShedContext.build(view, config.shedder_config, memory)
    store = build_load_store(context)
    return lambda: _sheds(shed_loads(context, store)[0])


def _sheds(unloads: Any) -> Any:
    if not unloads.proposals:
        raise RuntimeError("this benchmark's load must make every shedder decide")
    return unloads


def _placing(view: ClusterView, settings: dict[str, Any]) -> Work:
    """Find a broker for each of 1 000 bundles, each choice counting in the next."""
    config = cluster_config(settings)

    def place() -> None:
        state = RoundState.begin(RoundInputs.untouched(view, config, seed=1))
        for bundle in range(0, len(view.bundles), len(view.bundles) // PLACED):
            choice = state.place(bundle)
            if choice is not None:
                state.candidates.add(bundle, choice.destination)
                state.targets.add(bundle, choice.destination)

    return place


def median_ms(work: Work, runs: int) -> float:
    """Median wall time in ms, after a second of warm-up: the first runs still fetch memory from the
    system. What exists by then is frozen, as in Spark's workers (`stream/task/current_task.py`):
    else the collections between the runs would read it all, and no run would find its own data in
    the processor's caches."""
    warm_at = time.perf_counter() + WARM_UP_S
    work()
    while time.perf_counter() < warm_at:
        work()
    times = []
    gc.freeze()
    for _ in range(runs):
        gc.collect()
        begin = time.perf_counter()
        work()
        times.append((time.perf_counter() - begin) * 1_000)
    gc.unfreeze()
    return statistics.median(times)


REFERENCE_NAMES = {
    "fold": "fold of reports",
    "overload": "OverloadShedder",
    "threshold": "ThresholdShedder",
    "uniform": "UniformLoadShedder",
    "avg": "AvgShedder",
    "transfer": "TransferShedder",
    "transfer_ready": "TransferShedder",
}
"""How the reference's own benchmark begins the names of the same pieces of work."""


def reference_ms(command: str, brokers: int, bundles: int, hot: int) -> dict[str, float]:
    """Median ms of Pulsar's own classes on a cluster of one size: `command bench BROKERS BUNDLES
    PERCENT_HOT` prints a JSON line for each.

    Raises OSError, CalledProcessError, ValueError.
    """
    sizes = [str(brokers), str(bundles), f"{100 * hot / brokers:g}"]
    done = subprocess.run(
        [*shlex.split(command), "bench", *sizes], capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    medians = {line["what"]: float(line["medianMs"]) for line in lines if "medianMs" in line}
    return {
        name: ms
        for name, begin in REFERENCE_NAMES.items()
        for what, ms in medians.items()
        if what.startswith(begin)
    }


def main() -> int:
    """Measure, print a table, then the JSON line. Exit code 2: the reference can't be run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", nargs="*", default=list(SIZES), choices=list(SIZES), help="brokers x bundles"
    )
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="runs of each piece, after the warm-up"
    )
    parser.add_argument(
        "--reference",
        nargs="?",
        const=os.environ.get("REFERENCE", "reference"),
        help="also run Pulsar's own classes by this command (default: $REFERENCE), and print our "
        "share of their time",
    )
    options = parser.parse_args()
    console = Console(stderr=True)
    figures: dict[str, dict[str, float]] = {}
    for size in options.sizes:
        figures |= measured(size, options.runs, console)
        if options.reference:
            try:
                add_shares(figures, size, options, console)
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                print(
                    f"the reference did not answer: {error}\n{getattr(error, 'stderr', '') or ''}",
                    file=sys.stderr,
                )
                return 2
    for unit, title in (
        ("ms", "milliseconds, median"),
        ("share", "share of the reference's time in the same run"),
    ):
        if any(unit in figure for figure in figures.values()):
            Console().print(table_of(figures, options.sizes, unit, title))
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    print(json.dumps(figures))
    return 0


def measured(
    size: str, runs: int, console: Console, names: Collection[str] = ()
) -> dict[str, dict[str, float]]:
    """Each piece of work (or only those named) on a cluster of this size: `name@size` → {"ms"}."""
    wanted = [(name, work) for name, work in works(*SIZES[size]) if not names or name in names]
    return {
        f"{name}@{size}": {"ms": round(median_ms(work, runs), 3)}
        for name, work in track(wanted, description=size, console=console)
    }


def add_shares(
    figures: dict[str, dict[str, float]], size: str, options: argparse.Namespace, console: Console
) -> None:
    """Time the reference, then ours once more: a machine that grows slower or faster meanwhile is
    so for both."""
    theirs = reference_ms(options.reference, *SIZES[size])
    again = measured(size, options.runs, console, theirs)
    for name, ms in theirs.items():
        ours = figures[f"{name}@{size}"]
        ours |= {
            "reference_ms": ms,
            "share": round((ours["ms"] + again[f"{name}@{size}"]["ms"]) / 2 / ms, 3),
        }


def table_of(
    figures: dict[str, dict[str, float]], sizes: list[str], unit: str, title: str
) -> Table:
    """One row for each piece of work that has such figures."""
    table = Table("work", *sizes, title=title)
    for name in dict.fromkeys(
        figure.partition("@")[0] for figure, values in figures.items() if unit in values
    ):
        cells = [figures.get(f"{name}@{size}", {}).get(unit) for size in sizes]
        table.add_row(name, *("" if cell is None else f"{cell:.2f}" for cell in cells))
    return table


if __name__ == "__main__":
    sys.exit(main())
