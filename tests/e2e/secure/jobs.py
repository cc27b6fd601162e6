"""The job of a secured pipeline: submitted, as operators start it, or its stream in a thread of the
test's own Spark.

Both by the same settings file, with the same interface. The second costs no start of Spark.
"""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from lb_stream.contracts.settings import Settings
from lb_stream.io.leadership.membership import Member
from lb_stream.io.messages.errors import describe_error
from lb_stream.job.leading import lead
from lb_stream.job.session import spark_session
from lb_stream.job.submit import submit_command
from lb_stream.settings.load import load
from tests.bench.stream.spark import spark_environment
from tests.e2e.pipeline import Pipeline, wait_until
from tests.e2e.secure.roles_at_work import Users

LONGEST_S = 600.0


class Job(Protocol):
    """A started job."""

    @property
    def lives(self) -> bool:
        """Whether it goes on."""

    def ended(self) -> tuple[str, int]:
        """Its line and its exit code, once it has ended by itself."""

    def stop(self) -> None:
        """Let it end in order."""

    def kill(self) -> None:
        """End it if it still runs."""


class Submitted:
    """A job by spark-submit."""

    def __init__(self, config: Path, changed: Mapping[str, Any]) -> None:
        self._log = config.with_name("job.log")
        given = [part for name, value in changed.items() for part in ("--set", f"{name}={value}")]
        command, environment = submit_command(
            ["--config", str(config), *given], driver_memory="1g", short_lived=True
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def ended(self) -> tuple[str, int]:
        code = self._process.wait(timeout=LONGEST_S)
        lines = [
            line for line in self._log.read_text().splitlines() if line.startswith("balance.py: ")
        ]
        assert len(lines) == 1, self._log.read_text()[-3000:]
        return lines[0].removeprefix("balance.py: "), code

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(timeout=LONGEST_S) in (0, 143), self._log.read_text()[-3000:]

    def kill(self) -> None:
        if self.lives:
            Pipeline.kill(self._process)


class Streaming:
    """A job's stream in a thread, on a Spark that outlives it."""

    def __init__(self, config: Path, changed: Mapping[str, Any]) -> None:
        settings = load(
            config, None, [f"{name}={value}" for name, value in changed.items()]
        ).settings
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, args=(settings,), name="stream", daemon=True
        )
        self._thread.start()

    def _run(self, settings: Settings) -> None:
        member = Member(settings, leads=True)
        member.start()
        try:
            lead(spark_session(settings), settings, member, False, self._stop.is_set)
        except Exception as error:
            self._error = error
        finally:
            member.stop()

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def ended(self) -> tuple[str, int]:
        self._thread.join(LONGEST_S)
        assert self._error is not None, "it goes on, or has ended without a word"
        found = describe_error(self._error)
        assert found is not None, self._error
        return found

    def stop(self) -> None:
        self.kill()
        assert self._error is None, self._error

    def kill(self) -> None:
        self._stop.set()
        self._thread.join(LONGEST_S)
        assert not self.lives


@contextmanager
def running(
    kind: type[Submitted | Streaming], users: Users, changed: Mapping[str, Any]
) -> Iterator[Job]:
    """A started job; ended when it still runs at the end."""
    job = kind(users.file("job"), changed)
    try:
        yield job
    finally:
        job.kill()


@contextmanager
def spark_in_this_process() -> Iterator[SparkSession]:
    """Spark as the job has it, for Streaming."""
    before = dict(os.environ)
    os.environ.update(spark_environment())
    try:
        session = spark_session(Settings())
        yield session
        session.stop()
    finally:
        os.environ.clear()
        os.environ.update(before)


def await_answer(users: Users, job: Job, command: str) -> None:
    """Wait until the brokers have done what a command has ordered."""
    tables = Pipeline(users.bootstrap, users.topics, users.folder)

    def is_done() -> bool:
        return any(
            row["id"] == command and row["outcome"] == "done"
            for row in tables.table("commands").to_pylist()
        )

    wait_until(lambda: is_done() or not job.lives, f"{command} to be done", LONGEST_S)
    assert is_done(), job.ended()
