"""What helm makes of the chart, without a server: both versions alike, and what they refuse."""

import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from lb_stream.cli.main import build_app
from lb_stream.settings.load import load
from tests.chart.charts import CASES, CHART, case_options, load_objects, render, run_helm
from tests.chart.programs import HELM, KUBERNETES, PROJECT

pytestmark = pytest.mark.long
LEAST = ("--set", "kafka.bootstrapServers=kafka:9092")


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the specs of all pods that the objects are or make."""
    found = []
    for thing in objects:
        spec = thing.get("spec", {})
        if thing["kind"] == "Pod":
            found.append(spec)
        if thing["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            found.append(spec["template"]["spec"])
        if "executor.yaml" in thing.get("data", {}):
            found.append(yaml.safe_load(thing["data"]["executor.yaml"])["spec"])
    return found


@pytest.mark.parametrize("version", HELM)
@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing_even_if_it_is_strict(version: str, case: str) -> None:
    run = run_helm(
        version,
        *("lint", "--strict", CHART, "--kube-version", KUBERNETES[0]),
        *case_options(case),
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("case", CASES)
def test_both_versions_of_helm_make_the_same_objects(case: str) -> None:
    made = [load_objects(render(version, *case_options(case))) for version in HELM]
    assert made[0] == made[1]
    assert len(made[0]) >= 8


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_without_rights_and_has_its_volumes(case: str) -> None:
    for pod in pods(load_objects(render(HELM[0], *case_options(case)))):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] > 0
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert mounts.keys() == volumes.keys()
        assert {name for name, mount in mounts.items() if not mount.get("readOnly")} <= {
            "tmp",
            "data",
        }
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES)
def test_the_settings_file_is_one_that_the_job_takes(case: str) -> None:
    objects = load_objects(render(HELM[0], *case_options(case)))
    (data,) = (thing["data"] for thing in objects if thing["kind"] == "ConfigMap")
    with tempfile.TemporaryDirectory() as folder:
        toml = Path(folder, "lb.toml")
        toml.write_text(data["lb.toml"])
        conf = None
        if "broker.conf" in data:
            conf = Path(folder, "broker.conf")
            conf.write_text(data["broker.conf"])
        loaded = load(toml, conf, environment={})
    assert loaded.warnings == ()
    settings = loaded.settings
    values = yaml.safe_load((PROJECT / case_options(case)[1]).read_text())
    assert settings.kafka.bootstrap_servers == values["kafka"]["bootstrapServers"]
    tables = values.get("storage", {}).get("tables", "/data/tables")
    assert settings.stream.tables == tables
    for key, value in values.get("settings", {}).get("stream", {}).items():
        assert getattr(settings.stream, key) == value


@pytest.mark.parametrize("case", CASES)
def test_no_object_holds_a_secret_and_every_option_is_one_of_lbctl(case: str) -> None:
    objects = load_objects(render(HELM[0], *case_options(case)))
    assert "Secret" not in {thing["kind"] for thing in objects}
    for pod in pods(objects):
        arguments = pod["containers"][0].get("args", [])
        words = [word for word in arguments if not word.startswith("-") and "/" not in word]
        words = [word for word in words if word not in ("lbctl", "python", "sh")]
        if not words or words[0] in ("submit", "status") or "$@" in str(arguments):
            continue
        if words[0] == "pulsar":
            words = ["agent", "pulsar"]
        command = get_command(build_app())
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        known = {option for parameter in command.params for option in parameter.opts}
        options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        assert options and options <= known


def test_an_executor_has_what_the_drivers_options_say() -> None:
    objects = load_objects(render(HELM[0], *case_options("executors")))
    (job,) = (
        thing["spec"]["template"]["spec"]
        for thing in objects
        if thing["kind"] == "Deployment" and thing["metadata"]["name"] == "lb-stream"
    )
    (container,) = job["containers"]
    options = dict(
        word.removeprefix("--conf=").split("=", 1)
        for word in container["args"]
        if word.startswith("--conf=")
    )
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert int(options["spark.driver.port"]) == ports["driver"]
    assert int(options["spark.blockManager.port"]) == ports["blocks"]
    assert options["spark.kubernetes.container.image"] == container["image"]
    (data,) = (thing["data"] for thing in objects if thing["kind"] == "ConfigMap")
    name = options["spark.kubernetes.executor.podTemplateFile"].rpartition("/")[2]
    (executor,) = yaml.safe_load(data[name])["spec"]["containers"]
    assert executor["name"] == options["spark.kubernetes.executor.podTemplateContainerName"]
    assert job["automountServiceAccountToken"] and "Role" in {thing["kind"] for thing in objects}


def test_a_component_may_have_a_login_of_its_own() -> None:
    options = ("--set", "console.kafkaLogin=lb-console")
    objects = load_objects(render(HELM[0], *case_options("tls-s3-standbys"), *options))
    secrets = {
        thing["metadata"]["name"]: {
            variable["valueFrom"]["secretKeyRef"]["name"]
            for variable in pods([thing])[0]["containers"][0]["env"]
            if "valueFrom" in variable
        }
        for thing in objects
        if thing["kind"] == "Deployment"
    }
    assert secrets == {"lb-stream": {"lb-stream-kafka"}, "lb-stream-console": {"lb-console"}}


def test_servers_with_tls_have_their_certificates_and_are_probed_over_it() -> None:
    objects = load_objects(render(HELM[0], *case_options("everything")))
    (data,) = (thing["data"] for thing in objects if thing["kind"] == "ConfigMap")
    settings = tomllib.loads(data["lb.toml"])
    names = {"balancer": "metrics", "balancer-console": "console"}
    for thing in objects:
        section = names.get(thing["metadata"]["name"])
        if thing["kind"] != "Deployment" or section is None:
            continue
        pod = thing["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        folder, _, _ = settings[section]["tls_cert"].rpartition("/")
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes[mounts[folder]]["secret"]["secretName"] == f"lb-{section}"
        probes = [container[name] for name in container if name.endswith("Probe")]
        assert {probe["httpGet"]["scheme"] for probe in probes} == {"HTTPS"}
    assert settings["metrics"] == {
        "tls_cert": "/etc/lb-metrics-tls/tls.crt",
        "tls_key": "/etc/lb-metrics-tls/key.pem",
        "client_ca": "/etc/lb-metrics-tls/readers.crt",
    }
    (monitor,) = (thing for thing in objects if thing["kind"] == "ServiceMonitor")
    for endpoint in monitor["spec"]["endpoints"]:
        assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "balancer")


def test_without_a_certificate_nothing_speaks_of_tls() -> None:
    made = render(HELM[0], *LEAST, "--set", "monitoring.serviceMonitor.enabled=true")
    assert "HTTPS" not in made and "tls" not in made


REFUSED = {
    "no Kafka": ((), "kafka.bootstrapServers is empty"),
    "an address without a port": (
        ("--set", "kafka.bootstrapServers=kafka"),
        "/kafka/bootstrapServers",
    ),
    "a misspelt key": ((*LEAST, "--set", "job.replica=2"), "/job"),
    "a word for a number": ((*LEAST, "--set", "job.replicas=two"), "/job/replicas"),
    "a folder outside of the volume": (
        (*LEAST, "--set", "storage.tables=/srv/tables"),
        "/storage/tables",
    ),
    "a checkpoint that Spark cannot write": (
        (*LEAST, "--set", "storage.checkpoint=gs://lb/checkpoint"),
        "/storage/checkpoint",
    ),
    "a heap without a unit": ((*LEAST, "--set", "job.driverMemory=3Gi"), "/job/driverMemory"),
    "an agent without a URL": (
        (*LEAST, "--set", "agents.clusters[0].cluster=eu-1"),
        "/agents/clusters/0",
    ),
    "a target with an address": (
        (*LEAST, "--set", "notify.targets.chat=slack://token"),
        "/notify/targets/chat",
    ),
    "a password among the options": (
        (*LEAST, "--set", "kafka.options.sasl_plain_password=x"),
        "kafka.options.sasl_plain_password is a secret",
    ),
    "a key among the store's options": (
        (*LEAST, "--set", "storage.options.aws_secret_access_key=x"),
        "storage.options.aws_secret_access_key is a secret",
    ),
    "a login without SASL": (
        (*LEAST, "--set", "kafka.login.secret=a"),
        "kafka.options.security_protocol is PLAINTEXT: set it to SASL_SSL",
    ),
    "SASL without a login": (
        (*LEAST, "--set", "kafka.options.sasl_mechanism=PLAIN"),
        "kafka.login.secret is empty",
    ),
    "two user names": (
        (
            *LEAST,
            *("--set", "kafka.options.security_protocol=SASL_SSL,kafka.login.secret=a"),
            *("--set", "kafka.options.sasl_plain_username=lb"),
        ),
        "kafka.options.sasl_plain_username is lb",
    ),
    "certificates without TLS": (
        (*LEAST, "--set", "kafka.tls.secret=ca"),
        "kafka.tls.secret is ca",
    ),
    "keys of no Secret": (
        (*LEAST, "--set", "kafka.tls.certKey=tls.crt"),
        "kafka.tls.secret is empty",
    ),
    "authorities of no Secret": (
        (*LEAST, "--set", "monitoring.tls.clientCaKey=ca.crt"),
        "monitoring.tls.secret is empty",
    ),
    "Prometheus's TLS without the job's": (
        (*LEAST, "--set", "monitoring.serviceMonitor.tlsConfig.serverName=lb"),
        "monitoring.tls.secret is empty",
    ),
    "a certificate among the settings": (
        (*LEAST, "--set", "settings.console.tls_cert=/etc/server.pem"),
        "settings.console.tls_cert is set by the chart: give console.tls",
    ),
    "a setting that the chart sets": (
        (*LEAST, "--set", "settings.stream.tables=/data/t"),
        "settings.stream.tables is set by the chart: give storage.tables",
    ),
    "standbys beside a volume of one node": (
        (*LEAST, "--set", "storage.volume.accessModes={ReadWriteOnce}"),
        "storage.volume.accessModes is ReadWriteOnce, but job.replicas is 2",
    ),
    "executors beside a volume of one node": (
        (
            *LEAST,
            *("--set", "storage.volume.accessModes={ReadWriteOnce},job.replicas=1"),
            *("--set", "executors.instances=2"),
        ),
        "but executors.instances is 2",
    ),
    "executors without partitions": (
        (*LEAST, "--set", "executors.instances=3"),
        "settings.stream.shuffle_partitions is not set: set it to the cores of all executors (6)",
    ),
    "no ticks": (
        (*LEAST, "--set", "settings.stream.tick_interval_ms=0"),
        "settings.stream.tick_interval_ms is 0",
    ),
    "a cluster with two agents": (
        (
            *LEAST,
            *("--set", "agents.clusters[0].cluster=eu,agents.clusters[0].adminUrls={http://a:1}"),
            *("--set", "agents.clusters[1].cluster=eu,agents.clusters[1].adminUrls={http://b:1}"),
        ),
        "agents.clusters has eu twice",
    ),
}
"""What is wrong → options of helm, and what the refusal says."""


@pytest.mark.parametrize("version", HELM)
@pytest.mark.parametrize("case", REFUSED)
def test_values_that_contradict_each_other_are_refused_with_their_key(
    version: str, case: str
) -> None:
    options, expected = REFUSED[case]
    run = run_helm(version, "template", "lb", CHART, "--kube-version", KUBERNETES[0], *options)
    said = run.stderr.replace(".", "/") if expected.startswith("/") else run.stderr
    assert run.returncode != 0 and expected in said, run.stderr
