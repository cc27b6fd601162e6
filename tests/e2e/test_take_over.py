"""A cluster moves from one pipeline to another, and back to its brokers it looks like a restart: every decision once, epochs rise."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lb_stream.cli.main import app
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.local.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline
from tests.e2e.test_restart import SETTINGS, reports

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]


def test_no_decision_is_lost_or_made_twice_when_a_cluster_moves_to_another_pipeline(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    settings = SETTINGS | {"stream.decode_tasks": 3}
    east = Pipeline(kafka.bootstrap, topic_names, tmp_path / "east", settings | {"stream.pipeline_id": "east"})
    west = Pipeline(kafka.bootstrap, topic_names, tmp_path / "west", settings | {"stream.pipeline_id": "west", "stream.clusters": "c2"})
    for pipeline in (east, west):
        pipeline.folder.mkdir()
    east.create_topics(reports=1)
    both = [((cluster + key[2:]) if key else None, value, kind) for key, value, kind in reports() for cluster in (b"c1", b"c2")]
    east.send(both[: len(both) // 2])
    east.run_once()

    folders = (f"stream.tables={west.folder / 'tables'}", "stream.pipeline_id=west", "stream.clusters=c2")
    topics = (f"topics.reports={topic_names.reports}", f"topics.commands={topic_names.commands}")
    arguments = ["tables", "take-over", "c2", "--from", str(east.folder / "tables"), "--json"]
    answer = CliRunner().invoke(app, [*arguments, *(part for one in (*folders, *topics) for part in ("--set", one))])
    assert answer.exit_code == 0, answer.output
    before = json.loads(answer.stdout)

    east.send(both[len(both) // 2 :])
    east.settings = east.settings | {"stream.clusters_except": "c2"}
    for pipeline in (east, west):
        pipeline.run_once()

    rounds = {name: one.table("rounds").sort_by("log_seq").to_pylist() for name, one in (("east", east), ("west", west))}
    assert [row["error"] for rows in rounds.values() for row in rows if row["error"]] == []
    assert {row["cluster"] for row in rounds["west"]} == {"c2"}
    own = [row for row in rounds["east"] if row["cluster"] == "c2"] + rounds["west"][1:]
    numbers = [row["seq"] for row in own]
    assert numbers == sorted(set(numbers)) and numbers[-1] > before["seq"], "its rounds are numbered on"
    assert {row["epoch"] for row in rounds["west"][1:]} == {before["epoch"] + 1}
    ids = sorted(entry["decision_id"] for row in [*rounds["east"], *rounds["west"]] for entry in json.loads(row["decisions"]))
    assert sorted(decision.decision_id for decision in east.decisions()) == ids and len(set(ids)) == len(ids) > 2
    versions: dict[str, list[int]] = {}
    for row in own:
        for record in json.loads(row["ownership"]):
            versions.setdefault(record["bundle"], []).append(record["version"])
    assert all(one == sorted(set(one)) for one in versions.values()), "records follow one another"
    assert any(json.loads(row["decisions"]) or json.loads(row["outcomes"]) for row in rounds["west"][1:])
