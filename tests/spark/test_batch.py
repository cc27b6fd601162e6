"""The shell of a batch, with its ports replaced: what it does, in which order, first time and
again. No JVM needed."""

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lb_stream.contracts.columns.rounds import ROUND_SCHEMA
from lb_stream.contracts.reads import Reads
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.store import Store
from lb_stream.stream import kafka_absence
from lb_stream.stream.batch import Balancer
from lb_stream.stream.ports import Logged
from lb_stream.stream.shards.directory import (
    NEW,
    ShardMap,
    read_asked,
    read_directory,
    write_directory,
)
from lb_stream.stream.shards.slicing import table_part

BLOCKS = (("b:0:8", "n:0:8", "v:0:8"),)
ROUND = {"cluster": "eu", "seq": 4, "memory": "{}", "now_ms": 1_000, "blocks": json.dumps(BLOCKS)}
ROUND |= {"bundles": 9, "sampled": True, "idle": False, "waits": False}
ROUND |= {"missing_rosters": "[]", "part_files": "{}"}
ROUNDS = pa.Table.from_pylist([ROUND], ROUND_SCHEMA)
IDLE = pa.Table.from_pylist([ROUND | {"sampled": False, "idle": True}], ROUND_SCHEMA)
CLOCK = json.dumps(
    [{"topic": "reports", "partition": 0, "first": 3, "last": 4, "append_ms": 1_000}]
)
SHARD = {
    "cluster": "eu",
    "shard": 0,
    "clock": CLOCK,
    "brokers": "b:0:8",
    "names": "n:0:8",
    "values": "v:0:8",
}


class World:
    """Log, publisher, tables, backlog and frame in one; notes every call."""

    app = "pipeline/0123"
    is_read = True

    def __init__(self, logged: Logged | None, rounds: pa.Table = ROUNDS) -> None:
        self.calls: list[str] = []
        self._rounds, self.shard = rounds, dict[str, Any](SHARD)
        self.last_seq = 6
        self.memories: dict[str, str] = {}
        self.shadow_memories: dict[str, str] = {}
        self.first_seq = 0
        self.reads: list[Reads] = []
        self._logged = logged

    def find(self, batch_id: int) -> Logged | None:
        return self._logged

    def append_once(self, batch_id: int, rounds: pa.Table) -> Logged:
        self.calls.append(f"log {batch_id}: {len(rounds)}")
        self.remember(rounds)
        return Logged(self.last_seq + 1, rounds)

    def remember(self, rounds: pa.Table) -> None:
        self.memories |= dict(
            zip(rounds["cluster"].to_pylist(), rounds["memory"].to_pylist(), strict=True)
        )

    def run_upkeep(self) -> None:
        self.calls.append("tidy")

    def publish(self, logged: Logged, reads: Sequence[Reads] = ()) -> None:
        self.reads += reads
        self.calls.append(f"publish {logged.log_seq}")

    def project(self, logged: Logged) -> None:
        self.calls.append(f"project {logged.log_seq}")

    def record_batch(self, batch_id: int | None) -> None:
        self.calls.append(f"read {batch_id}")

    def begin(self, batch_id: int) -> None:
        self.phases = [f"begin {batch_id}"]

    def done(self, phase: str) -> None:
        self.phases.append(phase)

    def finish(self, logged: Logged) -> None:
        self.phases.append(f"finish {logged.log_seq}")

    def ownership_versions(self, clusters: Collection[str]) -> dict[str, dict[str, int]]:
        self.calls.append(f"recorded {clusters}")
        return {}

    def replace_parts(self, app: str, batch_id: int, files: dict[str, Any]) -> None:
        self.calls.append(f"averages {batch_id}: {', '.join(files)}")

    def add_history(self, app: str, batch_id: int, files: dict[str, Any]) -> None:
        self.calls.append(f"history {batch_id}: {', '.join(files)}")

    # What the batch does with its frame: one action, whichever; and with its session: one job that
    # writes averages.
    def transform(self, step: Any) -> "World":
        self.calls.append("decide")
        return self

    def drop(self, column: str) -> "World":
        self.calls.append("run")
        self._rounds = pa.Table.from_pylist([self.shard])
        return self

    def toArrow(self) -> pa.Table:
        return self._rounds

    @property
    def sparkSession(self) -> "World":
        return self

    @property
    def sparkContext(self) -> "World":
        return self

    defaultParallelism = 2

    def parallelize(self, parts: list[tuple[str, Any]], tasks: int) -> "World":
        self.calls.append(f"write {', '.join(part for part, _ in parts)}")
        self._parts = parts
        return self

    def map(self, function: Any) -> "World":
        return self

    def collect(self) -> list[tuple[str, dict[str, Any]]]:
        return [(part, {}) for part, _ in self._parts]


