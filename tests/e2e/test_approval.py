"""A job whose decisions wait for approval: nothing moves until somebody says yes, what is rejected
stays, and all of it replays."""

from pathlib import Path

import pytest

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.operator import CLUSTER, Operator
from tests.e2e.pipeline import Pipeline, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

SETTINGS = {
    "mode": "approve",
    "proposal_expires_ms": 3_600_000,
    "unloading_timeout_ms": 600_000,
    "shedding_interval_ms": 1_000,
    "history_ratio": 0.5,
    "min_throughput_mb": 0,
    "split_enabled": "false",
    "stream.tick_interval_ms": 500,
    "stream.keep_views": 5_000,
}


def test_what_is_approved_moves_and_what_is_rejected_stays(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    run.create_topics(reports=2, decisions=2, ownership=2)
    cluster = build_cluster(3, 48, "hot_spot", start_ms=wall_clock_ms())
    operator = Operator(run, cluster)
    config = AgentConfig(
        kafka.bootstrap,
        CLUSTER,
        topic_names.reports,
        topic_names.decisions,
        topic_names.ownership,
        1.0,
        heartbeat_interval_s=2.0,
    )
    agent = Agent(config, [SimBroker(cluster, name) for name in cluster.brokers])
    owned = {name: set(cluster.owned(name)) for name in cluster.brokers}
    with run.running():
        agent.start()
        try:
            wait_until(lambda: run.table("proposals").num_rows >= 2, "two proposals")
            approved, rejected, *_ = operator.rows("proposals")
            assert (
                run.decisions() == []
                and {name: set(cluster.owned(name)) for name in cluster.brokers} == owned
            ), "they wait"
            assert "reports show it" in operator.done(
                "approve", approved["proposal_id"], "--timeout", "120"
            )
            assert cluster.owns(approved["destination"], approved["bundle"])
            operator.done(
                "reject",
                rejected["proposal_id"],
                "--why",
                "its topics go tonight",
                "--timeout",
                "120",
            )
            assert "unknown_proposal" in operator.refused(
                "approve", rejected["proposal_id"], "--timeout", "120"
            )
        finally:
            agent.stop()
    (move,) = [decision for decision in run.decisions() if decision.kind != "assign"]
    (command,) = [
        row
        for row in operator.rows("commands")
        if row["kind"] == "approve-proposals" and row["outcome"] == "done"
    ]
    assert (move.bundle, move.proposal_id, move.approved_by) == (
        approved["bundle"],
        approved["proposal_id"],
        command["by"],
    )
    assert move.approved_by and cluster.owns(rejected["source"], rejected["bundle"])
    ended = {
        row["proposal_id"]: (row["state"], row["decision_id"])
        for row in operator.rows("proposals", "--last", "2")
    }
    assert ended[approved["proposal_id"]] == ("approved", move.decision_id) and ended[
        rejected["proposal_id"]
    ] == ("rejected", None)
    assert "has rejected a proposal to move it" in " ".join(
        operator.ctl("explain", "--why-not", rejected["bundle"]).out.split()
    )
    assert {row["result"] for row in operator.rows("replay")} == {"equal"}
