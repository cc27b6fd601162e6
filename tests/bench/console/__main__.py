"""`python -m tests.bench.console`: progress on stderr, a table, and one JSON object as the last
line of stdout."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.bench.console.processes import Process, cpu_s, resident_mib
from tests.bench.console.viewers import Line, Seen, pages, view
from tests.bench.console.written import CLUSTER, Cluster, hour, now_ms

ABOUT = """What viewers of the console cost the job beside it, and how they fare.

Tables of one cluster hold an hour of rounds. A process goes on writing them: a round every few
seconds, as the job's driver and tasks would, its commits to Delta included. Another one serves the
console. Viewers come for a turn and go for one, in turns: each keeps a stream open, asks for its
page every five seconds, and for its chart when the page has changed. There is no Kafka: decisions
are given to the console as lines, where it would read them from their topic. All is on one
machine, so the viewers' own CPU counts against the job, too.
"""
TURN_S = 30.0
SAMPLE_S = 1.0


@dataclass
class Turn:
    """With or without viewers: what the rounds took, what CPU the console and the viewers used
    within which time."""

    viewers: int
    rounds_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    decisions: int = 0
    seconds: float = 0.0
    console_s: float = 0.0
    own_s: float = 0.0


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.console",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="In full: python -m tests.bench.console --viewers 200 --minutes 10 --brokers 1000 "
        "--bundles 100000",
    )
    parser.add_argument("--viewers", type=int, default=20, help="how many (20)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=1.0,
        help="how long there are viewers; as long there are none (1)",
    )
    parser.add_argument("--brokers", type=int, default=100, help="of the cluster (100)")
    parser.add_argument("--bundles", type=int, default=10_000, help="of the cluster (10000)")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two rounds (5)")
    parser.add_argument("--folder", type=Path, help="a new folder for the tables, to be kept")
    given = parser.parse_args(arguments)
    for name, least in (("viewers", 1), ("brokers", 2), ("bundles", 16)):
        if getattr(given, name) < least:
            parser.error(f"--{name} {getattr(given, name)}: at least {least}")
    for name in ("minutes", "every"):
        if getattr(given, name) <= 0:
            parser.error(f"--{name} {getattr(given, name)}: more than 0")
    return given


class Bench:
    """The processes, the turns, and what was seen in them."""

    def __init__(self, folder: Path, cluster: Cluster, viewers: int, every_s: float) -> None:
        self._folder, self._cluster, self._viewers, self._every_s = (
            folder,
            cluster,
            viewers,
            every_s,
        )
        self.turns: list[Turn] = []
        self.seen, self.memory_mib, self.first_page_ms = Seen(), list[float](), 0.0
        self._told_s: dict[str, float] = {}
        self._url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._writes = asyncio.Event()

    async def run(self, seconds: float) -> None:
        """All of it."""
        self._console = await Process.start(
            lambda told: self._url.set_result(told["url"]), "serve", str(self._folder)
        )
        url = await self._url
        size = (
            "--brokers",
            str(self._cluster.brokers),
            "--bundles",
            str(self._cluster.bundles),
            "--every",
            str(self._every_s),
        )
        try:
            await self._first(url)
            writer = await Process.start(self._round, "write", str(self._folder), *size)
            try:
                await self._writes.wait()
                turn_s = min(TURN_S, seconds)
                for number in range(2 * max(1, round(seconds / turn_s))):
                    await self._turn(url, turn_s, 0 if number % 2 else self._viewers)
            finally:
                await writer.stop()
        finally:
            await self._console.stop()

    async def _first(self, url: str) -> None:
        begun_s = time.monotonic()
        async with Line.to(url) as line:
            status, _, body = await line.get(pages(self._cluster)[0])
        self.first_page_ms = 1000 * (time.monotonic() - begun_s)
        if status != 200 or CLUSTER.encode() not in body:
            raise RuntimeError(f"the cluster's page: status {status}: {body[:300]!r}")

    def _round(self, told: dict[str, Any]) -> None:
        for one in told["decisions"]:
            self._told_s[json.loads(one)["decision_id"]] = time.monotonic()
            self._console.say(one)
        self._writes.set()
        if self.turns:
            self.turns[-1].rounds_ms.append(told["round_ms"])
            self.turns[-1].cpu_ms.append(told["cpu_ms"])
            self.turns[-1].decisions += len(told["decisions"])

    async def _turn(self, url: str, seconds: float, viewers: int) -> None:
        turn = Turn(viewers)
        self.turns.append(turn)
        before, begun_s = (cpu_s(self._console.pid), time.process_time()), time.monotonic()
        addresses = pages(self._cluster)
        tasks = [
            asyncio.create_task(view(url, number, addresses, self.seen, self._told_s))
            for number in range(viewers)
        ]
        while time.monotonic() - begun_s < seconds:
            await asyncio.sleep(SAMPLE_S)
            self.memory_mib.append(resident_mib(self._console.pid))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        turn.seconds = time.monotonic() - begun_s
        turn.console_s, turn.own_s = (
            cpu_s(self._console.pid) - before[0],
            time.process_time() - before[1],
        )
        told = (
            f"{viewers} viewers: {len(turn.rounds_ms)} rounds, console "
            f"{turn.console_s / turn.seconds:.2f} of a core"
        )
        print(f"{told}, {self.memory_mib[-1]:.0f} MiB", file=sys.stderr, flush=True)


def summary(turns: Sequence[Turn], seen: Seen, memory_mib: Sequence[float]) -> dict[str, Any]:
    """The figures.

    `round_ratio`: median of the ratios of neighbouring turns' medians, with viewers ÷ without.
    """
    watched, alone = (
        [turn for turn in turns if bool(turn.viewers) == wanted] for wanted in (True, False)
    )
    pairs = [(a, b) for a, b in zip(watched, alone, strict=False) if a.rounds_ms and b.rounds_ms]

    def of(values: list[float], share: float) -> float | None:
        return round(float(np.quantile(values, share)), 1) if values else None

    def ratio(name: str) -> float | None:
        found = [
            statistics.median(getattr(a, name)) / statistics.median(getattr(b, name))
            for a, b in pairs
        ]
        return round(statistics.median(found), 3) if found else None

    watched_s = sum(one.seconds for one in watched)
    return {
        "round_ms_with": of([one for turn in watched for one in turn.rounds_ms], 0.5),
        "round_ms_without": of([one for turn in alone for one in turn.rounds_ms], 0.5),
        "round_ratio": ratio("rounds_ms"),
        "round_cpu_ratio": ratio("cpu_ms"),
        "rounds": sum(len(turn.rounds_ms) for turn in turns),
        "console_cores": round(sum(one.console_s for one in watched) / watched_s, 3),
        "viewers_cores": round(sum(one.own_s for one in watched) / watched_s, 3),
        "memory_mib": {
            "first": round(memory_mib[0]),
            "greatest": round(max(memory_mib)),
            "last": round(memory_mib[-1]),
        },
        "requests": sum(seen.statuses.values()),
        "unchanged": seen.statuses[304],
        "failed": {
            str(status): count
            for status, count in seen.statuses.items()
            if status not in (200, 304)
        }
        | dict(seen.broken),
        "answer_ms": {
            "median": of(seen.times_ms, 0.5),
            "p95": of(seen.times_ms, 0.95),
            "greatest": of(seen.times_ms, 1.0),
        },
        "entries": {"made": sum(one.decisions for one in watched), "told": sum(seen.told)},
        "told_after_ms": {"median": of(seen.delays_ms, 0.5), "p95": of(seen.delays_ms, 0.95)},
    }


async def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write the tables and run."""
    cluster = Cluster(given.brokers, given.bundles)
    begun_s = time.monotonic()
    hour(folder, cluster, now_ms(), max(1, round(1000 * given.every)))
    print(
        f"an hour of {given.brokers:,} x {given.bundles:,} written in "
        f"{time.monotonic() - begun_s:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    bench = Bench(folder, cluster, given.viewers, given.every)
    await bench.run(60 * given.minutes)
    asked: dict[str, Any] = {
        name: getattr(given, name) for name in ("viewers", "minutes", "brokers", "bundles", "every")
    }
    asked |= {"cores": os.cpu_count(), "first_page_ms": round(bench.first_page_ms)}
    return asked | summary(bench.turns, bench.seen, bench.memory_mib)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    given = options(arguments)
    if given.folder:
        found = asyncio.run(measure(given, given.folder.resolve()))
    else:
        with tempfile.TemporaryDirectory(prefix="bench-console-") as folder:
            found = asyncio.run(measure(given, Path(folder)))
    table = Table("", "", title="the console beside a job", show_header=False)
    for name, value in found.items():
        told = (
            ", ".join(f"{key} {one}" for key, one in value.items())
            if isinstance(value, dict)
            else str(value)
        )
        table.add_row(name.replace("_", " "), told)
    Console(width=120).print(table)
    print(json.dumps(found))
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
