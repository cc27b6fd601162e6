"""docs/managed-spark.md: what the job asks of Spark, and the versions that it has."""

import ast
import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "managed-spark.md").read_text()
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())
CLASSIC = {"sparkContext", "_jvm", "_jsc"}
"""What a session of Spark Connect does not have."""
JOB = ("lb_stream/job", "lb_stream/stream")


def modules_with_classic_spark() -> set[str]:
    return {
        str(path.relative_to(PROJECT))
        for folder in JOB
        for path in (PROJECT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in CLASSIC
    }


def test_the_page_names_each_module_of_the_job_that_needs_classic_spark() -> None:
    (row,) = re.findall(r"^\| calls `sparkContext`.*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"lb_stream/[\w/]+\.py", row)) == modules_with_classic_spark()


def test_the_page_has_the_versions_that_are_locked() -> None:
    (row,) = re.findall(r"^\| this project \|.*$", PAGE, re.MULTILINE)
    locked = dict(
        re.findall(r"^([\w-]+)==([\d.]+)", (PROJECT / "requirements.lock").read_text(), re.M)
    )
    python = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    spark, delta = locked["pyspark"], locked["delta-spark"]
    assert row == f"| this project | {spark} | {delta} | {python} or newer | 17 to 25 |"
    ivy = (PROJECT / "conf" / "ivy.xml").read_text()
    for name, version in (
        ("spark-sql-kafka-0-10_2.13", spark),
        (f"delta-spark_{spark.rpartition('.')[0]}_2.13", delta),
    ):
        assert f"`{name}`" in PAGE and f'name="{name}" rev="{version}"' in ivy


def test_the_settings_that_a_service_must_allow_are_those_of_the_job() -> None:
    settings = (PROJECT / "conf" / "spark-defaults.conf").read_text()
    for name in ("spark.python.daemon.module", "spark.driver.extraJavaOptions"):
        assert f"`{name}`" in PAGE and f"\n{name} " in settings
    assert "spark.executorEnv." in settings
