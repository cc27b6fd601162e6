"""A real Spark standalone cluster, whose machines share one folder and nothing else, while what can be killed is killed.

Master, two workers and the driver are machines made of namespaces (`machines`), and run the lines of docs/operating.md word for word.
Executors, workers and the driver are killed under load, in the end a worker's machine loses its power: topic, log and table must hold
the same decisions, none twice. LB_CLUSTER_KILLS sets another number of kills than 9, LB_TEST_SEED another seed. `make test-cluster`
prints what was seen as JSON.
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

from lb_stream.contracts.commands import Tick
from lb_stream.io.local.embedded_kafka import EmbeddedKafka
from tests.e2e.cluster.machines import OUTSIDE, STORE, Network, NoRight
from tests.e2e.cluster.standalone import CORES, SparkCluster, put, settings
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline, wait_until
from tests.e2e.under_load import CALM, STEP_S, Load, Play, decided, logged
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

VICTIMS = ("driver", "executor", "worker")
KILLS = int(os.environ.get("LB_CLUSTER_KILLS", "9"))
SEED = int(os.environ.get("LB_TEST_SEED", "20261123"))


@dataclass
class Ran:
    """The cluster after its job's end, its machines still on."""

    cluster: SparkCluster
    pipeline: Pipeline
    play: Play
    second: str
    seen_by_worker: str
    last_code: int


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Machines can be plugged into it. Without the right to have one: a failure; CI, which can't give it, skips."""
    try:
        with Network() as network:
            yield network
    except NoRight as error:
        if os.environ.get("CI"):
            pytest.skip(str(error))
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def ran(network: Network, tmp_path_factory: pytest.TempPathFactory, last_words: dict[str, Any]) -> Iterator[Ran]:
    """All of it, once."""
    folder, chance = tmp_path_factory.mktemp("cluster"), random.Random(SEED)
    last_words |= {"seed": SEED, "store": "folder"}
    with ExitStack() as stack:
        broker = EmbeddedKafka(folder / "kafka", host=OUTSIDE)
        stack.callback(broker.stop)
        broker.start(timeout_s=STEP_S)
        pipeline = Pipeline(broker.bootstrap, topics_named("cluster"), folder / "store")
        pipeline.folder.mkdir()
        pipeline.create_topics(reports=CORES, decisions=1, ownership=1)
        cluster = stack.enter_context(SparkCluster(network, pipeline))
        for name in ("driver", "master"):
            put(cluster.machines[name], "lb.toml", settings(pipeline))
        play = stack.enter_context(Play(pipeline, cluster.tend).agents())
        load = stack.enter_context(Load(broker.bootstrap, pipeline.topics.reports))
        cluster.machines["driver"].said("touch /tmp/of-the-driver /root/of-the-driver")
        cluster.start("driver")
        seen, code = "", 0
        try:
            play.get_ready()
            play.a_move()
            seen = cluster.machines["worker-1"].said(f"ls /tmp /root {STORE}")
            second = refused(cluster)
            for number in range(KILLS):
                victim = VICTIMS[number % len(VICTIMS)]
                pause = time.monotonic() + chance.uniform(0, 3)
                play.until(lambda over=pause: time.monotonic() > over, "a moment", 60)
                print(f"{time.strftime('%H:%M:%S')} kill {victim}", flush=True)
                cluster.kill(victim, number // len(VICTIMS))
                play.a_move()
                print(f"{time.strftime('%H:%M:%S')} move after {play.delays_ms[-1]} ms", flush=True)
            cluster.lose_power("worker-2")
            play.a_move()
            code = cluster.stop_driver()
        finally:
            load.__exit__()
            for name in ("master", "worker-1", "driver"):
                print(f"--- {name}\n{cluster.log(name)[-3000:]}")
            note(last_words, cluster, pipeline, play, load)
        yield Ran(cluster, pipeline, play, second, seen, code)


def refused(cluster: SparkCluster) -> str:
    """A second driver, on another machine, while the first one leads: what it says at its end."""
    log = cluster.pipeline.folder.parent / "second.log"
    process = cluster.machines["master"].start(f"exec {cluster.line('driver')}", log)
    wait_until(lambda: process.poll() is not None, "the second driver's end", STEP_S)
    return f"{process.returncode}: {log.read_text()[-2000:]}"


def note(last_words: dict[str, Any], cluster: SparkCluster, pipeline: Pipeline, play: Play, load: Load) -> None:
    """What was seen, for the last line."""
    batches = max(1, pipeline.table("batches").num_rows)
    last_words |= {
        "kills": dict(cluster.kills),
        "reports": load.sent,
        "batches": batches,
        "decisions": sum(logged(pipeline).values()),
        "starts": pipeline.table("leaders").num_rows,
        "executor_log_bytes_per_batch": round(cluster.executor_log_bytes() / batches),
        "driver_log_bytes_per_batch": round(len(cluster.log("driver")) / batches),
    }
    if play.delays_ms:
        last_words["move_ms"] = {"median": round(statistics.median(play.delays_ms)), "worst": max(play.delays_ms)}


def test_topic_log_and_table_hold_the_same_decisions_and_none_twice(ran: Ran) -> None:
    expected = logged(ran.pipeline)
    assert decided(ran.pipeline) == expected
    assert Counter(ran.pipeline.table("decisions")["decision_id"].to_pylist()) == expected
    assert max(expected.values()) == 1 and len(expected) > 2 * KILLS


def test_no_move_of_the_script_is_lost(ran: Ran) -> None:
    published = [json.loads(record.value) for record in committed(ran.pipeline.bootstrap, ran.pipeline.topics.decisions)]
    assert Counter(one["kind"] for one in published if one["cluster"] == CALM) == {"unload": ran.play.step, "assign": ran.play.step}
    assert {row["error"] for row in ran.pipeline.table("rounds").to_pylist()} == {None}


def test_epochs_rise_and_one_leads_at_any_time(ran: Ran) -> None:
    leaders = ran.pipeline.table("leaders").sort_by("since_ms")["epoch"].to_pylist()
    assert leaders == sorted(set(leaders)) and len(leaders) > ran.cluster.kills["driver"]
    (topic,) = {record.partition for record in committed(ran.pipeline.bootstrap, ran.pipeline.topics.decisions)}
    epochs = [json.loads(record.value)["epoch"] for record in committed(ran.pipeline.bootstrap, ran.pipeline.topics.decisions)]
    assert topic == 0 and epochs == sorted(epochs) and set(epochs) <= set(leaders)
    ticks: dict[int, list[int]] = {}
    for record in committed(ran.pipeline.bootstrap, ran.pipeline.topics.commands):
        ticks.setdefault(Tick.model_validate_json(record.value).epoch, []).append(record.timestamp)
    spans = sorted((min(times), max(times)) for times in ticks.values())
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))


def test_a_second_driver_on_another_machine_is_refused(ran: Ran) -> None:
    code, _, said = ran.second.partition(": ")
    assert code == "1" and "is run already by" in said and " on driver (epoch " in said, ran.second


def test_a_worker_sees_the_store_and_nothing_else_of_the_driver(ran: Ran) -> None:
    assert "of-the-driver" not in ran.seen_by_worker
    assert {"tables", "checkpoint"} <= set(ran.seen_by_worker.split())


def test_everything_was_killed_and_the_job_ended_as_asked(ran: Ran) -> None:
    assert ran.cluster.kills.total() == KILLS
    assert Counter(ran.cluster.ends) == {-9: ran.cluster.kills["driver"]}
    assert ran.last_code in (0, 143)
