"""`lbctl run`: Kafka, the job and the agents of a cluster by one command, beside brokers that answer
as Pulsar's do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lb_stream.agent.pulsar.guard import OWN_BALANCING
from lb_stream.io.local.processes import locked
from lb_stream.io.local.running_kafka import find_running_kafka
from lb_stream.kit.run.folder import ClusterFolder
from tests.e2e.pipeline import wait_until
from tests.pulsar.fake_cluster import FakeCluster, fake_cluster
from tests.support.lbctl_runner import Result, lbctl

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]
READY_S = 240.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        started.dynamic = dict.fromkeys(OWN_BALANCING, "true")
        yield started


@contextmanager
def running(cluster: FakeCluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a folder; end it as Ctrl-C does, and require that it ends well."""
    url = f"http://{cluster.names[0]}"
    command = [sys.executable, "-m", "lb_stream.cli.main", "run", "pulsar", url, "--json"]
    environment = os.environ | {"LB_CONTEXTS": str(folder / ".contexts.json")}
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=err, text=True
        )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0, (folder / "err").read_text()
    finally:
        process.kill()


def ready(folder: Path, process: subprocess.Popen[str]) -> dict[str, object]:
    """Wait for the line that says that all brokers report, and return it."""

    def is_ready() -> bool:
        assert process.poll() is None, (folder / "err").read_text()
        return bool((folder / "out").read_text())

    wait_until(is_ready, "all brokers' reports", READY_S)
    found: dict[str, object] = json.loads((folder / "out").read_text())
    return found


def command(folder: Path, *arguments: str) -> Result:
    result = lbctl(*arguments, cwd=folder)
    assert result.code == 0, result.err
    return result


def test_a_cluster_is_observed_then_acted_on_and_a_second_run_goes_on(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """No command names a file: the run has made its folder their context."""
    with running(cluster, tmp_path) as process:
        found = ready(tmp_path, process)
        assert (found["cluster"], found["mode"]) == ("testbed", "observe")
        assert (found["brokers_alive"], found["bundles"]) == (3, 4)
        rows = command(tmp_path, "brokers", "--json").objects
        assert sorted(row["broker"] for row in rows) == sorted(cluster.names)
        assert not cluster.acts()

        url = f"http://{cluster.names[0]}"
        command(tmp_path, "agent", "own-balancing", "off", "--admin-url", url)
        command(tmp_path, "clusters", "mode", "testbed", "act")
        bundle = cluster.owned(0)[0]
        move = ("namespaces", "unload", "shop/orders", "--bundle", bundle, "--no-wait")
        command(tmp_path, *move, "--destination", cluster.names[1])
        wait_until(lambda: cluster.owners[bundle] == 1, "the bundle's move", 60)
    assert find_running_kafka(tmp_path / "lb-testbed" / "kafka") is None

    with running(cluster, tmp_path) as process:
        assert ready(tmp_path, process)["mode"] == "act"


def test_a_second_run_in_a_folder_is_refused(cluster: FakeCluster, tmp_path: Path) -> None:
    """Its end would stop the first one's Kafka."""
    folder = tmp_path / "lb-testbed"
    folder.mkdir()
    with locked(ClusterFolder(folder).lock):
        result = lbctl("run", "pulsar", f"http://{cluster.names[0]}", cwd=tmp_path)
    assert result.code == 1
    assert f"another lbctl run has the folder {folder}" in result.err


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        (("--kafka", "127.0.0.1:1"), 1, "--kafka"),
        (("--set", "threshold_percnt=3"), 2, "threshold_percnt"),
        (("--folder", "file"), 2, "file"),
    ],
)
def test_options_that_cannot_work_leave_no_settings(
    cluster: FakeCluster, tmp_path: Path, options: tuple[str, ...], code: int, part: str
) -> None:
    (tmp_path / "file").touch()
    result = lbctl("run", "pulsar", f"http://{cluster.names[0]}", *options, cwd=tmp_path)
    assert result.code == code
    assert part in result.err
    assert list(tmp_path.rglob("lb.toml")) == []


def test_without_an_answering_cluster_nothing_is_started(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.stop(0)
    url = f"http://{cluster.names[0]}"
    result = lbctl("run", "pulsar", url, cwd=tmp_path)
    assert result.code == 1
    assert cluster.names[0] in result.err
    assert lbctl("run", "kafka", url, cwd=tmp_path).code == 2
    assert list(tmp_path.glob("lb-*")) == []
