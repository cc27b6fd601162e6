"""Runs a simulated cluster against a real Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lb_stream.agent import Agent, AgentConfig, AgentVerdict
from lb_stream.contracts.decisions import Decision
from lb_stream.sim.brokers import SimBroker
from lb_stream.sim.cluster import SimCluster, max_over_mean
from lb_stream.sim.reports import ReportForm, report_throughput
from lb_stream.sim.stopping import StopFolder

ACTIONS = {
    "release": "gives up",
    "acquire": "takes",
    "split": "splits",
    "merge": "merges",
    "refuse": "refuses",
}
"""What a broker does about a decision → the verb that `lbctl sim` prints."""
STATUS_EVERY_S = 5.0
STEP_S = 0.1


@dataclass(slots=True)
class Status:
    """Prints what brokers report and do: lines for people, or JSON for programs."""

    quiet: bool = False
    json: bool = False
    reports: dict[str, Mapping[str, object]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ACTIONS, 0))
    started: float = field(default_factory=time.monotonic)
    shown: float = field(default_factory=time.monotonic)

    def on_report(self, broker: str, report: Mapping[str, object]) -> None:
        """Note a report. Lists of top bundles are left out: they lack the broker's totals."""
        if "topBundlesLoadData" not in report:
            self.reports[broker] = report

    def on_decision(
        self, decision: Decision, broker: str | None, verdict: AgentVerdict | None
    ) -> None:
        """Count what a broker did about a decision, and print it."""
        if broker is None or verdict is None or verdict.action == "ignore":
            return
        self.done[verdict.action] += 1
        if self.quiet:
            return
        if self.json:
            self._emit(
                {
                    "broker": broker,
                    "action": verdict.action,
                    "decision_id": decision.decision_id,
                    "bundle": decision.bundle,
                    "reason": verdict.reason,
                }
            )
            return
        line = f"{broker} {ACTIONS[verdict.action]} {decision.bundle}  {verdict.reason}"
        print(f"{self._elapsed()}  {line}".rstrip(), flush=True)

    def show(self, at_most_every_s: float = 0.0) -> None:
        """Print one line about the whole cluster, at most once in `at_most_every_s`."""
        if time.monotonic() - self.shown < at_most_every_s:
            return
        self.shown = time.monotonic()
        reports = self.reports.copy().items()
        throughputs = {broker: report_throughput(report) for broker, report in reports}
        if not throughputs:
            return
        imbalance = max_over_mean(throughputs.values())
        busiest = max(throughputs, key=lambda broker: throughputs[broker])
        bytes_per_s = throughputs[busiest]
        if self.json:
            figures = {"busiest": busiest, "bytes_per_s": bytes_per_s, "done": self.done}
            self._emit({"max_over_mean": imbalance, **figures})
            return
        done = self.done
        print(
            f"{self._elapsed()}  max/mean {imbalance:.2f}  most at {busiest}: "
            f"{bytes_per_s / 1e6:.1f} MB/s  given up {done['release']}  taken {done['acquire']}  "
            f"refused {done['refuse']}",
            flush=True,
        )

    def tell(self, line: str) -> None:
        """Print a line about a broker that was stopped or started."""
        if self.json:
            self._emit({"text": line})
        else:
            print(f"{self._elapsed()}  {line}", flush=True)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.started:6.1f} s"

    def _emit(self, fields: Mapping[str, object]) -> None:
        elapsed_s = round(time.monotonic() - self.started, 1)
        print(json.dumps({"elapsed_s": elapsed_s, **fields}), flush=True)


def run(
    cluster: SimCluster,
    form: ReportForm,
    config: AgentConfig,
    status: Status,
    seconds: float,
    goodbye: bool,
    stop: Callable[[], bool],
    stopped: Path | None = None,
) -> str | None:
    """Run the brokers for `seconds` (inf: until `stop` returns True).

    `stopped`: the folder whose files name the brokers that are stopped; None: there is none. Returns
    the agent's failure, None if there was none. Raises AgentError when it can't start.
    """
    brokers = [SimBroker(cluster, name, form) for name in cluster.brokers]
    agent = Agent(config, brokers, status.on_report, status.on_decision)
    agent.start()
    folder = None if stopped is None else StopFolder(stopped, agent, brokers)
    deadline = time.monotonic() + seconds
    while agent.running and not stop() and time.monotonic() < deadline:
        time.sleep(STEP_S)
        for line in [] if folder is None else folder.follow():
            status.tell(line)
        status.show(at_most_every_s=STATUS_EVERY_S)
    agent.stop(goodbye=goodbye)
    status.show()
    return None if agent.failure is None else str(agent.failure)
