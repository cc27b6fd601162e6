"""`python -m tests.e2e.calm_brokers`: a cluster whose reports tell nothing but what its script and
its decisions have made of it.

No clock and no chance: the same steps and decisions make the same reports, in the same order for
each broker, whenever they are sent and however often the agent is killed. What brokers know lies in
a file, as a real broker's does in the broker. At each step, a number that somebody writes into
another file, the broker with the most bundles runs hot; it cools down when it has given one up.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lb_stream.agent import Agent, AgentConfig, AgentVerdict
from lb_stream.agent.connection import Headers
from lb_stream.contracts.decisions import Decision

BROKERS = ("b1:8080", "b2:8080", "b3:8080")
BUNDLES = 7
WIDTH = 0x1_0000_0000 // BUNDLES
NAMES = tuple(
    f"acme/orders/0x{at * WIDTH:08x}_0x{0xFFFFFFFF if at == BUNDLES - 1 else (at + 1) * WIDTH:08x}"
    for at in range(BUNDLES)
)
HOT, COOL = 55.0, 20.0
"""The bundle that leaves makes nobody else hot."""


@dataclass
class Known:
    """What the brokers know.

    `changes` counts what has changed at a broker, `changed_at` is the step of the last one.
    """

    step: int = 0
    hot: str | None = None
    owned: dict[str, list[str]] = field(
        default_factory=lambda: {name: list(NAMES[at::3]) for at, name in enumerate(BROKERS)}
    )
    changes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 1))
    changed_at: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 0))
    obeyed: list[tuple[str, str]] = field(default_factory=list)  # broker and decision


class CalmCluster:
    """The brokers, on a folder."""

    def __init__(self, folder: Path) -> None:
        self._file, self._step_file = folder / "known.json", folder / "step"
        self.known = Known(**json.loads(self._file.read_text())) if self._file.exists() else Known()
        self.obeying = ""

    def follow_script(self) -> None:
        """Let a new step begin, if there is one."""
        step = int(self._step_file.read_text()) if self._step_file.exists() else 0
        if step > self.known.step:
            self.known.step = step
            self.known.hot = max(BROKERS, key=lambda name: (len(self.known.owned[name]), name))
            self.changed(self.known.hot)

    def changed(self, broker: str) -> None:
        """Something has changed at a broker; it is on the disk before anybody is told."""
        self.known.changes[broker] += 1
        self.known.changed_at[broker] = self.known.step
        if self.obeying:
            self.known.obeyed.append((broker, self.obeying))
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self.known)))
        os.replace(new, self._file)

    def report(self, broker: str) -> dict[str, Any]:
        """The same until something changes.

        Loads are powers of two, so that one bundle is enough and no two brokers are alike.
        """
        step, owned = self.known.changed_at[broker], self.known.owned[broker]
        rates = {name: 10.0 * 2 ** ((NAMES.index(name) + step) % BUNDLES) for name in owned}
        stats = {
            name: {"msgRateIn": rate, "msgThroughputIn": 1e5 * rate, "topics": 3}
            for name, rate in rates.items()
        }
        return {
            "cpu": {"usage": HOT if broker == self.known.hot else COOL, "limit": 100.0},
            "msgRateIn": sum(rates.values()),
            "msgThroughputIn": 1e5 * sum(rates.values()),
            "bundles": owned,
            "lastStats": stats,
            "lastUpdate": self.known.changes[broker],
            "loadReportType": "LocalBrokerData",
        }


@dataclass
class CalmBroker:
    """One of them, as an agent's adapter."""

    cluster: CalmCluster
    name: str

    def report(self) -> dict[str, Any]:
        self.cluster.follow_script()
        return self.cluster.report(self.name)

    def owns(self, bundle: str) -> bool:
        return bundle in self.cluster.known.owned[self.name]

    def release(self, bundle: str) -> None:
        assert self.cluster.obeying, "nothing moves but by decisions"
        self.cluster.known.owned[self.name].remove(bundle)
        if self.cluster.known.hot == self.name:
            self.cluster.known.hot = None
        self.cluster.changed(self.name)

    def acquire(self, bundle: str) -> None:
        assert self.cluster.obeying, "nothing moves but by decisions"
        self.cluster.known.owned[self.name] = sorted({*self.cluster.known.owned[self.name], bundle})
        self.cluster.changed(self.name)


class CalmAgent(Agent):
    """Reads the decisions from their beginning and does none twice, so that none is missed while
    the agent is dead."""

    def __init__(
        self,
        config: AgentConfig,
        cluster: CalmCluster,
        told: Callable[[Decision, str | None, AgentVerdict | None], None],
    ) -> None:
        super().__init__(config, [CalmBroker(cluster, name) for name in BROKERS], on_decision=told)
        self._cluster = cluster
        self.memory.done.update(
            {(broker, decision): 2**62 for broker, decision in cluster.known.obeyed}
        )

    def _take(self, value: bytes | None, appended_ms: int = 0, headers: Headers = ()) -> str | None:
        self._cluster.obeying = json.loads(value or b"{}").get("decision_id", "")
        try:
            return super()._take(value, appended_ms, headers)
        finally:
            self._cluster.obeying = ""


def main() -> None:
    """Until it is killed, or Kafka has been away for too long."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "cluster", "reports", "decisions", "ownership", "folder"):
        parser.add_argument(name)
    given = parser.parse_args()
    topics = (given.reports, given.decisions, given.ownership)
    config = AgentConfig(
        given.bootstrap,
        given.cluster,
        *topics,
        report_interval_s=0.5,
        heartbeat_interval_s=2.0,
        start="earliest",
    )

    def told(decision: Decision, broker: str | None, verdict: AgentVerdict | None) -> None:
        if broker is not None and verdict is not None and verdict.action != "ignore":
            print(
                f"{time.time():.1f} {broker} {verdict.action} {verdict.reason} "
                f"{decision.decision_id} {decision.bundle}",
                flush=True,
            )

    agent = CalmAgent(config, CalmCluster(Path(given.folder)), told)
    agent.start()
    while agent.running:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
