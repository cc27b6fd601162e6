"""Agents where pyarrow is not installed."""

import json
import subprocess
import sys
from pathlib import Path

from tests.pulsar.fake_cluster import fake_cluster

PROJECT = Path(__file__).parents[3]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_an_agent_reports_as_json_and_obeys_without_arrow() -> None:
    done = run("-m", "tests.unit.agent.arrowless_agent")
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line) for line in done.stdout.splitlines()]
    reports = [record for kind, record in sent if kind == "report"]
    (ack,) = [record for kind, record in sent if kind == "ack"]
    assert len(reports[0]["lastStats"]) == 1 and not reports[-1]["lastStats"]
    assert (ack["outcome"], sent[-1][0]) == ("released", "goodbye")
    lines = [line for line in done.stderr.splitlines() if "pyarrow" in line]
    assert [line.partition(":")[0] for line in lines] == ["ERROR", "WARNING"], (
        "the search for splits, then columns"
    )


def test_lbctl_checks_an_agent_without_arrow() -> None:
    start = "import tests.support.without_arrow; from lb_stream.cli.main import main; main()"
    with fake_cluster(manager="extensible") as cluster:
        urls = [part for name in cluster.names for part in ("--admin-url", f"http://{name}")]
        done = run("-c", start, "agent", "pulsar", "--check", "--json", "--cluster", "eu-1", *urls)
    assert done.returncode in (0, 1), done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["manager"] for row in rows] == ["extensible"] * len(cluster.names), done.stdout


def test_a_command_that_needs_arrow_says_what_to_install() -> None:
    start = "import tests.support.without_arrow; from lb_stream.cli.main import main; main()"
    done = run("-c", start, "config", "show", "--set", "stream.allowed_clusters=eu-.*")
    assert done.returncode == 2
    assert "pip install pyarrow" in done.stderr and "Traceback" not in done.stderr
