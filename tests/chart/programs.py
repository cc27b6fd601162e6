"""Build helm and a Kubernetes API server from Go modules: `python -m tests.chart.programs`.

They go to `.make/kubernetes-programs`, a folder for each version, and are built once. Go checks
each module against its public sums. Exit code 2: something is missing, and there is no Go.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / ".make" / "kubernetes-programs"
HELM = ("3.22.0", "4.3.1")
KUBERNETES = ("1.34.4", "1.36.3")
ETCD = "3.6.13"
PROMETHEUS_OPERATOR = "0.85.0"
"""Only its resource definitions are used."""


def helm(version: str) -> Path:
    """Return where this version's helm is."""
    return FOLDER / f"helm-{version}" / "helm"


def kubernetes(version: str) -> Path:
    """Return where this release's kube-apiserver is."""
    return FOLDER / f"kubernetes-{version}" / "kube-apiserver"


def etcd() -> Path:
    """Return where etcd is."""
    return FOLDER / f"etcd-{ETCD}" / "etcd"


def monitoring_definitions() -> list[Path]:
    """Return the definitions of ServiceMonitor and PrometheusRule."""
    folder = FOLDER / f"prometheus-operator-{PROMETHEUS_OPERATOR}"
    return [
        folder / f"monitoring.coreos.com_{kind}.yaml"
        for kind in ("servicemonitors", "prometheusrules")
    ]


def _go(*arguments: str, folder: Path, **variables: str) -> str:
    """Run go, with the user's GOFLAGS. It may write the folder's go.mod."""
    flags = os.environ.get("GOFLAGS", "")
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": f"{flags} -mod=mod".strip(),
        **variables,
    }
    run = subprocess.run(
        ["go", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, check=True
    )
    return run.stdout.decode()


def _module(folder: Path, go_version: str, *lines: str) -> None:
    """Write the go.mod of a folder from which programs of other modules are built."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ("module programs", f"go {go_version}", *lines)
    (folder / "go.mod").write_text("\n\n".join(lines) + "\n")


def _build_helm(version: str, made: Path) -> None:
    major = version.partition(".")[0]
    program = f"helm.sh/helm/v{major}/cmd/helm@v{version}"
    # Without -mod=mod: the program's own go.mod counts.
    flags = os.environ.get("GOFLAGS", "")
    _go("install", program, folder=made, GOBIN=str(made), GOFLAGS=flags)


def _build_kubernetes(version: str, made: Path) -> None:
    """Build a release's kube-apiserver.

    Its go.mod names folders beside it. The same code is published as modules 0.MINOR.PATCH.
    """
    _module(made, "1.24.0")
    got = json.loads(_go("mod", "download", "-json", f"k8s.io/kubernetes@v{version}", folder=made))
    module = json.loads(_go("mod", "edit", "-json", f"{got['Dir']}/go.mod", folder=made))
    part = f"v0.{version.partition('.')[2]}"
    parts = [
        f"replace {replaced['Old']['Path']} => {replaced['Old']['Path']} {part}"
        for replaced in module["Replace"]
        if replaced["New"]["Path"].startswith("./staging/")
    ]
    _module(made, module["Go"], f"require k8s.io/kubernetes v{version}", *parts)
    major, minor, _ = version.split(".")
    names = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in names.items()
    )
    _go(
        "build",
        *(
            "-ldflags",
            flags,
            "-o",
            f"{made}/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver",
        ),
        folder=made,
    )


def _build_etcd(made: Path) -> None:
    server = "go.etcd.io/etcd/server/v3"
    _module(made, "1.25.0", f"require {server} v{ETCD}")
    _go("build", "-o", f"{made}/etcd", server, folder=made)


def _copy_definitions(made: Path) -> None:
    _module(made, "1.24.0")
    module = f"github.com/prometheus-operator/prometheus-operator@v{PROMETHEUS_OPERATOR}"
    got = json.loads(_go("mod", "download", "-json", module, folder=made))
    for path in monitoring_definitions():
        shutil.copyfile(
            Path(got["Dir"], "example", "prometheus-operator-crd", path.name), made / path.name
        )


def main(arguments: list[str]) -> int:
    """Build what is missing; with `helm`, only helm. Return the exit code."""
    steps = [(helm(version), _build_helm, (version,)) for version in HELM]
    if arguments != ["helm"]:
        steps += [
            (etcd(), _build_etcd, ()),
            (monitoring_definitions()[-1], _copy_definitions, ()),
            *((kubernetes(name), _build_kubernetes, (name,)) for name in KUBERNETES),
        ]
    missing = [step for step in steps if not step[0].exists()]
    if missing and shutil.which("go") is None:
        program = missing[0][0].parent.name
        print(f"{program} is missing: install Go 1.25 or newer, which builds it", file=sys.stderr)
        return 2
    for wanted, build, given in missing:
        begin = time.monotonic()
        wanted.parent.mkdir(parents=True, exist_ok=True)
        build(*given, wanted.parent)
        took = time.monotonic() - begin
        print(f"{wanted.parent.name}: built in {took:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
