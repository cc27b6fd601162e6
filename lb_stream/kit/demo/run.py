"""One run of the demo: starts Kafka, the job and brokers, watches them until they are balanced."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lb_stream.agent import Agent, AgentConfig, AgentError
from lb_stream.cli.shared.contexts import NONE, find_files
from lb_stream.cli.shared.output import CommandError
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.local.jars import jar_paths
from lb_stream.io.local.signals import StopRequest
from lb_stream.job.process import Job, end_leftover
from lb_stream.job.submit import submit_command
from lb_stream.kit.demo.view import View, comparison, make_view
from lb_stream.kit.demo.watch import BALANCED, BrokerFigures, DemoState, throughput_imbalance
from lb_stream.kit.embedded_kafka import EmbeddedKafka, free_port
from lb_stream.query.status_facts import DEMO_END_FILE
from lb_stream.settings.files import CONF
from lb_stream.settings.load import load_settings
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from lb_stream.sim.stopping import StopFolder

FOLDER = Path(".lb/demo")
STOPPED = FOLDER / "stopped"
"""A simulated broker is stopped while a file with its name is in this folder."""
CONFIG = CONF / "local.toml"
CLUSTER = "demo"
REPORT_INTERVAL_S = 1.0
STEP_S = 0.25
CALM_PASSES = 2.5
"""How many shedding passes without a decision make the cluster calm."""
AT_REST_S = 40.0
"""Seconds without a decision after which a cluster that is uneven counts as not balanced."""
LAST_CONFIRMATIONS_S = 20.0
STAGES = (
    ("supervise: ready: ", "the first batch: Spark plans it, Python workers read it"),
    ("leads the pipeline", "the job leads; it opens its log and its tables"),
    ("balance: Spark is up", "Spark is up; the job asks Kafka for the lead"),
)
"""A text in the job's log → what the demo waits for; the first that is in the log counts."""
TOO_EARLY = ("UnknownTopicOrPartition", "no Kafka at ")
"""Texts at the end of the log of a job that has ended because Kafka wasn't ready."""
MAX_FAILED_ROUNDS = 10
"""How many rounds in a row may fail before the demo ends with an error."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The arguments of one run."""

    shedder: str
    brokers: int
    bundles: int
    workload: str
    seed: int
    most_rounds: int
    most_seconds: float
    keep: bool  # leave everything running until Ctrl-C
    json_only: bool
    settings: tuple[str, ...]

    def job_arguments(self, bootstrap: str) -> list[str]:
        """Return the job's command line."""
        return [
            "--config",
            str(CONFIG),
            *(part for override in self.overrides(bootstrap) for part in ("--set", override)),
        ]

    def overrides(self, bootstrap: str) -> list[str]:
        """Return settings, KEY=VALUE, over conf/local.toml: the demo's and the user's."""
        root = FOLDER.resolve()
        return [
            f"cluster.{CLUSTER}.dry_run=false",
            f"balancer.shedding_strategy={self.shedder}",
            *self.settings,
            f"kafka.bootstrap_servers={bootstrap}",
            f"stream.tables={root / 'tables'}",
            f"stream.checkpoint={root / 'checkpoint'}",
        ]


class Interrupted(Exception):
    """The user has asked the demo to stop."""


