"""Tries both images as the Helm chart runs them: user 10001, a read-only root, no rights, no network.

Only /data and /tmp can be written. What the containers have in common is a network of their own,
which ends at its loopback.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.image.engine import Engine

PROJECT = Path(__file__).parents[2]
MANIFEST = PROJECT / "conf" / "deploy" / "kubernetes.yaml"
CLUSTER = "eu-1"
NOTIFY = ("lbctl", "notify", "watch", "--config=/etc/lb-stream/lb.toml")
"""As templates/notify.yaml has it: the manifest's values leave it out, as they do agents."""
NOTIFY_SETTINGS = '[notify]\nstate_file = "/data/notify.json"\n'
REFUSED = "http://127.0.0.1:9"

EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "64m",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_APPLICATION_ID": "trial",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "trial",
}
"""What Spark tells an executor's pod."""

IDENTITY = """
import os, pathlib
def writes(folder):
    try:
        path = pathlib.Path(folder, "written")
        path.touch()
        path.unlink()
        return True
    except OSError:
        return False
print(os.getuid(), *(writes(folder) for folder in ("/", "/opt/lb-stream", "/data", "/tmp")))
"""
GET = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Host": "localhost"})
print(urllib.request.urlopen(request, timeout=5).status)
"""


class CheckError(RuntimeError):
    """An image does not do what it must; the text says what."""


@dataclass
class Trial:
    """Containers of one trial: their volume, their network, and those that run."""

    engine: Engine
    settings: Path
    name: str = field(default_factory=lambda: f"lb-image-{os.getpid()}")
    running: list[str] = field(default_factory=list)

    def options(self, network: str) -> list[str]:
        """Return what every container is given."""
        return [
            *self.engine.run_options,
            "--read-only",
            "--tmpfs=/tmp:rw,exec,mode=1777",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            f"--network={network}",
            "--env=HOME=/tmp",
            f"--volume={self.name}:/data",
            f"--volume={self.settings}:/etc/lb-stream:ro",
        ]

    def run(self, image: str, *arguments: str, options: Sequence[str] = ()) -> tuple[int, str, str]:
        """Run a container to its end; return its exit code, stdout and stderr."""
        network = f"container:{self.running[0]}" if self.running else "none"
        whole = ["run", "--rm", *self.options(network), *options, image, *arguments]
        ended = self.engine.call(*whole, check=False)
        return ended.returncode, ended.stdout.strip(), ended.stderr.strip()

    def require(self, image: str, *arguments: str, options: Sequence[str] = ()) -> str:
        """Run a container that must succeed; return what it printed on stdout."""
        code, text, errors = self.run(image, *arguments, options=options)
        if code != 0:
            shown = f"{image} {' '.join(arguments)}: exit code {code}"
            raise CheckError(f"{shown}: {text[-3000:]}\n{errors[-3000:]}")
        return text

    def start(self, part: str, image: str, *arguments: str, options: Sequence[str] = ()) -> None:
        """Start a container that goes on running."""
        name = f"{self.name}-{part}"
        network = f"container:{self.running[0]}" if self.running else "none"
        whole = ["run", "--detach", f"--name={name}", *self.options(network), *options]
        self.running.append(name)
        self.engine.call(*whole, image, *arguments)

    def logs(self, part: str) -> str:
        """Return what a container has printed."""
        run = self.engine.call("logs", f"{self.name}-{part}")
        return run.stdout + run.stderr

    def require_running(self, part: str) -> None:
        """Raise CheckError if a container has ended."""
        state = self._state(part)
        if not state["Running"]:
            raise CheckError(
                f"{part} ended with exit code {state['ExitCode']}: {self.logs(part)[-2000:]}"
            )

    def stop(self, part: str) -> int:
        """Stop a container with SIGTERM; return its exit code."""
        self.engine.call("stop", "--time=60", f"{self.name}-{part}")
        return int(self._state(part)["ExitCode"])

    def _state(self, part: str) -> dict[str, Any]:
        (found,) = json.loads(self.engine.call("inspect", f"{self.name}-{part}").stdout)
        return dict(found["State"])

    def wait_for(self, part: str, what: str, seconds: float, done: Callable[[], bool]) -> float:
        """Wait until something is done, while a container runs; return the seconds it took."""
        begin = time.monotonic()
        while not done():
            self.require_running(part)
            if time.monotonic() - begin > seconds:
                raise CheckError(f"{what}: not within {seconds:.0f} s: {self.logs(part)[-2000:]}")
            time.sleep(1)
        return time.monotonic() - begin


@contextmanager
def trial(engine: Engine) -> Iterator[Trial]:
    """Yield a trial; remove its containers and its volume at the end."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Trial(engine, Path(folder))
        engine.call("volume", "create", made.name)
        try:
            yield made
        finally:
            for name in reversed(made.running):
                engine.call("rm", "--force", name, check=False)
            engine.call("volume", "rm", "--force", made.name, check=False)


def manifest_pods() -> dict[str, list[str]]:
    """Return the arguments of each pod of the plain manifest by its component."""
    found = {}
    for document in yaml.safe_load_all(MANIFEST.read_text()):
        template = document.get("spec", {})
        template = template.get("jobTemplate", {"spec": template})["spec"].get("template")
        if document["kind"] in ("Deployment", "CronJob"):
            (container,) = template["spec"]["containers"]
            found[container["name"]] = container["args"]
    return found


