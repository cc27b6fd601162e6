"""Files of Arrow blocks beside the checkpoint: what the shards hold.

The state store only names places in them.

A file is written once, by one task, and never changed; it counts from the moment when it has its
name. Names come from the batch, the job's epoch, the task and the settings, so that a task that is
run again writes the same bytes under the same name, and a job that was shut out and goes on all the
same writes beside its heir, never over it. A name that is taken stays with the file that has it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from lb_stream.core.model.blocks import read_stream
from lb_stream.store import Store
from lb_stream.store.backend import Draft

Blocks = tuple[str, str, str]
"""References to a shard's brokers, its bundles' names, and all else about its bundles: names seldom
change."""
FOLDER = "lb-blocks"
_SAMPLES, _MEMORIES = "-samples.arrow", "-memories.arrow"
KEPT_BYTES = 64 << 20
"""Of blocks in far stores, kept in memory by each process that reads or writes them."""
PIECE_BYTES, PIECES = 256 << 10, 8
"""Of a file in a far store so much is read at once, and so many pieces are kept: what else lies
there is mostly wanted next."""
ALIGNMENT = 64
"""Blocks begin at multiples of this, so that their columns can be used where they lie in a mapped
file."""


@dataclass(slots=True)
class BlockWriter:
    """Writes the blocks of one task, one after another, into one file.

    Nothing is made before the first block.
    """

    checkpoint: Store
    name: str
    durable: bool = True  # it is needed after the batch, whatever happens to the machine
    _draft: Draft | None = field(default=None, init=False)
    _at: int = field(default=0, init=False)
    _written: dict[str, pa.Buffer] = field(
        default_factory=dict, init=False
    )  # what is to be kept, if the store is far

    def put(self, table: pa.Table) -> str:
        """Write a block. Returns its reference, good once the file is closed."""
        if self._draft is None:
            self._draft = self.checkpoint.begin(f"{FOLDER}/{self.name}", self.durable)
        out = self._draft.out
        out.write(b"\0" * (-self._at % ALIGNMENT))
        begin = self._at + -self._at % ALIGNMENT
        far = self.checkpoint.local is None
        into = pa.BufferOutputStream() if far else out
        with pa.ipc.new_stream(into, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        content = into.getvalue() if far else None
        if content is not None:
            out.write(content)
        self._at = out.tell()
        reference = f"{self.name}:{begin}:{self._at - begin}"
        if content is not None:
            self._written[reference] = content
        return reference

    def close(self) -> None:
        """Make the file safe and give it its name. Nothing happens if there is none."""
        if self._draft is not None:
            self._draft.close()
            self._draft = None
            for reference, content in self._written.items():
                _KEPT.keep(self.checkpoint, reference, content)
            self._written.clear()


@dataclass(slots=True)
class _Kept:
    """Blocks of far stores that this process has read or written last: the next tasks and batches
    want most of them again.

    A block never changes, so nothing has to be asked for. Of a store on this machine the system
    does the same.
    """

    blocks: OrderedDict[tuple[Store, str], pa.Buffer] = field(default_factory=OrderedDict)
    size: int = 0
    pieces: OrderedDict[tuple[Store, str, int], pa.Buffer] = field(
        default_factory=OrderedDict
    )  # by where in the file they begin

    def keep(self, checkpoint: Store, reference: str, block: pa.Buffer) -> None:
        """Keep a block in the place of those that were wanted longest ago."""
        if block.size > KEPT_BYTES // 4 or (checkpoint, reference) in self.blocks:
            return
        self.blocks[checkpoint, reference] = block
        self.size += block.size
        while self.size > KEPT_BYTES:
            self.size -= self.blocks.popitem(last=False)[1].size

    def read(self, checkpoint: Store, name: str, begin: int, length: int) -> pa.Buffer:
        """A part of a file, with what lies around it unless it is large itself.

        Less where the file ends.
        """
        first = begin - begin % PIECE_BYTES
        if begin + length > first + PIECE_BYTES:
            return checkpoint.get_range(name, begin, length)
        piece = self.pieces.pop((checkpoint, name, first), None)
        if piece is None:
            piece = checkpoint.get_range(name, first, PIECE_BYTES)
        self.pieces[checkpoint, name, first] = piece
        if len(self.pieces) > PIECES:
            self.pieces.popitem(last=False)
        at = min(begin - first, piece.size)
        return pa.py_buffer(
            piece.slice(at, min(length, piece.size - at)).to_pybytes()
        )  # a copy: a slice would keep the whole piece

    def find(self, checkpoint: Store, reference: str) -> pa.Buffer | None:
        """A block that is kept."""
        if (found := self.blocks.get((checkpoint, reference))) is not None:
            self.blocks.move_to_end((checkpoint, reference))
        return found


_KEPT = _Kept()


@dataclass(slots=True)
class OpenFiles:
    """A folder of which a task reads many blocks: a file of this machine is opened once, and mapped
    for as long as this lives."""

    checkpoint: Store
    _files: dict[str, pa.Buffer] | None = field(init=False)

    def __post_init__(self) -> None:
        self._files = None if self.checkpoint.local is None else {}

    def __str__(self) -> str:
        return str(self.checkpoint)

    def get_range(self, name: str, begin: int, length: int) -> pa.Buffer:
        """As Store has it."""
        if self._files is None:
            return self.checkpoint.get_range(name, begin, length)
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = self.checkpoint.get_range(
                name, 0, self.checkpoint.size(name) or 0
            )
        begin = min(begin, file.size)
        return file.slice(begin, min(length, file.size - begin))


def read_block(checkpoint: Store | OpenFiles, reference: str) -> pa.Table:
    """The block that a reference names; of a local file only those pages that are used are read.

    Raises FileNotFoundError, and ArrowInvalid when the file is damaged.
    """
    store = checkpoint.checkpoint if isinstance(checkpoint, OpenFiles) else checkpoint
    block = _KEPT.find(store, reference)
    if block is None:
        name, begin, length = reference.rsplit(":", 2)
        read = checkpoint.get_range if store.local is not None else partial(_KEPT.read, store)
        block = read(f"{FOLDER}/{name}", int(begin), int(length))
        if block.size < int(length):
            have = int(begin) + block.size
            raise pa.ArrowInvalid(
                f"{checkpoint}/{FOLDER}/{name} is cut off: it has {have} bytes, {reference} ends "
                "behind them"
            )
        if store.local is None:
            _KEPT.keep(store, reference, block)
    return read_stream(block)


def file_of(reference: str) -> str:
    """The file that a reference names."""
    return reference.rsplit(":", 2)[0]


def file_name(batch_id: int, epoch: int, rest: object) -> str:
    """The name of a file, which begins with the batch and the job's epoch."""
    return f"{batch_id:012d}-e{epoch}-{rest}"


