"""A simulated cluster against a real Kafka, until it is stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lb_stream.agent import Agent, AgentConfig, Verdict
from lb_stream.contracts.decisions import Decision
from lb_stream.sim.brokers import SimBroker
from lb_stream.sim.cluster import SimCluster, max_over_mean
from lb_stream.sim.reports import ReportForm, throughput_of

ACTIONS = {
    "release": "gives up",
    "acquire": "takes",
    "split": "splits",
    "merge": "merges",
    "refuse": "refuses",
}
"""What a broker may do about a decision, in words."""
STATUS_EVERY_S = 5.0
STEP_S = 0.1


@dataclass(slots=True)
class Status:
    """What the brokers last reported and did, in lines for people, or as JSON for programs."""

    quiet: bool = False
    json: bool = False
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ACTIONS, 0))
    started: float = field(default_factory=time.monotonic)
    shown: float = field(default_factory=time.monotonic)

    def on_report(self, broker: str, report: Mapping[str, Any]) -> None:
        """A report was sent. A list of top bundles says nothing of the whole broker."""
        if "topBundlesLoadData" not in report:
            self.reports[broker] = report

    def on_decision(self, decision: Decision, broker: str | None, verdict: Verdict | None) -> None:
        """A decision was dealt with."""
        if broker is None or verdict is None or verdict.action == "ignore":
            return
        self.done[verdict.action] += 1
        if self.quiet:
            return
        if self.json:
            fields = {"decision_id": decision.decision_id, "bundle": decision.bundle}
            what = {"broker": broker, "action": verdict.action}
            self._emit(what | fields | {"reason": verdict.reason})
            return
        line = f"{broker} {ACTIONS[verdict.action]} {decision.bundle}  {verdict.reason}"
        print(f"{self._elapsed()}  {line}".rstrip(), flush=True)

    def show(self, at_most_every_s: float = 0.0) -> None:
        """One line about the whole cluster."""
        if time.monotonic() - self.shown < at_most_every_s:
            return
        self.shown = time.monotonic()
        reports = self.reports.copy().items()
        throughputs = {broker: throughput_of(report) for broker, report in reports}
        if not throughputs:
            return
        uneven = max_over_mean(throughputs.values())
        busiest = max(throughputs, key=lambda broker: throughputs[broker])
        bytes_per_s = throughputs[busiest]
        if self.json:
            figures = {"busiest": busiest, "bytes_per_s": bytes_per_s, "done": self.done}
            self._emit({"max_over_mean": uneven, **figures})
            return
        done = self.done
        print(
            f"{self._elapsed()}  max/mean {uneven:.2f}  most at {busiest}: "
            f"{bytes_per_s / 1e6:.1f} MB/s  given up {done['release']}  taken {done['acquire']}  "
            f"refused {done['refuse']}",
            flush=True,
        )

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.started:6.1f} s"

    def _emit(self, fields: dict[str, Any]) -> None:
        elapsed_s = round(time.monotonic() - self.started, 1)
        print(json.dumps({"elapsed_s": elapsed_s} | fields), flush=True)


def run(
    cluster: SimCluster,
    form: ReportForm,
    config: AgentConfig,
    status: Status,
    seconds: float,
    goodbye: bool,
    stop: Callable[[], bool],
) -> str | None:
    """Play the brokers for so many seconds (inf: until a stop is asked for).

    Returns why the agent ended by itself, if it did. Raises AgentError when it can't start.
    """
    brokers = [SimBroker(cluster, name, form) for name in cluster.brokers]
    agent = Agent(config, brokers, status.on_report, status.on_decision)
    agent.start()
    deadline = time.monotonic() + seconds
    while agent.running and not stop() and time.monotonic() < deadline:
        time.sleep(STEP_S)
        status.show(at_most_every_s=STATUS_EVERY_S)
    agent.stop(goodbye=goodbye)
    status.show()
    return None if agent.failure is None else str(agent.failure)
