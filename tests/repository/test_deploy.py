"""The artefacts in conf/deploy, as far as they can be checked without Docker and Kubernetes."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import lb_stream
from lb_stream.console.address import LOCAL_NAMES
from lb_stream.settings.load import load_settings
from tests.e2e.cluster.standalone import documented_lines

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "conf" / "deploy"
VERSION = lb_stream.__version__
MANIFEST: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
UNITS = sorted(path.name for path in DEPLOY.glob("lb-stream*"))
ENTRYPOINT = DEPLOY / "entrypoint.sh"


def find_document(kind: str, name: str = "lb-stream") -> dict[str, Any]:
    (found,) = (
        document
        for document in MANIFEST
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    )
    return found


def pods() -> dict[str, dict[str, Any]]:
    """Return each pod's spec by the name of what makes it."""
    specs = {
        document["metadata"]["name"]: document["spec"]
        for document in MANIFEST
        if document["kind"] in ("Deployment", "CronJob")
    }
    specs["lb-stream-upkeep"] = specs["lb-stream-upkeep"]["jobTemplate"]["spec"]
    return {name: spec["template"]["spec"] for name, spec in specs.items()}


# --- Kubernetes ---


def test_the_manifest_holds_what_the_job_needs_each_once() -> None:
    names = [(document["kind"], document["metadata"]["name"]) for document in MANIFEST]
    assert sorted(names) == [
        ("ConfigMap", "lb-stream"),
        ("CronJob", "lb-stream-upkeep"),
        ("Deployment", "lb-stream"),
        ("Deployment", "lb-stream-console"),
        ("PersistentVolumeClaim", "lb-stream"),
        ("PodDisruptionBudget", "lb-stream"),
        ("Service", "lb-stream"),
        ("Service", "lb-stream-console"),
        ("ServiceAccount", "lb-stream"),
    ]
    versions = {document["kind"]: document["apiVersion"] for document in MANIFEST}
    assert (versions["Deployment"], versions["CronJob"], versions["PodDisruptionBudget"]) == (
        "apps/v1",
        "batch/v1",
        "policy/v1",
    )


