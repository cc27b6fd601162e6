"""The processor of each broker of a real cluster: a control group of its own (cgroup v1, root)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.pulsar.testbed import Bed

GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
FAVOURED = 8192
"""Weight of the brokers' group against all else on the machine (1024): they get their shares of the
processor however busy it is."""
_BURN = """
import sys, time
part = float(sys.argv[1])
while True:
    begin = time.monotonic()
    while time.monotonic() - begin < part / 20: pass
    time.sleep((1 - part) / 20)
"""


def missing() -> str:
    """Why brokers can't have a share of the processor here; empty when they can."""
    if not os.access(GROUPS / "cpuacct" / "tasks", os.W_OK):
        return f"brokers' shares of the processor need root and cgroup v1 in {GROUPS}"
    return ""


def _group(bed: Bed, kind: str) -> Path:
    return GROUPS / kind / f"pulsar-testbed-{bed.base_port}"


def favour(bed: Bed) -> None:
    """Have all brokers get what their shares say, on a busy machine too."""
    (_group(bed, "cpu") / "cpu.shares").write_text(str(FAVOURED))


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
