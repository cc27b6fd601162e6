"""Blocks in an object store: how often it is asked for them."""

from collections import Counter

import pyarrow as pa
import pytest

from lb_stream.store import Store
from lb_stream.stream.shards import block_files
from lb_stream.stream.shards.block_files import (
    CACHE_BYTES,
    FOLDER,
    MAX_PIECES,
    PIECE_BYTES,
    BlockWriter,
    read_block,
)
from tests.support.s3_server import s3_server
from tests.support.wordings import check_wording

SMALL = [pa.table({"x": list(range(at, 100))}) for at in range(40)]
LARGE = pa.table({"x": list(range(PIECE_BYTES // 4))})


def forget(monkeypatch: pytest.MonkeyPatch) -> block_files._BlockCache:
    """As in a process that has neither read nor written anything yet."""
    kept = block_files._BlockCache()
    monkeypatch.setattr(block_files, "_CACHE", kept)
    return kept


def test_what_lies_near_is_read_at_once_in_any_order_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_server() as server:
        store = Store.at("s3://lb/checkpoint", server.options)
        writer = BlockWriter(store, "7-0-a.arrow")
        tables = [*SMALL, LARGE, *SMALL]
        references = [writer.put(table) for table in tables]
        writer.close()
        server.requests()
        forget(monkeypatch)
        for at in [*range(len(tables) - 1, -1, -1), *range(len(tables))]:
            assert read_block(store, references[at]) == tables[at]
        pieces = (int(references[-1].rsplit(":", 2)[1]) // PIECE_BYTES) + 1
        asked = Counter(request.kind for request in server.requests() if FOLDER in request.key)
        assert list(asked) == ["GET"] and asked["GET"] <= pieces + 1, (
            "each piece, and the large block by itself"
        )


def test_a_file_that_is_cut_off_is_told_so_and_one_that_is_lost_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_server() as server:
        store = Store.at("s3://lb/checkpoint", server.options)
        writer = BlockWriter(store, "7-0-a.arrow")
        name, begin, length = writer.put(SMALL[0]).rsplit(":", 2)
        writer.close()
        forget(monkeypatch)
        for behind in (
            f"{name}:{begin}:{int(length) + 8}",
            f"{name}:{int(begin) + 9_999}:{length}",
        ):
            with pytest.raises(pa.ArrowInvalid) as error:
                read_block(store, behind)
            check_wording(error.value)
        with pytest.raises(FileNotFoundError):
            read_block(store, f"7-0-b.arrow:{begin}:{length}")


def test_pieces_are_few_and_blocks_that_are_kept_do_not_hold_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_server() as server:
        store = Store.at("s3://lb/checkpoint", server.options)
        references = []
        for number in range(MAX_PIECES + 4):
            writer = BlockWriter(store, f"7-{number}-a.arrow")
            references.append(writer.put(SMALL[0]))
            writer.close()
        kept = forget(monkeypatch)
        for reference in references:
            read_block(store, reference)
        assert len(kept.pieces) == MAX_PIECES
        assert (
            kept.size
            == sum(int(reference.rsplit(":", 1)[1]) for reference in references)
            < CACHE_BYTES
        )
