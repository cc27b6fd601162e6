"""What clusters remember reaches the task that decides about them, and no other."""

from pathlib import Path

from pyspark.cloudpickle import dumps

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.store import Store
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.block_files import FOLDER, delete_batch_files
from lb_stream.stream.shards.memory_files import (
    STORED_CHARACTERS,
    BatchMemories,
    distribute_memories,
    read_memories,
)
from lb_stream.stream.shards.partition_keys import deciding_task

CLUSTERS = [f"c{number}" for number in range(2_000)]
BALANCER = {
    cluster: f'{{"seq":{number},"text":"{"x" * 1_000}"}}' for number, cluster in enumerate(CLUSTERS)
}
SHADOWS = {cluster: "{}" for cluster in CLUSTERS[::2]}


def handed_out(folder: Path, tasks: int = 3, epoch: int = 1) -> BatchMemories:
    return distribute_memories(BALANCER, SHADOWS, Store.at(folder), 7, epoch, tasks)


def test_each_task_reads_the_memories_of_its_own_clusters_alone(tmp_path: Path) -> None:
    given = handed_out(tmp_path)
    assert (given.balancer, given.shadows, len(given.stored)) == ({}, {}, 3)
    for task in range(3):
        own = [cluster for cluster in CLUSTERS if deciding_task(cluster, 3) == task]
        found = read_memories(Store.at(tmp_path), given.stored, own)
        assert (
            found.balancer == {cluster: BALANCER[cluster] for cluster in own}
            and 500 < len(own) < 800
        )
        assert found.shadows == {cluster: "{}" for cluster in own if cluster in SHADOWS}


def test_a_cluster_that_comes_to_another_task_than_expected_still_finds_its_memory(
    tmp_path: Path,
) -> None:
    found = read_memories(Store.at(tmp_path), handed_out(tmp_path).stored, CLUSTERS[:10])
    assert {cluster: found.balancer[cluster] for cluster in CLUSTERS[:10]} == {
        cluster: BALANCER[cluster] for cluster in CLUSTERS[:10]
    }


def test_what_goes_to_every_task_does_not_grow_with_the_clusters(tmp_path: Path) -> None:
    def context(given: BatchMemories) -> BatchContext:
        settings = Settings(stream=StreamSettings(checkpoint=str(tmp_path)))
        return BatchContext(
            settings,
            "x",
            7,
            1,
            True,
            given.balancer,
            shadow_memories=given.shadows,
            stored=given.stored,
        )

    stored = context(handed_out(tmp_path))
    assert len(dumps(context(BatchMemories(BALANCER, SHADOWS)))) > 2_000_000
    assert len(dumps(stored)) < 5_000
    assert (
        stored.with_memories(["c5"]).memories["c5"] == BALANCER["c5"]
        and "c5" not in stored.memories
    )


def test_little_goes_with_the_function_and_makes_no_file(tmp_path: Path) -> None:
    few = {"eu": "x" * (STORED_CHARACTERS - 2)}
    assert distribute_memories(few, {"eu": "{}"}, Store.at(tmp_path), 7, 1, 3) == BatchMemories(
        few, {"eu": "{}"}
    )
    assert distribute_memories({}, {}, Store.at(tmp_path), 7, 1, 3) == BatchMemories({}, {})
    assert not (tmp_path / FOLDER).exists()
    assert distribute_memories(few, {"eu": "{} "}, Store.at(tmp_path), 7, 1, 3).stored


def test_a_batch_that_runs_again_writes_the_same_and_a_job_that_was_shut_out_beside_its_heir(
    tmp_path: Path,
) -> None:
    assert handed_out(tmp_path) == handed_out(tmp_path)
    (file,) = (tmp_path / FOLDER).iterdir()
    first = file.read_bytes()
    assert handed_out(tmp_path).stored and file.read_bytes() == first
    assert handed_out(tmp_path, epoch=2).stored != handed_out(tmp_path, epoch=1).stored
    delete_batch_files(Store.at(tmp_path), 7, epoch=1)
    (left,) = (tmp_path / FOLDER).iterdir()
    assert "-e2-" in left.name, "nobody needs it after the batch; the heir's stays"
