"""The processor of each broker of a real cluster: a control group of its own (cgroup v1, root)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.pulsar.testbed import Bed

GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
FAVOURED, MOST_FAVOURED = 8192, 65536
"""Weight of a test's processes and of its brokers against each other process on the machine
(1024): brokers get their shares of the processor, and producers keep their rates, however busy it
is. The job and its Kafka would run on other machines, so brokers go before them."""
_BURN = """
import sys, time
part = float(sys.argv[1])
while True:
    begin = time.process_time()
    while time.process_time() - begin < part / 20: pass
    time.sleep((1 - part) / 20)
"""


def missing() -> str:
    """Why brokers can't have a share of the processor here; empty when they can."""
    if not os.access(GROUPS / "cpuacct" / "tasks", os.W_OK):
        return f"brokers' shares of the processor need root and cgroup v1 in {GROUPS}"
    return ""


def _group_of(base_port: int, kind: str) -> Path:
    return GROUPS / kind / f"pulsar-testbed-{base_port}"


def _group(bed: Bed, kind: str) -> Path:
    return _group_of(bed.base_port, kind)


def _own_group() -> Path:
    """The cpu group that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if "cpu" in kinds.split(","):
            return GROUPS / "cpu" / path.lstrip("/")
    return GROUPS / "cpu"


@contextmanager
def favoured(base_port: int) -> Iterator[None]:
    """Favour the brokers of a cluster that is to be started, this process and all that it starts.

    Else a busy machine starves producers and brokers, and what a broker reports is chance.
    """
    of_brokers = _group_of(base_port, "cpu")
    of_brokers.mkdir(exist_ok=True)
    before = _own_group()
    own = before / f"pulsar-tests-{os.getpid()}"
    own.mkdir()
    try:
        for group, weight in ((of_brokers, MOST_FAVOURED), (own, FAVOURED)):
            (group / "cpu.shares").write_text(str(weight))
        _move([os.getpid(), *_descendants(os.getpid())], own)
        yield
    finally:
        _move([int(pid) for pid in (own / "cgroup.procs").read_text().split()], before)
        own.rmdir()


def favour_like_brokers(bed: Bed, *pids: int) -> None:
    """Favour ZooKeeper, the bookie and these processes like the brokers."""
    stores = [int((bed.folder / "pids" / name).read_text()) for name in ("zookeeper", "bookie")]
    _move([*stores, *pids], _group(bed, "cpu"))


def _move(pids: Iterable[int], group: Path) -> None:
    """Move processes to a group; those that have just ended are none."""
    for pid in pids:
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def _descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_descendants(child)]
    return found


def limit(bed: Bed, number: int, percent: float) -> None:
    """Give one broker so many percent of one core."""
    quota = _group(bed, "cpu") / f"broker-{number}" / "cpu.cfs_quota_us"
    quota.write_text(str(round(PERIOD_US * percent / 100)))


class Used(NamedTuple):
    """Processor time of a broker and all beside it in its group, and its quota."""

    at_s: float
    cpu_s: float
    cores: float

    @staticmethod
    def read(bed: Bed, number: int) -> Used:
        """Read it now."""
        name = f"broker-{number}"
        used_ns = int((_group(bed, "cpuacct") / name / "cpuacct.usage").read_text())
        quota_us = int((_group(bed, "cpu") / name / "cpu.cfs_quota_us").read_text())
        return Used(time.monotonic(), used_ns / 1e9, quota_us / PERIOD_US)

    def usage_since(self, before: Used) -> float:
        """Return the part of its quota that it has used since then."""
        return (self.cpu_s - before.cpu_s) / (self.at_s - before.at_s) / self.cores


@contextmanager
def burning(bed: Bed, number: int, percent: float) -> Iterator[None]:
    """A process beside one broker, in its group, that takes so many percent of one core."""
    process = subprocess.Popen([sys.executable, "-c", _BURN, str(percent / 100)])
    for kind in ("cpu", "cpuacct"):
        group = _group(bed, kind) / f"broker-{number}" / "cgroup.procs"
        group.write_text(str(process.pid))
    try:
        yield
    finally:
        process.kill()
        process.wait()
