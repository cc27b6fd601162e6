"""kill -9 and start again: nothing lost, nothing twice, and the same bytes as without the kill."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.e2e.restarts import BROKERS, COMPARED, ROUNDS, SETTINGS, reports, without_epoch
from tests.support.topics import with_own_outputs

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]


@pytest.mark.kills
@pytest.mark.loop
def test_a_run_that_was_killed_twice_decides_the_same_bytes_and_publishes_each_decision_once(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    killed = Pipeline(kafka.bootstrap, topic_names, tmp_path / "killed", SETTINGS)
    killed.folder.mkdir()
    killed.create_topics(reports=1)
    killed.send(reports())
    quiet_topics = with_own_outputs(topic_names, unique_topic)
    quiet = Pipeline(
        kafka.bootstrap,
        quiet_topics,
        tmp_path / "quiet",
        SETTINGS | {"stream.pipeline_id": "undisturbed"},
    )
    quiet.folder.mkdir()
    quiet.create_topics(reports=1)

    for logged in (1, 3):
        with killed.running("--once") as job:
            wait_until(
                lambda least=logged: (
                    killed.table("rounds").num_rows > least or job.poll() is not None
                ),
                "rounds in the log",
            )
            time.sleep(chance.uniform(0, 0.3))
            assert job.poll() is None, killed.log()[-4000:]
            killed.kill(job)
    killed.run_once()
    quiet.run_once()

    logged_rows = killed.table("rounds").sort_by("log_seq")
    undisturbed = quiet.table("rounds").sort_by("log_seq")
    assert len(logged_rows) == ROUNDS * BROKERS // SETTINGS["stream.max_offsets_per_trigger"]
    for name in COMPARED:
        ours, theirs = logged_rows[name].to_pylist(), undisturbed[name].to_pylist()
        if name in ("decisions", "ownership"):
            ours, theirs = (
                [without_epoch(text) for text in ours],
                [without_epoch(text) for text in theirs],
            )
        assert ours == theirs, name

    ids = [
        entry["decision_id"]
        for text in logged_rows["decisions"].to_pylist()
        for entry in json.loads(text)
    ]
    assert len(ids) > 0
    assert sorted(decision.decision_id for decision in killed.decisions()) == sorted(ids)
    assert sorted(killed.table("decisions")["decision_id"].to_pylist()) == sorted(ids)

    figures = [name for name in killed.table("bundle_averages").column_names]
    ours, theirs = (
        one.table("bundle_averages").sort_by("bundle").select(figures) for one in (killed, quiet)
    )
    assert ours.equals(theirs)
    assert set(ours["long_samples"].to_pylist()) == {ROUNDS}
