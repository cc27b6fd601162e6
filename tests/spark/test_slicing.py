"""Shards of a cluster: how many, what each takes over when that changes, which parts of the table
that makes old. No JVM needed."""

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import name_order, view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.store import Store
from lb_stream.stream import averages
from lb_stream.stream.averages import Folding
from lb_stream.stream.shards import changed_rows
from lb_stream.stream.shards.block_files import (
    BlockRefs,
    BlockWriter,
    delete_unused_files,
    files_of,
    read_block,
)
from lb_stream.stream.shards.directory import (
    NEW,
    ShardMap,
    delete_directories,
    read_directory,
    write_directory,
)
from lb_stream.stream.shards.shard_files import ShardChange, names_block, read_shard, reshard
from lb_stream.stream.shards.slicing import (
    ClusterBlocks,
    DueShard,
    due_parts,
    name_hashes,
    next_shard_map,
    table_part,
    wanted_shards,
)
from tests.spark.shard_task import State
from tests.support.build import Report, batch_of

FOUR_BUNDLES = [f"acme/orders/0x{at:x}0000000_0x{at + 4:x}0000000" for at in (0, 4, 8)] + [
    "acme/orders/0xc0000000_0xffffffff"
]


def folded() -> Shard:
    """Two brokers with two bundles each."""
    reports = [
        Report(
            f"b{at}",
            1_000,
            {name: BundleStats(msgRateIn=10.0 + at) for name in FOUR_BUNDLES[at::2]},
            offset=at,
        )
        for at in (0, 1)
    ]
    return fold(Shard.empty(), batch_of(reports, []), 1_000, FoldConfig())[0]


def written(folder: Path, name: str, shard: Shard) -> BlockRefs:
    writer = BlockWriter(Store.at(folder), name)
    blocks = (
        writer.put(shard.brokers),
        writer.put(names_block(shard.bundles["name"])),
        writer.put(shard.bundles.drop_columns("name")),
    )
    writer.close()
    return blocks


@pytest.mark.parametrize(
    ("bundles", "shards", "wanted"),
    [
        (0, 1, 1),
        (150, 1, 1),
        (151, 1, 2),
        (1_000, 1, 16),
        (301, 2, 4),
        (300, 2, 2),
        (49, 2, 1),
        (50, 2, 2),
        (1_600, 16, 16),
    ],
)
def test_the_number_of_shards_follows_the_clusters_size_with_some_play(
    bundles: int, shards: int, wanted: int
) -> None:
    assert wanted_shards(bundles, shards, shard_bundles=100) == wanted


@pytest.mark.parametrize(("old", "new"), [(1, 4), (4, 1), (2, 4), (4, 2), (8, 2)])
def test_no_bundle_is_lost_or_doubled_when_shards_hand_over(
    tmp_path: Path, old: int, new: int
) -> None:
    whole = folded()
    start = [written(tmp_path, "0-0-a.arrow", whole)]
    kept = Store.at(tmp_path)
    before = (
        start
        if old == 1
        else [
            written(tmp_path, f"1-{at}-a.arrow", reshard(kept, start, at, old)) for at in range(old)
        ]
    )
    after = [reshard(kept, before, at, new) for at in range(new)]
    for number, shard in enumerate(after):
        assert set((name_hashes(shard.bundles["name"]) & (new - 1)).tolist()) <= {number}
        assert shard.brokers.equals(whole.brokers)
    view, expected = (view_of("eu", shards, 1_000, {"cpu": 1.0}) for shards in (after, [whole]))
    assert view.bundles.names.equals(expected.bundles.names)
    assert (view.bundles.owner == expected.bundles.owner).all()
    assert view.brokers.short.rate_in.tolist() == expected.brokers.short.rate_in.tolist()


def test_an_order_of_names_that_is_known_already_gives_the_same_view(tmp_path: Path) -> None:
    shards = [
        reshard(Store.at(tmp_path), [written(tmp_path, "0-0-a.arrow", folded())], at, 2)
        for at in (0, 1)
    ]
    order = name_order([shard.bundles["name"] for shard in shards])
    one, other = (view_of("eu", shards, 1_000, {"cpu": 1.0}, given) for given in (order, None))
    assert one.bundles.names.equals(other.bundles.names)
    assert one.bundles.latest.rate_in.tolist() == other.bundles.latest.rate_in.tolist()


def test_a_block_is_read_as_it_was_written_and_only_from_a_closed_file(tmp_path: Path) -> None:
    writer = BlockWriter(Store.at(tmp_path), "7-0-a.arrow")
    tables = [pa.table({"x": list(range(size))}) for size in (3, 0, 50)]
    references = [writer.put(table) for table in tables]
    with pytest.raises(FileNotFoundError):
        read_block(Store.at(tmp_path), references[0])
    writer.close()
    assert [read_block(Store.at(tmp_path), reference) for reference in references] == tables