BEFORE = {"eu": NEW, "us": ShardMap(2)}


def run(world: World, folder: Path, before: Mapping[str, ShardMap] = BEFORE) -> dict[str, ShardMap]:
    """One batch, number 5. Returns what batch 6 will know of clusters and shards."""
    settings = Settings(
        stream=StreamSettings(tables=str(folder / "tables"), checkpoint=str(folder))
    )
    write_directory(Store.at(folder), 5, 2, before)
    Balancer(settings, world, world, world, world, epoch=2, observer=world)(world, 5)
    return read_directory(Store.at(folder), 6, epoch=2)


WRITTEN = ShardMap(1, BLOCKS, since_ms=1_000, history_ms=1_000, averages_ms=1_000)
AFTER = {"eu": WRITTEN, "us": ShardMap(2)}


def test_a_new_batch_is_decided_logged_published_and_projected_in_this_order(
    tmp_path: Path,
) -> None:
    world = World(None)
    assert run(world, tmp_path) == AFTER
    part = table_part("eu", 0, 1)
    # The files are written meanwhile.
    assert world.calls.index("log 5: 1") < world.calls.index(f"write {part}")
    assert [call for call in world.calls if not call.startswith("write")] == [
        "read 5",
        "decide",
        "log 5: 1",
        "publish 7",
        "project 7",
        f"averages 5: {part}",
        "tidy",
    ]
    assert world.phases == [
        "begin 5",
        "decide",
        "log",
        "publish",
        "project",
        "averages",
        "project",
        "finish 7",
    ]


def test_files_are_written_while_a_batch_is_published_and_are_committed_after_it(
    tmp_path: Path,
) -> None:
    class Slow(World):
        written = threading.Event()

        def publish(self, logged: Logged, reads: Sequence[Reads] = ()) -> None:
            assert self.written.wait(60), "the files are not written before this ends"
            super().publish(logged, reads)

        def collect(self) -> list[tuple[str, dict[str, Any]]]:
            self.written.set()
            return super().collect()

    world = Slow(None)
    run(world, tmp_path)
    calls = [call.split()[0] for call in world.calls]
    assert calls == ["read", "decide", "log", "write", "publish", "project", "averages", "tidy"]


def test_files_that_could_not_be_written_are_not_committed_and_the_batch_fails(
    tmp_path: Path,
) -> None:
    class Failing(World):
        def collect(self) -> list[tuple[str, dict[str, Any]]]:
            raise OSError("a task has failed")

    world = Failing(None)
    with pytest.raises(OSError, match="a task has failed"):
        run(world, tmp_path)
    calls = [call.split()[0] for call in world.calls if not call.startswith("write")]
    assert calls == ["read", "decide", "log", "publish", "project"]
    assert "finish 7" not in world.phases


def test_a_batch_that_is_not_published_reaches_no_table(tmp_path: Path) -> None:
    class Fenced(World):
        def publish(self, logged: Logged, reads: Sequence[Reads] = ()) -> None:
            raise RuntimeError("another job publishes now")

    world = Fenced(None)
    with pytest.raises(RuntimeError, match="another job publishes now"):
        run(world, tmp_path)
    assert [call.split()[0] for call in world.calls] == ["read", "decide", "log", "write"]


def test_a_batch_announces_for_every_known_cluster_what_the_job_reads(tmp_path: Path) -> None:
    world = World(None)
    run(world, tmp_path)
    assert [(reads.cluster, reads.checkpoint) for reads in world.reads] == [
        ("eu", "0123"),
        ("us", "0123"),
    ]
    assert world.reads[0].forms == ["json", "columns", "deltas"]


