"""Load on a running job, and agents that show whether it decides: one cluster plays a script,
others report all the time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.e2e import backlog
from tests.e2e.calm_brokers import NAMES
from tests.e2e.hostile import Watcher
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline, wait_until

PROJECT = Path(__file__).parents[2]
CALM = "calm-1"
"""The cluster whose agents obey; those of `backlog` only report."""
STEP_S = 1_800
"""A wait, not a measure: other programs may need the machine, too."""
ROUNDS_A_SECOND = 1.0


class Load:
    """Brokers that report all the time, and whose bundles change hands; nobody obeys."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, retries=1_000)
        self._topic, self._over, self.sent = topic, threading.Event(), 0
        self._thread = threading.Thread(target=self._send, daemon=True)

    def _send(self) -> None:
        for number in range(1_000_000):
            if self._over.wait(1 / ROUNDS_A_SECOND):
                return
            for cluster in backlog.CLUSTERS:
                for broker in range(backlog.BROKERS):
                    value = json.dumps(backlog.report(broker, number)).encode()
                    with suppress(
                        KafkaError
                    ):  # away for longer than the client waits: the next report comes in a second
                        self._producer.send(
                            self._topic, key=f"{cluster}/b{broker}".encode(), value=value
                        )
                        self.sent += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=30)
        self._producer.close()


@dataclass
class Play:
    """The agents of one cluster, whose script shows that decisions still come and are obeyed: a
    move each step."""

    pipeline: Pipeline
    tend: Callable[[], None]
    step: int = 0
    delays_ms: list[int] = field(default_factory=list)

    @contextmanager
    def agents(self) -> Iterator[Self]:
        """Beside the job."""
        self._folder = self.pipeline.folder.parent / CALM
        self._folder.mkdir()
        self._watcher, self._agent = Watcher(self.pipeline), self._started()
        try:
            yield self
        finally:
            self._agent.kill()
            self._agent.wait()
            self._watcher.close()

    def _started(self) -> subprocess.Popen[bytes]:
        topics = self.pipeline.topics
        given = [
            self.pipeline.bootstrap,
            CALM,
            topics.reports,
            topics.decisions,
            topics.ownership,
            str(self._folder),
        ]
        command = [
            "setpriv",
            "--pdeathsig=KILL",
            sys.executable,
            "-m",
            "tests.e2e.calm_brokers",
            *given,
        ]  # it ends with this process
        with (self._folder / "agent.log").open("ab") as log:
            return subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)

    def get_ready(self) -> None:
        """Until the job knows every bundle."""

        def known() -> bool:
            owned = [
                unit
                for (cluster, _), unit in self._watcher.units.items()
                if cluster == CALM and unit.state == "Owned"
            ]
            return len(owned) == len(NAMES)

        self.until(known, "all bundles", STEP_S)

    def a_move(self) -> None:
        """The next step of the script, until its move has arrived."""
        self.step += 1
        began = time.monotonic()
        new = self._folder / "step.new"
        new.write_text(str(self.step))
        new.rename(new.with_name("step"))
        self.until(lambda: self._watcher.settled(CALM, self.step), f"move {self.step}", STEP_S)
        self.delays_ms.append(round(1_000 * (time.monotonic() - began)))

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float) -> None:
        """As `wait_until`, with everything tended and read meanwhile.

        An agent ends when Kafka is away for long: a new one goes on.
        """

        def tended() -> bool:
            self.tend()
            if self._agent.poll() is not None:
                self._agent = self._started()
            self._watcher.poll()
            return bool(condition())

        wait_until(tended, what, timeout_s)


def decided(pipeline: Pipeline) -> Counter[str]:
    """Ids of the decisions on the topic, and how often each is there."""
    return Counter(
        json.loads(record.value)["decision_id"]
        for record in committed(pipeline.bootstrap, pipeline.topics.decisions)
    )


def logged(pipeline: Pipeline) -> Counter[str]:
    """Ids of the decisions in the log, and how often each is there."""
    rows = pipeline.table("rounds").to_pydict().get("decisions", [])
    return Counter(one["decision_id"] for text in rows for one in json.loads(text))
