"""Runs helm on the chart, for tests and for the plain manifest."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.chart.programs import KUBERNETES, PROJECT, helm

CHART = PROJECT / "conf" / "deploy" / "chart"
VALUES = PROJECT / "tests" / "data" / "chart"
CASES = sorted(path.stem for path in VALUES.glob("*.yaml"))


def run_helm(
    version: str, *arguments: str | Path, config: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm with folders of its own, so that no user's repositories or plug-ins count."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home}
        if config is not None:
            environment["KUBECONFIG"] = str(config)
        return subprocess.run(
            [helm(version), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def render(
    version: str, *options: str | Path, release: str = "lb-stream", kubernetes: str = KUBERNETES[0]
) -> str:
    """Return what `helm template` prints. Raises AssertionError: it refuses the values."""
    run = run_helm(version, "template", release, CHART, "--kube-version", kubernetes, *options)
    assert run.returncode == 0, run.stderr
    return run.stdout


def case_options(case: str) -> Sequence[str]:
    """Return the options of helm that name a case's values."""
    return ("--values", str(VALUES / f"{case}.yaml"))


def chart_sum() -> str:
    """Return one SHA-256 of all files that helm makes objects of, with their names."""
    digest = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        name = path.relative_to(CHART).as_posix()
        if name != "README.md":
            digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def load_objects(text: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    return [found for found in yaml.safe_load_all(text) if found]
