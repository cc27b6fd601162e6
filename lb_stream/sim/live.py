"""`python -m lb_stream.sim`: a simulated cluster against a real Kafka, until it is stopped."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from lb_stream.agent import Agent, AgentConfig, AgentError, ReportThrottle, SplitWatch, Verdict
from lb_stream.contracts.decisions import Decision
from lb_stream.core.config.cluster_config import cluster_config
from lb_stream.core.reporting.report_needed import ReportConfig
from lb_stream.io.local.signals import StopRequest
from lb_stream.sim.brokers import SimBroker, wall_clock_ms
from lb_stream.sim.cluster import build_cluster, max_over_mean
from lb_stream.sim.reports import ReportForm, throughput_of
from lb_stream.sim.workload import WORKLOADS

STATUS_EVERY_S = 5.0
STEP_S = 0.1

DESCRIPTION = """\
Plays a cluster of brokers against a real Kafka. Each broker publishes its load report on the reports topic and obeys
the decisions that are addressed to it on the decisions topic: it gives a bundle up or takes one, acknowledges, and
reports at once. Stops on Ctrl-C or SIGTERM; the topics must exist (`lbctl topics create`).
"""
EPILOG = f"""\
workloads:
{chr(10).join(f"  {name:<9} {what}" for name, what in WORKLOADS.items())}

examples:
  a hot broker that appears after half a minute, in a cluster of ten:
    python -m lb_stream.sim --bootstrap-servers 127.0.0.1:9092 --cluster demo --brokers 10 --bundles 200 --hot-at-s 30
  the same cluster with the simple manager's reports, for two minutes:
    python -m lb_stream.sim --bootstrap-servers 127.0.0.1:9092 --cluster demo --form simple --minutes 2
  two clusters on one Kafka: run it twice, with different --cluster

exit codes: 0 stopped or time is up, 1 Kafka, a topic or a right is missing, 2 wrong usage or login
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. Returns the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it tells every attempt to reconnect; what matters comes back as an error
    cluster = build_cluster(options.brokers, options.bundles, options.workload, options.seed, wall_clock_ms(), options.hot_at_s)
    status = Status(quiet=options.quiet)
    config = AgentConfig(
        bootstrap_servers=options.bootstrap_servers,
        cluster=options.cluster,
        reports_topic=options.reports_topic,
        decisions_topic=options.decisions_topic,
        ownership_topic=options.ownership_topic,
        split_watch=SplitWatch.of(cluster_config({"load_manager": "extensible"})) if options.form == "extensible" else None,
        sparing=(lambda: ReportThrottle(ReportConfig())) if options.sparing else None,
        report_interval_s=options.interval_s,
        heartbeat_interval_s=options.heartbeat_s,
        client_options=dict(options.option),
    )
    agent = Agent(config, [SimBroker(cluster, name, options.form) for name in cluster.brokers], status.on_report, status.on_decision)
    with StopRequest() as stop:
        try:
            agent.start()
        except AgentError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.code
        print(f"{options.brokers} brokers with {options.bundles} bundles, cluster {options.cluster}; Ctrl-C stops them", flush=True)
        deadline = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
        while agent.running and not stop and time.monotonic() < deadline:
            time.sleep(STEP_S)
            status.show(at_most_every_s=STATUS_EVERY_S)
        agent.stop(goodbye=options.goodbye)
    status.show()
    if agent.failure is not None:
        print(f"error: the brokers' agent ended: {agent.failure}", file=sys.stderr)
        return 1
    return 0


@dataclass(slots=True)
class Status:
    """What the brokers last reported and did, in lines for people."""

    quiet: bool = False
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=lambda: {"release": 0, "acquire": 0, "split": 0, "merge": 0, "refuse": 0})
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
        if not self.quiet:
            words = {"release": "gives up", "acquire": "takes", "split": "splits", "merge": "merges", "refuse": "refuses"}
            print(f"{self._elapsed()}  {broker} {words[verdict.action]} {decision.bundle}  {verdict.reason}".rstrip(), flush=True)

    def show(self, at_most_every_s: float = 0.0) -> None:
        """One line about the whole cluster."""
        if time.monotonic() - self.shown < at_most_every_s:
            return
        self.shown = time.monotonic()
        throughputs = {broker: throughput_of(report) for broker, report in self.reports.copy().items()}
        if throughputs:
            greatest = max(throughputs, key=lambda broker: throughputs[broker])
            figures = f"max/mean {max_over_mean(throughputs.values()):.2f}  most at {greatest}: {throughputs[greatest] / 1e6:.1f} MB/s"
            done = f"given up {self.done['release']}  taken {self.done['acquire']}  refused {self.done['refuse']}"
            print(f"{self._elapsed()}  {figures}  {done}", flush=True)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.started:6.1f} s"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lb_stream.sim", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT", help="Kafka; several with commas between")
    add("--cluster", default="demo", help="name of the cluster, the first part of every key (default: %(default)s)")
    add("--brokers", type=_number(1), default=6, metavar="N", help="default: %(default)s")
    add("--bundles", type=_number(1), default=96, metavar="N", help="dealt to the brokers in turn (default: %(default)s)")
    add("--workload", choices=list(WORKLOADS), default="hot_spot", help="how load moves, see below (default: %(default)s)")
    add("--hot-at-s", type=_number(0.0), default=0.0, metavar="S", help="hot_spot begins after so many seconds (default: at once)")
    add("--interval-s", type=_number(0.01), default=1.0, metavar="S", help="seconds between a broker's reports (default: %(default)s)")
    add("--heartbeat-s", type=_number(0.01), default=5.0, metavar="S", help="seconds between heartbeats (default: %(default)s)")
    add("--form", choices=get_args(ReportForm), default="modular", help="whose JSON form the reports have (default: %(default)s)")
    add("--seed", type=int, default=1, metavar="N", help="same seed, same cluster (default: %(default)s)")
    add("--minutes", type=_number(0.0), default=0.0, metavar="M", help="stop after so long (default: 0, never)")
    add("--goodbye", action="store_true", help="at the end tell the balancer that the brokers leave on purpose")
    add("--quiet", action="store_true", help="no line for each decision")
    add("--reports-topic", default="lb-load-reports", metavar="TOPIC", help="default: %(default)s")
    add("--decisions-topic", default="lb-decisions", metavar="TOPIC", help="default: %(default)s")
    add("--ownership-topic", default="lb-ownership", metavar="TOPIC", help="default: %(default)s")
    add("--sparing", action="store_true", help="leave out reports that say little new, as Pulsar's brokers do by default")
    add(
        "--option", type=_option, action="append", default=[], metavar="KEY=VALUE",
        help="a setting of kafka-python's clients, e.g. security_protocol=SSL; may be given several times",
    )  # fmt: skip
    return parser


def _number(least: float) -> Any:
    """An argument of the type of `least` that is not below it."""

    def parse(text: str) -> float:
        value = type(least)(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    parse.__name__ = "whole number" if isinstance(least, int) else "number"
    return parse


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return name, json.loads(value)  # numbers, true and false
    except ValueError:
        return name, value


if __name__ == "__main__":
    sys.exit(main())
