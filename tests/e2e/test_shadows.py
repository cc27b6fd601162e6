"""A job with shadows, killed before and after its log: it decides and publishes what one without
shadows does, and no look counts twice."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline
from tests.e2e.restarts import COMPARED, SETTINGS, reports, without_epoch
from tests.support.lbctl_runner import lbctl
from tests.support.topics import with_own_outputs

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

SHADOWS = {
    "cluster.c1.shadow.tight.threshold_percent": 1,
    "cluster.c1.shadow.avg.shedding_strategy": "AvgShedder",
    "cluster.c1.shadow.avg.placement_strategy": "AvgShedder",
    "stream.shadow_time_percent": 1_000,
}


def test_a_job_with_shadows_that_is_killed_decides_and_publishes_what_one_without_them_does(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    watched = Pipeline(kafka.bootstrap, topic_names, tmp_path / "watched", SETTINGS | SHADOWS)
    own = with_own_outputs(topic_names, unique_topic)
    alone = Pipeline(
        kafka.bootstrap,
        own,
        tmp_path / "alone",
        SETTINGS | {"stream.pipeline_id": "without-shadows"},
    )
    for pipeline in (watched, alone):
        pipeline.folder.mkdir()
        pipeline.create_topics(reports=1)
    watched.send(reports())
    for point in ("in_decide:2", "between_projections:1"):
        with replace(watched, settings=watched.settings | {"stream.crash_at": point}).running(
            "--once"
        ) as job:
            assert job.wait(timeout=180) != 0, f"{point} was never reached"
    watched.run_once()
    alone.run_once()

    ours, theirs = (pipeline.table("rounds").sort_by("log_seq") for pipeline in (watched, alone))
    for name in COMPARED:
        same = [
            [
                without_epoch(text) if text and text.startswith("[") else text
                for text in map(str, rows[name].to_pylist())
            ]
            for rows in (ours, theirs)
        ]
        assert same[0] == same[1], name
    published = [decision.decision_id for decision in watched.decisions()]
    assert len(published) == len(set(published)) > 0
    # Sorted: a consumer gets the topic's partitions in no set order.
    assert sorted(published) == sorted(decision.decision_id for decision in alone.decisions())

    looks = watched.table("shadow_rounds").to_pylist()
    assert sorted((row["log_seq"], row["policy"]) for row in looks) == [
        (seq, policy) for seq in ours["log_seq"].to_pylist() for policy in ("avg", "real", "tight")
    ]
    assert {"done"} <= {row["outcome"] for row in looks} <= {"done", "skipped"}
    assert alone.table("shadow_rounds").num_rows == 0
    places = (
        "--set",
        f"stream.tables={watched.folder}/tables",
        "--set",
        f"stream.checkpoint={watched.folder}/checkpoint",
    )
    replayed = lbctl("replay", "--json", *places, cwd=tmp_path)
    assert {one["result"] for one in replayed.objects} == {"equal"}, json.dumps(replayed.objects[0])
    assert [row["policy"] for row in lbctl("shadow", "--json", *places, cwd=tmp_path).objects] == [
        "real",
        "avg",
        "tight",
    ]
