"""`python -m tests.bench.stream`: progress on stderr, a table, and one JSON object as the last line
of stdout."""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.bench.stream.driver import can_watch
from tests.bench.stream.figures import FIGURES, GROUPS, Bench, Measured, Size
from tests.bench.stream.stepped import Place, progress

ABOUT = """The whole stream beside what Spark alone does with the same topic, on one embedded Kafka.

Every job runs in a process of its own with the settings of conf/spark-defaults.conf, as `lbctl
balance` starts it. Reports are modular ones of a thousand bundles each, compressed as the agents
do; each batch reads a new one of every broker, with other numbers, in which a hundredth of the
brokers run hot. The benchmark obeys all decisions, so that the next reports confirm them. Sides
run in turns after a warm-up; a ratio is the median of the ratios of neighbouring runs.

"""


def options() -> argparse.Namespace:
    """The command line."""
    figures = "\n".join(
        f"  {figure.key} ({figure.reach})\n      {figure.what}" for figure in FIGURES.values()
    )
    default = Size()
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.stream",
        description=ABOUT + "figures:\n" + figures,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m tests.bench.stream --only view_vs_from_json --bundles 20000 "
        "--runs 3",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="KEY",
        choices=list(FIGURES),
        default=list(FIGURES),
        help="these figures; the others stay null",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=default.runs,
        help=f"measured batches of each side ({default.runs})",
    )
    parser.add_argument(
        "--bundles",
        type=int,
        default=default.bundles,
        help=f"bundles of the large cluster ({default.bundles})",
    )
    parser.add_argument(
        "--latencies",
        type=int,
        default=default.latencies,
        help=f"decisions waited for ({default.latencies})",
    )
    parser.add_argument(
        "--batches",
        type=int,
        default=default.batches,
        help=f"batches of the small job that grows old, and is traced ({default.batches})",
    )
    parser.add_argument("--partitions", type=int, default=4, help="of the reports topic (4)")
    parser.add_argument(
        "--folder",
        type=Path,
        help="a new folder for Kafka's data, tables, checkpoints and logs, to be kept",
    )
    given = parser.parse_args()
    for name, least in (
        ("runs", 1),
        ("bundles", 2_000),
        ("latencies", 1),
        ("batches", 20),
        ("partitions", 1),
    ):
        if getattr(given, name) < least:
            parser.error(f"--{name} {getattr(given, name)}: at least {least}")
    if "peak_rss_gib_1m" in given.only and not can_watch():
        parser.error("peak_rss_gib_1m needs Linux's /proc: name the other figures with --only")
    return given


def run(given: argparse.Namespace, folder: Path) -> dict[str, Measured]:
    """Measure what is asked for."""
    measured: dict[str, Measured] = {}
    wanted = frozenset(given.only)
    with EmbeddedKafka(folder / "kafka") as kafka:
        place = Place(kafka.bootstrap, folder, given.partitions, keeps=given.folder is not None)
        bench = Bench(
            place, Size(given.bundles, given.runs, given.latencies, given.batches), wanted
        )
        try:
            for keys, measure in GROUPS:
                if keys & wanted:
                    progress(f"measuring {', '.join(sorted(keys & wanted))}")
                    measured |= measure(bench)
        finally:
            bench.close()
    return {key: value for key, value in measured.items() if key in wanted}


def show(measured: dict[str, Measured]) -> None:
    """The table, then the line of JSON."""
    table = Table(
        "figure", "ours, s", "other, s", "measured", "reach", title=f"{os.cpu_count()} cores"
    )
    for key, figure in FIGURES.items():
        if key in measured:
            one = measured[key]
            sides = ("" if side is None else f"{side:.3f}" for side in (one.ours_s, one.other_s))
            table.add_row(key, *sides, f"{one.value:.3f}", figure.reach)
    Console(width=110).print(table)
    print(
        json.dumps(
            {key: round(measured[key].value, 4) if key in measured else None for key in FIGURES}
        ),
        flush=True,
    )


def stop_on_signal(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM as Ctrl-C: Kafka and the jobs have sessions of their own and must be ended."""
    raise KeyboardInterrupt


def main() -> None:
    """Measure and show."""
    given = options()
    signal.signal(signal.SIGTERM, stop_on_signal)
    if given.folder:
        show(run(given, given.folder.resolve()))
        return
    with tempfile.TemporaryDirectory(prefix="bench-stream-") as folder:
        show(run(given, Path(folder)))


if __name__ == "__main__":
    main()