def test_files_that_no_kept_batch_names_are_removed_but_not_those_of_the_batch_under_way(
    tmp_path: Path,
) -> None:
    blocks = [written(tmp_path, f"{batch:03d}-0-a.arrow", folded()) for batch in range(4)]
    for batch in (1, 2, 3):
        write_directory(
            Store.at(tmp_path),
            batch,
            1,
            {"eu": ShardMap(1, (blocks[0 if batch == 2 else batch - 1],))},
        )
    used = delete_directories(Store.at(tmp_path), 2)
    assert used == files_of(blocks[0][0]) | files_of(blocks[2][0])
    assert delete_unused_files(Store.at(tmp_path), used, 2) == 1
    assert read_shard(Store.at(tmp_path), blocks[0]).bundles.num_rows == 4
    with pytest.raises(FileNotFoundError):
        read_shard(Store.at(tmp_path), blocks[1])
    assert read_shard(Store.at(tmp_path), blocks[3]).bundles.num_rows == 4
    with pytest.raises(FileNotFoundError):
        read_directory(Store.at(tmp_path), 1, epoch=1)


def blocks_of(*names: str) -> tuple[BlockRefs, ...]:
    return tuple((f"{name}:0:1", f"{name}:1:1", f"{name}:2:1") for name in names)


def test_a_failed_hand_over_is_tried_again() -> None:
    before = ShardMap(2, blocks_of("old"), 1)
    assert (
        next_shard_map(before, ClusterBlocks(1, (*blocks_of("new"), ("", "", "")), True), 100)
        == before
    )
    assert next_shard_map(
        before, ClusterBlocks(1, blocks_of("new", "new2"), True, bundles=120), 100
    ) == ShardMap(2, blocks_of("new", "new2"), 1, averages_ms=1)


def test_the_new_blocks_of_shards_beside_a_failed_one_stay() -> None:
    before = ShardMap(2, blocks_of("old0", "old1"), 1)
    after = ClusterBlocks(1, (("", "", ""), *blocks_of("new1")), True, error=True)
    found = next_shard_map(before, after, 100)
    assert found.blocks == blocks_of("old0", "new1"), "the state of the second one names new1"
    assert found.shards == 2 and not found.averages_behind


def test_a_cluster_that_is_sliced_anew_leaves_its_old_part_of_the_table_to_the_others() -> None:
    small, neighbour = (
        "eu",
        next(
            f"c{at}" for at in range(1_000) if table_part(f"c{at}", 0, 1) == table_part("eu", 0, 1)
        ),
    )
    shared = table_part("eu", 0, 1)
    views = {
        small: ClusterBlocks(5, blocks_of("e0", "e1"), True),
        neighbour: ClusterBlocks(5, blocks_of("n"), False),
    }
    due = due_parts({small: ShardMap(2, blocks_of("e")), neighbour: NEW}, views)
    assert list(due) == sorted(["eu.0", "eu.1", shared])
    assert due[shared] == [DueShard(neighbour, 0, 5, blocks_of("n")[0])]
    assert due_parts({small: NEW}, {small: ClusterBlocks(5, blocks_of("e"), False)}) == {}


def test_shards_of_a_cluster_share_the_block_of_their_brokers(tmp_path: Path) -> None:
    folding = Folding({}, FoldConfig(), Store.at(tmp_path), "cafe0123", 1)
    with patch.object(averages, "current_task", lambda: (5, 0, 0)):
        folding.begin(State())
    whole = folded()
    start = [written(tmp_path, "0-0-a.arrow", whole)]
    shards = [reshard(Store.at(tmp_path), start, number, 2) for number in (0, 1)]
    other = Shard(whole.brokers.slice(0, 1), whole.bundles)
    blocks = [
        folding._writer.write(ShardChange(Shard.empty(), shard, None))
        for shard in (*shards, other, whole)
    ]
    folding.close()
    assert blocks[0][0] == blocks[1][0] and len({brokers for brokers, _, _ in blocks}) == 3
    for shard, references in zip((*shards, other, whole), blocks, strict=True):
        found = read_shard(Store.at(tmp_path), references)
        assert found.brokers.equals(shard.brokers) and found.bundles.equals(shard.bundles)


def test_shards_take_over_changed_rows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_rows, "MIN_ROWS", 1)
    whole, store = folded(), Store.at(tmp_path)
    brokers, names, values = written(tmp_path, "0-0-a.arrow", whole)
    topics = pa.array([row * (row == 2) for row in range(len(whole.bundles))], pa.int64())
    place = whole.bundles.schema.get_field_index("topics")
    after = whole.bundles.set_column(place, "topics", topics)
    writer = BlockWriter(store, "1-0-a.arrow")
    tables = (bundles.drop_columns("name") for bundles in (whole.bundles, after))
    values = changed_rows.write_values(writer, store, *tables, values)
    writer.close()
    assert files_of(values) == {"0-0-a.arrow", "1-0-a.arrow"}
    shards = [reshard(store, [(brokers, names, values)], number, 2) for number in (0, 1)]
    found = pa.concat_tables([shard.bundles for shard in shards]).sort_by("name")
    assert found["topics"].to_pylist() == topics.to_pylist()
    write_directory(store, 7, 1, {"eu": ShardMap(1, ((brokers, names, values),))})
    assert delete_directories(store, 7) == {"0-0-a.arrow", "1-0-a.arrow"}, "both stay"
