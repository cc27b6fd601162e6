"""Killed at every named point, at random moments, and with Kafka killed under it: the job decides,
tells and projects each thing once.

Two jobs read the same prefilled topic, in which one of the brokers sends columnar reports and
deltas. One is left alone, the other is killed all the time; both must end with the same bytes.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lb_stream.contracts.settings import CRASH_POINTS
from lb_stream.io.kafka.poison_records import MAX_CRASHES
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e import backlog
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import LONGEST_RUN_S, Pipeline, wait_until
from tests.support.killing import kill_kafka
from tests.support.topics import topics_named, with_own_outputs

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long, pytest.mark.kills]

SETTINGS = backlog.SETTINGS | {"stream.shard_bundles": 4, "stream.averages_interval_ms": 0}
"""A cluster has several shards, and each batch writes their averages while the rounds are made."""
ROUNDS = 260
LONGEST_S = 900
RANDOM_KILLS = 22
BROKER_KILLS = 5
# Those at the start of a job come right after one that leaves them something to do.
POINTS = (
    "on_entry",
    "in_state",
    "in_decide",
    "before_log",
    "after_log",
    "in_catch_up",
    "in_transaction",
    "after_fence",
    "after_publish",
    "between_projections",
    "before_commit",
)
TOPICS = topics_named("exactly-once")
QUIET_TOPICS = with_own_outputs(TOPICS, lambda purpose: f"exactly-once-quiet-{purpose}")
# What a batch decided, without the names of this run's files and ids.
COMPARED = (
    "batch_id",
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
# Each table's rows without what tells how often the job was started.
PROJECTED = {
    "decisions": {"epoch"},
    "outcomes": set(),
    "ownership": {"epoch"},
    "refusals": set(),
    "broker_loads": set(),
    "bundle_averages": set(),
    "rejected_reports": set(),
}


@dataclass
class Runs:
    """Both jobs after their end, and what was done to one of them."""

    quiet: Pipeline
    killed: Pipeline
    points: list[str] = field(default_factory=list)
    moments: Counter[str] = field(default_factory=Counter)
    brokers: int = 0
    ended_by_broker: int = 0
    versions: set[int] = field(
        default_factory=set
    )  # of the table ownership, those that were looked at
    doubled: set[int] = field(default_factory=set)  # and those in which a bundle stands twice

    def look_at_owners(self) -> None:
        """Read the versions of the killed job's ownership that are there and new: after a minute
        the job may remove them."""
        folder = str(self.killed.folder / "tables" / "ownership")
        there = (
            {int(one["version"]) for one in DeltaTable(folder).history()}
            if DeltaTable.is_deltatable(folder)
            else set[int]()
        )
        for version in there - self.versions:
            try:
                rows = (
                    DeltaTable(folder, version=version)
                    .to_pyarrow_table(columns=["cluster", "bundle"])
                    .to_pylist()
                )
            except (DeltaError, FileNotFoundError):
                continue  # what it builds on has been removed
            self.versions.add(version)
            if len({(row["cluster"], row["bundle"]) for row in rows}) < len(rows):
                self.doubled.add(version)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A Kafka of our own, as it will be killed."""
    with EmbeddedKafka(tmp_path_factory.mktemp("killed-kafka")) as started:
        yield started


@pytest.fixture(scope="module")
def runs(broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, seed: int) -> Runs:
    """The same backlog twice: once undisturbed, once with everything killed that can be."""
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("exactly-once")
    killed = Pipeline(broker.bootstrap, TOPICS, folder / "killed", SETTINGS)
    quiet = Pipeline(
        broker.bootstrap,
        QUIET_TOPICS,
        folder / "quiet",
        SETTINGS | {"stream.pipeline_id": "exactly-once-quiet"},
    )
    for pipeline in (killed, quiet):
        pipeline.folder.mkdir()
        pipeline.create_topics(reports=backlog.PARTITIONS)
    records = backlog.records(ROUNDS, columnar=(1,))
    kinds = [kind for *_, kind in records if kind]
    assert kinds.count("delta") > ROUNDS
    after_moves = list(pairwise(kinds)).count(("roster", "delta"))
    assert after_moves > ROUNDS // 3, "deltas whose base has another roster"
    killed.send(records)
    done = Runs(quiet, killed)
    kill_brokers(done, broker, chance)
    ends = 1  # of the job in the batch that it is at
    for point in [*POINTS, *[""] * RANDOM_KILLS]:
        before = newest(killed)
        if point:
            parse_crash_at(
                killed,
                point,
                1 if point in ("in_catch_up", "after_fence") else chance.choice((1, 2, 3)),
            )
            done.points.append(point)
        else:
            done.moments[kill_sometime(killed, chance)] += 1
        done.look_at_owners()
        ends = 1 if newest(killed) > before else ends + 1
        if (
            ends == MAX_CRASHES - 1
            # one more, and the batch is taken to be what ends the job: it is cut, and the runs
            # differ
        ):
            finish_a_batch(killed)
            ends = 1
    killed.run_once(LONGEST_S)
    done.look_at_owners()
    quiet.run_once(LONGEST_S)
    return done


