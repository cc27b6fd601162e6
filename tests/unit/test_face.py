"""`import lb_stream`: its example runs as it stands, on a machine without Java, and it gives every
name that it promises."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import lb_stream
from lb_stream.contracts.keys import SettingError
from lb_stream.query import QueryError
from lb_stream.query.past.reports import build_history
from tests.support.recorded_tables import Recorder

PROJECT = Path(__file__).parents[2]
REPORTS = PROJECT / "tests" / "data" / "modular-load-reports.jsonl.gz"
EXAMPLE = textwrap.dedent(
    re.findall(r"((?:^    .*\n|^\n)+)", str(lb_stream.__doc__), re.MULTILINE)[1]
).strip()
LOADED = (
    "\nimport sys\nprint(sorted({name.partition('.')[0] for name in sys.modules} & "
    "{'pyspark', 'py4j', 'kafka'}))"
)


def run(code: str) -> list[str]:
    """What a new Python without Java on its path prints."""
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_the_example_of_the_package_runs_as_it_stands_without_java_spark_or_kafka() -> None:
    *told, loaded = run(EXAMPLE + LOADED)
    names = [line.partition(" ")[0] for line in told]
    assert names[::2] == names[1::2] == list(lb_stream.shedder.names)
    assert [line for line in told if line.startswith("UniformLoadShedder")] == [
        "UniformLoadShedder []",
        "UniformLoadShedder ['min_unload']",
    ]
    assert any(re.match(r"ThresholdShedder \['lab/", line) for line in told)
    assert loaded == "[]"
    assert len([line for line in EXAMPLE.splitlines() if line]) == 6


def test_every_strategy_of_the_package_is_named_before_any_settings_are_read() -> None:
    *_, shedders, placements = run(
        "import lb_stream\nprint(lb_stream.shedder.names)\nprint(lb_stream.placement.names)"
    )
    assert "'LeastMoves'" in shedders and "'LeastMoves'" in placements


def test_getting_started_shows_the_same_lines() -> None:
    assert EXAMPLE in (PROJECT / "docs" / "getting-started.md").read_text()


def test_every_name_of_the_package_is_there_and_no_other() -> None:
    assert {name for names in lb_stream._MODULES.values() for name in names} == set(
        lb_stream.__all__
    )
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


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "no load report"), ("nonsense\n", "line 1: not a JSON object"), (None, "can't be read")],
)
def test_a_file_without_reports_is_refused_with_the_reason(
    tmp_path: Path, text: str | None, told: str
) -> None:
    file = tmp_path / "reports.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(QueryError, match=told):
        lb_stream.load_reports(file)


def test_an_unknown_cluster_strategy_or_setting_is_refused_with_those_there_are(
    recorded: Recorder,
) -> None:
    with pytest.raises(QueryError, match=f"expected one of {recorded.rounds[-1].cluster}"):
        lb_stream.load_tables(recorded.root, "nobody")
    view = lb_stream.load_tables(recorded.root)
    with pytest.raises(SettingError, match="ThresholdShedder"):
        lb_stream.ask(view, shedding_strategy="NoSuchShedder")


BUNDLE = "shop/orders/0x00000000_0x80000000"
STATS = {name: 1.0 for name in ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")}
WRONG: list[tuple[dict[str, object], str]] = [
    # apache/pulsar #382: figures that can't be
    ({"msgRateIn": -1.0}, r"msgRateIn = -1.0: expected greater than or equal to 0"),
    ({"cpu": {"usage": "NaN", "limit": 100.0}}, r"cpu.usage = 'NaN': expected .*number"),
    ({"lastStats": {BUNDLE: STATS | {"msgRateOut": -0.5}}}, r"msgRateOut = -0.5: expected greater"),
    ({"lastStats": {BUNDLE: STATS | {"topics": -2}}}, r"topics = -2: expected greater"),
    (
        {"lastStats": {"shop/orders/0x0_0x1": STATS}},
        r"bundle = shop/orders/0x0_0x1: expected <tenant>",
    ),
    ({"bundles": ["shop/orders"]}, r"bundle = shop/orders: expected <tenant>"),
    (
        {"loadReportType": "Sundry"},
        r"loadReportType = Sundry: expected LocalBrokerData or LoadReport",
    ),
    ({"lastUpdate": 500}, r"lastUpdate = 500: expected >= 1000, the broker's last report"),
]


def write_captured(file: Path, *reports: tuple[str, int, dict[str, object]]) -> None:
    """A file of captured reports: broker, time of capture, fields beside those that all have."""
    common = {"loadReportType": "LocalBrokerData", "lastStats": {}, "startTimestamp": 1}
    lines = [
        {"capturedAtMs": at_ms, "broker": broker, "report": common | {"lastUpdate": at_ms} | fields}
        for broker, at_ms, fields in reports
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(("fields", "told"), WRONG)
def test_a_report_that_the_job_would_reject_is_named_by_line_field_and_value(
    tmp_path: Path, fields: dict[str, object], told: str
) -> None:
    file = tmp_path / "reports.jsonl"
    write_captured(file, ("a:8080", 1000, {}), ("b:8080", 1001, {}), ("a:8080", 1002, fields))
    with pytest.raises(QueryError, match=rf"reports\.jsonl, line 3: .*{told}") as error:
        lb_stream.load_reports(file)
    assert error.value.code == 2
    with pytest.raises(QueryError, match=rf"reports\.jsonl, line 3: .*{told}"):
        build_history(file, "shop", resolution_ms=1)


def test_half_of_a_report_without_its_other_half_is_named_too(tmp_path: Path) -> None:
    file = tmp_path / "reports.jsonl"
    write_captured(file, ("a:8080", 1000, {}))
    half = {"capturedAtMs": 1001, "broker": "b:8080", "report": {"topBundlesLoadData": []}}
    file.write_text(file.read_text() + json.dumps(half) + "\n")
    with pytest.raises(QueryError, match=r"line 2: key = b:8080: expected .*broker"):
        lb_stream.load_reports(file)


def test_of_several_bad_lines_the_first_is_named_and_the_others_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "reports.jsonl"
    bad: dict[str, object] = {"msgRateIn": -1.0}
    write_captured(file, ("b:8080", 1009, bad), ("a:8080", 1000, bad), ("c:8080", 1001, {}))
    with pytest.raises(QueryError, match=r"line 1: .*and 1 more such lines"):
        lb_stream.load_reports(file)
