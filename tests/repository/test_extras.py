"""Each extra runs what it is for in its own environment, and names what the rest needs.

Packages come from uv's cache, or from the index that uv and pip have by themselves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka, free_port
from tests.support.environments import (
    PROJECT,
    Environment,
    build,
    copy_sources,
    make_environment,
)
from tests.support.otlp_receiver import otlp_receiver
from tests.support.recorded_tables import Recorder
from tests.support.webhook import webhook

pytestmark = pytest.mark.slow
BASE_MEGABYTES = 300
Make = Callable[..., Environment]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes an environment with the given extras; the wheel is built once."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    copy_sources(source)
    (wheel,) = build(source, out, "--wheel")
    return lambda *extras: make_environment(tmp_path_factory.mktemp("env"), wheel, extras)


@pytest.fixture(scope="module")
def base(make: Make) -> Environment:
    """lb_stream without any extra: what an agent's machine has."""
    return make()


def refusal(environment: Environment, *command: str) -> str:
    """Return what lbctl says on stderr when it ends with exit code 2."""
    done = subprocess.run(
        [environment.folder / "bin" / "lbctl", *command],
        cwd=environment.work,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def test_the_base_is_small_and_has_neither_spark_nor_delta(base: Environment) -> None:
    assert base.megabytes() <= BASE_MEGABYTES
    names = {path.name for path in (base.folder / "lib").glob("python*/site-packages/*")}
    assert not names & {"pyspark", "delta", "deltalake", "pandas", "duckdb", "obstore"}


def test_the_base_asks_strategies_and_simulates(base: Environment) -> None:
    reports = PROJECT / "tests" / "data" / "modular-load-reports.jsonl.gz"
    ask = (
        f"import lb_stream; view = lb_stream.load_reports({str(reports)!r}); "
        "print(len(lb_stream.ask(view, shedding_strategy='ThresholdShedder', "
        "min_throughput_mb=0).decisions))"
    )
    assert base.run("python", "-c", ask) == "1\n"
    scenario = PROJECT / "tests" / "data" / "scenarios" / "drain"
    simulated = base.run(
        *("lbctl", "simulate", "--scenario", scenario, "--policy", "none", "--json")
    )
    assert json.loads(simulated.splitlines()[-1])


def test_the_base_shows_and_explains_settings(base: Environment) -> None:
    assert json.loads(base.run("lbctl", "config", "show", "--json"))["stream"]["tables"]
    assert "threshold_percent" in base.run("lbctl", "config", "explain", "threshold_percent")


def test_the_base_says_which_extra_a_command_needs(base: Environment) -> None:
    assert "pip install 'lb_stream[cli]'" in refusal(base, "sql", "select 1")
    assert "pip install 'lb_stream[job]'" in refusal(base, "balance", "--print")
    assert "pip install 'lb_stream[job,cli]'" in refusal(base, "demo")
    assert "pip install 'lb_stream[console]'" in refusal(base, "console")
    assert "pip install 'lb_stream[otel]'" in refusal(base, "sim", "--set", "otel.enabled=true")


@pytest.mark.e2e
def test_an_agent_installed_alone_reports_for_simulated_brokers(
    base: Environment, kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    names = [
        part
        for key in ("reports", "decisions", "ownership")
        for part in ("--set", f"topics.{key}={getattr(topic_names, key)}")
    ]
    at = ("--set", f"kafka.bootstrap_servers={kafka.bootstrap}")
    base.run(
        *("lbctl", "sim", "--cluster", "alone", "--brokers", "2"), *at, *names, "--minutes", "0.1"
    )
    consumer = KafkaConsumer(
        topic_names.reports,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5_000,
    )
    reported = {
        record.key.decode() for record in consumer if dict(record.headers)["kind"] == b"report"
    }
    consumer.close()
    assert reported == {"alone/broker-1:8080", "alone/broker-2:8080"}


def test_the_extra_cli_reads_a_jobs_tables(make: Make, recorded: Recorder) -> None:
    cli = make("cli")
    tables = ("--set", f"stream.tables={recorded.root}")
    count = "select count(*) as n from decisions"
    counted = json.loads(cli.run("lbctl", "sql", count, "--json", *tables).splitlines()[-1])
    assert counted["n"] > 0
    assert "Round" in cli.run("lbctl", "explain", "last", *tables)
    assert "broker-1:8080" in cli.run("lbctl", "brokers", *tables)


@pytest.mark.e2e
@pytest.mark.jvm
def test_the_extra_job_balances(
    make: Make, kafka: EmbeddedKafka, topic_names: TopicSettings
) -> None:
    job = make("job")
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    settings = {f"topics.{key}": name for key, name in topic_names.model_dump().items()} | {
        "kafka.bootstrap_servers": kafka.bootstrap,
        "stream.metrics_address": "",
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    jars = str(PROJECT / ".jars")
    job.run("lbctl", "balance", "--once", *arguments, LB_JARS_DIR=jars, PYSPARK_PYTHON="")
    assert (job.work / ".lb" / "tables" / "rounds" / "_delta_log").is_dir()


def test_the_extra_console_serves_pages(make: Make, recorded: Recorder) -> None:
    console = make("console")
    port = free_port()
    process = subprocess.Popen(
        [
            console.folder / "bin" / "lbctl",
            "console",
            "--address",
            f"127.0.0.1:{port}",
            "--set",
            f"stream.tables={recorded.root}",
            "--json",
        ],
        cwd=console.work,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    try:
        assert process.stdout is not None and str(port) in process.stdout.readline()
        url = f"http://127.0.0.1:{port}/"
        page = f"import urllib.request as r; print(r.urlopen({url!r}).read().decode())"
        assert "broker-1:8080" in console.run("python", "-c", page)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_the_extra_notify_sends_a_message(make: Make, tmp_path: Path) -> None:
    notify = make("notify")
    with webhook() as hook:
        settings = tmp_path / "lb.toml"
        settings.write_text(f'[notify.targets]\nops = "json://127.0.0.1:{hook.port}/"\n')
        settings.chmod(0o600)
        notify.run("lbctl", "notify", "test", "--config", settings, "--target", "ops")
    assert len(hook.calls) == 1


SEND_SPAN = """
from lb_stream.contracts.settings import OtelSettings
from lb_stream.io.telemetry.opening import open_telemetry
from lb_stream.io.telemetry.port import Span
telemetry = open_telemetry(OtelSettings(enabled=True), "trial")
telemetry.send([Span("work", "0" * 31 + "1", "0" * 15 + "1", 1.0, 2.0)])
telemetry.close()
"""


def test_the_extra_otel_sends_a_span(make: Make) -> None:
    otel = make("otel")
    assert otel.megabytes() <= BASE_MEGABYTES
    with otlp_receiver() as receiver:
        otel.run("python", "-c", SEND_SPAN, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    (span,) = receiver.of("work")
    assert span.resource["service.name"] == "trial"