def newest(pipeline: Pipeline) -> int:
    """The last batch that Spark has finished; -1 before the first."""
    commits = (pipeline.folder / "checkpoint" / "commits").glob("*")
    return max((int(path.name) for path in commits if path.name.isdigit()), default=-1)


def wait_for_batches(pipeline: Pipeline, job: "subprocess.Popen[bytes]", number: int) -> None:
    """Until so many more have been finished, or the job has ended."""
    goal = newest(pipeline) + number
    wait_until(lambda: newest(pipeline) >= goal or job.poll() is not None, f"batch {goal}")


def kill_brokers(done: Runs, broker: EmbeddedKafka, chance: random.Random) -> None:
    """SIGKILL for Kafka while the job is at work, and a new start on its folder, again and again.

    A job that gives up is started again.
    """
    while done.brokers < BROKER_KILLS:
        with done.killed.running("--once") as job:
            while done.brokers < BROKER_KILLS:
                wait_for_batches(done.killed, job, 2)
                if job.poll() is not None:
                    break
                time.sleep(chance.uniform(0, 1))
                kill_kafka(broker)
                done.brokers += 1
                broker.start(LONGEST_RUN_S)
            wait_for_batches(done.killed, job, 2)
            assert job.poll() != 0, "the backlog is too short"
            done.ended_by_broker += job.poll() is not None


def finish_a_batch(pipeline: Pipeline) -> None:
    """Run the job until it has finished a batch, and kill it."""
    with pipeline.running("--once") as job:
        wait_for_batches(pipeline, job, 1)
        pipeline.kill(job)


def parse_crash_at(pipeline: Pipeline, point: str, number: int) -> None:
    """Run the job until it is killed at a named point."""
    with pipeline.running("--once", "--set", f"stream.crash_at={point}:{number}") as job:
        code = job.wait(timeout=LONGEST_RUN_S)
    assert code == -signal.SIGKILL, f"{point}: {code}\n{pipeline.log()[-4000:]}"


def kill_sometime(pipeline: Pipeline, chance: random.Random) -> str:
    """SIGKILL at a random moment, while the job starts or while it works. Returns what was killed.

    Where only one of its two processes is killed, the other one may go on for a while, beside the
    next job.
    """
    victim = chance.choices(("the whole job", "its JVM", "its Python driver"), (4, 1, 1))[0]
    with pipeline.running("--once") as job:
        if chance.random() < 0.25:
            time.sleep(chance.uniform(1, 12))
        else:
            wait_for_batches(pipeline, job, 1)
            time.sleep(chance.uniform(0, 2))
        assert job.poll() is None, f"{job.poll()}: {pipeline.log()[-4000:]}"
        drivers = python_drivers(job.pid)
        if victim == "its JVM":
            os.kill(job.pid, signal.SIGKILL)
            job.wait()
        elif victim == "its Python driver" and drivers:
            os.kill(drivers[0], signal.SIGKILL)
            time.sleep(chance.uniform(0, 1))
            pipeline.kill(job)
        else:
            victim = "the whole job"
            pipeline.kill(job)
    return victim


def python_drivers(jvm: int) -> list[int]:
    """The Python process that spark-submit's JVM has started for the job's own code, if it is there
    already."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()]
    return [int(pid) for pid, parent, args in lines if int(parent) == jvm and "balance.py" in args]


def entries(pipeline: Pipeline, column: str) -> list[dict[str, Any]]:
    """All of one JSON column of the log, in its order."""
    return [entry for text in log(pipeline)[column] for entry in json.loads(text)]


def log(pipeline: Pipeline) -> dict[str, list[Any]]:
    """The log's columns, in its order."""
    rows = pipeline.table("rounds").sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
    columns: dict[str, list[Any]] = rows.to_pydict()
    return columns


