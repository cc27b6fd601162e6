"""Finds faults of the machine after a failure: damaged or missing files, an unusable disk.

Errors of Spark, Arrow and delta-rs rarely name the file, and never the remedy.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from lb_stream.contracts.settings import Settings
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import ROUNDS, TABLES
from lb_stream.io.kafka.checkpoint import last_batch
from lb_stream.io.messages.errors import error_chain
from lb_stream.io.tables.delta import existing_table
from lb_stream.store import Store, checkpoint_of, tables_of
from lb_stream.stream.ports import FatalError
from lb_stream.stream.shards.directory import FOLDER as DIRECTORY

_DISK = {
    errno.ENOSPC: ("No space left on device", "the disk is full"),
    errno.EDQUOT: ("Disk quota exceeded", "the quota of the disk is used up"),
    errno.EROFS: ("Read-only file system", "the disk can't be written to: it is mounted read-only"),
    errno.EACCES: ("Permission denied", "a right to read or write is missing"),
}
"""Error number → the system's text in errors of Python, Java and Rust, and a plain text."""


class DamagedPath(NamedTuple):
    """A damaged or missing file. `text`: its fault, to follow the file's name."""

    path: str
    text: str


class DamagedFile(FatalError):
    """A file of the checkpoint or of a table can't be read. The message names the remedy."""


class DiskUnusable(FatalError):
    """The disk can't be written to. The message names the path and the remedy."""


def find_machine_fault(settings: Settings, error: BaseException) -> FatalError | None:
    """Return the fault of the machine that explains an error; None: none is found."""
    stream = settings.stream
    # The disk, by the numbers or texts of the errors.
    errors = list(error_chain(error))
    texts = [str(cause) for cause in errors]
    numbers = {getattr(cause, "errno", None) for cause in errors}
    for number, (system_text, plain_text) in _DISK.items():
        if number in numbers or any(system_text in text for text in texts):
            quoted = (re.search(r"['\"](/[^'\"]+)['\"]", text) for text in texts)
            path = next((f" ({found[1]})" for found in quoted if found), "")
            return DiskUnusable(
                f"{plain_text}{path}: look at stream.checkpoint "
                f"({stream.checkpoint}), stream.tables "
                f"({stream.tables}) and the folder for temporary files, then start the job again: "
                "it goes on where it was. To make room: "
                f"`lbctl tables maintain`, shorter [upkeep] settings"
            )
    # Files, of the checkpoint first: without it nothing else is read.
    for fault in find_damaged_checkpoint_files(checkpoint_of(stream)):
        return DamagedFile(
            f"{fault.path} {fault.text}: restore the checkpoint and the tables of one time from a "
            "backup, or start with a new checkpoint: --set stream.checkpoint=FOLDER. Decisions and "
            "their numbers go on then; averages come back with the next reports"
        )
    for spec in TABLES:
        for fault in find_damaged_table_files(tables_of(stream), spec):
            remedy = _explain_remedy(spec, tables_of(stream))
            return DamagedFile(f"{fault.path} {fault.text}: {remedy}")
    return None


def _explain_remedy(spec: TableSpec, root: Store) -> str:
    """Return the remedy for a damaged file of a table."""
    folder = root / spec.name
    if spec.name == ROUNDS.name:
        return (
            "it is a file of the log. Restore the tables and the checkpoint of one time from a "
            "backup. Without a backup begin anew, with new folders and a new name: --set "
            "stream.tables=FOLDER --set stream.checkpoint=FOLDER --set stream.pipeline_id=NAME"
        )
    if spec.from_log:
        return f"move {folder} away and start the job again: it fills a new table from the log"
    return f"move {folder} away and start the job again: it fills a new table from now on"


def find_damaged_checkpoint_files(checkpoint: Store) -> Iterator[DamagedPath]:
    """Yield the damaged files of the checkpoint, among those that a start reads."""
    last = last_batch(checkpoint)
    if last is None:
        return
    batches = (last - 1, last)
    plans = [f"{kind}/{batch}" for batch in batches for kind in ("offsets", "commits")]
    directories = [
        f"{DIRECTORY}/{name}"
        for name in _list_names(checkpoint / DIRECTORY)
        if name.endswith(".json")
    ]
    for name in ("metadata", *plans, *directories):
        try:
            content = checkpoint.get(name).to_pybytes()
        except FileNotFoundError:
            continue
        if (text := _find_damage(name, content)) is not None:
            yield DamagedPath(str(checkpoint / name), text)


def _list_names(folder: Store) -> list[str]:
    """Return the names of a folder's files, sorted."""
    return sorted(entry.name for entry in folder.list())


def _find_damage(name: str, content: bytes) -> str | None:
    """Return the fault of a file of the checkpoint; None: it is intact.

    Files of offsets and commits begin with a line "v1", the other lines are JSON. A file of offsets
    has at least two of these.
    """
    try:
        lines = content.decode().splitlines()
        kind = name.partition("/")[0]
        if kind in ("offsets", "commits"):
            lines = lines[1:] if lines and lines[0] == "v1" else []
        entries = [json.loads(line) for line in lines if line != "-"]
    except ValueError:
        return "is damaged"
    expected = 2 if kind == "offsets" else 1
    return "is cut off" if len(entries) < expected else None


def find_damaged_table_files(root: Store, spec: TableSpec) -> Iterator[DamagedPath]:
    """Yield the files of a table that are missing or damaged."""
    folder = root / spec.name
    log = folder / "_delta_log"
    for name in _list_names(log):
        if (text := _find_log_damage(log, name)) is not None:
            yield DamagedPath(str(log / name), text)
            return
    try:
        paths = _list_data_files(root, spec)
    except DeltaError as error:
        yield DamagedPath(str(log), f"can't be read ({str(error).splitlines()[0]})")
        return
    for path in paths:
        try:
            with folder.open(path) as source:
                pq.read_metadata(source)
        except FileNotFoundError:
            yield DamagedPath(str(folder / path), "is gone")
        except (pa.ArrowInvalid, OSError):
            yield DamagedPath(str(folder / path), "is damaged")


def _list_data_files(root: Store, spec: TableSpec) -> list[str]:
    """Return the paths of a table's files; none if the table doesn't exist."""
    table = existing_table(root, spec)
    if table is None:
        return []
    return [unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()]


def _find_log_damage(log: Store, name: str) -> str | None:
    """Return the fault of a file of a Delta log; None: it is intact."""
    try:
        if name.endswith(".checkpoint.parquet"):
            with log.open(name) as source:
                pq.read_metadata(source)
        elif re.fullmatch(r"\d{20}\.json", name) and not [
            json.loads(line) for line in log.get(name).to_pybytes().splitlines()
        ]:
            return "is empty"
    except FileNotFoundError:
        # The job or upkeep has just deleted it.
        return None
    except (ValueError, pa.ArrowInvalid, OSError):
        return "is damaged"
    return None
