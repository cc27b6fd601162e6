"""Which clusters there are and how each is sliced, batch by batch: written by the driver, read by the decoders.

One small JSON file for each batch in the checkpoint, so that a batch that is run again sees what it saw at first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyarrow import fs

from lb_stream.contracts.base import canonical_json
from lb_stream.stream.block_files import file_of

FOLDER = "lb-shards"


@dataclass(frozen=True)
class Slices:
    """One cluster's shards. `blocks`: references to what each held after the batch before (brokers, names, values), in their order."""

    shards: int = 1
    blocks: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def before(self) -> str | None:
        """JSON of the blocks, if there were more or fewer of them than there are shards now: each must take its part of them."""
        return canonical_json(self.blocks) if self.blocks and len(self.blocks) != self.shards else None

    @property
    def files(self) -> set[str]:
        """The block files that are named."""
        return {file_of(reference) for block in self.blocks for reference in block}


NEW = Slices()
"""A cluster that nobody has heard of before."""


def _folder(checkpoint: str) -> tuple[fs.FileSystem, str]:
    filesystem, path = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    return filesystem, f"{path.rstrip('/')}/{FOLDER}"


def write_directory(checkpoint: str, batch_id: int, clusters: Mapping[str, Slices]) -> None:
    """Say what batch `batch_id` will see. A file that is there already stays as it is."""
    filesystem, folder = _folder(checkpoint)
    path = f"{folder}/{batch_id}.json"
    if filesystem.get_file_info(path).type != fs.FileType.NotFound:
        return
    filesystem.create_dir(folder, recursive=True)
    content = canonical_json({name: {"shards": slices.shards, "blocks": slices.blocks} for name, slices in clusters.items()})
    with filesystem.open_output_stream(f"{path}.new") as out:
        out.write(content.encode())
    filesystem.move(f"{path}.new", path)


def read_directory(checkpoint: str, batch_id: int) -> dict[str, Slices]:
    """What batch `batch_id` sees. Raises FileNotFoundError when nobody has written it."""
    filesystem, folder = _folder(checkpoint)
    with filesystem.open_input_stream(f"{folder}/{batch_id}.json") as source:
        clusters = json.loads(source.read())
    return {name: Slices(given["shards"], tuple(map(tuple, given["blocks"]))) for name, given in clusters.items()}


def forget_directories(checkpoint: str, oldest_batch: int) -> set[str]:
    """Delete the files of batches before `oldest_batch`. Returns the block files that the others name."""
    filesystem, folder = _folder(checkpoint)
    used: set[str] = set()
    for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        batch = info.base_name.partition(".")[0]
        if not batch.isdigit() or not info.base_name.endswith(".json"):
            continue
        if int(batch) < oldest_batch:
            filesystem.delete_file(info.path)
        else:
            used |= _files(read_directory(checkpoint, int(batch)).values())
    return used


def _files(clusters: Iterable[Slices]) -> set[str]:
    return {name for slices in clusters for name in slices.files}
