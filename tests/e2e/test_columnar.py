"""Agents send columns and deltas once the job says that it reads them: moves are made, brokers that
send JSON beside them count as well, and a job with a new checkpoint is whole again by itself."""

import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

CLUSTER = "eu-1"
LONGEST_S = 400
SETTINGS = {
    "dry_run": "false",
    "shedding_interval_ms": 1_000,
    "shedding_grace_period_ms": 0,
    "history_ratio": 0.5,
    "min_throughput_mb": 0,
    "split_enabled": "false",
    "stream.tick_interval_ms": 500,
}


class SteadyBroker(SimBroker):
    """A broker most of whose bundles keep the figures of its first report of them."""

    def report(self) -> Any:
        """Return a load report."""
        given: Any = super().report()
        kept: dict[str, Any] = self.__dict__.setdefault("kept", {})
        for name, stats in given["lastStats"].items():
            if zlib.crc32(name.encode()) % 4:
                given["lastStats"][name] = kept.setdefault(name, stats)
        return given


def kinds(run: Pipeline, broker: str) -> Counter[str]:
    """How many records of each kind a broker has sent."""
    return Counter(
        dict(record.headers)["kind"].decode()
        for record in committed(run.bootstrap, run.topics.reports)
        if record.key == f"{CLUSTER}/{broker}".encode()
    )


def reporting(run: Pipeline, since_ms: int) -> set[str]:
    """The brokers whose loads a job has written since a time."""
    rows = run.table("broker_loads").to_pylist()
    return {row["broker"] for row in rows if row["now_ms"] > since_ms}


def owners(run: Pipeline) -> list[str | None]:
    """The owners of all bundles in the table; None: of those that move, or have none."""
    return run.table("ownership")["owner"].to_pylist()


def test_columns_and_json_together_move_bundles_and_a_new_checkpoint_gets_rosters(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> None:
    first = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    first.create_topics(reports=2, decisions=2, ownership=2)
    second = Pipeline(
        kafka.bootstrap,
        topic_names,
        tmp_path,
        SETTINGS | {"stream.checkpoint": tmp_path / "another-checkpoint"},
    )
    cluster = build_cluster(4, 64, "hot_spot", start_ms=wall_clock_ms())
    plain, *columnar = cluster.brokers
    agents = [
        Agent(
            AgentConfig(
                kafka.bootstrap,
                CLUSTER,
                topic_names.reports,
                topic_names.decisions,
                topic_names.ownership,
                1.0,
                heartbeat_interval_s=2.0,
                min_columns=min_columns,
            ),
            [SteadyBroker(cluster, name) for name in names],
        )
        for min_columns, names in ((0, [plain]), (1, columnar))
    ]
    for agent in agents:
        agent.start()
    try:
        with first.running():
            wait_until(
                lambda: all(kinds(first, name)["delta"] >= 5 for name in columnar),
                "deltas",
                LONGEST_S,
            )
            wait_until(
                lambda: "confirmed" in first.table("outcomes")["outcome"].to_pylist(),
                "a move that reports confirm",
                LONGEST_S,
            )
        assert set(kinds(first, plain)) & {"columns", "delta"} == set()
        rejected = first.table("rejected_reports").num_rows
        assert rejected == 0
        # Another checkpoint: the rosters and bases of the first one are not in it.
        begin_ms = time.time_ns() // 1_000_000
        with second.running():
            wait_until(
                lambda: reporting(second, begin_ms) == set(cluster.brokers),
                "all brokers again",
                LONGEST_S,
            )
            # A move of the first job may be in progress: the second one ends it.
            wait_until(lambda: None not in owners(second), "an owner for each bundle", LONGEST_S)
    finally:
        for agent in agents:
            agent.stop()
    shown = {row["field"] for row in second.table("rejected_reports").to_pylist()}
    assert shown <= {"roster", "base"}
