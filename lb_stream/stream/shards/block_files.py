"""Files of Arrow blocks with the shards' contents, in the checkpoint.

Spark's state has references to these blocks. Small shards share blocks, and have references to
their own rows. One task writes a file, which never changes after that. The file is complete once it
has its name, which consists of the batch, the job's epoch, the task and the settings. So a task
that runs again writes the same bytes under the same name, and a fenced job that still runs
overwrites no file of its successor. An existing file is not replaced.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

import pyarrow as pa

from lb_stream.core.model.blocks import SMALL_ROWS, read_stream, write_stream
from lb_stream.store import Store
from lb_stream.store.backend import Draft

BlockRefs = tuple[str, str, str]
"""References to a shard's blocks: brokers, bundle names, all other columns of the bundles.

Names have a block of their own because they seldom change. The last reference may name several
blocks (stream/shards/changed_rows.py), joined by SEPARATOR. A reference to a block is
`file:first byte:bytes`. Of a block that several shards share, `:first row:rows` follows: those are
the shard's.
"""
SEPARATOR = "+"
FOLDER = "lb-blocks"
_SAMPLES = "-samples.arrow"
_MEMORIES = "-memories.arrow"
CACHE_BYTES = 64 << 20
"""Size of the blocks of object stores that a process keeps in memory."""
PIECE_BYTES = 256 << 10
"""Bytes of a file in an object store that one request reads: nearby blocks are needed next."""
MAX_PIECES = 8
"""Number of pieces that a process keeps in memory."""
MAX_SHARED = 64
"""Number of shared blocks that a task keeps in memory: about 16 MB of an object store."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
ALIGNMENT = 64
"""Blocks begin at multiples of this, so that Arrow uses columns of a mapped file without a copy."""