@pytest.mark.parametrize("name", pods())
def test_every_mount_has_its_volume_and_every_volume_its_claim_or_configuration(name: str) -> None:
    pod = pods()[name]
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {
        "data": "/data",
        "settings": "/etc/lb-stream",
        "tmp": "/tmp",
    }
    assert find_document(
        "PersistentVolumeClaim", volumes["data"]["persistentVolumeClaim"]["claimName"]
    )["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "lb.toml" in find_document("ConfigMap", volumes["settings"]["configMap"]["name"])["data"]
    assert container["image"] == f"lb-stream:{VERSION}"
    assert "--config=/etc/lb-stream/lb.toml" in container["args"]
    for path in (part for part in container["args"] if part.startswith("jobs/")):
        assert (PROJECT / path).exists()
    assert pod["serviceAccountName"] == find_document("ServiceAccount")["metadata"]["name"]
    assert not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsUser"] == 10001 and pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_two_pods_of_the_job_share_its_work() -> None:
    deployment = find_document("Deployment")["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    assert deployment["replicas"] == 2 and "--standby" in container["args"]
    assert container["args"][0] == "balance"
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert find_document("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def settings_of_the_manifest() -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(find_document("ConfigMap")["data"]["lb.toml"])
        file.flush()
        return load_settings(toml=Path(file.name), environment={})


def test_the_manifests_settings_are_settings_and_lie_on_the_volume() -> None:
    stream = settings_of_the_manifest().stream
    assert stream.tables.startswith("/data/") and stream.checkpoint.startswith("/data/")
    port = next(
        port["port"]
        for port in find_document("Service")["spec"]["ports"]
        if port["name"] == "metrics"
    )
    assert stream.metrics_address == f"0.0.0.0:{port}"
    probes = find_document("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert (
        probes["startupProbe"]["httpGet"]
        == probes["livenessProbe"]["httpGet"]
        == {"path": "/health", "port": "metrics"}
    )
    assert probes["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}


@pytest.mark.parametrize("name", ["lb-stream", "lb-stream-console"])
def test_labels_select_the_pods_of_a_service(name: str) -> None:
    deployment = find_document("Deployment", name)["spec"]
    assert (
        find_document("Service", name)["spec"]["selector"]
        == deployment["selector"]["matchLabels"]
        == deployment["template"]["metadata"]["labels"]
    )


def test_the_probes_of_the_console_name_a_host_that_it_answers_to() -> None:
    (container,) = pods()["lb-stream-console"]["containers"]
    for probe in (container["readinessProbe"], container["livenessProbe"]):
        (header,) = probe["httpGet"]["httpHeaders"]
        assert header["name"] == "Host" and header["value"] in LOCAL_NAMES
        page = probe["httpGet"]["path"].removeprefix("/static/")
        assert (PROJECT / "lb_stream" / "console" / "static" / page).exists()


# --- the image ---


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.agent"])
def test_everything_that_an_image_copies_is_there_and_let_through(name: str) -> None:
    lines = (DEPLOY / name).read_text().replace("\\\n", " ").splitlines()
    let_through = {
        line[1:]
        for line in (DEPLOY / f"{name}.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    sources = [source for sources in copied for source in sources if "--from=" not in sources[0]]
    assert {source.rstrip("/") for source in sources} == let_through
    for source in sources:
        assert (PROJECT / source).exists(), source
    assert "ARG BASE=debian:12-slim" in lines
    assert {line.split()[1] for line in lines if line.startswith("FROM ")} == {"${BASE}", "scratch"}
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]


def test_the_jobs_image_starts_the_entrypoint_which_everybody_may_run() -> None:
    (entry,) = re.findall("^ENTRYPOINT .*", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert "/opt/lb-stream/conf/deploy/entrypoint.sh" in entry and os.access(ENTRYPOINT, os.X_OK)


def test_the_images_variables_are_settings() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    variables = dict(re.findall(r"\b(LB_[A-Z_]+)=(\S+)", text.partition("ENV ")[2].splitlines()[0]))
    settings = load_settings(environment=variables)
    assert (settings.stream.tables, settings.stream.metrics_address) == (
        "/data/tables",
        "0.0.0.0:9474",
    )
    assert len(variables) == 3


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder laid out like the image's, whose lbctl, python, java and spark-submit only print how
    they were called."""
    home = tmp_path / "home"
    (home / "conf" / "deploy").mkdir(parents=True)
    shutil.copy(ENTRYPOINT, home / "conf" / "deploy")
    spark = tmp_path / "spark"
    programs = {
        home / ".venv/bin/lbctl": "",
        tmp_path / "java/bin/java": "",
        spark / "bin/spark-submit": "",
        spark / "bin/spark-class": "",
    }
    programs[home / ".venv/bin/python"] = f'[ "$1" = -c ] && echo {spark} && exit; '
    for path, first in programs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f'#!/bin/sh\n{first}echo "$(basename "$0")"; for one in "$@"; do echo "$one"; done\n'
        )
        path.chmod(0o755)
    return home


def called(image: Path, *arguments: str, **variables: str) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(image.parent / "java"), **variables}
    run = subprocess.run(
        [image / "conf/deploy/entrypoint.sh", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()


def test_the_entrypoint_starts_the_job_spark_submit_or_any_command(image: Path) -> None:
    assert called(image) == ["lbctl", "balance"]
    assert called(image, "balance", "--set", "a=b c") == ["lbctl", "balance", "--set", "a=b c"]
    assert called(image, "python", "jobs/maintain.py") == ["python", "jobs/maintain.py"]
    submit = called(image, "submit", "--master=x", "jobs/balance.py")
    assert submit[0] == "spark-submit" and submit[-2:] == ["--master=x", "jobs/balance.py"]
    assert submit[submit.index("--properties-file") + 1] == "conf/spark-defaults.conf"
    classes = (
        f"{image}/.jars/spark/*:{image}/.jars/s3/*:{image}/conf"  # conf for its log4j2.properties
    )
    assert submit[submit.index("--driver-class-path") + 1] == classes
    assert submit[submit.index("--conf") + 1] == f"spark.executor.extraClassPath={classes}"
    elsewhere = called(image, "submit", LB_JARS_DIR="/srv/jars")
    assert (
        elsewhere[elsewhere.index("--driver-class-path") + 1]
        == f"/srv/jars/spark/*:/srv/jars/s3/*:{image}/conf"
    )


def test_the_entrypoint_starts_master_and_worker_with_its_own_spark_and_a_short_log(
    image: Path,
) -> None:
    names = {
        "master": "org.apache.spark.deploy.master.Master",
        "worker": "org.apache.spark.deploy.worker.Worker",
    }
    for way, name in names.items():
        assert called(image, way, "--host", "10.0.0.2") == [
            "spark-class",
            name,
            "--host",
            "10.0.0.2",
        ]
    spark_class = image.parent / "spark" / "bin" / "spark-class"
    spark_class.write_text(
        '#!/bin/sh\necho "$SPARK_DAEMON_JAVA_OPTS"; echo "$SPARK_WORKER_DIR"; echo "$SPARK_HOME"\n'
    )
    options, folder, home = called(image, "worker")
    assert options.strip() == f"-Dlog4j2.configurationFile=file:{image}/conf/log4j2.properties"
    assert (folder, home) == (f"{image}/.lb/worker", str(image.parent / "spark"))
    assert called(image, "worker", SPARK_WORKER_DIR="/var/spark")[1] == "/var/spark"


def test_the_page_has_the_lines_that_the_test_of_a_cluster_runs() -> None:
    lines = documented_lines()
    ways = {name: line.split()[:2] for name, line in lines.items()}
    program = "conf/deploy/entrypoint.sh"
    assert ways == {
        "master": [program, "master"],
        "worker": [program, "worker"],
        "driver": [program, "submit"],
    }


def test_the_entrypoint_starts_an_executor_as_kubernetes_asks(image: Path) -> None:
    asked = {
        "SPARK_JAVA_OPT_0": "-Da=1 2",
        "SPARK_JAVA_OPT_1": "-Db=3",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_URL": "spark://d@1:2",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
        "SPARK_EXECUTOR_POD_NAME": "pod-7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    java = called(image, "executor", **asked)
    assert java[:5] == ["java", "-Da=1 2", "-Db=3", "-Xms2g", "-Xmx2g"]
    assert java[7] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    options = dict(zip(java[8::2], java[9::2], strict=True))
    assert options == {
        "--driver-url": "spark://d@1:2",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "pod-7",
    }


@pytest.mark.jvm
def test_sparks_executor_knows_the_options_that_it_is_given() -> None:
    import pyspark

    from lb_stream.io.local.java import find_java

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    name = re.search(r"org\.apache\.spark\.\S*Executor\S*", ENTRYPOINT.read_text())
    assert name
    run = subprocess.run(
        [find_java().path, "-cp", str(jars), name[0]], capture_output=True, text=True, check=False
    )
    known = set(re.findall(r"^\s+(--\w[\w-]*)", run.stdout + run.stderr, re.MULTILINE))
    given = set(
        re.findall(r"--\w[\w-]*", ENTRYPOINT.read_text().partition(name[0])[2].partition(";;")[0])
    )
    assert given and given <= known


# --- systemd ---


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for name in UNITS[:3]:
        (tmp_path / name).write_text(
            (DEPLOY / name).read_text().replace("/opt/lb-stream", str(PROJECT))
        )
    run = subprocess.run(
        ["systemd-analyze", "verify", *tmp_path.iterdir()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


def test_the_units_start_what_there_is() -> None:
    assert UNITS == ["lb-stream-upkeep.service", "lb-stream-upkeep.timer", "lb-stream.service"]
    job, upkeep = (
        dict(
            line.split("=", 1)
            for line in (DEPLOY / name).read_text().splitlines()
            if "=" in line and line[0] != "#"
        )
        for name in ("lb-stream.service", "lb-stream-upkeep.service")
    )
    assert job["ExecStart"].startswith("/opt/lb-stream/.venv/bin/lbctl balance --config ")
    assert (PROJECT / upkeep["ExecStart"].split()[1]).exists()
    assert job["RestartPreventExitStatus"] == "2" and job["Environment"] == upkeep["Environment"]
    variables = dict(one.split("=", 1) for one in job["Environment"].split())
    assert load_settings(environment=variables).stream.checkpoint == "/var/lib/lb-stream/checkpoint"