class DemoRun:
    """One run, from start to summary. What was started is stopped in reverse order."""

    def __init__(self, plan: DemoPlan, stop: StopRequest, started: float) -> None:
        """`started` is the time.monotonic() of the demo's beginning. Raises SettingError."""
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it raises its errors, too
        self.plan, self.stop, self.started_again = plan, stop, False
        settings = load_settings(CONFIG, None, plan.overrides("127.0.0.1:1"))
        shedding_s = float(settings.of_cluster(CLUSTER).get("shedding_interval_ms", 60_000)) / 1000
        self.kafka = EmbeddedKafka(FOLDER / "kafka", port=free_port())
        self.console = Console(stderr=plan.json_only, highlight=False)
        self.stops: StopFolder | None = None  # of the brokers, once they run
        self.watch = DemoState(
            FOLDER / "tables", CLUSTER, calm_s=max(5.0, CALM_PASSES * shedding_s), started=started
        )
        self.at_rest_s = max(AT_REST_S, 2 * CALM_PASSES * shedding_s)

    def run(self) -> int:
        """Run the demo and print its summary; return the exit code."""
        submit_command([])  # checks Java and jars before the last demo's files are removed
        jar_paths("broker")
        _clear()
        self.watch.skip_past()
        self.console.print(
            f"[bold]lb_stream demo[/]: {self.plan.brokers} brokers, {self.plan.bundles} bundles, "
            f"{self.plan.workload}, {self.plan.shedder}"
        )
        how, code = "interrupted", 1
        with ExitStack() as outer:
            outer.callback(lambda: _note_end(how))  # after everything has been stopped
            stack = outer.enter_context(ExitStack())
            view = make_view(self.console, self.watch)
            stack.callback(view.close)
            try:
                agent, job = self._start(stack, view)
                verdict = self._balance(view, agent, job)
            except CommandError:
                how = "with an error"
                raise
            finally:
                view.close()
            how = verdict or "balanced"
            after = self.watch.figures()
            if self.plan.keep:
                code = self._print_summary(verdict, after)
                self._stay(agent, job)
            self.console.print("stopping the brokers, the job and Kafka", style="dim")
        self.watch.refresh()
        return code if self.plan.keep else self._print_summary(verdict, after)

    # --- starting ---

    def _start(self, stack: ExitStack, view: View) -> tuple[Agent, Job]:
        """Start Kafka and the job together, then the brokers: the job needs Kafka after Spark."""
        bootstrap = f"127.0.0.1:{self.kafka.port}"
        job = Job(self.plan.job_arguments(bootstrap), FOLDER / "job.log", FOLDER / "job.json")
        view.step(f"Kafka at {bootstrap} and the job start (log: {FOLDER / 'job.log'})")
        starting = KafkaStart(self.kafka)
        stack.callback(starting.stop)
        starting.thread.start()
        stack.callback(job.stop)
        job.start()
        while starting.thread.is_alive():
            self._pause(view, "Kafka and Spark are starting")
        if starting.failure is not None:
            raise starting.failure
        create_topics(bootstrap, topic_specs())
        if job.exit_code() is not None:  # the job gave up waiting for Kafka
            self._start_again(job)
        view.step("Kafka is up and has its topics; the brokers report")
        return self._start_brokers(stack, bootstrap), job

    def _start_again(self, job: Job) -> None:
        job.stop()
        job.start()
        self.started_again = True

    def _start_brokers(self, stack: ExitStack, bootstrap: str) -> Agent:
        plan, watch = self.plan, self.watch
        cluster = build_cluster(
            plan.brokers, plan.bundles, plan.workload, plan.seed, wall_clock_ms()
        )
        config = AgentConfig(bootstrap, CLUSTER, report_interval_s=REPORT_INTERVAL_S)
        brokers = [SimBroker(cluster, name) for name in cluster.brokers]
        agent = Agent(config, brokers, watch.on_report, watch.on_decision)
        try:
            agent.start()
        except AgentError as error:
            raise CommandError(f"the simulated brokers: {error}") from error
        stack.callback(agent.stop)
        self.stops = StopFolder(STOPPED, agent, brokers)
        return agent

    # --- balancing ---

    def _balance(self, view: View, agent: Agent, job: Job) -> str:
        """Wait until the cluster is balanced and calm; return "", or why it is not balanced."""
        watch, plan = self.watch, self.plan
        while True:
            self._pause(view, self._phase(job))
            self._check(agent, job)
            if watch.calm():
                if self._balanced():
                    return ""
                if watch.calm(self.at_rest_s):
                    return (
                        "the balancer makes no more decisions, but the brokers are not even "
                        f"({plan.shedder} has no reason to move more)"
                    )
            has_all_rounds = watch.rounds >= plan.most_rounds
            if has_all_rounds or watch.elapsed_s() >= plan.most_seconds:
                self._await_confirmations(view, agent, job)
                if self._balanced() and not watch.unconfirmed():
                    return ""
                seconds = f"{plan.most_seconds:.0f} seconds"
                limit = f"{plan.most_rounds} rounds" if has_all_rounds else seconds
                return f"not balanced after {limit}"

    def _await_confirmations(self, view: View, agent: Agent, job: Job) -> None:
        deadline = time.monotonic() + LAST_CONFIRMATIONS_S
        while self.watch.unconfirmed() and time.monotonic() < deadline:
            self._pause(view, "waiting for the last confirmations")
            self._check(agent, job)

    def _phase(self, job: Job) -> str:
        """Describe what the demo waits for."""
        if not self.watch.rounds:
            log = job.log_tail(200)
            return next((awaited for mark, awaited in STAGES if mark in log), "Spark is starting")
        if self._balanced() and not self.watch.unconfirmed():
            return "balanced; watching whether it stays so"
        return "balancing"

    def _balanced(self) -> bool:
        return throughput_imbalance(self.watch.figures()) <= BALANCED

    def _pause(self, view: View, phase: str) -> None:
        """Show the present state and wait a little. Raises Interrupted."""
        view.update(self.watch, phase)
        time.sleep(STEP_S)
        if self.stop:
            raise Interrupted
        self.watch.refresh()

    def _check(self, agent: Agent, job: Job) -> None:
        """Raise CommandError if something that must run has ended."""
        code = job.exit_code()
        # It had looked for the topics, or for Kafka, before they were there.
        was_early = code is not None and any(text in job.log_tail(200) for text in TOO_EARLY)
        if was_early and not self.started_again:
            self._start_again(job)
        elif code is not None:
            raise CommandError(
                f"the job has ended (exit code {code}). The end of its output, "
                f"{FOLDER / 'job.log'}:\n\n{job.log_tail()}\n"
            )
        if self.watch.failed_in_a_row >= MAX_FAILED_ROUNDS:
            raise CommandError(
                f"the last {MAX_FAILED_ROUNDS} rounds of the balancer failed (table rounds, column "
                f"error):\n\n{self.watch.error}"
            )
        if self.kafka.pid is None:
            raise CommandError(
                "Kafka has ended. The end of its log, "
                f"{self.kafka.log_file}:\n\n{self.kafka.log_tail()}\n"
            )
        if not agent.running:
            raise CommandError(f"the simulated brokers have stopped: {agent.failure}")

    def _stay(self, agent: Agent, job: Job) -> None:
        """Keep everything running until a request to stop."""
        lines = (
            f"\nEverything runs until Ctrl-C: Kafka at 127.0.0.1:{self.kafka.port}, the job, "
            f"{self.plan.brokers} brokers.\nIn a second terminal, in this folder:",
            f"  {_lbctl()} console     # then open http://127.0.0.1:8090/ in a browser",
            f"  {_lbctl()} status",
            f"  {_lbctl()} brokers drain broker-1",
            f"  {_lbctl()} rollout start     # docs/rollouts.md goes on from here",
            f"A broker is stopped while {STOPPED} has a file with its name:",
            f"  touch {STOPPED}/broker-1     # rm starts it again",
        )
        for line in lines:
            self.console.print(line, soft_wrap=True, markup=False)
        while not self.stop:
            time.sleep(STEP_S)
            self.watch.refresh()
            for line in self.stops.follow() if self.stops is not None else ():
                self.console.print(line, soft_wrap=True, markup=False)
            self._check(agent, job)

    # --- the summary ---

    def _print_summary(self, verdict: str, after: list[BrokerFigures]) -> int:
        """Print brokers before and after, next steps, and the figures; return the exit code."""
        watch, console = self.watch, self.console
        console.print()
        console.print(comparison(watch.before, after))
        console.print()
        seconds = watch.elapsed_s()
        decisions, confirmed = len(watch.made), watch.confirmed()
        console.print(
            f"{decisions} decisions in {watch.rounds} rounds, {confirmed} confirmed, {seconds:.0f} "
            "s",
            soft_wrap=True,
        )
        if watch.error:
            console.print(
                f"a round failed: {watch.error}", style="red", soft_wrap=True, markup=False
            )
        console.print(f"[red]{verdict}[/]" if verdict else "[green]balanced[/]", soft_wrap=True)
        console.print(f"\nThe tables are in {FOLDER / 'tables'}. Query them:", soft_wrap=True)
        for query in queries():
            console.print(f"  {query}", soft_wrap=True, markup=False)
        first_s = next((round(decision.at_s, 1) for decision in watch.decisions()), None)
        figures = {
            "max_over_mean_before": round(throughput_imbalance(watch.before), 4),
            "max_over_mean_after": round(throughput_imbalance(after), 4),
            "decisions": decisions,
            "confirmed": confirmed,
            "rounds": watch.rounds,
            "balanced": not verdict,
            "seconds_setup": _number(os.environ.get("LB_SETUP_SECONDS", "0")),
            "seconds": round(seconds, 1),
            "seconds_to_first_decision": first_s,
        }
        print(json.dumps(figures), flush=True)
        return 1 if verdict else 0


