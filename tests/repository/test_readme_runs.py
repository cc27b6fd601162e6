"""docs/getting-started.md to the letter, where that needs neither Kafka nor Spark.

The tables are those of a recorded run in the place of the demo's; Kafka is a list. With a real one:
tests/e2e/test_cli_kafka.py.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema
import kafka.errors as kafka_errors
import pyarrow as pa
import pytest

from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.core.model.blocks import from_bytes
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from tests.support.lbctl_runner import lbctl
from tests.support.pages import blocks
from tests.support.recorded_tables import record

PROJECT = Path(__file__).parents[2]
START = (PROJECT / "docs" / "getting-started.md").read_text()
BLOCKS = blocks("docs/getting-started.md")
(AFTER_DEMO,) = (block for block in BLOCKS if "activate" in block)
NAME, KEY = "broker-1:8080", "shop-cluster/broker-1:8080"
LEFT, RIGHT, OTHER = (
    f"shop/orders/{ends}"
    for ends in ("0x00000000_0x80000000", "0x80000000_0xffffffff", "0x20000000_0x40000000")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo has run: its tables are where the demo's are."""
    folder = tmp_path_factory.mktemp("readme")
    record(folder / ".lb" / "demo" / "tables", settings={"shedding_strategy": "LeastMoves"})
    return folder


LINES = [line for line in AFTER_DEMO.splitlines() if line.startswith("lbctl")]


@pytest.mark.parametrize("line", LINES)
def test_every_command_after_the_demo_runs(line: str, folder: Path) -> None:
    result = lbctl(*shlex.split(line, comments=True)[1:], cwd=folder)
    assert result.code == 0, result.err
    assert (
        len((result.out + result.err).splitlines()) >= 3 or "page.html" in result.out + result.err
    )


def test_the_report_was_written_where_the_page_says(folder: Path) -> None:
    assert lbctl("report", "--out", "page.html", cwd=folder).code == 0
    assert "<html" in (folder / "page.html").read_text()[:200]


def test_an_explanation_begins_as_the_page_shows(folder: Path) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", START, re.DOTALL)
    explained = lbctl("explain", "demo:6:0", cwd=folder).out
    assert [
        line.rstrip() for line in explained.splitlines()[: len(shown.splitlines())]
    ] == shown.splitlines()


def test_the_environment_that_the_page_activates_is_the_one_that_make_makes() -> None:
    assert AFTER_DEMO.splitlines()[0] == "source .venv/bin/activate"
    assert "VENV := .venv\n" in (PROJECT / "Makefile").read_text()


# --- a broker of one's own ---

(PROGRAM,) = (
    block
    for block in re.findall(r"```python\n(.*?)```", START, re.DOTALL)
    if "KafkaConsumer" in block
)


