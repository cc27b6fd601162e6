"""A cluster moves from one pipeline to another, and back to its brokers it looks like a restart:
every decision once, epochs rise."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lb_stream.cli.main import app
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline
from tests.e2e.restarts import SETTINGS, reports

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]


def without(report: bytes, bundles: Collection[str]) -> bytes:
    """A report after these bundles have left."""
    told = json.loads(report)
    return json.dumps(
        told
        | {
            "lastStats": {
                name: one for name, one in told["lastStats"].items() if name not in bundles
            }
        }
    ).encode()


def test_no_decision_is_lost_or_made_twice_when_a_cluster_moves_to_another_pipeline(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    settings = SETTINGS | {
        "stream.decode_tasks": 3,
        "unloading_timeout_ms": 600_000,
    }  # what is under way waits for the other job
    east = Pipeline(
        kafka.bootstrap, topic_names, tmp_path / "east", settings | {"stream.pipeline_id": "east"}
    )
    west = Pipeline(
        kafka.bootstrap,
        topic_names,
        tmp_path / "west",
        settings | {"stream.pipeline_id": "west", "stream.clusters": "c2"},
    )
    for pipeline in (east, west):
        pipeline.folder.mkdir()
    east.create_topics(reports=1)
    both = [
        (cluster + key[2:], value, kind)
        for key, value, kind in reports()
        for cluster in (b"c1", b"c2")
    ]
    east.send(both[: len(both) // 2])
    east.run_once()
    unloads = {
        decision.decision_id: decision.bundle
        for decision in east.decisions()
        if (decision.cluster, decision.kind) == ("c2", "unload")
    }
    assert unloads

    folders = (
        f"stream.tables={west.folder / 'tables'}",
        "stream.pipeline_id=west",
        "stream.clusters=c2",
    )
    topics = (f"topics.reports={topic_names.reports}", f"topics.commands={topic_names.commands}")
    arguments = ["tables", "take-over", "c2", "--from", str(east.folder / "tables"), "--json"]
    answer = CliRunner().invoke(
        app, [*arguments, *(part for folder in (*folders, *topics) for part in ("--set", folder))]
    )
    assert answer.exit_code == 0, answer.output
    before = json.loads(answer.stdout)

    # In c2 the brokers obey: what has left is no more in their reports, and the heir must know
    # whose doing that is.
    east.send(
        [
            (key, without(value, unloads.values()) if key.startswith(b"c2") else value, kind)
            for key, value, kind in both[len(both) // 2 :]
        ]
    )
    east.settings = east.settings | {"stream.excluded_clusters": "c2"}
    for pipeline in (east, west):
        pipeline.run_once()

    rounds = {
        name: one.table("rounds").sort_by("log_seq").to_pylist()
        for name, one in (("east", east), ("west", west))
    }
    assert [row["error"] for rows in rounds.values() for row in rows if row["error"]] == []
    assert {row["cluster"] for row in rounds["west"]} == {"c2"}
    own = [row for row in rounds["east"] if row["cluster"] == "c2"] + rounds["west"][1:]
    numbers = [row["seq"] for row in own]
    assert numbers == sorted(set(numbers)) and numbers[-1] > before["seq"], (
        "its rounds are numbered on"
    )
    assert {row["epoch"] for row in rounds["west"][1:]} == {before["epoch"] + 1}
    ids = sorted(
        entry["decision_id"]
        for row in [*rounds["east"], *rounds["west"]]
        for entry in json.loads(row["decisions"])
    )
    assert (
        sorted(decision.decision_id for decision in east.decisions()) == ids
        and len(set(ids)) == len(ids) > 2
    )
    told: dict[str, list[tuple[int, str, str]]] = {}
    for row in own:
        for record in json.loads(row["ownership"]):
            told.setdefault(record["bundle"], []).append(
                (record["version"], record["state"], record["owner"])
            )
    for records in (
        told.values()
    ):  # the heir tells what it hears for the first time, and that is what was told before
        assert [
            one
            for one, before in zip(records[1:], records, strict=False)
            if one != before and one[0] <= before[0]
        ] == []
    assigned = [
        entry["bundle"]
        for row in rounds["west"][1:]
        for entry in json.loads(row["decisions"])
        if entry["kind"] == "assign"
    ]
    assert sorted(set(assigned)) == sorted(unloads.values()), (
        "it goes on with what the other has begun"
    )
