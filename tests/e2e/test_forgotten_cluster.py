"""A cluster falls silent, is forgotten, and comes back: on a running job."""

import json
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer
from typer.testing import CliRunner

from lb_stream.cli.main import app
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.commands import build_command, send_command
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.stream.shards.directory import FOLDER
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.decoding import report

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

SETTINGS = {
    "stream.cluster_retention_ms": 3_000,
    "stream.tick_interval_ms": 200,
    "stream.keep_views": 200,
    "dry_run": "false",
}


def told(run: Pipeline) -> list[bytes | None]:
    """The ownership records of all bundles, as consumers see them."""
    consumer = KafkaConsumer(
        run.topics.ownership,
        bootstrap_servers=run.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=2_000,
    )
    with consumer:
        return [record.value for record in consumer]


def test_a_mistyped_cluster_is_forgotten_by_command_once_it_is_silent(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    settings = SETTINGS | {"stream.cluster_retention_ms": 0, "report_timeout_ms": 15_000}
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, settings)
    run.create_topics(reports=1)

    def answer() -> tuple[str, str | None]:
        command = build_command("forget-cluster", {}, "ann")
        options = {"bootstrap_servers": kafka.bootstrap}
        send_command(options, topic_names.commands, "c1", command)

        def answered() -> list[dict[str, Any]]:
            if not (tmp_path / "tables" / "commands" / "_delta_log").exists():
                return []
            rows = run.table("commands").to_pylist()
            return [row for row in rows if row["id"] == command.id]

        wait_until(lambda: bool(answered()), "the answer")
        return answered()[0]["outcome"], answered()[0]["rule"]

    with run.running():
        run.send([(b"c1/b1", report(), None), (b"c2/b1", report(), None)])
        wait_until(lambda: len(told(run)) == 2, "both being known")
        run.send([(b"c1/b1", report(), None)])  # the job took its time to start
        assert answer() == ("refused", "reports")
        wait_until(lambda: answer() == ("done", None), "it being silent, and forgotten")
        wait_until(lambda: told(run).count(None) == 1, "its bundle's ownership record ending")
        clusters = run.table("bundle_averages")["cluster"].to_pylist()
        assert set(clusters) == {"c2"}, "the other one stays"
        assert answer() == ("refused", "unknown_cluster")
        run.send([(b"c1/b1", report(), None)])
        wait_until(lambda: answer() == ("refused", "reports"), "it coming back")


def test_a_silent_cluster_is_forgotten_and_begins_anew_when_it_comes_back(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    run.create_topics(reports=1)

    def rounds() -> list[dict[str, Any]]:
        if not (tmp_path / "tables" / "rounds" / "_delta_log").exists():
            return []
        return run.table("rounds").sort_by("log_seq").to_pylist()

    def directory() -> str:
        names = (
            path for path in (tmp_path / "checkpoint" / FOLDER).iterdir() if path.suffix == ".json"
        )
        return max(names, key=lambda path: int(path.name.partition("-")[0])).read_text()

    with run.running():
        run.send([(b"c1/b1", report(), None)])
        wait_until(
            lambda: any(row["memory"] == "" for row in rounds()), "the cluster being forgotten"
        )
        wait_until(lambda: not len(run.table("bundle_averages")), "its bundles leaving the table")
        wait_until(
            lambda: [value is None for value in told(run)] == [False, True],
            "its bundle's ownership record ending",
        )
        assert not len(run.table("ownership"))
        run.send([(b"c1/b1", report(), None)])
        wait_until(
            lambda: sum(row["memory"] == "" for row in rounds()) == 2, "it being forgotten again"
        )
        wait_until(lambda: "c1" not in directory(), "it leaving the directory of clusters")
    every = rounds()
    seqs = [row["seq"] for row in every]
    assert seqs == sorted(set(seqs)), "no number comes twice"
    first = [row for row in every if row["memory"]]
    begun = {json.loads(row["memory"])["first_ms"] for row in first}
    assert len(begun) == 2, "it began anew"
    folders = (
        f"stream.tables={tmp_path / 'tables'}",
        f"stream.checkpoint={tmp_path / 'checkpoint'}",
    )
    answer = CliRunner().invoke(
        app, ["replay", "--json", *(part for folder in folders for part in ("--set", folder))]
    )
    results = [json.loads(line)["result"] for line in answer.stdout.splitlines()]
    assert results == ["equal"] * len(first), answer.output
