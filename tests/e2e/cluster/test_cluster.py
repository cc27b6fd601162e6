"""A real Spark standalone cluster, whose machines share the declared store and nothing else, while
what can be killed is killed.

The store is a bucket of a small server that answers as S3 does, then a folder that all of them
have.

Master, two workers and the driver are machines made of namespaces (`machines`), and run the lines
of docs/deploy.md word for word. Driver, executors and workers are killed under load: topic, log and
table must hold the same decisions, none twice. LB_CLUSTER_KILLS sets another number of kills than
three. `make test-cluster` prints what was seen as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from lb_stream.kit.fetch_jars import fetch_jars
from tests.e2e.cluster.machines import OUTSIDE, PROJECT, STORE, Network
from tests.e2e.cluster.standalone import PARTITIONS, SparkCluster, settings, started_kafka
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline
from tests.e2e.under_load import CALM, STEP_S, Load, Play, decided, logged
from tests.support.s3_server import s3_server
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long, pytest.mark.kills]

VICTIMS = ("driver", "executor", "worker")
KILLS = int(os.environ.get("LB_CLUSTER_KILLS", str(len(VICTIMS))))
NOT_SHARED = "of-the-driver"


@dataclass
class Ran:
    """The cluster after its job's end."""

    cluster: SparkCluster
    pipeline: Pipeline
    play: Play
    seen_by_worker: str = ""
    second_code: int = 0
    last_code: int = -1

    def table(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table."""
        rows: list[dict[str, Any]] = self.pipeline.table(name).to_pylist()
        return rows

    def decisions(self) -> list[dict[str, Any]]:
        """What is on the topic, in its order."""
        return [
            json.loads(record.value)
            for record in committed(self.pipeline.bootstrap, self.pipeline.topics.decisions)
        ]


@pytest.fixture(
    scope="module", params=["bucket", "folder"]
)  # delta-rs' threads stay in the network in which they were started
def ran(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    last_words: dict[str, Any],
    seed: int,
) -> Iterator[Ran]:
    """All of it, once for each kind of store."""
    folder = tmp_path_factory.mktemp(request.param)
    seen = last_words[request.param] = {"seed": seed}
    store = folder / "store"
    store.mkdir()
    shared = store if request.param == "folder" else None
    with ExitStack() as stack:
        if shared is None:
            fetch_jars(extras=["s3"])
        network = stack.enter_context(Network())
        kept = {} if shared else stack.enter_context(s3_server(OUTSIDE)).settings("lb")
        kafka = started_kafka(
            stack.enter_context(network.machine("kafka", None)), folder / "kafka.log"
        )
        pipeline = Pipeline(kafka, topics_named("cluster"), store, kept)
        pipeline.create_topics(reports=PARTITIONS, decisions=1, ownership=1)
        cluster = stack.enter_context(SparkCluster(network, shared, folder))
        for name in ("driver", "master"):
            cluster.machines[name].at(PROJECT / "lb.toml").write_text(settings(pipeline, shared))
        ran = Ran(cluster, pipeline, stack.enter_context(Play(pipeline, cluster.tend).agents()))
        try:
            disturbed(ran, seen, random.Random(seed))
        finally:
            note(ran, seen)
        yield ran


def disturbed(ran: Ran, seen: dict[str, Any], chance: random.Random) -> None:
    """The job from its start to its end, under load, with all kills."""
    cluster, play = ran.cluster, ran.play
    with Load(ran.pipeline.bootstrap, ran.pipeline.topics.reports) as load:
        cluster.machines["driver"].said(
            f"touch /tmp/{NOT_SHARED} /root/{NOT_SHARED} {PROJECT}/{NOT_SHARED}"
        )
        cluster.start("driver")
        play.get_ready()
        second = cluster.start_second_driver()
        play.a_move()
        ran.seen_by_worker = cluster.machines["worker-1"].said(f"ls /tmp /root {PROJECT} {STORE}")
        play.until(lambda: second.poll() is not None, "the second driver's end", STEP_S)
        ran.second_code = second.returncode
        for number in range(KILLS):
            over, victim = time.monotonic() + chance.uniform(0, 3), VICTIMS[number % len(VICTIMS)]
            play.until(lambda over=over: time.monotonic() > over, "a moment", STEP_S)
            print(f"{time.strftime('%H:%M:%S')} kill {victim}", flush=True)
            cluster.kill(victim, number // len(VICTIMS))
            play.a_move()
            print(f"{time.strftime('%H:%M:%S')} move after {play.delays_ms[-1]} ms", flush=True)
        seen["reports"] = load.sent
    ran.last_code = cluster.stop_driver()


def note(ran: Ran, seen: dict[str, Any]) -> None:
    """What was seen, for the last line."""
    batches = max(1, len(ran.table("batches")))
    seen |= {
        "kills": dict(ran.cluster.kills),
        "batches": batches,
        "decisions": logged(ran.pipeline).total(),
        "leaders": len(ran.table("leaders")),
        "executor_log_bytes_per_batch": round(ran.cluster.executor_log_bytes() / batches),
        "driver_log_bytes_per_batch": round(
            ran.cluster.log_file("driver").stat().st_size / batches
        ),
    }
    if delays := ran.play.delays_ms:
        seen["move_ms"] = {"median": round(statistics.median(delays)), "worst": max(delays)}
    for log in sorted(ran.cluster.logs.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")


def test_topic_log_and_table_hold_the_same_decisions_and_none_twice(ran: Ran) -> None:
    expected = logged(ran.pipeline)
    assert decided(ran.pipeline) == expected
    assert Counter(row["decision_id"] for row in ran.table("decisions")) == expected
    assert max(expected.values()) == 1 and len(expected) > 2 * KILLS


def test_no_move_of_the_script_is_lost(ran: Ran) -> None:
    kinds = Counter(decision["kind"] for decision in ran.decisions() if decision["cluster"] == CALM)
    assert kinds == {"unload": ran.play.step, "assign": ran.play.step}
    assert {row["error"] for row in ran.table("rounds")} == {None}


def test_epochs_rise_and_one_leads_at_any_time(ran: Ran) -> None:
    leaders = [
        row["epoch"] for row in sorted(ran.table("leaders"), key=lambda row: row["since_ms"])
    ]
    assert leaders == sorted(set(leaders)) and len(leaders) > ran.cluster.kills["driver"]
    epochs = [decision["epoch"] for decision in ran.decisions()]
    assert epochs == sorted(epochs) and set(epochs) <= set(leaders)
    ticks: dict[int, list[int]] = {}
    for record in committed(ran.pipeline.bootstrap, ran.pipeline.topics.commands):
        if (said := json.loads(record.value))["kind"] == "tick":
            ticks.setdefault(said["epoch"], []).append(record.timestamp)
    spans = sorted((min(times), max(times)) for times in ticks.values())
    assert spans and all(before[1] < after[0] for before, after in itertools.pairwise(spans))


def test_a_second_driver_on_another_machine_is_refused(ran: Ran) -> None:
    said = ran.cluster.log_file("second").read_text()
    assert ran.second_code == 1 and "is run already by" in said and " on driver (epoch " in said, (
        said
    )


def test_a_worker_sees_the_store_and_nothing_else_of_the_driver(ran: Ran) -> None:
    assert NOT_SHARED not in ran.seen_by_worker
    assert ("checkpoint" in ran.seen_by_worker.split()) is (ran.cluster.shared is not None)
    assert ran.cluster.shared or not list(ran.pipeline.folder.iterdir()), "all is in the bucket"


def test_everything_was_killed_and_the_job_ended_as_asked(ran: Ran) -> None:
    assert ran.cluster.kills.total() == KILLS
    assert Counter(ran.cluster.ends) == {-9: ran.cluster.kills["driver"]}
    assert ran.last_code == 0
