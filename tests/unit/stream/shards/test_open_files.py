"""Files of blocks that stay open while a task reads many of them."""

from pathlib import Path

import pyarrow as pa
import pytest

from lb_stream.store import Store
from lb_stream.stream.shards.block_files import FOLDER, BlockWriter, OpenFiles, read_block


def test_blocks_of_one_file_are_read_as_one_by_one_and_trouble_is_told_the_same_way(
    tmp_path: Path,
) -> None:
    store, tables = Store.at(tmp_path), [pa.table({"x": list(range(at, 100))}) for at in range(3)]
    writer = BlockWriter(store, "7-0-a.arrow")
    references = [writer.put(table) for table in tables]
    writer.close()
    files = OpenFiles(store)
    assert [read_block(files, reference) for reference in (*references, references[0])] == [
        *tables,
        tables[0],
    ]
    (tmp_path / FOLDER / "7-0-a.arrow").unlink()
    assert read_block(files, references[1]) == tables[1], "it is open"
    name, begin, length = references[2].rsplit(":", 2)
    for behind in (f"{name}:{begin}:{int(length) + 8}", f"{name}:{int(begin) + 9_999}:{length}"):
        with pytest.raises(pa.ArrowInvalid, match=r"7-0-a\.arrow is cut off"):
            read_block(files, behind)
    with pytest.raises(FileNotFoundError):
        read_block(OpenFiles(store), references[0])
