"""`make release-check`: what is in dist does what its pages say, outside of the clone.

The sums are compared. The wheel is installed into an empty environment, alone and with the extras
that the tutorial's job and console need, and followed through README's first commands, the demo and
the tutorial's three stages, beside brokers that answer as Pulsar's do. The chart is rendered.

The last line is one JSON object. Exit code 1: something does not do what it should; 2: dist has no
release.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lb_stream.agent.pulsar.guard import OWN_BALANCING
from tests.chart.programs import HELM, helm
from tests.pulsar.fake_cluster import NAMESPACE, FakeCluster, fake_cluster
from tests.release.checks import REPORTS, check_base
from tests.support.environments import PROJECT, Environment, make_environment, run

DIST = PROJECT / "dist"
EXTRAS = ("job", "console")
CLUSTER = "testbed"
LONGEST_S = 240


def check_sums(folder: Path) -> list[str]:
    """Return a line for each file that SHA256SUMS does not have, or has with another sum."""
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name not in ("SHA256SUMS", "SHA256SUMS.sig")
    }
    return [
        f"{name}: SHA-256 is {found.get(name, 'missing')}, expected {expected.get(name, 'none')}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]


def check_first_minutes(base: Environment, version: str) -> None:
    """Run what needs neither Kafka, Java nor Spark; no Java is on the path."""
    check_base(base, version)
    page = base.work / "assessment.html"
    path = {"PATH": str(base.folder / "bin"), "JAVA_HOME": ""}
    said = base.run("lbctl", "assess", "--reports", REPORTS, "--html", page, **path)
    if not said.strip() or "<html" not in page.read_text():
        raise AssertionError(f"lbctl assess wrote no page: {said}")
    for command in ("agent", "simulate", "scenario", "reports", "topics"):
        base.run("lbctl", command, "--help", **path)


def check_demo(job: Environment) -> None:
    """Run the demo, which balances an uneven cluster."""
    out = job.run("lbctl", "demo", "--json", LB_JARS_DIR=jars())
    figures = json.loads(out.splitlines()[-1])
    before, after = figures["max_over_mean_before"], figures["max_over_mean_after"]
    if not (figures["balanced"] and after < before and figures["confirmed"] > 0):
        raise AssertionError(f"lbctl demo left its cluster uneven: {figures}")


def jars() -> str:
    """Return the folder of the jars, which the demo would fetch for minutes."""
    return str((PROJECT / os.environ.get("LB_JARS_DIR", ".jars")).resolve())


@contextmanager
def started(job: Environment, *command: str, **environment: str) -> Iterator[Path]:
    """Run a program of the environment until the end; yield the file with what it prints.

    It is ended as by Ctrl-C. Raises AssertionError when it does not end well.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LB_")}
    kept.pop("PYTHONPATH", None)
    out, err = job.work / "out", job.work / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [job.folder / "bin" / command[0], *command[1:]],
            cwd=job.work,
            env=kept | environment,
            stdout=stdout,
            stderr=stderr,
        )
    try:
        yield out
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(LONGEST_S)
    if code != 0:
        raise AssertionError(f"{command}: exit code {code}\n{err.read_text()[-3000:]}")