def _epoch_of(name: str) -> int:
    """The epoch in the name of one of these files."""
    found = re.match(r"\d+-e(\d+)-", name)
    assert found is not None, name
    return int(found[1])


def sample_file(batch_id: int, epoch: int, partition: int) -> str:
    """The file of the samples that one partition brought in one batch; nobody needs it after the
    batch."""
    return file_name(batch_id, epoch, f"{partition}{_SAMPLES}")


def memory_file(batch_id: int, epoch: int) -> str:
    """The file of what clusters remember when a batch begins; nobody needs it after the batch."""
    return file_name(batch_id, epoch, f"all{_MEMORIES}")


def delete_batch_files(checkpoint: Store, batch_id: int, epoch: int) -> None:
    """Delete the samples and memories of all batches up to this one; not those of a job that has
    come after this one."""
    for name in _names(checkpoint):
        if (
            name.endswith((_SAMPLES, _MEMORIES))
            and int(name.partition("-")[0]) <= batch_id
            and _epoch_of(name) <= epoch
        ):
            checkpoint.delete(f"{FOLDER}/{name}")


def delete_unused_files(checkpoint: Store, used: set[str], oldest_batch: int) -> int:
    """Delete the files of batches before `oldest_batch` that are not among the used.

    Returns how many those were.

    What is newer stays: a task of the batch under way may have just written it.
    """
    removed = 0
    for name in _names(checkpoint):
        batch = name.partition("-")[0]
        if name not in used and batch.isdigit() and int(batch) < oldest_batch:
            checkpoint.delete(f"{FOLDER}/{name}")
            removed += 1
    return removed


def _names(checkpoint: Store) -> list[str]:
    return [entry.name for entry in checkpoint.list(FOLDER)]
