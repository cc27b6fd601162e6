"""The scripts of conf/deploy for rollouts on Kubernetes, with an lbctl and a kubectl that only play
their parts, and the example of a StatefulSet."""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import lb_stream
from lb_stream.cli.shared.output import emit_json
from lb_stream.core.model.rollout import BrokerPhase, BrokerProgress, RolloutOrder, RolloutProgress
from lb_stream.query.rollouts import RolloutNow

DEPLOY = Path(__file__).parents[2] / "conf" / "deploy"
HOSTS = [f"pulsar-broker-{number}.pulsar-broker.pulsar.svc.cluster.local" for number in range(3)]
BROKERS = [f"{host}:8080" for host in HOSTS]
OPTIONS = ["--cluster=eu-1"]
NONE_ON = '{"cluster": "eu-1", "rollout": null}\n'

# Each `status` takes the first of the states; the last one stays. `next` ends as the file says.
LBCTL = """#!/bin/sh
echo "$@" >>{home}/calls
case $2 in
  status)
    set -- {home}/states/*
    [ -e "$1" ] || exit "$(cat {home}/code)"
    cat "$1"
    [ $# -eq 1 ] || rm "$1"
    exit 1
    ;;
  next) . {home}/next ;;
esac
"""


@dataclass
class Stubs:
    """Programs that play lbctl and kubectl, and what they were called with."""

    home: Path
    capsys: pytest.CaptureFixture[str]

    def show(self, *states: str) -> None:
        for number, state in enumerate(states):
            (self.home / "states" / f"{number:02}").write_text(state)

    def printed(
        self,
        phase: BrokerPhase,
        place: int | None = None,
        others: BrokerPhase = "done",
        **order: Any,
    ) -> str:
        """What `lbctl rollout status --json` prints while the last broker is in this phase."""
        given = RolloutOrder("r1", "alice", 1, tuple(BROKERS[::-1]), canary=BROKERS[2], **order)
        rows = tuple(
            {
                "broker": broker,
                "phase": phase if broker == BROKERS[2] else others,
                "since_ms": 1,
                "moves": 4,
                "note": "the canary",
                "place": place if broker == BROKERS[2] else None,
                "bundles": 7,
            }
            for broker in given.brokers
        )
        progress = RolloutProgress("r1", 1, {broker: BrokerProgress() for broker in BROKERS})
        emit_json(RolloutNow("eu-1", given, progress, rows, ("It goes on.",)).to_dict())
        return self.capsys.readouterr().out

    def run(self, script: str, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [DEPLOY / script, *words],
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def environment(self, **variables: str) -> Mapping[str, str]:
        path = f"{self.home}:{os.environ['PATH']}"
        fast = {"LB_POLL_S": "0.05", "LB_PRESTOP_S": "20", "LB_UNKNOWN_S": "5"}
        return {"PATH": path} | fast | variables

    @property
    def calls(self) -> list[str]:
        path = self.home / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def count(self, word: str) -> int:
        return sum(word in call.split() for call in self.calls)


@pytest.fixture
def stubs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Stubs:
    (tmp_path / "states").mkdir()
    (tmp_path / "code").write_text("1")
    (tmp_path / "next").write_text(f"echo {BROKERS[2]}\n")
    made = tmp_path / "lbctl"
    made.write_text(LBCTL.format(home=tmp_path))
    made.chmod(0o755)
    return Stubs(tmp_path, capsys)


# --- preStop ---


def test_a_broker_of_no_rollout_stops_at_once(stubs: Stubs) -> None:
    for state in (NONE_ON, stubs.printed("waiting", 1).replace("broker-2", "broker-7")):
        stubs.show(state)
        ended = stubs.run("rollout-prestop.sh", BROKERS[2], *OPTIONS)
        assert (ended.returncode, stubs.count("next")) == (0, 0)
    assert stubs.calls[0] == "rollout status --json --cluster=eu-1"


@pytest.mark.parametrize("phase", ["empty", "down", "done"])
def test_a_broker_that_is_empty_or_restarted_stops_at_once(
    stubs: Stubs, phase: BrokerPhase
) -> None:
    stubs.show(stubs.printed(phase))
    assert stubs.run("rollout-prestop.sh", BROKERS[2], *OPTIONS).returncode == 0
    assert stubs.count("next") == 0


def test_a_broker_that_waits_is_begun_by_its_name_and_stops_when_it_is_empty(
    stubs: Stubs,
) -> None:
    for waiting in (
        stubs.printed("waiting", 1),
        stubs.printed("waiting", 2),
        stubs.printed("waiting", None, "waiting", in_order=True),
    ):
        before = stubs.count("next")
        stubs.show(waiting)
        ended = stubs.run("rollout-prestop.sh", BROKERS[2], *OPTIONS)
        assert (ended.returncode, stubs.count("next") - before) == (0, 1)
        assert ended.stderr.splitlines()[-1] == f"rollout-prestop: {BROKERS[2]} may stop (empty)"
    words = next(call for call in stubs.calls if "next" in call).split()
    assert words[:4] == ["rollout", "next", BROKERS[2], "--wait"] and words[-1] == OPTIONS[0]
    assert 0 < int(words[words.index("--timeout") + 1]) <= 20


def test_a_broker_that_is_empty_when_it_is_asked_again_is_not_begun_again(stubs: Stubs) -> None:
    (stubs.home / "next").write_text("exit 1\n")
    stubs.show(stubs.printed("waiting", 1), stubs.printed("draining"), stubs.printed("empty"))
    for _ in range(2):
        assert stubs.run("rollout-prestop.sh", BROKERS[2], *OPTIONS).returncode == 0
    assert stubs.count("next") == 2


def test_a_rollout_that_ends_while_it_waits_lets_the_broker_stop(stubs: Stubs) -> None:
    (stubs.home / "next").write_text("exit 1\n")
    stubs.show(stubs.printed("draining"), NONE_ON)
    ended = stubs.run("rollout-prestop.sh", BROKERS[2], *OPTIONS)
    assert ended.returncode == 0 and "no rollout waits" in ended.stderr


def test_a_broker_that_is_not_empty_in_time_fails_and_nothing_waits_for_longer(
    stubs: Stubs,
) -> None:
    (stubs.home / "next").write_text("sleep 30\n")
    stubs.show(stubs.printed("draining"))
    ended = stubs.run("rollout-prestop.sh", BROKERS[2], LB_PRESTOP_S="1")
    assert ended.returncode == 1 and stubs.count("next") == 1
    assert "not empty after 1 s (draining)" in ended.stderr.splitlines()[-1]


def test_a_refused_command_is_given_again_and_a_broker_that_may_be_begun_later_is(
    stubs: Stubs,
) -> None:
    refused = "echo 'refused (rollout_at_most): restart it first' >&2; exit 1\n"
    (stubs.home / "next").write_text(refused)
    waiting = stubs.printed("waiting", 1)
    stubs.show(waiting, waiting, stubs.printed("empty"))
    assert stubs.run("rollout-prestop.sh", BROKERS[2], *OPTIONS).returncode == 0
    assert stubs.count("next") == 2


def test_a_command_that_stays_refused_ends_the_wait_with_the_reason_in_the_last_line(
    stubs: Stubs,
) -> None:
    refused = "echo progress >&2; echo 'refused (rollout_canary): b is first' >&2; exit 1\n"
    (stubs.home / "next").write_text(refused)
    stubs.show(stubs.printed("waiting", 2))
    ended = stubs.run("rollout-prestop.sh", BROKERS[2], *OPTIONS, LB_REFUSED_S="2", LB_POLL_S="0.3")
    assert ended.returncode == 1 and 2 <= stubs.count("next") <= 7
    last = ended.stderr.splitlines()[-1]
    assert "is not begun for 2 s" in last and "refused (rollout_canary): b is first" in last
    assert "progress" in ended.stderr


def test_a_state_that_stays_unknown_ends_the_wait_soon_and_one_that_comes_back_does_not(
    stubs: Stubs,
) -> None:
    ended = stubs.run("rollout-prestop.sh", BROKERS[2], LB_UNKNOWN_S="1")
    assert (ended.returncode, stubs.count("next")) == (1, 0)
    assert "not known" in ended.stderr and stubs.count("status") > 1
    stubs.show("", stubs.printed("empty"))
    assert stubs.run("rollout-prestop.sh", BROKERS[2]).returncode == 0


def test_wrong_usage_has_a_code_of_its_own(stubs: Stubs) -> None:
    for words in ([], ["--cluster=eu-1"], ["--serve", "/tmp"], ["--ask"]):
        assert stubs.run("rollout-prestop.sh", *words).returncode == 2
    (stubs.home / "code").write_text("2")  # lbctl's own
    assert stubs.run("rollout-prestop.sh", BROKERS[2], "--sett").returncode == 2
    assert stubs.count("status") == 1
    for words in ([], ["--namespace=x"], ["10.0.0.7"], ["broker"]):
        assert stubs.run("rollout-pod.sh", *words).returncode == 2


def test_a_container_beside_the_broker_answers_each_request_with_code_and_reason(
    stubs: Stubs, tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (stubs.home / "next").write_text("echo 'refused (rollout_paused): it is paused' >&2; exit 1\n")
    server = subprocess.Popen(
        [DEPLOY / "rollout-prestop.sh", "--serve", folder, BROKERS[2], *OPTIONS],
        env=stubs.environment(LB_REFUSED_S="0"),
    )
    try:
        while not (folder / "rollout-prestop.sh").exists():
            time.sleep(0.05)
        script = str(folder / "rollout-prestop.sh")
        answers = []
        for state in (stubs.printed("waiting", 2), stubs.printed("empty")):
            stubs.show(state)
            ended = subprocess.run(
                ["sh", script, "--ask", folder],
                env=stubs.environment(),
                timeout=30,
                check=False,
                capture_output=True,
                text=True,
            )
            answers.append((ended.returncode, ended.stderr.rpartition("(")[2].strip()))
        assert answers == [(1, "rollout_paused): it is paused"), (0, "empty)")]
        server.terminate()
        assert server.wait(10) == 0, "it ends when its container is stopped"
    finally:
        server.kill()


def test_a_request_that_nobody_answers_ends(stubs: Stubs, tmp_path: Path) -> None:
    ended = stubs.run("rollout-prestop.sh", "--ask", str(tmp_path), LB_PRESTOP_S="-9")
    assert ended.returncode == 1 and not (tmp_path / "ask").exists()


# --- the hook ---


def play_kubectl(stubs: Stubs, found: str, deleted: str = "", code: int = 0) -> None:
    """Have kubectl print a StatefulSet's fields, and since when its pod is being deleted."""
    made = stubs.home / "kubectl"
    made.write_text(
        f'#!/bin/sh\necho "$@" >>{stubs.home}/calls\n'
        f'case "$*" in *"get statefulset"*) echo "{found}" ;; *"get pod"*) echo "{deleted}" ;; '
        f"esac\nexit {code}\n"
    )
    made.chmod(0o755)


def changes(stubs: Stubs) -> list[str]:
    return [call for call in stubs.calls if " get " not in call]


def test_a_pod_of_ondelete_is_deleted_once(stubs: Stubs) -> None:
    play_kubectl(stubs, "OnDelete,,3,,a,a")
    ended = stubs.run("rollout-pod.sh", HOSTS[1], "--namespace", "pulsar")
    assert ended.returncode == 0
    (deletion,) = changes(stubs)
    assert "delete pod pulsar-broker-1 " in deletion and "--wait=false" in deletion
    assert all(call.endswith("--namespace pulsar") for call in stubs.calls)
    play_kubectl(stubs, "OnDelete,,3,,a,a", deleted="2026-01-01T00:00:00Z")
    assert stubs.run("rollout-pod.sh", BROKERS[1]).returncode == 0
    assert len(changes(stubs)) == 1


@pytest.mark.parametrize(
    ("found", "code", "patched"),
    [
        ("RollingUpdate,3,3,,a,b", 0, True),  # the last pod is the first one
        ("RollingUpdate,9,3,,a,b", 0, True),
        ("RollingUpdate,12,3,10,a,b", 1, False),  # ordinals from 10 on: pod 2 is none of them
        ("RollingUpdate,2,3,,a,b", 0, False),  # it is let go already
        ("RollingUpdate,,3,,a,b", 0, False),
        ("RollingUpdate,4,4,,a,b", 1, False),  # pod 3 would be replaced, too
        ("RollingUpdate,3,3,,a,a", 1, False),  # nothing would be replaced
    ],
)
def test_a_partition_is_lowered_to_one_pod_at_a_time(
    stubs: Stubs, found: str, code: int, patched: bool
) -> None:
    play_kubectl(stubs, found)
    ended = stubs.run("rollout-pod.sh", HOSTS[2], "--namespace=pulsar")
    assert (ended.returncode, bool(changes(stubs))) == (code, patched), ended.stderr
    assert not patched or '"partition":2' in changes(stubs)[0]


@pytest.mark.parametrize("found", ["OnDelete,,3,,a,a", "RollingUpdate,3,3,,a,b"])
def test_a_failure_of_kubectl_is_one_of_the_hook(stubs: Stubs, found: str) -> None:
    play_kubectl(stubs, found, code=1)
    assert stubs.run("rollout-pod.sh", HOSTS[2]).returncode == 1


# --- the example ---


def test_the_example_fits_the_scripts_and_itself() -> None:
    documents: list[dict[str, Any]] = list(
        yaml.safe_load_all((DEPLOY / "statefulset-brokers.yaml").read_text())
    )
    (settings, service, brokers) = documents
    assert [document["kind"] for document in documents] == ["ConfigMap", "Service", "StatefulSet"]
    spec = brokers["spec"]
    pod = spec["template"]["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    assert spec["serviceName"] == service["metadata"]["name"] == brokers["metadata"]["name"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    containers = {one["name"]: one for one in (*pod["initContainers"], *pod["containers"])}
    mounts = {
        name: {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
        for name, one in containers.items()
    }
    assert set().union(*mounts.values()) == volumes
    assert mounts["rollout"]["rollout"] == mounts["broker"]["rollout"] == "/rollout"
    assert pod["volumes"][0]["configMap"]["name"] == settings["metadata"]["name"]
    version = lb_stream.__version__
    assert containers["agent"]["image"] == f"lb-stream-agent:{version}"
    assert containers["rollout"]["image"] == f"lb-stream:{version}"
    # The agent and the container that answers end after the broker.
    assert all(one["restartPolicy"] == "Always" for one in pod["initContainers"])
    served = containers["rollout"]["args"]
    assert served[:3] == ["conf/deploy/rollout-prestop.sh", "--serve", "/rollout"]
    stop = containers["broker"]["lifecycle"]["preStop"]["exec"]["command"]
    assert stop == ["sh", "/rollout/rollout-prestop.sh", "--ask", "/rollout"]
    script = (DEPLOY / "rollout-prestop.sh").read_text()
    limit_s = int(script.partition("LB_PRESTOP_S:-")[2].partition("}")[0])
    assert pod["terminationGracePeriodSeconds"] >= limit_s + 10 + 60
    # The broker's name in lb_stream is the address that it advertises.
    names = {entry["name"]: entry.get("value") for entry in containers["broker"]["env"]}
    assert served[3] == f"{names['advertisedAddress']}:8080"
    assert f"--admin-url=http://{served[3]}" in containers["agent"]["args"]