def manifest_settings(kafka: str) -> str:
    """Return the manifest's lb.toml with this address of Kafka."""
    for document in yaml.safe_load_all(MANIFEST.read_text()):
        if document["kind"] == "ConfigMap":
            text: str = document["data"]["lb.toml"]
            return text.replace("kafka-bootstrap.kafka:9092", kafka)
    raise ValueError(f"{MANIFEST} has no ConfigMap")


def read_figures(text: str) -> dict[str, Any]:
    """Return the first line of a text that is a JSON object. Raises CheckError if none is."""
    for line in text.splitlines():
        if line.startswith("{"):
            return dict(json.loads(line))
    raise CheckError(f"no JSON object was printed: {text}")


def agent_arguments(*urls: str) -> list[str]:
    """Return an agent's arguments, as templates/agents.yaml has them."""
    shown = [f"--admin-url={url}" for url in urls]
    return ["pulsar", f"--cluster={CLUSTER}", *shown, "--config=/etc/lb-stream/lb.toml"]


def check_identity(trial: Trial, image: str) -> None:
    """Require that the image runs as user 10001, who writes to /data and /tmp only."""
    found = trial.require(image, "-c", IDENTITY, options=["--entrypoint=python"])
    expected = "10001 False False True True"
    if found != expected:
        raise CheckError(f"{image}: user and writable folders are {found}, not {expected}")


def check_demo(trial: Trial, image: str) -> dict[str, Any]:
    """Run the whole loop in one container: Kafka, the job, simulated brokers, moves."""
    text = trial.require(image, "sh", "-c", "cd /data && exec lbctl demo --json")
    return read_figures(text)


def check_pods(trial: Trial, image: str, agent: str) -> dict[str, float]:
    """Run the chart's pods beside Kafka and Pulsar's brokers; return how long each took to start."""
    mounted = [f"--volume={PROJECT / 'tests'}:/opt/lb-stream/tests:ro"]
    (trial.settings / "lb.toml").write_text("")
    command = ("python", "-u", "-m", "tests.image.peers", "/data")
    trial.start("peers", image, *command, options=mounted)
    trial.wait_for("peers", "Kafka", 120, lambda: "{" in trial.logs("peers"))
    peers = read_figures(trial.logs("peers"))
    (trial.settings / "lb.toml").write_text(manifest_settings(peers["kafka"]) + NOTIFY_SETTINGS)
    pods, took = manifest_pods(), {}

    def answers(url: str) -> bool:
        return trial.run(image, "python", "-c", GET, url)[0] == 0

    trial.start("job", image, *pods["job"], options=["--env=LB_SPARK_MASTER=local[2,4]"])
    took["job"] = trial.wait_for(
        "job", "/ready", 240, lambda: answers("http://127.0.0.1:9474/ready")
    )

    code, text, errors = trial.run(agent, *agent_arguments(REFUSED), "--check")
    if code != 1 or "Connection refused" not in text or errors:
        raise CheckError(f"an agent of a broker that refuses: exit code {code}: {text}\n{errors}")
    urls = [f"http://{name}" for name in peers["brokers"]]
    trial.start("agent", agent, *agent_arguments(*urls))

    def reported() -> bool:
        command = ("lbctl", "brokers", "--json", "--config=/etc/lb-stream/lb.toml")
        _, status, _ = trial.run(image, *command)
        return all(name in status for name in peers["brokers"])

    took["agent"] = trial.wait_for("agent", "the brokers' reports", 120, reported)

    trial.start("console", image, *pods["console"])
    page = "http://127.0.0.1:8090/static/console.css"
    took["console"] = trial.wait_for("console", "a page", 60, lambda: answers(page))
    target = f"--env=LB_NOTIFY__TARGETS__CHAT=json://{REFUSED.removeprefix('http://')}"
    trial.start("notify", image, *NOTIFY, options=[target])
    trial.wait_for("notify", "its targets", 60, lambda: "chat" in trial.logs("notify"))
    trial.require(image, *pods["upkeep"])
    for part in ("notify", "console", "agent", "job"):
        trial.require_running(part)
        if code := trial.stop(part):
            raise CheckError(f"{part}: exit code {code} after SIGTERM: {trial.logs(part)[-2000:]}")
    return took


def check_executors(trial: Trial, image: str) -> None:
    """Require the classes of executors on Kubernetes, with a driver and an API server that refuse."""
    options = [f"--env={name}={value}" for name, value in EXECUTOR.items()]
    code, *texts = trial.run(image, "executor", options=options)
    if "Failed to connect to /127.0.0.1:9" not in "".join(texts):
        raise CheckError(f"an executor: exit code {code}: {texts[-1][-3000:]}")
    program = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate()"
    command = f"echo '{program}' >/tmp/session.py && exec conf/deploy/entrypoint.sh submit"
    command += f" --master=k8s://{REFUSED} --conf=spark.kubernetes.container.image=none"
    code, *texts = trial.run(image, "sh", "-c", f"{command} /tmp/session.py")
    if "Connection refused: /127.0.0.1:9" not in "".join(texts):
        raise CheckError(f"a driver with executors: exit code {code}: {texts[-1][-3000:]}")
