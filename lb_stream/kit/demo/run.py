"""One run of the demo: start Kafka, the job and the brokers, watch them until they are balanced,
stop them, tell."""

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

FOLDER = Path(".lb/demo")
CONFIG = CONF / "local.toml"
CLUSTER = "demo"
REPORT_INTERVAL_S = 1.0
STEP_S = 0.25
CALM_PASSES = 2.5
"""The cluster is calm when the shedder has looked at it so often without a decision."""
AT_REST_S = 40.0
"""A cluster that is still uneven after so long without a decision will stay so."""
LAST_CONFIRMATIONS_S = 20.0
STAGES = (
    ("supervise: ready: ", "the first batch: Spark plans it, Python workers read it"),
    ("leads the pipeline", "the job leads; it opens its log and its tables"),
    ("balance: Spark is up", "Spark is up; the job asks Kafka for the lead"),
)
"""The last of these that is in the job's log → what is awaited until the first round."""
HOPELESS_ROUNDS = 10
"""So many rounds that fail one after another: the next one will too."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What was asked for."""

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
        """The job's command line."""
        return [
            "--config",
            str(CONFIG),
            *(part for override in self.overrides(bootstrap) for part in ("--set", override)),
        ]

    def overrides(self, bootstrap: str) -> list[str]:
        """What the demo sets over conf/local.toml, and what the user sets over that."""
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
    """A request to stop has come."""


