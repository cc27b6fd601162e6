"""Reports faults of the machine in one line: a file that is cut off or gone, a disk that is full or can't be written to.

What fails deep in Spark, Arrow or delta-rs rarely names the file, never the way back. So after a failure the files are looked at.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from lb_stream.contracts.settings import Settings
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import ROUNDS, TABLES
from lb_stream.io.kafka.checkpoint import last_batch
from lb_stream.io.messages.troubles import chain
from lb_stream.stream.ports import Stopped
from lb_stream.stream.shards.directory import FOLDER as DIRECTORY
from lb_stream.stream.task.folders import folder_at

_DISK = {
    errno.ENOSPC: ("No space left on device", "the disk is full"),
    errno.EDQUOT: ("Disk quota exceeded", "the quota of the disk is used up"),
    errno.EROFS: ("Read-only file system", "the disk can't be written to: it is mounted read-only"),
    errno.EACCES: ("Permission denied", "a right to read or write is missing"),
}
"""What the system says, in Python's, Java's and Rust's errors alike, and in plain words."""

Found = tuple[str, str]
"""A file, and what is the matter with it."""


class Damaged(Stopped):
    """A file of the checkpoint or of a table can't be read; the text names it and the way back."""


class DiskTrouble(Stopped):
    """Nothing can be written; the text says where and what to do."""


def fault_of_machine(settings: Settings, error: BaseException) -> Stopped | None:
    """What of the machine is behind an error; None when nothing of the kind is found."""
    stream = settings.stream
    texts = [str(one) for one in chain(error)]
    for number, (said, plainly) in _DISK.items():
        if any(said in text for text in texts) or any(getattr(one, "errno", None) == number for one in chain(error)):
            where = next((found[1] for text in texts if (found := re.search(r"['\"](/[^'\"]+)['\"]", text))), "")
            return DiskTrouble(
                f"{plainly}{f' ({where})' if where else ''}: look at stream.checkpoint ({stream.checkpoint}), stream.tables "
                f"({stream.tables}) and the folder for temporary files, then start the job again: it goes on where it was. To make room: "
                f"`lbctl tables maintain`, shorter [upkeep] settings"
            )
    for path, trouble in damaged_files_of_checkpoint(stream.checkpoint):
        return Damaged(
            f"{path} {trouble}: restore the checkpoint and the tables of one time from a backup, or start with a new checkpoint: --set "
            f"stream.checkpoint=FOLDER. Decisions and their numbers go on then; averages come back with the next reports"
        )
    for spec in TABLES:
        for path, trouble in damaged_files_of_table(stream.tables, spec):
            return Damaged(f"{path} {trouble}: {_way_back(spec, stream.tables)}")
    return None


def _way_back(spec: TableSpec, root: str) -> str:
    folder = f"{root.rstrip('/')}/{spec.name}"
    if spec.name == ROUNDS.name:
        return (
            "it is of the log. Restore the tables and the checkpoint of one time from a backup; without one begin anew, with new folders "
            "and a new name: --set stream.tables=FOLDER --set stream.checkpoint=FOLDER --set stream.pipeline_id=NAME"
        )
    if spec.from_log:
        return f"move {folder} away and start the job again: it fills a new table from the log"
    return f"move {folder} away and start the job again: it fills a new table from now on"


def damaged_files_of_checkpoint(checkpoint: str) -> Iterator[Found]:
    """Of the files that a start reads: which are there and can't be read."""
    filesystem, root = folder_at(checkpoint)
    last = last_batch(checkpoint)
    if last is None:
        return
    batches = (last - 1, last)
    shards = [f"{DIRECTORY}/{name}" for name in _names(filesystem, f"{root}/{DIRECTORY}") if name.endswith(".json")]
    for name in ("metadata", *(f"{kind}/{batch}" for batch in batches for kind in ("offsets", "commits")), *shards):
        path = f"{root}/{name}"
        if filesystem.get_file_info(path).type == fs.FileType.File:
            with filesystem.open_input_stream(path) as source:
                text = source.read()
            if (trouble := _cut_off(name, text)) is not None:
                yield path, trouble


def _names(filesystem: fs.FileSystem, folder: str) -> list[str]:
    return sorted(info.base_name for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)))


def _cut_off(name: str, content: bytes) -> str | None:
    """What is wrong with a file of lines: in some a version, then JSON; a file of offsets has at least two lines of JSON."""
    try:
        lines = content.decode().splitlines()
        kind = name.partition("/")[0]
        if kind in ("offsets", "commits"):
            lines = lines[1:] if lines and lines[0] == "v1" else []
        entries = [json.loads(line) for line in lines if line != "-"]
    except ValueError:
        return "is damaged"
    return "is cut off" if len(entries) < (2 if kind == "offsets" else 1) else None


def damaged_files_of_table(root: str, spec: TableSpec) -> Iterator[Found]:
    """Of the files that a table consists of: which are gone or can't be read."""
    folder = f"{root.rstrip('/')}/{spec.name}"
    filesystem, base = folder_at(folder if "://" in folder else str(Path(folder).absolute()))
    log = f"{base}/_delta_log"
    for name in _names(filesystem, log):
        if (trouble := _trouble_in_log(filesystem, f"{log}/{name}")) is not None:
            yield f"{log}/{name}", trouble
            return
    try:
        paths = _paths(folder, base)
    except DeltaError as error:
        yield log, f"can't be read ({str(error).splitlines()[0]})"
        return
    for info in filesystem.get_file_info(paths) if paths else ():
        if info.type != fs.FileType.File:
            yield info.path, "is gone"
            continue
        try:
            with filesystem.open_input_file(info.path) as source:
                pq.read_metadata(source)
        except (pa.ArrowInvalid, OSError):
            yield info.path, "is damaged"


def _paths(folder: str, base: str) -> list[str]:
    if not DeltaTable.is_deltatable(folder):
        return []
    return [f"{base}/{unquote(path)}" for path in pa.table(DeltaTable(folder).get_add_actions())["path"].to_pylist()]


def _trouble_in_log(filesystem: fs.FileSystem, path: str) -> str | None:
    try:
        if path.endswith(".checkpoint.parquet"):
            with filesystem.open_input_file(path) as source:
                pq.read_metadata(source)
        elif re.search(r"/\d{20}\.json$", path):
            with filesystem.open_input_stream(path) as source:
                lines = source.read().splitlines()
            if not [json.loads(line) for line in lines]:
                return "is empty"
    except FileNotFoundError:
        return None  # the job or upkeep has just removed it
    except (ValueError, pa.ArrowInvalid, OSError):
        return "is damaged"
    return None
