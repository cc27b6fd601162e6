"""The whole loop where everything must be signed: forgeries and copies change nothing, a key is
rotated and one is revoked while the job runs, and a right is granted."""

import time
from pathlib import Path

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import build_cluster
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

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]


def test_forgeries_and_copies_change_nothing_and_keys_are_changed_while_the_job_runs(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    keys.new(JOB, "job.pem")
    keys.new(f"{CLUSTER}/*", "agent.pem")
    alices_key = keys.new("alice", "alice.pem")
    rights = tmp_path / "rights.toml"
    rights.write_text(grant_to_alice("drain"))
    settings = {
        "shedding_strategy": "LeastMoves",
        "split_enabled": "false",
        "dry_run": "false",
        "stream.tick_interval_ms": 500,
        "admission.records_per_second": 0,  # each copy is looked at, however fast they come
        **keys.options("job.pem"),
        "security.rights": rights,
        "stream.pipeline_id": PIPELINE,
    }
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, settings)
    run.create_topics(reports=2, decisions=2, ownership=2)
    cluster = build_cluster(3, 12, "hot_spot", start_ms=wall_clock_ms())
    alice = Signing(run, cluster, keys, "alice.pem")
    mallory = Mallory(run)
    with run.running():
        with agent_of(keys, "agent.pem", run, cluster):
            # The loop works: a hot broker's bundles move, by signed records alone.
            wait_until(lambda: len(moved(run)) > 0, "the first confirmed moves")
            mallory.forge()
            refused = ("forged-0", "forged-1", "forged-2")
            wait_until(lambda: all(alice.answers(one) for one in refused), "answers to forgeries")
            assert {outcome for one in refused for outcome, _ in alice.answers(one)} == {"refused"}
            assert VICTIM in alive(run)
            # Copies of what was signed: neither reports nor decisions nor commands count again.
            calm(run)
            before = cluster.owners()
            copied = mallory.copy(run.topics.decisions)
            assert copied > 0 and mallory.copy(run.topics.reports, ("heartbeat",)) > 0
            time.sleep(5)
            assert cluster.owners() == before
            # The key of the agents is rotated under way.
            keys.ctl("rotate", f"{CLUSTER}/*", "--out", "agent-2.pem", "--overlap", "1h")
        with agent_of(keys, "agent-2.pem", run, cluster):
            assert alice.ctl("brokers", "drain", VICTIM, "--no-wait").code == 0
            wait_until(lambda: not cluster.owned(VICTIM), "the drained broker to be empty")
            # The agent is new, and knows what its predecessor has read.
            calm(run)
            before = cluster.owners()
            assert mallory.copy(run.topics.decisions) > copied
            assert mallory.copy(run.topics.ownership) > 0
            time.sleep(5)
            assert cluster.owners() == before
            # What no grant gives is refused, until the file has the grant.
            missing = alice.ctl("clusters", "pause", CLUSTER, "--timeout", "60")
            assert missing.code == 1 and missing.out.startswith("refused"), missing
            assert "pause" in missing.out
            rights.write_text(grant_to_alice("drain", "pause"))
            assert alice.ctl("clusters", "pause", CLUSTER, "--timeout", "60").code == 0
            # A revoked key commands nothing.
            keys.ctl("revoke", alices_key)
            result = alice.ctl("brokers", "undrain", VICTIM, "--timeout", "60")
            assert result.code == 1 and result.out.startswith("refused"), result
            # Its row comes after the answer.
            wait_until(lambda: "lb-key" in rejected_fields(run), "the rejected command's row")
    rules = [row["rule"] for row in run.table("commands").to_pylist() if row["by"] == "alice"]
    assert rules.count("not_allowed") == 1
    assert {"lb-signature", "lb-signed-us", "lb-key"} <= rejected_fields(run)
    mallory.close()


def grant_to_alice(*verbs: str) -> str:
    return f'[[grants]]\nto = ["alice"]\nverbs = {list(verbs)}\n'


def rejected_fields(run: Pipeline) -> set[str]:
    return {row["field"] for row in run.table("rejected_reports").to_pylist()}


def moved(run: Pipeline) -> list[dict[str, object]]:
    return [row for row in run.table("outcomes").to_pylist() if row["outcome"] == "confirmed"]


def alive(run: Pipeline) -> set[str]:
    rows = run.table("broker_loads").to_pylist()
    last = max(row["log_seq"] for row in rows)
    return {row["broker"] for row in rows if row["log_seq"] == last and row["alive"]}
