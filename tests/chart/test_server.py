"""The chart on real API servers of two Kubernetes releases: what they take, and a release's life."""

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.apiserver import ApiServer, running_server
from tests.chart.charts import CASES, CHART, case_options, load_objects, render, run_helm
from tests.chart.programs import HELM, KUBERNETES, PROJECT, monitoring_definitions

pytestmark = pytest.mark.long
RELEASE = "lb"
WAIT_S = 60
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANIFEST = PROJECT / "conf" / "deploy" / "kubernetes.yaml"


@pytest.fixture(scope="module", params=KUBERNETES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """A server that knows ServiceMonitor and PrometheusRule."""
    with running_server(request.param, tmp_path_factory.mktemp("server")) as running:
        for path in monitoring_definitions():
            definition = yaml.safe_load(path.read_text())
            running.require("POST", DEFINITIONS, definition)
            until = time.monotonic() + WAIT_S
            named = f"{DEFINITIONS}/{definition['metadata']['name']}"
            listed = f"/apis/monitoring.coreos.com/v1/{definition['spec']['names']['plural']}"
            while not (
                _is_established(running.require("GET", named))
                and running.ask("GET", listed).status == 200
            ):
                assert time.monotonic() < until
                time.sleep(0.2)
        yield running


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return ("Established", "True") in {(each["type"], each["status"]) for each in conditions}


@pytest.fixture
def namespace(server: ApiServer) -> str:
    """A namespace of the test's own, whose pods must keep to the strictest of Kubernetes' pod
    security standards."""
    name = f"test-{secrets.token_hex(4)}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    server.require("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    return name


def pod_templates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what pods are made of, Spark's executors included."""
    templates = []
    for thing in objects:
        if thing["kind"] == "Deployment":
            templates.append(thing["spec"]["template"])
        elif thing["kind"] == "CronJob":
            templates.append(thing["spec"]["jobTemplate"]["spec"]["template"])
        elif "executor.yaml" in thing.get("data", {}):
            executor = yaml.safe_load(thing["data"]["executor.yaml"])
            executor["spec"]["containers"][0]["image"] = "lb-stream"  # Spark adds it
            templates.append(executor)
    return templates


@pytest.mark.parametrize("case", CASES)
def test_the_server_takes_every_object_and_every_pod(
    server: ApiServer, namespace: str, case: str
) -> None:
    options = (*case_options(case), "--namespace", namespace)
    objects = load_objects(render(HELM[-1], *options, kubernetes=server.version))
    before = server.names(namespace)
    for thing in objects:
        server.apply(thing, namespace)
    assert server.names(namespace) - before == {
        f"{thing['kind']}/{thing['metadata']['name']}" for thing in objects
    }
    # A Deployment is taken whatever its pods are like: each is asked for by itself.
    templates = pod_templates(objects)
    assert len(templates) >= 3
    for template in templates:
        answer = server.try_pod(template, namespace)
        assert (answer.status, answer.warnings) == (201, []), answer.body.get("message")


def test_the_server_takes_the_plain_manifest(server: ApiServer, namespace: str) -> None:
    for thing in load_objects(MANIFEST.read_text()):
        server.apply(thing, namespace)


def test_a_pod_as_root_and_an_unknown_field_are_refused(server: ApiServer, namespace: str) -> None:
    container = {"name": "a", "image": "b", "securityContext": {"runAsUser": 0}}
    answer = server.try_pod({"spec": {"containers": [container]}}, namespace)
    assert answer.status == 403 and "restricted" in answer.body["message"]
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {}}
    with pytest.raises(AssertionError, match="date"):
        server.apply(wrong, namespace)


def read_job(server: ApiServer, namespace: str, name: str) -> dict[str, Any]:
    """Return the spec of the job's Deployment."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    spec: dict[str, Any] = server.require("GET", path)["spec"]
    return spec


def helm(server: ApiServer, version: str, namespace: str, *arguments: str | Path) -> str:
    """Run helm on the server. Raises AssertionError: it failed."""
    run = run_helm(version, *arguments, "--namespace", namespace, config=server.config)
    assert run.returncode == 0, run.stderr
    return run.stdout


def finish_test_pod(server: ApiServer, namespace: str) -> None:
    """Play the part of the node that runs the test's pod: it succeeds."""
    path = f"/api/v1/namespaces/{namespace}/pods/{RELEASE}-lb-stream-test/status"
    done = {"status": {"phase": "Succeeded"}}
    until = time.monotonic() + WAIT_S
    while server.ask("PATCH", path, done, "application/merge-patch+json").status != 200:
        if time.monotonic() > until:
            return
        time.sleep(0.2)


@pytest.mark.parametrize("version", HELM)
def test_a_release_is_installed_upgraded_rolled_back_and_leaves_nothing(
    server: ApiServer, namespace: str, version: str
) -> None:
    before = server.names(namespace)
    first, second = case_options("tls-s3-standbys"), case_options("everything")
    name = f"{RELEASE}-lb-stream"
    notes = helm(server, version, namespace, "install", RELEASE, CHART, *first)
    assert "Next:" in notes and f"rollout status deployment/{name}" in notes
    installed = server.names(namespace) - before
    assert f"Deployment/{name}" in installed
    job = read_job(server, namespace, name)
    assert job["replicas"] == 3

    keep_name = ("--set", f"fullnameOverride={name}")
    helm(server, version, namespace, "upgrade", RELEASE, CHART, *second, *keep_name)
    upgraded = server.names(namespace) - before
    assert f"ServiceMonitor/{name}" in upgraded
    assert f"Deployment/{name}-agent-eu-1" in upgraded
    assert read_job(server, namespace, name)["replicas"] == 2

    one_pod = (*second, *keep_name, "--set", "job.replicas=1")
    helm(server, version, namespace, "upgrade", RELEASE, CHART, *one_pod)
    alone = read_job(server, namespace, name)
    assert alone["replicas"] == 1 and alone["strategy"] == {"type": "Recreate"}
    assert f"PodDisruptionBudget/{name}" not in server.names(namespace)

    helm(server, version, namespace, "rollback", RELEASE, "1")
    assert read_job(server, namespace, name) == job
    # Beside what was installed there is helm's own record of each step.
    left = {thing for thing in server.names(namespace) - before if "sh.helm" not in thing}
    assert left == {thing for thing in installed if "sh.helm" not in thing}

    node = threading.Thread(target=finish_test_pod, args=(server, namespace))
    node.start()
    helm(server, version, namespace, "test", RELEASE, "--timeout", "60s")
    node.join()

    helm(server, version, namespace, "uninstall", RELEASE, "--wait", "--timeout", "60s")
    assert server.names(namespace) == before


def test_a_volume_that_is_to_be_kept_outlives_its_release(
    server: ApiServer, namespace: str
) -> None:
    helm(server, HELM[0], namespace, "install", RELEASE, CHART, *case_options("one-pod"))
    helm(server, HELM[0], namespace, "uninstall", RELEASE)
    claim = f"PersistentVolumeClaim/{RELEASE}-lb-stream"
    assert claim in server.names(namespace)
    # The next release of that name takes it.
    helm(server, HELM[0], namespace, "install", RELEASE, CHART, *case_options("one-pod"))
    assert claim in server.names(namespace)
