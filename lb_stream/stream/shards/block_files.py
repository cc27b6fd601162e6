"""Files of Arrow blocks beside the checkpoint: what the shards hold. The state store only names places in them.

A file is written once, by one task, and never changed; it counts from the moment when it has its name. Names come from the batch,
the job's epoch, the task and the settings, so that a batch that is run again writes the same bytes under the same name, and a job that
was shut out and goes on all the same writes beside its heir, never over it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import fs

from lb_stream.stream.task.folders import folder_at, to_disk

Blocks = tuple[str, str, str]
"""References to a shard's brokers, its bundles' names, and all else about its bundles: names seldom change."""
FOLDER = "lb-blocks"
_SAMPLES, _MEMORIES = "-samples.arrow", "-memories.arrow"
ALIGNMENT = 64
"""Blocks begin at multiples of this, so that their columns can be used where they lie in a mapped file."""


def _filesystem(checkpoint: str) -> tuple[fs.FileSystem, str]:
    filesystem, path = folder_at(checkpoint)
    return filesystem, f"{path}/{FOLDER}"


def _is_local(filesystem: fs.FileSystem) -> bool:
    return isinstance(filesystem, fs.LocalFileSystem)


@dataclass(slots=True)
class BlockWriter:
    """Writes the blocks of one task, one after another, into one file. Nothing is made before the first block."""

    checkpoint: str
    name: str
    attempt: int = 0  # of the task: two attempts don't write into one file
    lasts: bool = True  # it is needed after the batch, whatever happens to the machine
    _out: Any = None
    _at: int = field(default=0, init=False)

    def put(self, table: pa.Table) -> str:
        """Write a block. Returns its reference, good once the file is closed."""
        if self._out is None:
            filesystem, folder = _filesystem(self.checkpoint)
            filesystem.create_dir(folder, recursive=True)
            self._out = filesystem.open_output_stream(self._path(folder), compression=None, buffer_size=1 << 20)
        self._out.write(b"\0" * (-self._at % ALIGNMENT))
        begin = self._at + -self._at % ALIGNMENT
        with pa.ipc.new_stream(self._out, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        self._at = self._out.tell()
        return f"{self.name}:{begin}:{self._at - begin}"

    def close(self) -> None:
        """Make the file safe on disk and give it its name. Nothing happens if there is none."""
        if self._out is None:
            return
        self._out.close()
        self._out = None
        filesystem, folder = _filesystem(self.checkpoint)
        synced = self.lasts and _is_local(filesystem)
        if synced:
            to_disk(self._path(folder))
        filesystem.move(self._path(folder), f"{folder}/{self.name}")
        if synced:
            to_disk(folder)

    def _path(self, folder: str) -> str:
        return f"{folder}/{self.name}.{self.attempt}.new"


def read_block(checkpoint: str, reference: str) -> pa.Table:
    """The block that a reference names; of a local file only those pages that are used are read.

    Raises FileNotFoundError, and ArrowInvalid when the file is damaged.
    """
    name, begin, length = reference.rsplit(":", 2)
    filesystem, folder = _filesystem(checkpoint)
    path = f"{folder}/{name}"
    with pa.memory_map(path) if _is_local(filesystem) else filesystem.open_input_file(path) as source:
        if source.size() < int(begin) + int(length):
            raise pa.ArrowInvalid(f"{path} is cut off: it has {source.size()} bytes, {reference} ends behind them")
        source.seek(int(begin))
        block = source.read_buffer(int(length))
    with pa.ipc.open_stream(block) as reader:
        return reader.read_all()


def file_of(reference: str) -> str:
    """The file that a reference names."""
    return reference.rsplit(":", 2)[0]


def file_name(batch_id: int, epoch: int, rest: object) -> str:
    """Begins with the batch and the job's epoch; files that were written before epochs had a place in names have none."""
    return f"{batch_id:012d}-e{epoch}-{rest}"


def _epoch_of(name: str) -> int:
    """0 for one of the names without."""
    found = re.match(r"\d+-e(\d+)-", name)
    return int(found[1]) if found else 0


def sample_file(batch_id: int, epoch: int, partition: int) -> str:
    """The file of the samples that one partition brought in one batch; nobody needs it after the batch."""
    return file_name(batch_id, epoch, f"{partition}{_SAMPLES}")


def memory_file(batch_id: int, epoch: int) -> str:
    """The file of what clusters remember when a batch begins; nobody needs it after the batch."""
    return file_name(batch_id, epoch, f"all{_MEMORIES}")


def remove_spent(checkpoint: str, batch_id: int, epoch: int) -> None:
    """Delete the samples and memories of all batches up to this one; not those of a job that has come after this one."""
    filesystem, folder = _filesystem(checkpoint)
    for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        name = info.base_name
        if name.endswith((_SAMPLES, _MEMORIES)) and int(name.partition("-")[0]) <= batch_id and _epoch_of(name) <= epoch:
            filesystem.delete_file(info.path)


def remove_unused(checkpoint: str, used: set[str], oldest_batch: int) -> int:
    """Delete the files of batches before `oldest_batch` that are not among the used. Returns how many those were.

    What is newer stays: a task of the batch under way may have just written it.
    """
    filesystem, folder = _filesystem(checkpoint)
    removed = 0
    for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        batch = info.base_name.partition("-")[0]
        if info.base_name not in used and batch.isdigit() and int(batch) < oldest_batch:
            filesystem.delete_file(info.path)
            removed += 1
    return removed
