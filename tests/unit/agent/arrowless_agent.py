"""A program: an agent of an extensible broker reports and obeys where pyarrow is not installed.

It prints the records that the agent sends, as (kind, JSON) lines, and logs to stderr. Kafka is
replaced by lists.
"""

import tests.support.without_arrow  # noqa: F401, I001  # first: it blocks pyarrow

import json
import logging
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

from kafka.future import Future

from lb_stream.agent import Agent, AgentConfig, ReportThrottle, SplitWatch
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.reads import Reads
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.splitting import Topics
from lb_stream.settings.resolve import resolve

DECISION = example_decision(expires_ms=4_000_000_000_000)
READS = Reads(cluster=DECISION.cluster, checkpoint="one", forms=["columns"])


class Broker:
    """A broker that serves one bundle until it is told to release it."""

    name = DECISION.source or ""

    def __init__(self) -> None:
        self.bundles = [DECISION.bundle]

    def report(self) -> dict[str, Any]:
        stats = {bundle: {"msgRateIn": 10.0, "topics": 3} for bundle in self.bundles}
        return {"webServiceUrl": f"http://{self.name}", "lastStats": stats, "bundles": self.bundles}

    def owns(self, bundle: str) -> bool:
        return bundle in self.bundles

    def release(self, bundle: str) -> None:
        self.bundles.remove(bundle)

    def acquire(self, bundle: str) -> None:
        self.bundles.append(bundle)

    def stats(self) -> dict[str, BundleStats]:
        return {bundle: BundleStats(topics=3) for bundle in self.bundles}

    def topics(self, bundle: str) -> Topics:
        return Topics.from_names([])


class Producer:
    """Prints what is sent, and acknowledges it."""

    def __init__(self, obeyed: threading.Event) -> None:
        self._obeyed = obeyed

    def send(self, _topic: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> Any:
        kind = dict(headers)["kind"].decode()
        sys.stdout.write(f"{json.dumps([kind, json.loads(value)])}\n")  # two threads: one write
        if kind == "ack":
            self._obeyed.set()
        return Future().success(SimpleNamespace(timestamp=time.time_ns() // 1_000_000))

    def recover(self) -> None: ...

    def close(self, timeout: float) -> None: ...


class Consumer:
    """Says that the job reads columns; later it hands out the decision."""

    def __init__(self) -> None:
        kind = [("kind", b"reads")]
        values = [(READS.to_json(), kind), (DECISION.to_json(), [("kind", b"decision")])]
        self._records = [
            SimpleNamespace(
                topic="lb-decisions", key=b"", value=text.encode(), timestamp=0, headers=headers
            )
            for text, headers in values
        ]

    def poll(self, timeout_ms: int) -> dict[int, list[Any]]:
        time.sleep(0.001)
        return {0: [self._records.pop(0)]} if self._records else {}

    def close(self) -> None: ...


def main() -> int:
    """Run the agent until it has obeyed; return whether it failed."""
    logging.basicConfig(level=logging.WARNING)
    resolved = resolve({"load_manager": "extensible", "report_columns_bundles": 1})
    config = AgentConfig(
        "unused:9092",
        DECISION.cluster,
        heartbeat_interval_s=60,
        make_throttle=ReportThrottle.for_manager(resolved.reporting, resolved.config.balancer),
        make_split_watch=SplitWatch.for_cluster(resolved.config),
        min_columns=resolved.reporting.report_columns_bundles,
    )
    broker, obeyed = Broker(), threading.Event()
    agent = Agent(config, [broker])
    producer: Any = Producer(obeyed)
    consumer: Any = Consumer()

    def connect() -> None:
        agent.connection.producer, agent.connection.consumer = producer, consumer

    agent.connection.open = connect  # type: ignore[method-assign]
    agent.start()
    obeyed.wait(30)
    agent.stop(goodbye=True)
    return int(agent.failure is not None or bool(broker.bundles))


if __name__ == "__main__":
    sys.exit(main())
