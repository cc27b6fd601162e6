"""A job that was shut out and goes on all the same: it writes what its heir has written, later and
otherwise. No JVM needed."""

from pathlib import Path

import pyarrow as pa
import pytest

from lb_stream.store import Store
from lb_stream.stream.shards.block_files import (
    BlockWriter,
    delete_batch_files,
    read_block,
    sample_file,
)
from lb_stream.stream.shards.directory import (
    ShardMap,
    delete_directories,
    read_directory,
    write_directory,
)
from tests.spark.shard_task import BATCH, folded, rates

ZOMBIE, HEIR = 1, 2


def test_a_zombies_blocks_lie_beside_its_heirs(tmp_path: Path) -> None:
    heirs = folded(tmp_path, HEIR, [10.0])
    zombies = folded(tmp_path, ZOMBIE, [10.0, 20.0])
    assert rates(tmp_path, heirs) == [10.0]
    assert rates(tmp_path, zombies) == [20.0]


def test_what_a_zombie_says_of_the_next_batch_is_not_read_by_its_heir(tmp_path: Path) -> None:
    written = ShardMap(1, (("heir:0:1",) * 3,)), ShardMap(4, (("zombie:0:1",) * 3,))
    write_directory(Store.at(tmp_path), BATCH + 1, HEIR, {"eu": written[0]})
    write_directory(Store.at(tmp_path), BATCH + 1, ZOMBIE, {"eu": written[1]})
    assert read_directory(Store.at(tmp_path), BATCH + 1, HEIR) == {"eu": written[0]}
    assert read_directory(Store.at(tmp_path), BATCH + 1, HEIR + 1) == {"eu": written[0]}, (
        "so does the heir's heir"
    )
    assert read_directory(Store.at(tmp_path), BATCH + 1, ZOMBIE) == {"eu": written[1]}
    assert delete_directories(Store.at(tmp_path), BATCH) == {"heir", "zombie"}, (
        "what either names stays as long as it may be read"
    )


def test_a_zombie_that_tidies_up_leaves_its_heirs_samples(tmp_path: Path) -> None:
    places = {}
    for epoch in (ZOMBIE, HEIR):
        writer = BlockWriter(Store.at(tmp_path), sample_file(BATCH, epoch, 0), durable=False)
        places[epoch] = writer.put(pa.table({"x": [epoch]}))
        writer.close()
    delete_batch_files(Store.at(tmp_path), BATCH, ZOMBIE)
    assert read_block(Store.at(tmp_path), places[HEIR])["x"].to_pylist() == [HEIR]
    with pytest.raises(FileNotFoundError):
        read_block(Store.at(tmp_path), places[ZOMBIE])
    delete_batch_files(Store.at(tmp_path), BATCH, HEIR)
    with pytest.raises(FileNotFoundError):
        read_block(Store.at(tmp_path), places[HEIR])