def test_a_batch_asks_for_the_rosters_that_its_tasks_lacked(tmp_path: Path) -> None:
    lacking = pa.Table.from_pylist([ROUND | {"missing_rosters": '["b1","b2"]'}], ROUND_SCHEMA)
    world = World(None, lacking)
    run(world, tmp_path)
    assert {reads.cluster: reads.rosters for reads in world.reads} == {
        ROUND["cluster"]: ["b1", "b2"],
        "us": [],
    }


def test_a_batch_that_is_in_the_log_is_never_decided_again_but_its_state_is_still_computed(
    tmp_path: Path,
) -> None:
    world = World(Logged(3, ROUNDS))
    assert run(world, tmp_path) == AFTER
    assert [call for call in world.calls if not call.startswith("write")] == [
        "read 5",
        "run",
        "publish 3",
        "project 3",
        f"averages 5: {table_part('eu', 0, 1)}",
        "tidy",
    ]


def test_a_round_in_which_nothing_happened_is_not_logged(tmp_path: Path) -> None:
    world = World(None, IDLE)
    assert run(world, tmp_path) == AFTER | {
        "eu": replace(WRITTEN, history_ms=None, averages_ms=None)
    }
    assert world.calls == ["read 5", "decide", "log 5: 0", "publish 7", "project 7", "tidy"]


def test_a_projection_that_fails_is_heard_of_though_the_averages_fail_too(tmp_path: Path) -> None:
    class Failing(World):
        def project(self, logged: Logged) -> None:
            raise RuntimeError("another job writes the tables")

        def collect(self) -> list[tuple[str, dict[str, Any]]]:
            raise OSError("a task has failed")

    with pytest.raises(RuntimeError, match="another job writes the tables"):
        run(Failing(None), tmp_path)


def test_what_a_batch_was_told_of_clusters_stays_when_it_is_run_again(tmp_path: Path) -> None:
    run(World(Logged(3, ROUNDS)), tmp_path)
    other = pa.Table.from_pylist(
        [ROUND | {"blocks": json.dumps([["other:0:1"] * 3])}], ROUND_SCHEMA
    )
    assert run(World(None, other), tmp_path) == AFTER


def test_the_next_batch_knows_who_has_been_asked_for_what(tmp_path: Path) -> None:
    pending = [
        Pending("eu:1:0", "transfer", "t/n/0x0_0x1", "b1", "b2", 0, 60_000, 2),
        Pending("eu:1:1", "assign", "t/n/0x1_0x2", None, "b2", 0, 60_000, 2),
    ]
    rounds = pa.Table.from_pylist(
        [ROUND | {"memory": Memory(pending=tuple(pending)).to_json()}], ROUND_SCHEMA
    )
    asked = {"eu:1:0": ("b1", "t/n/0x0_0x1"), "eu:1:1": ("b2", "t/n/0x1_0x2")}
    assert run(World(None, rounds), tmp_path / "first")["eu"].asked == asked
    assert run(World(Logged(3, rounds)), tmp_path / "again")["eu"].asked == asked
    before = {"eu": ShardMap(1, BLOCKS, 0, asked=asked)}
    assert run(World(None, IDLE), tmp_path / "idle", before)["eu"].asked == asked, (
        "nothing is logged where nothing happens"
    )
    assert read_asked('{"pending": 1') == {}, "such a cluster's rounds fail, no others'"


def test_a_forgotten_cluster_leaves_the_directory(tmp_path: Path) -> None:
    gone = ROUND | {"memory": "", "blocks": "[]", "sampled": False}
    part = table_part("eu", 0, 1)
    for world in (
        World(None, pa.Table.from_pylist([gone], ROUND_SCHEMA)),
        World(Logged(3, pa.Table.from_pylist([gone], ROUND_SCHEMA))),
    ):
        world.shard = SHARD | dict.fromkeys(("brokers", "names", "values"))
        assert run(
            world, tmp_path, {"eu": ShardMap(1, BLOCKS, 0, leaving=True), "us": ShardMap(2)}
        ) == {"us": ShardMap(2)}
        assert f"averages 5: {part}" in world.calls
        assert ("recorded ['eu']" in world.calls) == ("decide" in world.calls), "their records end"