@dataclass(slots=True)
class BlockWriter:
    """Writes the blocks of one task, one after another, into one file.

    The file is created with the first block. `durable`: the file is needed after the batch, so it
    must survive a crash of the machine.
    """

    checkpoint: Store
    name: str
    durable: bool = True
    _draft: Draft | None = field(default=None, init=False)
    # Blocks that go into the cache with `close`, if the store is an object store.
    _written: dict[str, pa.Buffer] = field(default_factory=dict, init=False)

    def put(self, table: pa.Table, compress: bool = False) -> str:
        """Write a block. Returns its reference, which is valid once the file is closed.

        `compress`: the block is smaller (LZ4), and readers of a local file must copy it.
        """
        if self._draft is None:
            self._draft = self.checkpoint.begin(f"{FOLDER}/{self.name}", self.durable)
        out = self._draft.out
        # A block that could not be written may have left some bytes.
        begin = out.tell()
        padding = -begin % ALIGNMENT
        out.write(b"\0" * padding)
        begin += padding
        is_remote = self.checkpoint.local is None
        sink = pa.BufferOutputStream() if is_remote else out
        write_stream(sink, table, _COMPRESSED if compress else None)
        content = sink.getvalue() if is_remote else None
        if content is not None:
            out.write(content)
        reference = f"{self.name}:{begin}:{out.tell() - begin}"
        if content is not None:
            self._written[reference] = content
        return reference

    def put_together(self, tables: Sequence[pa.Table]) -> list[str]:
        """Write tables of one schema as few blocks; return the reference of each.

        To write a block, and to read one, takes time however few rows it has. So tables share
        blocks of up to SMALL_ROWS rows; in an object store of a quarter of it, about what one
        request reads of a file in any case.
        """
        references: list[str] = []
        is_local = self.checkpoint.local is not None
        for sharing in _fill_blocks(tables, SMALL_ROWS if is_local else SMALL_ROWS // 4):
            if len(sharing) == 1:
                references.append(self.put(sharing[0]))
                continue
            block = self.put(pa.concat_tables(sharing))
            ends = accumulate(map(len, sharing))
            references += [
                f"{block}:{end - len(table)}:{len(table)}"
                for table, end in zip(sharing, ends, strict=True)
            ]
        return references

    def close(self) -> None:
        """Make the file durable and give it its name, if a block was written."""
        if self._draft is not None:
            self._draft.close()
            self._draft = None
            for reference, content in self._written.items():
                _CACHE.keep(self.checkpoint, reference, content)
            self._written.clear()


def _fill_blocks(tables: Iterable[pa.Table], rows: int) -> Iterator[list[pa.Table]]:
    """Yield the tables of each block, which has at most so many rows; a larger table is alone."""
    sharing: list[pa.Table] = []
    size = 0
    for table in tables:
        if sharing and size + len(table) > rows:
            yield sharing
            sharing, size = [], 0
        sharing.append(table)
        size += len(table)
    if sharing:
        yield sharing


@dataclass(slots=True)
class _BlockCache:
    """The blocks of object stores that this process has read or written last.

    The next tasks and batches need most of them again. No entry is ever stale, as blocks never
    change. Local files are not cached here, as the operating system's page cache has them.
    """

    blocks: OrderedDict[tuple[Store, str], pa.Buffer] = field(default_factory=OrderedDict)
    size: int = 0
    # By store, file and the piece's first byte.
    pieces: OrderedDict[tuple[Store, str, int], pa.Buffer] = field(default_factory=OrderedDict)

    def keep(self, checkpoint: Store, reference: str, block: pa.Buffer) -> None:
        """Keep a block, and drop those that were used longest ago."""
        if block.size > CACHE_BYTES // 4 or (checkpoint, reference) in self.blocks:
            return
        self.blocks[checkpoint, reference] = block
        self.size += block.size
        while self.size > CACHE_BYTES:
            self.size -= self.blocks.popitem(last=False)[1].size

    def read(self, checkpoint: Store, name: str, begin: int, length: int) -> pa.Buffer:
        """Return a part of a file: fewer bytes than `length` where the file ends.

        A small part is read with the piece around it.
        """
        first = begin - begin % PIECE_BYTES
        if begin + length > first + PIECE_BYTES:
            return checkpoint.get_range(name, begin, length)
        piece = self.pieces.pop((checkpoint, name, first), None)
        if piece is None:
            piece = checkpoint.get_range(name, first, PIECE_BYTES)
        self.pieces[checkpoint, name, first] = piece
        if len(self.pieces) > MAX_PIECES:
            self.pieces.popitem(last=False)
        at = min(begin - first, piece.size)
        # A copy, as a slice would keep the whole piece in memory.
        return pa.py_buffer(piece.slice(at, min(length, piece.size - at)).to_pybytes())

    def find(self, checkpoint: Store, reference: str) -> pa.Buffer | None:
        """Return a block if it is in the cache."""
        if (found := self.blocks.get((checkpoint, reference))) is not None:
            self.blocks.move_to_end((checkpoint, reference))
        return found


_CACHE = _BlockCache()


@dataclass(slots=True)
class OpenFiles:
    """A checkpoint from which one task reads many blocks.

    A local file is opened once, and stays mapped while this object exists. `shared`: the last
    blocks that several shards share, by their references.
    """

    checkpoint: Store
    shared: dict[str, pa.Table] = field(default_factory=dict, init=False)
    _files: dict[str, pa.Buffer] | None = field(init=False)

    def __post_init__(self) -> None:
        self._files = None if self.checkpoint.local is None else {}

    def __str__(self) -> str:
        return str(self.checkpoint)

    def get_range(self, name: str, begin: int, length: int) -> pa.Buffer:
        """Return a part of a file, as `Store.get_range` does."""
        if self._files is None:
            return self.checkpoint.get_range(name, begin, length)
        file = self._files.get(name)
        if file is None:
            size = self.checkpoint.size(name) or 0
            file = self._files[name] = self.checkpoint.get_range(name, 0, size)
        begin = min(begin, file.size)
        return file.slice(begin, min(length, file.size - begin))


def read_block(checkpoint: Store | OpenFiles, reference: str) -> pa.Table:
    """Return the block that a reference names, or its rows of a block that several shards share.

    A local file is mapped, and only the used pages are read. Raises FileNotFoundError, and
    ArrowInvalid if the file is damaged.
    """
    name, begin, length, *rows = reference.split(":")
    if not rows:
        return _read_whole(checkpoint, reference)
    whole = f"{name}:{begin}:{length}"
    first, count = map(int, rows)
    shared = checkpoint.shared if isinstance(checkpoint, OpenFiles) else dict[str, pa.Table]()
    block = shared.get(whole)
    if block is None:
        block = shared[whole] = _read_whole(checkpoint, whole)
        if len(shared) > MAX_SHARED:
            del shared[next(iter(shared))]
    if len(block) < first + count:
        raise pa.ArrowInvalid(
            f"{checkpoint}/{FOLDER}/{name} is damaged: a block of {len(block)} rows lacks some of "
            f"{reference}"
        )
    return block.slice(first, count)


def _read_whole(checkpoint: Store | OpenFiles, reference: str) -> pa.Table:
    """Return a whole block."""
    store = checkpoint.checkpoint if isinstance(checkpoint, OpenFiles) else checkpoint
    block = _CACHE.find(store, reference)
    if block is None:
        name, begin, length = reference.split(":")
        read = checkpoint.get_range if store.local is not None else partial(_CACHE.read, store)
        block = read(f"{FOLDER}/{name}", int(begin), int(length))
        if block.size < int(length):
            size = int(begin) + block.size
            raise pa.ArrowInvalid(
                f"{checkpoint}/{FOLDER}/{name} is cut off: it has {size} bytes, and {reference} "
                "ends after them"
            )
        if store.local is None:
            _CACHE.keep(store, reference, block)
    return read_stream(block)


def split_reference(reference: str) -> list[str]:
    """Return the references to single blocks that a shard's reference consists of."""
    return reference.split(SEPARATOR)


def join_references(*references: str) -> str:
    """Return one reference that names several blocks."""
    return SEPARATOR.join(references)


def files_of(reference: str) -> set[str]:
    """Return the names of the files that contain the blocks of a reference."""
    return {block.partition(":")[0] for block in split_reference(reference)}


def file_name(batch_id: int, epoch: int, rest: object) -> str:
    """Return a file's name, which begins with the batch and the job's epoch."""
    return f"{batch_id:012d}-e{epoch}-{rest}"


def _epoch_of(name: str) -> int:
    """Return the epoch in a file's name."""
    found = re.match(r"\d+-e(\d+)-", name)
    assert found is not None, name
    return int(found[1])


def sample_file(batch_id: int, epoch: int, partition: int) -> str:
    """Return the name of the file with a decoding task's samples, which only its batch needs."""
    return file_name(batch_id, epoch, f"{partition}{_SAMPLES}")


def memory_file(batch_id: int, epoch: int) -> str:
    """Return the name of the file with a batch's memories, which only this batch needs."""
    return file_name(batch_id, epoch, f"all{_MEMORIES}")


def delete_batch_files(checkpoint: Store, batch_id: int, epoch: int) -> None:
    """Delete the samples and memories of all batches up to this one.

    Files of a job with a higher epoch stay.
    """
    for name in _list_names(checkpoint):
        if (
            name.endswith((_SAMPLES, _MEMORIES))
            and int(name.partition("-")[0]) <= batch_id
            and _epoch_of(name) <= epoch
        ):
            checkpoint.delete(f"{FOLDER}/{name}")


def delete_unused_files(checkpoint: Store, used: set[str], oldest_batch: int) -> int:
    """Delete the files of batches before `oldest_batch` that are not in `used`.

    Returns the number of deleted files. Newer files stay, as a task of the running batch may have
    written them.
    """
    deleted = 0
    for name in _list_names(checkpoint):
        batch = name.partition("-")[0]
        if name not in used and batch.isdigit() and int(batch) < oldest_batch:
            checkpoint.delete(f"{FOLDER}/{name}")
            deleted += 1
    return deleted


def _list_names(checkpoint: Store) -> list[str]:
    """Return the names of all block files."""
    return [entry.name for entry in checkpoint.list(FOLDER)]