def test_the_readmes_broker_says_within_seconds_that_no_kafka_answers() -> None:
    nobody = os.environ | {"LB_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=nobody,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "127.0.0.1:9: name your Kafka by LB_KAFKA__BOOTSTRAP_SERVERS=HOST:PORT" in result.stderr


class FakeKafka(ModuleType):
    """kafka-python with a list for each topic: what is read was put there before, what is sent can
    be looked at."""

    def __init__(self, decisions: list[Decision]) -> None:
        super().__init__("kafka")
        self.sent: list[SimpleNamespace] = []
        self.read: list[tuple[Any, ...]] = []
        values = [SimpleNamespace(value=decision.to_json().encode()) for decision in decisions]

        class Producer:
            def __init__(_self, bootstrap_servers: str, bootstrap_timeout_ms: int) -> None:
                assert bootstrap_timeout_ms == 10_000

            def send(
                _self, topic: str, value: bytes, key: bytes, headers: list[tuple[str, bytes]]
            ) -> None:
                self.sent.append(
                    SimpleNamespace(
                        topic=topic,
                        value=value,
                        key=key.decode(),
                        kind=dict(headers)["kind"].decode(),
                    )
                )

        def consumer(
            topic: str, bootstrap_servers: str, isolation_level: str
        ) -> Iterator[SimpleNamespace]:
            self.read.append((topic, isolation_level))
            return iter(values)

        self.KafkaProducer, self.KafkaConsumer = Producer, consumer


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """The README's broker after four decisions: an unload and an assignment for it, and one of each
    for others."""
    ours: dict[str, Any] = {"cluster": "shop-cluster"}
    decisions = [
        example_decision(**ours, kind="unload", bundle=RIGHT, source="broker-2:8080"),
        example_decision(
            **ours, kind="unload", bundle=LEFT, source=NAME, decision_id="shop-cluster:7:0"
        ),
        example_decision(
            **ours,
            kind="assign",
            bundle=OTHER,
            source=None,
            destination=NAME,
            decision_id="shop-cluster:8:0",
        ),
        example_decision(
            **ours, kind="assign", bundle=RIGHT, source=None, destination="broker-3:8080"
        ),
    ]
    kafka = FakeKafka(decisions)
    monkeypatch.setitem(sys.modules, "kafka", kafka)
    monkeypatch.setitem(sys.modules, "kafka.errors", kafka_errors)
    exec(compile(PROGRAM, "getting-started.md", "exec"), {})
    return kafka


def test_the_readmes_broker_obeys_what_is_addressed_to_it_and_reports_at_once(
    played: FakeKafka,
) -> None:
    assert played.read == [("lb-decisions", "read_committed")]
    assert {(one.topic, one.key) for one in played.sent} == {("lb-load-reports", KEY)}
    story = [(one.kind, json.loads(one.value)) for one in played.sent]
    acks = [value for kind, value in story if kind == "ack"]
    assert acks == [
        {"decision_id": "shop-cluster:7:0", "outcome": "released"},
        {"decision_id": "shop-cluster:8:0", "outcome": "acquired"},
    ]
    bundles = [set(value["bundles"]) for kind, value in story if kind == "report"]
    assert bundles == [{LEFT, RIGHT}, {LEFT, RIGHT}, {RIGHT}, {OTHER, RIGHT}, {OTHER, RIGHT}]
    assert [kind for kind, _ in story] == [
        "report",
        "report",
        "ack",
        "report",
        "ack",
        "report",
        "report",
    ]


def test_what_the_readmes_broker_sends_fits_the_published_schemas(played: FakeKafka) -> None:
    schemas = {
        "report": json.loads((PROJECT / "schemas" / "modular-report.schema.json").read_text()),
        "ack": json.loads((PROJECT / "schemas" / "ack.schema.json").read_text()),
    }
    for one in played.sent:
        jsonschema.validate(json.loads(one.value), schemas[one.kind])


def test_the_stream_takes_everything_that_the_readmes_broker_sends(played: FakeKafka) -> None:
    count = len(played.sent)
    columns = {
        "key": pa.array([one.key.encode() for one in played.sent], pa.binary()),
        "value": pa.array([one.value for one in played.sent], pa.binary()),
        "kind": pa.array([one.kind for one in played.sent], pa.string()),
        "topic": pa.array([one.topic for one in played.sent], pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "append_ms": pa.array([1_767_225_600_000] * count, pa.int64()),
    }
    blocks = decode([pa.record_batch(columns)], DecodeConfig("default", "lb-commands", {}))
    (row,) = (row for block in blocks for row in block.to_pylist() if row["cluster"])
    events = from_bytes(row["events"]).to_pylist()
    assert (row["cluster"], [event["kind"] for event in events]) == ("shop-cluster", ["ack", "ack"])
    reports = from_bytes(row["reports"]).to_pylist()
    assert {report["name"] for report in reports} == {NAME} and len(reports) == 5
    assert reports[-1]["latest_rate_in_msgs_per_s"] == 1_000.0 and reports[-1]["cpu_usage"] == 340.0