def test_brokers_that_kafka_has_cut_off_do_not_count_as_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(kafka_absence, "time", SimpleNamespace(monotonic=lambda: clock.now))
    settings = Settings(
        stream=StreamSettings(tables=str(tmp_path / "tables"), checkpoint=str(tmp_path))
    )
    world, caught_up = World(None, IDLE), []
    write_directory(Store.at(tmp_path), 5, 2, BEFORE)
    balancer = Balancer(settings, world, world, world, world, epoch=2, observer=world)
    for batch_id, waited_s in enumerate((0, 1, 60, 1, 3, 3, 3, 3), 5):
        clock.now += waited_s
        balancer(world, batch_id)
        caught_up.append(balancer._context(batch_id, {}).caught_up)
    assert caught_up == [True, True, False, False, False, False, False, True]


def test_a_cluster_that_is_silent_for_its_time_leaves_with_the_next_batch(tmp_path: Path) -> None:
    settings = Settings(
        stream=StreamSettings(
            tables=str(tmp_path / "tables"), checkpoint=str(tmp_path), cluster_retention_ms=1_000
        )
    )
    world = World(None, IDLE)
    write_directory(Store.at(tmp_path), 5, 2, {"eu": ShardMap(1, BLOCKS, since_ms=0)})
    balancer = Balancer(settings, world, world, world, world, epoch=2, observer=world)
    seen = []
    for batch, now_ms in enumerate((1_000, 1_999, 2_000), start=5):
        world._rounds = pa.Table.from_pylist(
            [ROUND | {"sampled": False, "idle": True, "now_ms": now_ms}], ROUND_SCHEMA
        )
        balancer(world, batch)
        seen.append(read_directory(Store.at(tmp_path), batch + 1, epoch=2)["eu"].leaving)
    assert seen == [False, False, True], "the job itself has listened for as long"


INTERVAL_MS = 10_000


class Pace:
    """Batches of one job, one after another, from batch 5 on."""

    def __init__(self, folder: Path, before: ShardMap = NEW) -> None:
        self.folder, self.world, self.batch = folder, World(None), 5
        stream = StreamSettings(
            tables=str(folder / "tables"),
            checkpoint=str(folder),
            averages_interval_ms=INTERVAL_MS,
        )
        write_directory(Store.at(folder), self.batch, 2, {"eu": before})
        self.balancer = Balancer(
            Settings(stream=stream), *[self.world] * 4, epoch=2, observer=self.world
        )

    def run(self, now_ms: int, **changed: Any) -> list[str]:
        """Run a batch at a time; what it does to the table of averages and to history."""
        self.world._rounds = pa.Table.from_pylist(
            [ROUND | {"now_ms": now_ms} | changed], ROUND_SCHEMA
        )
        self.world.calls.clear()
        self.balancer(self.world, self.batch)
        self.batch += 1
        return self.written()

    def written(self) -> list[str]:
        """What the last batch, or the job's end, has written."""
        names = ("averages", "history")
        return [call.split()[0] for call in self.world.calls if call.startswith(names)]

    @property
    def known(self) -> ShardMap | None:
        """What the next batch knows of the cluster."""
        return read_directory(Store.at(self.folder), self.batch, epoch=2).get("eu")


QUIET = {"sampled": False, "idle": True}


def test_averages_are_written_once_in_their_interval_also_if_nothing_has_come_since(
    tmp_path: Path,
) -> None:
    pace = Pace(tmp_path)
    assert pace.run(1_000) == ["averages"]
    assert pace.run(2_000) == [] and pace.known is not None
    assert (pace.known.averages_ms, pace.known.averages_behind) == (1_000, True)
    assert pace.run(10_999, **QUIET) == []
    assert pace.run(11_000, **QUIET) == ["averages"] and pace.known is not None
    assert (pace.known.averages_ms, pace.known.averages_behind) == (11_000, False)
    assert pace.run(30_000, **QUIET) == [], "nothing is behind"
    assert pace.run(30_001) == ["averages"], "long after the last ones nothing waits"
    assert pace.run(9_000) == ["averages"], "a clock that runs backwards stops nothing"


