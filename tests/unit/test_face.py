"""`import lb_stream`: its example runs as it stands, on a machine without Java, and it gives every name that it promises."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import lb_stream
from lb_stream.contracts.keys import SettingError
from lb_stream.query import QueryError
from tests.support.recorded_tables import Recorder

PROJECT = Path(__file__).parents[2]
REPORTS = PROJECT / "tests" / "data" / "modular-load-reports.jsonl.gz"
EXAMPLE = textwrap.dedent(re.findall(r"((?:^    .*\n|^\n)+)", str(lb_stream.__doc__), re.MULTILINE)[1]).strip()
LOADED = "\nimport sys\nprint(sorted({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'py4j', 'kafka'}))"


def run(code: str) -> list[str]:
    """What a new Python without Java on its path prints."""
    found = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_the_example_of_the_package_runs_as_it_stands_without_java_spark_or_kafka() -> None:
    *told, loaded = run(EXAMPLE + LOADED)
    assert [line.partition(" ")[0] for line in told] == list(lb_stream.shedder.names)
    assert next(line for line in told if line.startswith("UniformLoadShedder")) == "UniformLoadShedder [] ['min_unload']"
    assert any(re.match(r"ThresholdShedder \[\('lab/", line) for line in told)
    assert loaded == "[]"
    assert len([line for line in EXAMPLE.splitlines() if line]) == 5


def test_the_readme_shows_the_same_lines() -> None:
    assert EXAMPLE in (PROJECT / "README.md").read_text()


def test_every_name_of_the_package_is_there_and_no_other() -> None:
    assert {name for names in lb_stream._HOMES.values() for name in names} == set(lb_stream.__all__)
    assert all(getattr(lb_stream, name) for name in lb_stream.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Decide'"):
        _ = lb_stream.Decide


def test_a_jobs_tables_give_the_same_answer_as_its_last_view(recorded: Recorder) -> None:
    view = lb_stream.load_tables(recorded.root)
    last = recorded.rounds[-1]
    assert view.cluster == last.cluster and set(view.brokers.names) == set(last.view.brokers.names)
    assert view.bundles.names.to_pylist() == last.view.bundles.names.to_pylist()
    assert lb_stream.ask(view, shedding_strategy="OverloadShedder").cluster == view.cluster


def test_plain_reports_of_brokers_are_read_too(tmp_path: Path) -> None:
    report = (PROJECT / "schemas" / "examples" / "modular-report.json").read_text()
    file = tmp_path / "reports.jsonl"
    file.write_text(report.replace("\n", " ") + "\n")
    view = lb_stream.load_reports(file, "shop", "broker-1:8080")
    assert len(view.brokers.names) == 1 and len(view.bundles) > 0 and view.cluster == "shop"


@pytest.mark.parametrize(("text", "told"), [("", "no load report"), ("nonsense\n", "line 1: not a JSON object"), (None, "can't be read")])
def test_a_file_without_reports_is_refused_with_the_reason(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "reports.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(QueryError, match=told):
        lb_stream.load_reports(file)


def test_an_unknown_cluster_strategy_or_setting_is_refused_with_those_there_are(recorded: Recorder) -> None:
    with pytest.raises(QueryError, match=f"expected one of {recorded.rounds[-1].cluster}"):
        lb_stream.load_tables(recorded.root, "nobody")
    view = lb_stream.load_tables(recorded.root)
    with pytest.raises(SettingError, match="ThresholdShedder"):
        lb_stream.ask(view, shedding_strategy="NoSuchShedder")
