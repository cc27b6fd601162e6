"""How a cluster is sliced doesn't show: many shards, handed over twice, decide the same bytes as
one. And every round can be replayed."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lb_stream.cli.main import app
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.store import Store
from lb_stream.stream.shards.directory import read_directory
from tests.e2e.pipeline import Pipeline
from tests.e2e.restarts import (
    BROKERS,
    BUNDLES,
    COMPARED,
    ROUNDS,
    SETTINGS,
    reports,
    without_epoch,
)
from tests.support.topics import with_own_outputs

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

BATCHES = ROUNDS * BROKERS // SETTINGS["stream.max_offsets_per_trigger"]


def test_shards_do_not_show_and_every_round_can_be_replayed(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    runs = []
    for name, shard_bundles in (("whole", 1_000), ("sliced", 4)):
        topics = with_own_outputs(topic_names, unique_topic)
        settings = SETTINGS | {
            "stream.pipeline_id": name,
            "stream.shard_bundles": shard_bundles,
            "stream.keep_views": 50,
        }
        settings |= {"stream.history_resolution_ms": 1}
        run = Pipeline(kafka.bootstrap, topics, tmp_path / name, settings)
        run.folder.mkdir()
        run.create_topics(reports=1)
        runs.append(run)
    runs[0].send(reports())
    for run in runs:
        run.run_once()

    one, many = (run.table("rounds").sort_by("log_seq") for run in runs)
    for name in COMPARED:
        ours, theirs = one[name].to_pylist(), many[name].to_pylist()
        assert (
            [without_epoch(text) for text in ours] == [without_epoch(text) for text in theirs]
            if name == "decisions"
            else ours == theirs
        )
    shards = [
        read_directory(Store.at(runs[1].folder / "checkpoint"), batch, epoch=1).get("c1")
        for batch in range(BATCHES)
    ]
    assert [slices.shards for slices in shards if slices] == [8] * (BATCHES - 1), (
        "24 bundles, 4 in each"
    )

    columns = [name for name in one_table(runs[0]).column_names if name != "part"]
    assert one_table(runs[0]).select(columns).equals(one_table(runs[1]).select(columns))
    assert len(one_table(runs[1])) == BROKERS * BUNDLES
    for name, subject in (("bundle_history", "bundle"), ("broker_history", "broker")):
        one, many = (
            run.table(name).sort_by([("slot_ms", "ascending"), (subject, "ascending")])
            for run in runs
        )
        assert one.equals(many)
        assert len(set(one["slot_ms"].to_pylist())) > 2

    for run in runs:
        folders = (
            f"stream.tables={run.folder / 'tables'}",
            f"stream.checkpoint={run.folder / 'checkpoint'}",
        )
        answer = CliRunner().invoke(
            app, ["replay", "--json", *(part for folder in folders for part in ("--set", folder))]
        )
        assert answer.exit_code == 0, answer.output
        results = [json.loads(line) for line in answer.stdout.splitlines()]
        assert [result["result"] for result in results] == ["equal"] * BATCHES
        assert sum(result["decisions"] for result in results) > 0


def one_table(run: Pipeline) -> pa.Table:
    return run.table("bundle_averages").sort_by("bundle")