TWO_SHARDS = BLOCKS * 2


@pytest.mark.parametrize(
    ("ahead", "written"),
    [
        ([], ["write eu.0, eu.1", "averages 5: eu.0, eu.1"]),
        (["eu.1"], ["write eu.0", "averages 5: eu.0, eu.1"]),
        (["eu.0", "eu.1"], ["averages 5: eu.0, eu.1"]),
        (["eu.0", "eu.1", "eu.2"], ["averages 5: eu.0, eu.1"]),
    ],
)
def test_parts_that_are_written_ahead_are_not_written_again(
    tmp_path: Path, ahead: list[str], written: list[str]
) -> None:
    pace = Pace(tmp_path, ShardMap(2, TWO_SHARDS))
    given = {
        "blocks": json.dumps(TWO_SHARDS),
        "part_files": json.dumps({part: {} for part in ahead}),
    }
    pace.run(1_000, **given)
    assert [call for call in pace.world.calls if call.startswith(("write", "averages"))] == written


def test_what_is_written_ahead_of_a_batch_that_is_not_due_is_in_no_table(tmp_path: Path) -> None:
    pace = Pace(tmp_path, ShardMap(2, TWO_SHARDS))
    given = {"blocks": json.dumps(TWO_SHARDS), "bundles": 60_000}
    assert pace.run(1_000, **given) == ["averages"]
    ahead = json.dumps({"eu.0": {}, "eu.1": {}})
    assert pace.run(2_000, part_files=ahead, **given) == []
    assert pace.run(11_000, **given) == ["averages"], "it is still behind"
    assert "write eu.0, eu.1" in pace.world.calls


def test_history_does_not_wait_for_the_averages(tmp_path: Path) -> None:
    pace = Pace(tmp_path)
    assert pace.run(59_000) == ["averages"]
    assert pace.run(60_000) == ["history"]
    assert pace.run(69_000) == ["averages"]


def test_a_cluster_that_leaves_its_parts_waits_for_nothing(tmp_path: Path) -> None:
    pace = Pace(tmp_path)
    assert pace.run(1_000) == ["averages"]
    assert pace.run(2_000) == []
    assert pace.run(2_001, memory="", blocks="[]", sampled=False) == ["averages"]
    assert pace.known is None


def test_a_job_that_ends_in_order_leaves_no_average_behind(tmp_path: Path) -> None:
    pace = Pace(tmp_path)
    pace.balancer.write_pending_averages()
    assert pace.written() == [], "it has run no batch"
    pace.run(1_000)
    for behind, written in ((False, []), (True, ["averages"])):
        if behind:
            pace.run(2_000)
        pace.world.calls.clear()
        pace.balancer.write_pending_averages()
        assert pace.written() == written


def test_a_job_that_was_killed_leaves_to_the_next_what_is_behind(tmp_path: Path) -> None:
    behind = ShardMap(1, BLOCKS, averages_ms=1_000, averages_behind=True)
    assert Pace(tmp_path, behind).run(10_999, **QUIET) == []
    assert Pace(tmp_path / "later", behind).run(11_000, **QUIET) == ["averages"]


def test_a_batch_that_runs_again_writes_the_averages_that_it_was_due_to_write(
    tmp_path: Path,
) -> None:
    behind = ShardMap(1, BLOCKS, averages_ms=1_000, averages_behind=True, history_ms=1_000)
    for name, now_ms, written in (("a", 2_000, []), ("b", 11_000, ["averages"])):
        pace = Pace(tmp_path / name, behind)
        rows = pa.Table.from_pylist([ROUND | {"now_ms": now_ms}], ROUND_SCHEMA)
        pace.world._logged = Logged(3, rows)
        clock = json.loads(CLOCK)
        pace.world.shard = SHARD | {"clock": json.dumps([clock[0] | {"append_ms": now_ms}])}
        pace.balancer(pace.world, 5)
        assert pace.written() == written
