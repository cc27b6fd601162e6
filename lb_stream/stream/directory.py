"""Which clusters there are and how many shards each has, batch by batch: written by the driver, read by the decoders.

One small JSON file for each batch in the checkpoint, so that a batch that is run again sees what it saw at first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyarrow import fs

KEPT = 40
"""Files of this many past batches stay: more than Spark keeps of its own (minBatchesToRetain)."""


def _folder(checkpoint: str) -> tuple[fs.FileSystem, str]:
    filesystem, path = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    return filesystem, f"{path.rstrip('/')}/lb-shards"


def write_directory(checkpoint: str, batch_id: int, shards: Mapping[str, int]) -> None:
    """Say what batch `batch_id` will see. A file that is there already stays as it is."""
    filesystem, folder = _folder(checkpoint)
    path = f"{folder}/{batch_id}.json"
    if filesystem.get_file_info(path).type != fs.FileType.NotFound:
        return
    filesystem.create_dir(folder, recursive=True)
    with filesystem.open_output_stream(f"{path}.new") as out:
        out.write(json.dumps(dict(shards), sort_keys=True).encode())
    filesystem.move(f"{path}.new", path)
    old = f"{folder}/{batch_id - KEPT}.json"
    if filesystem.get_file_info(old).type != fs.FileType.NotFound:
        filesystem.delete_file(old)


def read_directory(checkpoint: str, batch_id: int) -> dict[str, int]:
    """What batch `batch_id` sees. Raises FileNotFoundError when nobody has written it."""
    filesystem, folder = _folder(checkpoint)
    path = f"{folder}/{batch_id}.json"
    with filesystem.open_input_stream(path) as source:
        return {str(name): int(count) for name, count in json.loads(source.read()).items()}
