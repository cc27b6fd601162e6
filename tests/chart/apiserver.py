"""A Kubernetes API server with etcd on loopback, without nodes and controllers.

What is applied is admitted, defaulted, validated and stored as in a cluster. Nothing is scheduled.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from lb_stream.kit.embedded_kafka import free_port
from tests.chart.programs import etcd, kubernetes

READY_WITHIN_S = 120
UNSEEN = ("Event", "Endpoints")
"""Kinds that nobody makes here; the server warns of the second."""
HTTP_OK, HTTP_MULTIPLE_CHOICES = 200, 300
PLUGINS_OFF = ("ServiceAccount", "StorageObjectInUseProtection")
"""Admission that waits for controllers: for tokens, and for claims that nobody uses any more."""


class Answer(NamedTuple):
    """What the server says: its status, an object, and its warnings."""

    status: int
    body: dict[str, Any]
    warnings: list[str]


class ApiServer:
    """A server that runs, its kubeconfig for helm, and requests to it."""

    def __init__(self, version: str, config: Path, port: int, token: str) -> None:
        self.version, self.config, self._port, self._token = version, config, port, token

    def ask(
        self, method: str, path: str, body: object = None, content: str = "application/json"
    ) -> Answer:
        """Send a request, and return the answer, whatever it is. Raises OSError: there is none."""
        context = ssl._create_unverified_context()
        connection = HTTPSConnection("127.0.0.1", self._port, timeout=60, context=context)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
        with closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            read = answer.read()
            warnings = answer.headers.get_all("Warning") or []
        is_json = "json" in answer.headers.get("Content-Type", "")
        return Answer(answer.status, json.loads(read) if is_json else {}, warnings)

    def require(self, *arguments: Any) -> dict[str, Any]:
        """Send a request, and return the answer's object. Raises AssertionError: it failed, or the
        server warns."""
        answer = self.ask(*arguments)
        assert answer.status < HTTP_MULTIPLE_CHOICES, answer.body.get("message")
        assert answer.warnings == []
        return answer.body

    def resources(self) -> dict[tuple[str, str], str]:
        """Return the path of each kind that namespaces hold: (apiVersion, kind) → path."""
        groups = {"v1": "/api/v1"}
        for group in self.require("GET", "/apis")["groups"]:
            version = group["preferredVersion"]["groupVersion"]
            groups[version] = f"/apis/{version}"
        return {
            (version, resource["kind"]): f"{path}/namespaces/{{}}/{resource['name']}"
            for version, path in groups.items()
            for resource in self.require("GET", path)["resources"]
            if resource["namespaced"] and "list" in resource["verbs"]
        }

    def path(self, thing: dict[str, Any], namespace: str) -> str:
        """Return the path of an object's kind in a namespace."""
        return self.resources()[thing["apiVersion"], thing["kind"]].format(namespace)

    def apply(self, thing: dict[str, Any], namespace: str) -> None:
        """Apply an object on the server's side. A field that the server does not know is an
        error."""
        path = f"{self.path(thing, namespace)}/{thing['metadata']['name']}"
        query = "?fieldManager=tests&fieldValidation=Strict"
        self.require("PATCH", path + query, thing, "application/apply-patch+yaml")

    def try_pod(self, template: dict[str, Any], namespace: str) -> Answer:
        """Ask whether the server would take a pod of this template."""
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template.get("metadata", {}), "name": "asked"}
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
        return self.ask("POST", path, pod)

    def names(self, namespace: str) -> set[str]:
        """Return all objects in a namespace, as kind/name."""
        return {
            f"{kind}/{found['metadata']['name']}"
            for (_, kind), path in self.resources().items()
            if kind not in UNSEEN
            for found in self.require("GET", path.format(namespace))["items"]
        }


def _write_config(path: Path, port: int, token: str) -> None:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
        "current-context": "local",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))


def _start(folder: Path, name: str, program: Path, *options: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([program, *options], cwd=folder, stdout=log, stderr=log)


def _is_ready(server: ApiServer) -> bool:
    try:
        return server.ask("GET", "/readyz").status == HTTP_OK
    except OSError:
        return False


@contextmanager
def running_server(version: str, folder: Path) -> Iterator[ApiServer]:
    """Run a server of this release; it ends with the block. Raises AssertionError: it does not
    start."""
    client = free_port()
    peer = free_port([client])
    port = free_port([client, peer])
    token = secrets.token_hex(16)
    (folder / "tokens.csv").touch(mode=0o600)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    _write_config(folder / "kubeconfig", port, token)
    store = f"http://127.0.0.1:{client}"
    peers = f"http://127.0.0.1:{peer}"
    processes = [
        _start(
            folder,
            "etcd",
            etcd(),
            "--data-dir=etcd-data",
            "--unsafe-no-fsync",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ),
        _start(
            folder,
            "kube-apiserver",
            kubernetes(version),
            f"--etcd-servers={store}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            "--cert-dir=certificates",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--endpoint-reconciler-type=none",
            f"--disable-admission-plugins={','.join(PLUGINS_OFF)}",
        ),
    ]
    server = ApiServer(version, folder / "kubeconfig", port, token)
    try:
        until = time.monotonic() + READY_WITHIN_S
        while not _is_ready(server):
            log = (folder / "kube-apiserver.log").read_text()[-2000:]
            assert time.monotonic() < until and processes[1].poll() is None, log
            time.sleep(0.5)
        yield server
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