class DemoRun:
    """One run, from start to summary.

    Whatever was started is on the stack, and is ended in reverse order.
    """

    def __init__(self, plan: DemoPlan, stop: StopRequest, started: float) -> None:
        """`started` is the time.monotonic() of the demo's beginning. Raises SettingError."""
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its troubles come as exceptions too
        self.plan, self.stop, self.started_again = plan, stop, False
        settings = load_settings(CONFIG, None, plan.overrides("127.0.0.1:1"))
        shedding_s = float(settings.of_cluster(CLUSTER).get("shedding_interval_ms", 60_000)) / 1000
        self.kafka = EmbeddedKafka(FOLDER / "kafka", port=free_port())
        self.console = Console(stderr=plan.json_only, highlight=False)
        self.watch = DemoState(
            FOLDER / "tables", CLUSTER, calm_s=max(5.0, CALM_PASSES * shedding_s), started=started
        )
        self.at_rest_s = max(AT_REST_S, 2 * CALM_PASSES * shedding_s)

    def run(self) -> int:
        """All of it."""
        submit_command([])  # Java and jars, before what the last demo has left is removed
        jar_paths("broker")
        _clear()
        self.watch.skip_past()
        self.console.print(
            f"[bold]lb_stream demo[/]: {self.plan.brokers} brokers, {self.plan.bundles} bundles, "
            f"{self.plan.workload}, {self.plan.shedder}"
        )
        how, code = "interrupted", 1
        with ExitStack() as outer:
            outer.callback(lambda: _note_end(how))  # when all has been stopped
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
                code = self._tell(verdict, after)
                self._stay(agent, job)
            self.console.print("stopping the brokers, the job and Kafka", style="dim")
        self.watch.refresh()
        return code if self.plan.keep else self._tell(verdict, after)

    # --- starting ---

    def _start(self, stack: ExitStack, view: View) -> tuple[Agent, Job]:
        """Kafka and Spark start side by side: Spark needs Kafka only once its session is up."""
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
        if job.exit_code() is not None:  # Kafka took too long for it
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
        agent = Agent(
            config,
            [SimBroker(cluster, name) for name in cluster.brokers],
            watch.on_report,
            watch.on_decision,
        )
        try:
            agent.start()
        except AgentError as error:
            raise CommandError(f"the simulated brokers: {error}") from error
        stack.callback(agent.stop)
        return agent

    # --- balancing ---

    def _balance(self, view: View, agent: Agent, job: Job) -> str:
        """Wait until the cluster is balanced and calm.

        Returns why it did not come to that, or nothing.
        """
        watch, plan = self.watch, self.plan
        while True:
            self._pause(view, self._phase(job))
            self._check(agent, job)
            if watch.calm():
                if self._balanced():
                    return ""
                if watch.calm(self.at_rest_s):
                    return (
                        "the balancer has come to rest, but the brokers are not even "
                        f"({plan.shedder} sees no reason to go on)"
                    )
            if watch.rounds >= plan.most_rounds or watch.elapsed_s() >= plan.most_seconds:
                limit = (
                    f"{plan.most_rounds} rounds"
                    if watch.rounds >= plan.most_rounds
                    else f"{plan.most_seconds:.0f} seconds"
                )
                self._await_confirmations(view, agent, job)
                return (
                    ""
                    if self._balanced() and not watch.unconfirmed()
                    else f"not balanced after {limit}"
                )

    def _await_confirmations(self, view: View, agent: Agent, job: Job) -> None:
        deadline = time.monotonic() + LAST_CONFIRMATIONS_S
        while self.watch.unconfirmed() and time.monotonic() < deadline:
            self._pause(view, "waiting for the last confirmations")
            self._check(agent, job)

    def _phase(self, job: Job) -> str:
        watch = self.watch
        if watch.rounds:
            return (
                "balanced; watching whether it stays so"
                if self._balanced() and not watch.unconfirmed()
                else "balancing"
            )
        said = job.log_tail(200)
        return next((awaited for mark, awaited in STAGES if mark in said), "Spark is starting")

    def _balanced(self) -> bool:
        return throughput_imbalance(self.watch.figures()) <= BALANCED

    def _pause(self, view: View, phase: str) -> None:
        """Show how things stand, wait a little, and meet a request to stop."""
        view.update(self.watch, phase)
        time.sleep(STEP_S)
        if self.stop:
            raise Interrupted
        self.watch.refresh()

    def _check(self, agent: Agent, job: Job) -> None:
        """Raises CommandError when something that must run does not."""
        code = job.exit_code()
        if (
            code is not None
            and not self.started_again
            and "UnknownTopicOrPartition" in job.log_tail(200)
        ):
            self._start_again(job)  # it had looked for the topics before they were there
        elif code is not None:
            raise CommandError(
                f"the job has ended (exit code {code}). The end of its output, "
                f"{FOLDER / 'job.log'}:\n\n{job.log_tail()}\n"
            )
        if self.watch.failed_in_a_row >= HOPELESS_ROUNDS:
            raise CommandError(
                "the balancer's rounds fail (all of them: table rounds, column "
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
        """Leave everything running until a request to stop."""
        told = (
            f"\nEverything goes on until Ctrl-C: Kafka at 127.0.0.1:{self.kafka.port}, the job, "
            f"{self.plan.brokers} brokers.\nLook at it from a second terminal, in this folder:",
            f"  {_lbctl()} console     # then open http://127.0.0.1:8090/ in a browser",
            f"  {_lbctl()} status",
            f"  {_lbctl()} brokers drain broker-1",
        )
        for line in told:
            self.console.print(line, soft_wrap=True, markup=False)
        while not self.stop:
            time.sleep(STEP_S)
            self.watch.refresh()
            self._check(agent, job)

    # --- telling ---

    def _tell(self, verdict: str, after: list[BrokerFigures]) -> int:
        """The comparison, what to do next, and the figures as the last line.

        Returns the exit code.
        """
        watch, console = self.watch, self.console
        first_decision_s = next((made.at_s for made in watch.decisions()), None)
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
        console.print(f"\nThe tables are in {FOLDER / 'tables'}. Ask them:", soft_wrap=True)
        for query in queries():
            console.print(f"  {query}", soft_wrap=True, markup=False)
        figures = {
            "max_over_mean_before": round(throughput_imbalance(watch.before), 4),
            "max_over_mean_after": round(throughput_imbalance(after), 4),
            "decisions": decisions,
            "confirmed": confirmed,
            "rounds": watch.rounds,
            "balanced": not verdict,
            "seconds_setup": _number(os.environ.get("LB_SETUP_SECONDS", "0")),
            "seconds": round(seconds, 1),
            "seconds_to_first_decision": None
            if first_decision_s is None
            else round(first_decision_s, 1),
        }
        print(json.dumps(figures), flush=True)
        return 1 if verdict else 0


def queries() -> list[str]:
    """Three lines that work in a shell as they stand."""
    elsewhere = f" --set stream.tables={FOLDER / 'tables'}" if Path(".lb/tables").exists() else ""
    asked = (
        "select kind, rule, count(*) as n from decisions group by all",
        "select outcome, count(*) as n, avg(took_ms) as ms from outcomes group by all",
        "select seq, max(usage_ratio) / avg(usage_ratio) as uneven from broker_loads"
        " where active group by seq order by seq",
    )
    return [f'{_lbctl()} sql{elsewhere} "{query}"' for query in asked]


def _lbctl() -> str:
    """How to call this very lbctl from here: by name when the shell finds it, else by its path."""
    own = Path(sys.executable).with_name("lbctl")
    found = shutil.which("lbctl")
    return "lbctl" if found and own.exists() and Path(found).samefile(own) else os.path.relpath(own)


class KafkaStart:
    """The broker's start in a thread of its own, so that a request to stop is met meanwhile."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="kafka-start", daemon=True)

    def _run(self) -> None:
        try:
            self.kafka.start()
        except Exception as error:  # told by whoever waits for the thread
            self.failure = error

    def stop(self) -> None:
        """Stop the broker, also one that is still on its way: its start then fails, at the latest
        when the broker is spawned."""
        while self.thread.is_alive():
            self.kafka.stop(grace_s=1)
            self.thread.join(0.1)
        self.kafka.stop()


def _note_end(how: str) -> None:
    """Leave a note beside the tables, if there are any, that the demo has ended."""
    end = {"at_ms": time.time_ns() // 1_000_000, "how": how}
    with suppress(OSError):
        (FOLDER / DEMO_END_FILE).write_text(json.dumps(end))


def _clear() -> None:
    """End what a demo that was killed has left running; then remove what the last one wrote."""
    end_leftover(FOLDER / "job.json")
    EmbeddedKafka(FOLDER / "kafka").stop()
    for name in (DEMO_END_FILE, "job.log"):
        (FOLDER / name).unlink(missing_ok=True)
    for name in ("kafka", "tables", "checkpoint"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)


def _number(text: str) -> float:
    with suppress(ValueError):
        value = float(text)
        return int(value) if value.is_integer() else value
    return 0
