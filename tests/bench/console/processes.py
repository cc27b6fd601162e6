"""The processes beside the viewers: the console, and the job that writes.

What they say is lines of JSON; the end of input ends them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lb_stream.contracts.settings import Settings
from lb_stream.store import Store
from tests.bench.console.written import Cluster, Job, now_ms

TICKS_S = os.sysconf("SC_CLK_TCK")


class Process:
    """One of them, started. `heard` is given what it says."""

    def __init__(
        self, process: asyncio.subprocess.Process, heard: Callable[[dict[str, Any]], None]
    ) -> None:
        self._process, self.pid = process, process.pid
        self._ears = asyncio.create_task(self._hear(heard))

    @classmethod
    async def start(cls, heard: Callable[[dict[str, Any]], None], *arguments: str) -> Process:
        """With these arguments of `main`."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "tests.bench.console.processes", *arguments)
        return cls(
            await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**22),
            heard,
        )

    async def _hear(self, heard: Callable[[dict[str, Any]], None]) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            heard(json.loads(line))

    def say(self, line: str) -> None:
        """One line of its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def stop(self) -> None:
        """End it; it ends by itself when its input does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._ears


def resident_mib(pid: int) -> float:
    """Memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def serve(folder: Path) -> None:
    """`lbctl console` on the folder's tables; decisions come as lines of input, where it would read
    them from their topic."""
    from lb_stream.console.serve import ConsoleServer, lower_priority
    from lb_stream.console.sources.live import parse_decision_row
    from lb_stream.console.sources.reader import Reader
    from lb_stream.query.screens.entries import OpenMoves

    lower_priority()
    given = {"stream": {"tables": str(folder / "tables"), "checkpoint": str(folder / "checkpoint")}}
    reader = Reader(Store.at(folder / "tables"), Settings.model_validate(given), None)
    served = ConsoleServer("127.0.0.1:0", reader, (), None)
    _say(url=served.url)
    reader.current_view()
    open_moves = OpenMoves()
    for line in sys.stdin:
        served.publish(parse_decision_row(open_moves, line.encode()))
    served.stop()


def write(folder: Path, cluster: Cluster, every_s: float) -> None:
    """A round every few seconds: its decisions, how long it took, and the CPU time of that."""
    job, ended = Job(folder, cluster), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        made = job.round(now_ms())
        took_s, took_cpu_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
        _say(
            round_ms=1000 * took_s,
            cpu_ms=1000 * took_cpu_s,
            decisions=[one.to_json() for one in made],
        )
        ended.wait(max(0.0, every_s - took_s))


def _say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def main() -> None:
    """One of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("serve", "write"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--brokers", type=int, default=0)
    parser.add_argument("--bundles", type=int, default=0)
    parser.add_argument("--every", type=float, default=0.0)
    given = parser.parse_args()
    if given.what == "serve":
        serve(given.folder)
    else:
        write(given.folder, Cluster(given.brokers, given.bundles), given.every)


if __name__ == "__main__":
    main()