def test_every_named_point_and_many_moments_have_been_tried(
    runs: Runs, count: Callable[[str], None]
) -> None:
    assert set(runs.points) == set(CRASH_POINTS)
    assert runs.moments.total() == RANDOM_KILLS and runs.brokers == BROKER_KILLS
    moments = ", ".join(f"{number} of {victim}" for victim, number in sorted(runs.moments.items()))
    count(
        f"exactly once: {len(runs.points)} named crash points; {runs.moments.total()} kills at "
        f"random moments ({moments})"
    )
    count(
        f"exactly once: {runs.brokers} kills of the Kafka broker, of which {runs.ended_by_broker} "
        "ended the job"
    )


def test_the_killed_job_has_decided_the_same_bytes(
    runs: Runs, count: Callable[[str], None]
) -> None:
    ours, theirs = log(runs.killed), log(runs.quiet)
    for name in COMPARED:
        strip = backlog.without_epoch if name in ("decisions", "ownership") else lambda value: value
        assert list(map(strip, ours[name])) == list(map(strip, theirs[name])), name
    assert set(ours["error"]) == {None}
    assert len(set(ours["epoch"])) > len(POINTS), "it was started again and again"
    size = sum(len(text.encode()) for text in ours["decisions"])
    count(
        f"exactly once: {len(ours['seq'])} rounds of {len(set(ours['log_seq']))} batches, {size} "
        "bytes of decisions equal"
    )


def test_a_reader_of_committed_records_sees_each_decision_of_the_log_once(
    runs: Runs, count: Callable[[str], None]
) -> None:
    seen = [
        json.loads(record.value) for record in committed(runs.killed.bootstrap, TOPICS.decisions)
    ]
    logged = entries(runs.killed, "decisions")
    assert len(logged) > ROUNDS / 2
    assert Counter(one["decision_id"] for one in seen) == Counter(
        one["decision_id"] for one in logged
    )
    assert max(Counter(one["decision_id"] for one in logged).values()) == 1
    for cluster, bundle in {(one["cluster"], one["bundle"]) for one in logged}:
        ours, theirs = (
            [
                one["decision_id"]
                for one in some
                if (one["cluster"], one["bundle"]) == (cluster, bundle)
            ]
            for some in (seen, logged)
        )
        assert ours == theirs, f"the order of {cluster}/{bundle}"
    count(
        f"exactly once: {len(logged)} decisions in the log, {len(seen)} seen with read_committed, "
        "each once"
    )


def test_a_reader_of_ownership_records_sees_each_once_and_in_order(runs: Runs) -> None:
    seen = [
        json.loads(record.value) for record in committed(runs.killed.bootstrap, TOPICS.ownership)
    ]
    logged = entries(runs.killed, "ownership")

    def by_bundle(
        records: list[dict[str, Any]],
    ) -> dict[tuple[str, str], list[tuple[int, str, Any]]]:
        found: dict[tuple[str, str], list[tuple[int, str, Any]]] = {}
        for one in records:
            found.setdefault((one["cluster"], one["bundle"]), []).append(
                (one["version"], one["state"], one["owner"])
            )
        return found

    assert by_bundle(seen) == by_bundle(logged)
    for versions in by_bundle(seen).values():
        numbers = [version for version, _, _ in versions]
        assert numbers == sorted(set(numbers))


def test_no_bundle_has_two_owners_at_any_version_of_the_table(
    runs: Runs, count: Callable[[str], None]
) -> None:
    assert runs.doubled == set()
    last = DeltaTable(str(runs.killed.folder / "tables" / "ownership")).version()
    assert (
        len(runs.versions) > last / 4
    )  # the kills are a minute apart, and its last run goes on undisturbed
    count(
        f"exactly once: {len(runs.versions)} of {last + 1} versions of the table ownership seen in "
        "time, no bundle twice in any"
    )


@pytest.mark.parametrize("name", sorted(PROJECTED))
def test_every_table_holds_the_same_rows_as_without_kills(runs: Runs, name: str) -> None:
    def rows(pipeline: Pipeline) -> list[str]:
        table = pipeline.table(name)
        kept = [column for column in table.column_names if column not in PROJECTED[name]]
        return sorted(json.dumps(row, sort_keys=True) for row in table.select(kept).to_pylist())

    assert rows(runs.killed) == rows(runs.quiet)
    assert rows(runs.quiet) or name == "rejected_reports"
