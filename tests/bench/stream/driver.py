"""A measured process seen from outside: its batches as they end, the memory of all its processes,
its end."""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lb_stream.contracts.settings import Settings
from tests.bench.stream.spark import spark_environment

PROJECT = Path(__file__).parents[3]
LONGEST_BATCH_S = 1_800
SAMPLE_S = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Batch:
    """One micro-batch: how many records it read, how long it took, and Spark's own phases."""

    number: int
    rows: int
    seconds: float
    phases_ms: dict[str, int]

    def __str__(self) -> str:
        phases = ", ".join(
            f"{name} {ms}"
            for name, ms in sorted(self.phases_ms.items(), key=lambda item: -item[1])
            if ms > 1
        )
        return f"{self.seconds:.2f} s ({phases} ms)"


class Driver:
    """Starts `tests.bench.stream.job` and listens to it.

    `view_of`: the view of these clusters only; none: the whole job.

    `cores`: of Spark's executors; 0: as many as the job has by itself.
    """

    def __init__(
        self, folder: Path, settings: Settings, view_of: list[str] | None = None, cores: int = 0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "job.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.stream.job"],
                env=spark_environment(cores),
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C ends us, and we end it; its processes are those of its session
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"settings": settings.model_dump(), "view_of": view_of}).encode() + b"\n"
        )
        self._process.stdin.flush()
        self._told: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.peak_bytes = 0
        self._cpu = dict[int, float]()
        self._over = threading.Event()
        for work in (self._listen, self._watch) if can_watch() else (self._listen,):
            threading.Thread(target=work, daemon=True).start()

    def next_batch(self) -> Batch:
        """Wait for a batch to end.

        Raises RuntimeError with the end of its log when the job ends first.
        """
        try:
            told = self._told.get(timeout=LONGEST_BATCH_S)
        except queue.Empty:
            raise RuntimeError(
                f"no batch ended within {LONGEST_BATCH_S} s.\n{self._tail()}"
            ) from None
        if told is None or "batch" not in told:
            why = told["ended"].partition("\n")[0] if told else "no batch was told of"
            raise RuntimeError(f"the measured job has ended: {why}\n{self._tail()}")
        phases = {name: int(ms) for name, ms in told["took_ms"].items()}
        return Batch(told["batch"], told["rows"], phases.pop("triggerExecution") / 1_000, phases)

    def read(self, rows: int) -> list[Batch]:
        """Wait until the next `rows` records have been read; the batches that it took."""
        batches = [self.next_batch()]
        while sum(batch.rows for batch in batches) < rows:
            batches.append(self.next_batch())
        return batches

    def cpu_s(self) -> float:
        """CPU time that all of its processes have taken so far, as far as it was seen; 0 where
        nobody can tell."""
        return sum(list(self._cpu.values()))

    def stop(self, grace_s: float = 60) -> None:
        """End the job in order; what still runs of its processes after `grace_s` is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=grace_s)
        self._over.set()
        for pid in session_members(self._process.pid) if can_watch() else [self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                self._told.put(json.loads(line))
        self._told.put(None)

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            members = session_members(self._process.pid)
            self.peak_bytes = max(self.peak_bytes, sum(map(resident_bytes, members)))
            for pid in members:  # Spark ends idle workers: what they took stays known
                self._cpu[pid] = max(cpu_seconds(pid), self._cpu.get(pid, 0.0))


def can_watch() -> bool:
    """Whether this system tells of a process's memory and session in /proc."""
    return Path("/proc/self/statm").exists()


def session_members(session: int) -> list[int]:
    """Processes of a session: what a process started with `start_new_session` has started, and what
    that has started."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def resident_bytes(pid: int) -> int:
    """A process's resident memory; what it shares with others counts in each. 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, not of its children. 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(ticks) for ticks in fields[11:13]) / CLOCK_TICKS


def wait_for_boundary(interval_ms: int, needed_ms: float = math.inf) -> None:
    """Sleep until a trigger of this interval has just been due, unless the next one is `needed_ms`
    away: Spark's fall on its multiples."""
    left_ms = interval_ms - time.time_ns() // 1_000_000 % interval_ms
    if left_ms < needed_ms:
        time.sleep(left_ms / 1_000 + 0.05)
