"""The shell of a batch, with its ports replaced: what it does, in which order, first time and again. No JVM needed."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.stream.batch import Balancer
from lb_stream.stream.decide import ROUND_SCHEMA
from lb_stream.stream.directory import read_directory
from lb_stream.stream.ports import Logged

ROUNDS = pa.Table.from_pylist([{"cluster": "eu", "seq": 4, "memory": "{}"}], ROUND_SCHEMA)


class World:
    """Log, publisher, tables, reading and frame in one; notes every call."""

    app = "pipeline/0123"
    now = True

    def __init__(self, logged: Logged | None) -> None:
        self.calls: list[str] = []
        self.last_seq = 6
        self.memories: dict[str, str] = {}
        self._logged = logged

    def find(self, batch_id: int) -> Logged | None:
        return self._logged

    def append_once(self, batch_id: int, rounds: pa.Table) -> Logged:
        self.calls.append(f"log {batch_id}")
        self.remember(rounds)
        return Logged(self.last_seq + 1, rounds)

    def remember(self, rounds: pa.Table) -> None:
        self.memories |= dict(zip(rounds["cluster"].to_pylist(), rounds["memory"].to_pylist(), strict=True))

    def publish(self, logged: Logged) -> None:
        self.calls.append(f"publish {logged.log_seq}")

    def project(self, logged: Logged) -> None:
        self.calls.append(f"project {logged.log_seq}")

    def read(self, batch_id: int | None) -> None:
        self.calls.append(f"read {batch_id}")

    def begin(self, batch_id: int) -> None:
        self.phases = [f"begin {batch_id}"]

    def done(self, phase: str) -> None:
        self.phases.append(phase)

    def finish(self, logged: Logged) -> None:
        self.phases.append(f"finish {logged.log_seq}")

    # What the batch does with its frame: one action, or a write to nowhere.
    def transform(self, step: Any) -> "World":
        return self

    def toArrow(self) -> pa.Table:
        self.calls.append("decide")
        return ROUNDS

    @property
    def write(self) -> "World":
        return self

    def format(self, name: str) -> "World":
        self.calls.append(f"write to {name}")
        return self

    def mode(self, name: str) -> "World":
        return self

    def save(self) -> None:
        """Nothing to note: `format` has."""


def run(world: World, folder: Path) -> dict[str, int]:
    """One batch, number 5. Returns what batch 6 will know of clusters and shards."""
    settings = Settings(stream=StreamSettings(tables=str(folder / "tables"), checkpoint=str(folder)))
    Balancer(settings, world, world, world, world, epoch=2, observer=world)(world, 5)  # type: ignore[arg-type]
    return read_directory(str(folder), 6)


def test_a_new_batch_is_decided_logged_published_and_projected_in_this_order(tmp_path: Path) -> None:
    world = World(None)
    assert run(world, tmp_path) == {"eu": 1}
    assert world.calls == ["read 5", "decide", "log 5", "publish 7", "project 7"]
    assert world.phases == ["begin 5", "decide", "log", "publish", "project", "finish 7"]


def test_a_batch_that_is_in_the_log_is_never_decided_again_but_its_state_is_still_computed(tmp_path: Path) -> None:
    world = World(Logged(3, ROUNDS))
    assert run(world, tmp_path) == {"eu": 1}
    assert world.calls == ["read 5", "write to noop", "publish 3", "project 3"]
    assert world.phases == ["begin 5", "decide", "publish", "project", "finish 3"]


def test_what_a_batch_was_told_of_clusters_stays_when_it_is_run_again(tmp_path: Path) -> None:
    run(World(Logged(3, ROUNDS)), tmp_path)
    other = ROUNDS.set_column(0, ROUNDS.schema.field("cluster"), pa.array(["us"]))
    assert run(World(Logged(3, other)), tmp_path) == {"eu": 1}
