"""Python workers are killed under a running job, and the daemon that forks them: it goes on, and
decides what it would have decided."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e import backlog
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.killing import kill_worker
from tests.support.topics import with_own_outputs

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long, pytest.mark.kills]

ROUNDS, KILLS = 60, 14
COMPARED = (
    "log_seq",
    "cluster",
    "seq",
    "now_ms",
    "decisions",
    "outcomes",
    "ownership",
    "refusals",
    "error",
)


def test_a_job_whose_workers_are_killed_decides_each_thing_once(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    seed: int,
    count: Callable[[str], None],
) -> None:
    chance = random.Random(seed)
    others = with_own_outputs(topic_names, unique_topic)
    killed = Pipeline(kafka.bootstrap, topic_names, tmp_path / "killed", backlog.SETTINGS)
    quiet = Pipeline(
        kafka.bootstrap,
        others,
        tmp_path / "quiet",
        backlog.SETTINGS | {"stream.pipeline_id": "no-worker-killed"},
    )
    for pipeline in (killed, quiet):
        pipeline.folder.mkdir()
        pipeline.create_topics(reports=backlog.PARTITIONS)
    killed.send(backlog.records(ROUNDS))
    kills = 0
    with killed.running("--once") as job:
        wait_until(lambda: killed.table("rounds").num_rows > 0 or job.poll() is not None, "a round")
        while kills < KILLS and job.poll() is None:
            kills += kill_worker(job.pid, chance)
            time.sleep(chance.uniform(0.2, 2.5))
        code = job.wait(timeout=600)
    assert code == 0, killed.log()[-4000:]
    assert kills, "the backlog is too short"
    quiet.run_once(600)
    ours, theirs = (
        one.table("rounds").sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
        for one in (killed, quiet)
    )
    for name in COMPARED:
        assert [backlog.without_epoch(str(one)) for one in ours[name].to_pylist()] == [
            backlog.without_epoch(str(one)) for one in theirs[name].to_pylist()
        ], name
    logged = Counter(
        entry["decision_id"] for text in ours["decisions"].to_pylist() for entry in json.loads(text)
    )
    assert Counter(decision.decision_id for decision in killed.decisions()) == logged
    begun_anew = killed.log().count("the stream begins anew")
    count(
        f"killed workers: {kills} kills, the stream began anew {begun_anew} times, "
        f"{logged.total()} decisions, each once"
    )
