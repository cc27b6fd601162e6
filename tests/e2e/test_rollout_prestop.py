"""The preStop of conf/deploy with the real lbctl, a running job, and simulated brokers that stop."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from lb_stream.sim.stopping import StopFolder
from tests.e2e.operator import CLUSTER, Operator
from tests.e2e.pipeline import Pipeline, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "conf" / "deploy" / "rollout-prestop.sh"
A, B, C = "broker-1:8080", "broker-2:8080", "broker-3:8080"
SETTINGS = {
    "shedding_enabled": "false",
    "split_enabled": "false",
    f"cluster.{CLUSTER}.dry_run": "false",
    "stream.tick_interval_ms": 500,
}


@dataclass
class Pods:
    """Brokers whose stop the script holds back, as a kubelet has it do."""

    operator: Operator
    folder: Path

    def begin_stop(self, broker: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a broker's preStop."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LB_")}
        places = {"PATH": f"{self.folder}:{clean['PATH']}", "PYTHONPATH": str(PROJECT)}
        return subprocess.Popen(
            [SCRIPT, broker, "--cluster", CLUSTER, *self.operator.options],
            env=clean | places | variables,
            cwd=self.folder,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def stop(self, broker: str, **variables: str) -> tuple[int, str]:
        """Return the exit code and the last line of a broker's preStop."""
        return self.wait(self.begin_stop(broker, **variables))

    @staticmethod
    def wait(script: "subprocess.Popen[str]") -> tuple[int, str]:
        """Return the exit code and the last line of a preStop."""
        _, err = script.communicate(timeout=120)
        return script.returncode, err.splitlines()[-1]

    def phases(self) -> dict[str, str]:
        """Return broker → phase in the rollout that is on."""
        (shown,) = self.operator.rows("rollout", "status")
        return {row["broker"]: row["phase"] for row in shown["brokers"]}

    def restart(self, broker: str) -> None:
        """Stop a broker; start it again once the rollout has seen that."""
        file = self.folder / "stopped" / broker.partition(":")[0]
        file.touch()
        wait_until(lambda: self.phases()[broker] == "down", f"{broker} to be down")
        file.unlink()

    def bundles(self, broker: str) -> int:
        """Return how many bundles a broker has."""
        cluster = self.operator.cluster
        return sum(cluster.owns(broker, bundle) for bundle in cluster.bundles)


@pytest.fixture
def pods(kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path) -> Iterator[Pods]:
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    run.create_topics(reports=2, decisions=2, ownership=2)
    cluster = build_cluster(3, 12, "steady", start_ms=wall_clock_ms())
    topics = (topic_names.reports, topic_names.decisions, topic_names.ownership)
    config = AgentConfig(kafka.bootstrap, CLUSTER, *topics, 1.0, heartbeat_interval_s=2.0)
    brokers = [SimBroker(cluster, name) for name in cluster.brokers]
    agent = Agent(config, brokers)
    called = tmp_path / "lbctl"
    start = "import sys; sys.argv[0] = 'lbctl'; from lb_stream.cli.main import main; main()"
    called.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    called.chmod(0o755)
    is_over = threading.Event()
    with run.running():
        agent.start()
        stops = StopFolder(tmp_path / "stopped", agent, brokers)

        def follow() -> None:
            while not is_over.wait(0.2):
                stops.follow()

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            wait_until(lambda: run.table("broker_loads").num_rows >= 3, "the first round")
            yield Pods(Operator(run, cluster), tmp_path)
        finally:
            is_over.set()
            follower.join()
            agent.stop()


def test_pods_stop_in_an_order_of_their_own_each_empty_and_never_wait_without_end(
    pods: Pods,
) -> None:
    code, last = pods.stop(C)
    assert (code, "no rollout waits" in last) == (0, True), last

    # The last pod first, whoever the balancer would have begun.
    pods.operator.done("rollout", "start")
    code, last = pods.stop(C)
    assert (code, last.endswith("may stop (empty)")) == (0, True), last
    assert pods.bundles(C) == 0

    # It has not stopped yet: no other one is begun, and its pod goes on after a bound.
    code, last = pods.stop(B, LB_REFUSED_S="1")
    assert (code, "rollout_at_most" in last) == (1, True), last
    assert pods.phases()[B] == "waiting"

    # While it is away, the next one waits for it.
    file = pods.folder / "stopped" / "broker-3"
    file.touch()
    wait_until(lambda: pods.phases()[C] == "down", f"{C} to be down")
    script = pods.begin_stop(B)
    commands = pods.operator.run
    wait_until(
        lambda: any(
            row["outcome"] == "accepted" and B in row["arguments"]
            for row in commands.table("commands").to_pylist()
        ),
        "the command about the next broker",
    )
    assert script.poll() is None and pods.phases()[B] == "waiting"
    file.unlink()
    code, last = pods.wait(script)
    assert (code, last.endswith("may stop (empty)")) == (0, True), last
    assert pods.bundles(B) == 0 and pods.phases()[C] == "done"
    pods.restart(B)
    wait_until(lambda: pods.phases()[B] == "done", f"{B} to be back")
    code, last = pods.stop(B)
    assert (code, last.endswith("may stop (done)")) == (0, True), last

    # Paused, then aborted.
    pods.operator.done("rollout", "pause")
    code, last = pods.stop(A, LB_REFUSED_S="1")
    assert (code, "rollout_paused" in last) == (1, True), last
    pods.operator.done("rollout", "abort")
    assert pods.stop(A)[0] == 0