def queries() -> list[str]:
    """Return three queries of the tables, as lines for a shell."""
    option = f" --set stream.tables={FOLDER / 'tables'}" if Path(".lb/tables").exists() else ""
    texts = (
        "select kind, rule, count(*) as n from decisions group by all",
        "select outcome, count(*) as n, avg(took_ms) as ms from outcomes group by all",
        "select seq, max(usage_ratio) / avg(usage_ratio) as uneven from broker_loads"
        " where active group by seq order by seq",
    )
    return [f'{_lbctl()} sql{option} "{query}"' for query in texts]


def _lbctl() -> str:
    """Return how to call this lbctl: by its name if the shell finds it, else by its path.

    Where a context is in use, it must not be: the demo isn't what it names.
    """
    own = Path(sys.executable).with_name("lbctl")
    found = shutil.which("lbctl")
    is_found = found and own.exists() and Path(found).samefile(own)
    name = "lbctl" if is_found else os.path.relpath(own)
    try:
        uses_context = find_files(None, None) != (None, None)
    except CommandError:  # the commands would fail, too
        uses_context = True
    return f"{name} --context {NONE}" if uses_context else name


class KafkaStart:
    """Starts the broker in a thread, so that the demo can be stopped meanwhile."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="kafka-start", daemon=True)

    def _run(self) -> None:
        try:
            self.kafka.start()
        except Exception as error:  # raised by the thread that waits for this one
            self.failure = error

    def stop(self) -> None:
        """Stop the broker, also one that still starts: its start fails then."""
        while self.thread.is_alive():
            self.kafka.stop(grace_s=1)
            self.thread.join(0.1)
        self.kafka.stop()


def _note_end(how: str) -> None:
    """Write beside the tables, if there are any, that the demo has ended."""
    end = {"at_ms": time.time_ns() // 1_000_000, "how": how}
    with suppress(OSError):
        (FOLDER / DEMO_END_FILE).write_text(json.dumps(end))


def _clear() -> None:
    """End the processes of a demo that was killed, and remove the last demo's files."""
    end_leftover(FOLDER / "job.json")
    EmbeddedKafka(FOLDER / "kafka").stop()
    for name in (DEMO_END_FILE, "job.log"):
        (FOLDER / name).unlink(missing_ok=True)
    for name in ("kafka", "tables", "checkpoint", STOPPED.name):
        shutil.rmtree(FOLDER / name, ignore_errors=True)


def _number(text: str) -> float:
    with suppress(ValueError):
        value = float(text)
        return int(value) if value.is_integer() else value
    return 0
