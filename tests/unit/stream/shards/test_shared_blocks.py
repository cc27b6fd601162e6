"""Blocks that several small shards share, and references to the rows of each."""

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from lb_stream.core.model.blocks import SMALL_ROWS
from lb_stream.store import Store
from lb_stream.stream.shards import block_files
from lb_stream.stream.shards.block_files import BlockWriter, OpenFiles, files_of, read_block
from tests.support.s3_server import s3_server
from tests.support.wordings import check_wording


def numbered(*rows: int) -> list[pa.Table]:
    """Tables of so many rows, no two rows alike."""
    return [
        pa.table({"x": pa.array(range(at, at + count), pa.int64())})
        for at, count in enumerate(rows)
    ]


def places(references: list[str]) -> list[str]:
    """The block of each reference."""
    return [":".join(reference.split(":")[:3]) for reference in references]


@pytest.mark.parametrize("remote", [False, True])
def test_tables_written_together_are_read_as_one_by_one_from_few_blocks(
    tmp_path: Path, remote: bool
) -> None:
    with s3_server() as server:
        store = Store.at("s3://lb/x", server.options) if remote else Store.at(tmp_path)
        most = SMALL_ROWS // 4 if remote else SMALL_ROWS
        tables = numbered(3, 0, 5, most, most + 1, 1, most - 1, 7)
        writer = BlockWriter(store, "7-0-a.arrow")
        references = writer.put_together(tables)
        writer.close()
        files = OpenFiles(store)
        for checkpoint in (store, files):
            assert [read_block(checkpoint, reference) for reference in references] == tables
        assert [len(set(places(references[:at]))) for at in (3, 4, 5, 7, 8)] == [1, 2, 3, 4, 5]
        assert references[3] in places(references), "a table alone is a block of its own"
        assert set.union(*map(files_of, references)) == {"7-0-a.arrow"}
        assert writer.put_together([]) == []


def test_a_task_reads_a_shared_block_once(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    writer = BlockWriter(store, "7-0-a.arrow")
    references = writer.put_together(numbered(3, 4, 5))
    writer.close()
    with patch.object(block_files, "read_stream", wraps=block_files.read_stream) as read:
        files = OpenFiles(store)
        assert [len(read_block(files, reference)) for reference in references] == [3, 4, 5]
    assert read.call_count == 1


def test_a_shared_block_with_fewer_rows_than_a_shard_has_is_damaged(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    writer = BlockWriter(store, "7-0-a.arrow")
    (*_, last) = writer.put_together(numbered(3, 4))
    writer.close()
    with pytest.raises(pa.ArrowInvalid) as error:
        read_block(store, last.removesuffix("4") + "5")
    check_wording(str(error.value).removeprefix(str(tmp_path)))


def test_a_block_after_one_that_could_not_be_written_is_read_as_it_was_written(
    tmp_path: Path,
) -> None:
    store = Store.at(tmp_path)
    writer = BlockWriter(store, "7-0-a.arrow")
    first, second = numbered(3, 4)

    def half(sink: pa.NativeFile, *_: object) -> None:
        sink.write(b"half")
        raise MemoryError

    references = [writer.put(first)]
    with patch.object(block_files, "write_stream", half), pytest.raises(MemoryError):
        writer.put(second)
    references.append(writer.put(second))
    writer.close()
    assert [read_block(store, reference) for reference in references] == [first, second]


def test_a_task_keeps_the_last_shared_blocks_alone(tmp_path: Path) -> None:
    store, most = Store.at(tmp_path), block_files.MAX_SHARED
    writer = BlockWriter(store, "7-0-a.arrow")
    references = [writer.put_together(numbered(1, 2))[1] for _ in range(most + 3)]
    writer.close()
    files = OpenFiles(store)
    assert {len(read_block(files, reference)) for reference in references} == {2}
    assert list(files.shared) == places(references)[3:]
