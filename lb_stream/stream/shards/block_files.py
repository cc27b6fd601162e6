"""Files of Arrow blocks beside the checkpoint: what the shards hold. The state store only names places in them.

A file is written once, by one task, and never changed; it counts from the moment when it has its name. Names come from the batch,
the job's epoch, the task and the settings, so that a task that is run again writes the same bytes under the same name, and a job that
was shut out and goes on all the same writes beside its heir, never over it. A name that is taken stays with the file that has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pyarrow as pa

from lb_stream.core.model.blocks import read_stream
from lb_stream.store import Store
from lb_stream.store.backend import Draft

Blocks = tuple[str, str, str]
"""References to a shard's brokers, its bundles' names, and all else about its bundles: names seldom change."""
FOLDER = "lb-blocks"
_SAMPLES, _MEMORIES = "-samples.arrow", "-memories.arrow"
ALIGNMENT = 64
"""Blocks begin at multiples of this, so that their columns can be used where they lie in a mapped file."""


@dataclass(slots=True)
class BlockWriter:
    """Writes the blocks of one task, one after another, into one file. Nothing is made before the first block."""

    checkpoint: Store
    name: str
    lasts: bool = True  # it is needed after the batch, whatever happens to the machine
    _draft: Draft | None = field(default=None, init=False)
    _at: int = field(default=0, init=False)

    def put(self, table: pa.Table) -> str:
        """Write a block. Returns its reference, good once the file is closed."""
        if self._draft is None:
            self._draft = self.checkpoint.begin(f"{FOLDER}/{self.name}", self.lasts)
        out = self._draft.out
        out.write(b"\0" * (-self._at % ALIGNMENT))
        begin = self._at + -self._at % ALIGNMENT
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        self._at = out.tell()
        return f"{self.name}:{begin}:{self._at - begin}"

    def close(self) -> None:
        """Make the file safe and give it its name. Nothing happens if there is none."""
        if self._draft is not None:
            self._draft.close()
            self._draft = None


@dataclass(slots=True)
class OpenFiles:
    """A folder of which a task reads many blocks: a file of this machine is opened once, and mapped for as long as this lives."""

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
            file = self._files[name] = self.checkpoint.get_range(name, 0, self.checkpoint.size(name) or 0)
        begin = min(begin, file.size)
        return file.slice(begin, min(length, file.size - begin))


def read_block(checkpoint: Store | OpenFiles, reference: str) -> pa.Table:
    """The block that a reference names; of a local file only those pages that are used are read.

    Raises FileNotFoundError, and ArrowInvalid when the file is damaged.
    """
    name, begin, length = reference.rsplit(":", 2)
    block = checkpoint.get_range(f"{FOLDER}/{name}", int(begin), int(length))
    if block.size < int(length):
        have = int(begin) + block.size
        raise pa.ArrowInvalid(f"{checkpoint}/{FOLDER}/{name} is cut off: it has {have} bytes, {reference} ends behind them")
    return read_stream(block)


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


def remove_spent(checkpoint: Store, batch_id: int, epoch: int) -> None:
    """Delete the samples and memories of all batches up to this one; not those of a job that has come after this one."""
    for name in _names(checkpoint):
        if name.endswith((_SAMPLES, _MEMORIES)) and int(name.partition("-")[0]) <= batch_id and _epoch_of(name) <= epoch:
            checkpoint.delete(f"{FOLDER}/{name}")


def remove_unused(checkpoint: Store, used: set[str], oldest_batch: int) -> int:
    """Delete the files of batches before `oldest_batch` that are not among the used. Returns how many those were.

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
