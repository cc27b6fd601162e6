"""A standby takes over where everything must be signed, beside somebody who may write to all topics.

The job's key is rotated and the old one revoked while the pipeline goes on.
"""

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimCluster, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.pipeline import Pipeline, wait_until
from tests.e2e.signing import (
    CLUSTER,
    JOB,
    PIPELINE,
    VICTIM,
    Keys,
    Mallory,
    Signing,
    agent_of,
    calm,
)
from tests.e2e.standbys import LONGEST_S, SETTINGS, Stage

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]


def test_a_standby_with_the_new_key_takes_over_and_only_the_leader_is_obeyed(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path, last_words: dict[str, Any]
) -> None:
    keys = Keys(tmp_path)
    old_key = keys.new(JOB, "job.pem")
    keys.new(f"{CLUSTER}/*", "agent.pem")
    alices_key = keys.new("alice", "alice.pem")
    settings = {**SETTINGS, **keys.options("job.pem"), "stream.pipeline_id": PIPELINE}
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path / "jobs", settings)
    run.folder.mkdir()
    run.create_topics(reports=2, decisions=2, ownership=2)
    cluster = build_cluster(3, 12, "steady", start_ms=wall_clock_ms())
    stage, mallory = Stage(run, cluster), Mallory(run)
    alice = Signing(run, cluster, keys, "alice.pem")
    try:
        with agent_of(keys, "agent.pem", run, cluster):
            first = stage.start("--standby")
            stage.await_leader(first)
            keys.ctl("rotate", JOB, "--out", "job-2.pem", "--overlap", "1h")
            new_key = {"security.private_key": f"file:{keys.folder / 'job-2.pem'}"}
            second = stage.start("--standby", **new_key)
            stage.await_warm(second)

            # Neither forged claims and hand-overs nor copies of ticks change who leads.
            mallory.claim(stage.leaders()[-1][0] + 1)
            mallory.forge()
            copied = mallory.copy(run.topics.commands)
            assert copied > 0
            assert alice.ctl("brokers", "drain", VICTIM, "--timeout", "300").code == 0
            assert not cluster.owned(VICTIM)
            assert (first.leads, second.leads) == (1, 0), first.log()[-3000:]

            # The standby's key is another one: agents obey it, and the first one's no longer.
            first.signal(signal.SIGKILL)
            wait_until(lambda: second.leads == 1, "the standby to lead", LONGEST_S)
            keys.ctl("revoke", old_key)
            assert alice.ctl("brokers", "undrain", VICTIM, "--timeout", "300").code == 0
            other = next(name for name in cluster.brokers if name != VICTIM)
            assert alice.ctl("brokers", "drain", other, "--timeout", "300").code == 0
            assert not cluster.owned(other)
            assert_copies_change_nothing(mallory, run, cluster)

            keys.ctl("revoke", alices_key)
            alice.refused("brokers", "undrain", other, "--timeout", "300")
            assert second.lives and second.leads == 1
            second.stop()
    finally:
        stage.end()
        mallory.close()
    logged = assert_decided_once(run)
    epochs = {row["epoch"] for row in run.table("rounds").to_pylist()}
    assert len(epochs) == 2, epochs
    audited = run.table("audit").to_pylist()
    assert [row["by"] for row in audited if row["kind"] == "take-over"] == [second.instance]
    last_words["signed_standby"] = {"decisions": logged, "copies": copied}


def assert_copies_change_nothing(mallory: Mallory, run: Pipeline, cluster: SimCluster) -> None:
    """Send all decisions and ownership records again: no bundle moves."""
    calm(run)
    before = cluster.owners()
    assert mallory.copy(run.topics.decisions) > 0
    assert mallory.copy(run.topics.ownership) > 0
    calm(run)
    assert cluster.owners() == before


def assert_decided_once(run: Pipeline) -> int:
    """Return the number of decisions: each is once in log and table; the topic has no other."""
    texts = run.table("rounds").to_pydict()["decisions"]
    logged = Counter(decision["decision_id"] for text in texts for decision in json.loads(text))
    assert logged and max(logged.values()) == 1
    assert Counter(run.table("decisions")["decision_id"].to_pylist()) == logged
    assert {decision.decision_id for decision in run.decisions()} == set(logged)
    return len(logged)
