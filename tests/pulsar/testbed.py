"""A real three-broker Pulsar cluster, started by the scripts in the folder that PULSAR_CLUSTER_DIR
names. It balances nothing by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lb_stream.agent.pulsar.admin import AdminClient, AdminError, AdminSettings
from tests.pulsar.releases import RELEASE, Release

PROJECT = Path(__file__).parents[2]
BROKERS = 3
NAMESPACE = "lab/skew"
PULSAR_CLUSTER = "testbed"
BASE_PORT = int(os.environ.get("PULSAR_BASE_PORT", "27000"))
PATIENCE_S = 600.0
"""How long a test waits for what must happen: where three brokers, Kafka and Spark share two busy
cores, seconds become minutes."""
START_S = 900  # the first start downloads its jars; on a busy machine each broker takes a minute
SETTINGS = {
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    # Its shortest clocks: reports follow what happens within seconds.
    "statsUpdateFrequencyInSecs": "3",
    "statsUpdateInitialDelayInSecs": "3",
}


@dataclass
class Bed:
    """The started cluster. Brokers are counted from 1, as its scripts do."""

    scripts: Path
    folder: Path
    base_port: int
    manager: str
    environment: Mapping[str, str] = field(default_factory=dict)
    release: Release = RELEASE
    brokers: int = BROKERS

    @property
    def names(self) -> list[str]:
        return [
            f"127.0.0.1:{self.base_port + 200 + number}" for number in range(1, self.brokers + 1)
        ]

    @property
    def service_url(self) -> str:
        return "pulsar://" + ",".join(
            f"127.0.0.1:{self.base_port + 100 + number}" for number in range(1, self.brokers + 1)
        )

    def admin(self, number: int = 1) -> AdminClient:
        return AdminClient(AdminSettings(f"http://{self.names[number - 1]}"))

    def run(self, *command: str) -> None:
        """One command of the cluster's own script. Raises CalledProcessError with its output."""
        environment = {
            **os.environ,
            "PULSAR_VERSION": self.release.version,
            "JAVA_HOME": str(self.release.java_home() or ""),
            "RUN_DIR": str(self.folder),
            "CLASSPATH_FILE": str(self.release.class_path(PROJECT / ".make")),
            "BASE_PORT": str(self.base_port),
            "BROKERS": str(self.brokers),
            "EXTRA_CONF": str(self.folder / "extra.conf"),
            "USE_CGROUPS": "no",
            **self.environment,
        }
        with (self.folder / "cluster.log").open("ab") as log:
            done = subprocess.run(
                ["bash", str(self.scripts / "cluster.sh"), *command],
                env=environment,
                stdout=log,
                stderr=log,
                timeout=START_S,
                check=False,
            )
        assert done.returncode == 0, (
            f"cluster.sh {' '.join(command)}: {(self.folder / 'cluster.log').read_text()[-3000:]}"
        )

    @property
    def broker_conf(self) -> Path:
        """The first broker's file, as it was started with."""
        return self.folder / "conf" / "broker-1.conf"

    @property
    def logs(self) -> list[Path]:
        """The log of each broker."""
        return [
            self.folder / "logs" / f"broker-{number}.log" for number in range(1, self.brokers + 1)
        ]

    @property
    def stalls(self) -> Path:
        """The file that the traffic writes stalls of topics to."""
        return self.folder / "stalls.jsonl"

    def kill(self, number: int) -> None:
        """SIGKILL for one broker."""
        self.run("kill-broker", str(number))

    def restart_as(self, number: int, release: Release) -> None:
        """Stop one broker, and start it as this release with its settings and data."""
        java_home = release.java_home()
        assert java_home is not None, f"Pulsar {release.version} has no Java here"
        self.run("stop-broker", str(number))
        self.release = release
        # What the script starts brokers with.
        class_path = release.class_path(PROJECT / ".make").read_text()
        (self.folder / "classpath.txt").write_text(class_path)
        (self.folder / "java.txt").write_text(f"{java_home / 'bin' / 'java'}\n")
        self.run("start-broker", str(number))

    # --- what it says itself ---

    def version(self, number: int) -> str:
        """The version that a broker runs."""
        return self.admin(number).get("/admin/v2/brokers/version").body.decode()

    def leader(self, asked: int = 1) -> int | None:
        """The number of the broker that leads; None while there is none, or `asked` doesn't
        answer."""
        try:
            found = self.admin(asked).get_json("/admin/v2/brokers/leaderBroker")
        except AdminError:
            return None
        return self.names.index(urlsplit(found["serviceUrl"]).netloc) + 1

    def a_follower(self) -> int:
        """The number of a broker that does not lead, and is not the first, which is asked."""
        leader = self.leader()
        assert leader is not None, "the cluster has no leader"
        return next(number for number in range(2, self.brokers + 1) if number != leader)

    def owner_of(self, topic: str, asked: int = 1) -> str | None:
        """The broker that serves a topic, by Pulsar's own lookup; None when there is no answer
        now."""
        try:
            found = self.admin(asked).get_json(f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
        except AdminError:
            return None
        return urlsplit(found["httpUrl"]).netloc

    def bundle_of(self, topic: str, asked: int = 1) -> str:
        """The bundle that a topic is in now."""
        return f"{NAMESPACE}/" + self.admin(asked).get(
            f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}/bundle"
        ).body.decode().strip('"')

    def boundaries(self, asked: int = 1) -> list[str]:
        """Where the namespace is cut now."""
        return list(
            self.admin(asked).get_json(f"/admin/v2/namespaces/{NAMESPACE}/bundles")["boundaries"]
        )

    def reports(self) -> dict[str, dict[str, Any]]:
        """Broker → its load report now, of those that answer."""
        return self._ask_all("/admin/v2/broker-stats/load-report")

    def reported(self) -> dict[str, dict[str, Any]]:
        """Broker → the bundles that its report has statistics of, of those that answer."""
        return {name: report["lastStats"] for name, report in self.reports().items()}

    def listed(self) -> dict[str, dict[str, Any]]:
        """Broker → the bundles that it owns, of those that answer."""
        return self._ask_all(f"/admin/v2/brokers/{PULSAR_CLUSTER}/{{broker}}/ownedNamespaces")

    def _ask_all(self, path: str) -> dict[str, dict[str, Any]]:
        found = {}
        for number, name in enumerate(self.names, 1):
            with suppress(AdminError):
                found[name] = self.admin(number).get_json(path.format(broker=name))
        return found

    def post(self, path: str, body: Any = b"") -> None:
        """What an operator sets. `body`: bytes go as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://{self.names[0]}/admin/v2/{path}"
        request = urllib.request.Request(
            url, data, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status in (200, 204), (path, answer.status)

    def create_namespace(self, bundles: int) -> None:
        """A tenant and the namespace that the traffic uses."""
        admin = self.admin()
        for path, body in (
            (f"tenants/{NAMESPACE.partition('/')[0]}", {"allowedClusters": [PULSAR_CLUSTER]}),
            (f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": bundles}}),
        ):
            answer = admin.put(f"/admin/v2/{path}", None, body)
            assert answer.status == 204, (path, answer)

    @contextmanager
    def traffic(
        self, rates: dict[str, float], size: int = 512
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Producers of so many messages/s for each topic, of `size` bytes each, in a process of
        their own, while the block runs."""
        command = [
            sys.executable,
            "-m",
            "tests.pulsar.traffic",
            self.service_url,
            NAMESPACE,
            str(size),
            str(self.stalls),
        ]
        command += [f"{topic}={rate}" for topic, rate in rates.items()]
        with (self.folder / "traffic.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)
        try:
            yield process
            assert process.poll() is None, (
                f"the traffic ended: {(self.folder / 'traffic.log').read_text()[-2000:]}"
            )
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def started_bed(
    scripts: Path,
    folder: Path,
    manager: str = "modular",
    base_port: int = BASE_PORT,
    settings: Mapping[str, str] = {},
    environment: Mapping[str, str] = {},
    release: Release = RELEASE,
    brokers: int = BROKERS,
) -> Iterator[Bed]:
    """Start it, stop it. `settings` go over SETTINGS, `environment` is that of its scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "extra.conf").write_text(
        "".join(f"{key}={value}\n" for key, value in {**SETTINGS, **settings}.items())
    )
    bed = Bed(scripts, folder, base_port, manager, environment, release, brokers)
    try:
        bed.run("start", manager)
        yield bed
    finally:
        bed.run("stop")
