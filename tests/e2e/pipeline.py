"""One job on topics and folders of its own, started as users start it: by spark-submit."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from kafka import KafkaConsumer, KafkaProducer

from lb_stream.contracts.decisions import Decision, read_decision
from lb_stream.contracts.reads import is_reads
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.job.submit import submit_command
from lb_stream.store import Store

LONGEST_RUN_S = 180
OPTION = "stream.store_options."


@dataclass
class Pipeline:
    """Topics, tables and checkpoint of one job, and ways to run it.

    `folder` is emptied by nobody.
    """

    bootstrap: str
    topics: TopicSettings
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    short_lived: bool = True

    @property
    def tables(self) -> Store:
        """Where the tables are: in the folder, unless the settings name another place."""
        return self._store("tables")

    @property
    def checkpoint(self) -> Store:
        """Where the checkpoint is."""
        return self._store("checkpoint")

    def _store(self, name: str) -> Store:
        options = {
            key.removeprefix(OPTION): str(value)
            for key, value in self.settings.items()
            if key.startswith(OPTION)
        }
        return Store.at(str(self.settings.get(f"stream.{name}", self.folder / name)), options)

    def create_topics(self, **partitions: int) -> None:
        """Make the five topics."""
        create_topics(self.bootstrap, topic_specs(self.topics, **partitions))

    def send(self, records: list[tuple[bytes | None, bytes | None, str | None]]) -> None:
        """(key, value, kind) to the reports topic, one after another."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=20)
        for key, value, kind in records:
            kinds = [("kind", kind.encode())] if kind else []
            producer.send(
                self.topics.reports, key=key, value=value, headers=[("trace", b"0af7"), *kinds]
            )
        producer.flush()
        producer.close()

    def arguments(self, *extra: str) -> list[str]:
        """The arguments of the job's program."""
        settings = {
            "kafka.bootstrap_servers": self.bootstrap,
            "stream.tables": self.tables,
            "stream.checkpoint": self.checkpoint,
            "stream.pipeline_id": self.topics.reports[:80],
            **{
                f"topics.{name}": getattr(self.topics, name)
                for name in ("reports", "commands", "results", "decisions", "ownership")
            },
            **self.settings,
        }
        return [
            *extra,
            *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
        ]

    def command(self, *extra: str) -> tuple[list[str], dict[str, str]]:
        """The spark-submit command line and environment."""
        return submit_command(
            self.arguments(*extra), driver_memory="1g", short_lived=self.short_lived
        )

    def run_once(self, longest_s: float = LONGEST_RUN_S) -> None:
        """Read what is there, then end. Fails with the end of the job's log when the job does."""
        with self.running("--once") as job:
            code = job.wait(timeout=longest_s)
        assert code == 0, self.log()[-4000:]

    @contextmanager
    def running(self, *extra: str) -> Iterator["subprocess.Popen[bytes]"]:
        """The started job; killed (SIGKILL) when it still runs at the end."""
        command, environment = self.command(*extra)
        with (self.folder / "job.log").open("ab") as log:
            job = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield job
        finally:
            if job.poll() is None:
                self.kill(job)

    @staticmethod
    def kill(job: "subprocess.Popen[bytes]") -> None:
        """SIGKILL for spark-submit's JVM and for the Python driver that it started: both are in the
        job's own process group."""
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        wait_until(
            lambda: not _group_lives(job.pid), "the killed job's processes to end", timeout_s=30
        )

    def log(self) -> str:
        """All that the job has printed."""
        return (self.folder / "job.log").read_text()

    def message(self) -> str:
        """The last thing that the job itself said about why it ended; "" when it said nothing."""
        said = [line for line in self.log().splitlines() if line.startswith("balance.py: ")]
        return said[-1].removeprefix("balance.py: ") if said else ""

    def table(self, name: str) -> pa.Table:
        """A table as it is now; no rows when it isn't there yet."""
        at = self.tables / name
        there = DeltaTable.is_deltatable(at.uri, at.delta_options)
        return (
            DeltaTable(at.uri, storage_options=at.delta_options).to_pyarrow_table()
            if there
            else pa.table({})
        )

    def decisions(self) -> list[Decision]:
        """All that a consumer with read_committed sees."""
        consumer = KafkaConsumer(
            self.topics.decisions,
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            consumer_timeout_ms=3000,
        )
        found = [read_decision(record.value) for record in consumer if not is_reads(record.headers)]
        consumer.close()
        return found


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(
    condition: Callable[[], bool],
    what: str,
    timeout_s: float = LONGEST_RUN_S,
    pause_s: float = 0.1,
) -> None:
    """Wait for a condition; fail naming `what` when it doesn't come true."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s} s for {what}"
        time.sleep(pause_s)
