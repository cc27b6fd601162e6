"""A Spark standalone cluster on machines of its own, started by the lines of docs/deploy.md, and
one job on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.e2e.cluster.machines import PROJECT, STORE, Machine, Network
from tests.e2e.pipeline import OPTION, Pipeline, wait_until
from tests.e2e.under_load import STEP_S
from tests.support.killing import processes

PAGE, HEADING = PROJECT / "docs" / "deploy.md", "## A Spark standalone cluster"
WORKERS = ("worker-1", "worker-2")
PARTITIONS = 4
"""What the page's `stream.shuffle_partitions` is."""


def documented_lines() -> dict[str, str]:
    """The lines that start master, worker and driver, as they stand on the page."""
    section = PAGE.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^```\n(.*?)\n```$", section, re.MULTILINE | re.DOTALL)
    return dict(zip(("master", "worker", "driver"), lines, strict=True))


def started_kafka(machine: Machine, log: Path) -> str:
    """A broker on a machine of its own, with which it goes; its bootstrap servers."""
    broker = f'EmbeddedKafka(Path("/var/tmp/kafka"), port=9092, host="{machine.address}")'
    program = (
        "from pathlib import Path; from lb_stream.kit.embedded_kafka import EmbeddedKafka; "
        f"{broker}.start({STEP_S})"
    )
    assert (
        machine.start(f"exec conf/deploy/entrypoint.sh python -c '{program}'", log).wait() == 0
    ), log.read_text()
    return f"{machine.address}:9092"


@dataclass
class SparkCluster:
    """A master, two workers and a place for drivers.

    What a service manager would start again, `tend` does.

    `shared` is the folder that all machines have in common, if they have one; what they print lies
    in `logs`.
    """

    network: Network
    shared: Path | None
    logs: Path
    kills: Counter[str] = field(default_factory=Counter)
    ends: list[int] = field(default_factory=list)  # exit codes of the driver

    def __enter__(self) -> Self:
        self._lines, self._processes = documented_lines(), dict[str, subprocess.Popen[bytes]]()
        with ExitStack() as stack:
            self.machines = {
                name: stack.enter_context(self.network.machine(name, self.shared))
                for name in ("master", *WORKERS, "driver")
            }
            self.start("master")
            wait_until(lambda: self.workers() is not None, "the master", STEP_S)
            for name in WORKERS:
                self.start(name)
            wait_until(lambda: self.workers() == len(WORKERS), "all workers", STEP_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def line(self, name: str) -> str:
        """The page's line for a machine, with addresses for the words in capitals."""
        line = self._lines[name.partition("-")[0]]
        return line.replace("MASTER", self.machines["master"].address).replace(
            "DRIVER", self.machines["driver"].address
        )

    def start(self, name: str) -> None:
        """Start what this machine is for."""
        self._processes[name] = self.machines[name].start(
            f"exec {self.line(name)}", self.log_file(name)
        )

    def start_second_driver(self) -> subprocess.Popen[bytes]:
        """On the master's machine; its log is that of `second`."""
        return self.machines["master"].start(f"exec {self.line('driver')}", self.log_file("second"))

    def log_file(self, name: str) -> Path:
        """What a program has printed, of all its starts."""
        return self.logs / f"{name}.log"

    def workers(self) -> int | None:
        """How many workers the master knows; None when it doesn't answer."""
        with (
            suppress(OSError),
            urllib.request.urlopen(
                f"http://{self.machines['master'].address}:8080/json/", timeout=5
            ) as page,
        ):
            return sum(worker["state"] == "ALIVE" for worker in json.load(page)["workers"])
        return None

    def executors(self) -> list[int]:
        """The process of each executor's JVM."""
        return [
            pid
            for name in WORKERS
            for pid in self.machines[name].running("CoarseGrainedExecutorBackend")
        ]

    def tend(self) -> None:
        """Start again what has ended."""
        for name, process in list(self._processes.items()):
            if (code := process.poll()) is not None:
                if name == "driver":
                    self.ends.append(code)
                self.start(name)

    def kill(self, victim: str, number: int) -> None:
        """SIGKILL, once it runs; nobody is asked. `number` chooses among several."""
        killed = set[int]()

        def found() -> bool:
            self.tend()
            killed.update(self._processes_of(victim, number))
            return bool(killed)

        wait_until(found, f"something to kill: {victim}", STEP_S)
        for pid in sorted(killed):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kills[victim] += 1

    def _processes_of(self, victim: str, number: int) -> set[int]:
        if victim == "driver":
            return processes(self._processes["driver"].pid)
        if victim == "worker":
            return set(
                self.machines[WORKERS[number % len(WORKERS)]].running("deploy.worker.Worker")
            )
        found = self.executors()
        return {found[number % len(found)]} if found else set()

    def stop_driver(self) -> int:
        """SIGTERM for the job's own process, as docs/deploy.md says; the exit code of
        spark-submit."""
        process = self._processes.pop("driver")
        for pid in self.machines["driver"].running("jobs/balance.py", "python"):
            os.kill(pid, signal.SIGTERM)
        return process.wait(timeout=STEP_S)

    def executor_log_bytes(self) -> int:
        """What all executors have printed that there were."""
        folders = [self.machines[name].at(PROJECT / ".lb" / "worker") for name in WORKERS]
        return sum(
            path.stat().st_size for folder in folders for path in folder.glob("app-*/*/std*")
        )


def settings(pipeline: Pipeline, shared: Path | None) -> str:
    """lb.toml of the driver's machine: all is kept in the folder that machines share, else in the
    pipeline's bucket.

    No broker dies and no move expires, however slow the machine is: what is decided is the
    script's.
    """
    tables, checkpoint = (
        (pipeline.tables, pipeline.checkpoint)
        if shared is None
        else (f"{STORE}/tables", f"{STORE}/checkpoint")
    )
    topics = "\n".join(
        f'{name} = "{topic}"' for name, topic in pipeline.topics.model_dump().items()
    )
    options = "".join(
        f'{name.removeprefix(OPTION)} = "{value}"\n'
        for name, value in pipeline.settings.items()
        if name.startswith(OPTION)
    )
    return f"""
[kafka]
bootstrap_servers = "{pipeline.bootstrap}"

[topics]
{topics}

[stream]
tables = "{tables}"
checkpoint = "{checkpoint}"
pipeline_id = "on-a-cluster"
metrics_address = ""

[stream.store_options]
{options}
[balancer]
dry_run = false
shedding_interval_ms = 0
shedding_grace_period_ms = 0
history_ratio = 0
min_throughput_mb = 0
unloading_timeout_ms = 3600000
heartbeat_timeout_ms = 3600000
silent_after_ms = 3600000
"""