@contextmanager
def new_statistics(pulsar: FakeCluster) -> Iterator[None]:
    """Have the brokers' statistics follow who owns what, as Pulsar has every few seconds."""
    ended = threading.Event()

    def take() -> None:
        while not ended.wait(0.5):
            pulsar.take_statistics()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def follow_tutorial(job: Environment, pulsar: FakeCluster) -> None:
    """Observe, approve, act: the tutorial's commands beside three brokers."""
    url = f"http://{pulsar.names[0]}"
    environment = {
        "LB_JARS_DIR": jars(),
        "LB_CONTEXTS": str(job.work / "contexts.json"),  # else in the user's folder
        "PYSPARK_PYTHON": "",
    }

    def lbctl(*arguments: str) -> str:
        return job.run("lbctl", *arguments, **environment)

    with started(job, "lbctl", "run", "pulsar", url, "--json", **environment) as out:
        # Observe: nothing in the cluster changes.
        end = time.monotonic() + LONGEST_S
        while not out.read_text():
            if time.monotonic() > end:
                raise AssertionError(f"lbctl run was not ready within {LONGEST_S} s")
            time.sleep(1)
        brokers = [json.loads(line) for line in lbctl("brokers", "--json").splitlines()]
        if sorted(row["broker"] for row in brokers) != sorted(pulsar.names) or pulsar.acts():
            raise AssertionError(f"lbctl brokers shows {brokers}; changed: {pulsar.acts()}")

        # Approve.
        lbctl("agent", "own-balancing", "off", "--admin-url", url)
        lbctl("clusters", "mode", CLUSTER, "approve")
        lbctl("proposals")

        # Act: what is decided comes about.
        lbctl("clusters", "mode", CLUSTER, "act")
        bounds, destination = pulsar.owned(0)[0], pulsar.names[1]
        said = lbctl("namespaces", "unload", NAMESPACE, "-b", bounds, "-d", destination)
        if pulsar.owners[bounds] != 1:
            raise AssertionError(f"{bounds} is not at {destination}: {said}")


def check_chart(folder: Path, version: str) -> None:
    """Render the chart's package with the one value that must be given."""
    package = folder / f"lb-stream-{version}.tgz"
    given = ("--set", "kafka.bootstrapServers=kafka-1:9092")
    out = run((helm(HELM[-1]), "template", "trial", package, *given), folder)
    if f"lb-stream:{version}" not in out:
        raise AssertionError(f"{package.name} has no image lb-stream:{version}")


def check_bill(folder: Path, version: str) -> None:
    """Require that the bill of materials names the wheel that is here."""
    bill = json.loads((folder / f"lb_stream-{version}.cdx.json").read_text())
    wheel = folder / f"lb_stream-{version}-py3-none-any.whl"
    named = {
        reference["url"]: reference["hashes"][0]["content"]
        for reference in bill["metadata"]["component"]["externalReferences"]
    }
    if named.get(wheel.name) != hashlib.sha256(wheel.read_bytes()).hexdigest():
        raise AssertionError(f"the bill of materials names another {wheel.name}")


def main() -> int:
    """Check what is in dist; return the exit code."""
    wheels = list(DIST.glob("lb_stream-*.whl"))
    if len(wheels) != 1 or not (DIST / "SHA256SUMS").exists():
        print(f"release-check: no release in {DIST}: run make release", file=sys.stderr)
        return 2
    if faults := check_sums(DIST):
        print("\n".join(faults), file=sys.stderr)
        return 1
    version = wheels[0].name.split("-")[1]
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "dist")
        shutil.copytree(DIST, folder)
        wheel = folder / wheels[0].name

        def step(name: str, check: Callable[[], object]) -> None:
            begin = time.monotonic()
            check()
            seconds[name] = round(time.monotonic() - begin, 1)
            print(f"{name}: {seconds[name]} s", file=sys.stderr)

        def make(name: str, *extras: str) -> Environment:
            (made := Path(place, name)).mkdir()
            return make_environment(made, wheel, extras)

        try:
            step("bill", lambda: check_bill(folder, version))
            step("chart", lambda: check_chart(folder, version))
            step("base", lambda: check_first_minutes(make("base"), version))
            job = make("job", *EXTRAS)
            step("console", lambda: job.run("lbctl", "console", "--help"))
            step("demo", lambda: check_demo(job))
            with (
                fake_cluster(dynamic=dict.fromkeys(OWN_BALANCING, "true")) as pulsar,
                new_statistics(pulsar),
            ):
                step("tutorial", lambda: follow_tutorial(job, pulsar))
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
    print(json.dumps({"version": version, "ok": True, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
