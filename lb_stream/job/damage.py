"""Finds faults of the machine after a failure: damaged or missing files, an unusable disk.

Errors from deep within Spark, Arrow or delta-rs rarely name the file, and never the remedy.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
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
"""Error number → the system's text (in Python's, Java's and Rust's errors), and a plain text."""

Fault = tuple[str, str]
"""A file, and what is wrong with it."""


class DamagedFile(FatalError):
    """A file of the checkpoint or of a table can't be read; the text names it and the way back."""


class DiskUnusable(FatalError):
    """Nothing can be written; the text says where and what to do."""


def find_machine_fault(settings: Settings, error: BaseException) -> FatalError | None:
    """Return the fault of the machine that explains an error; None if none is found."""
    stream = settings.stream
    texts = [str(one) for one in error_chain(error)]
    for number, (system_text, plain_text) in _DISK.items():
        if any(system_text in text for text in texts) or any(
            getattr(one, "errno", None) == number for one in error_chain(error)
        ):
            where = next(
                (found[1] for text in texts if (found := re.search(r"['\"](/[^'\"]+)['\"]", text))),
                "",
            )
            return DiskUnusable(
                f"{plain_text}{f' ({where})' if where else ''}: look at stream.checkpoint "
                f"({stream.checkpoint}), stream.tables "
                f"({stream.tables}) and the folder for temporary files, then start the job again: "
                "it goes on where it was. To make room: "
                f"`lbctl tables maintain`, shorter [upkeep] settings"
            )
    for path, trouble in find_damaged_checkpoint_files(checkpoint_of(stream)):
        return DamagedFile(
            f"{path} {trouble}: restore the checkpoint and the tables of one time from a backup, "
            "or start with a new checkpoint: --set "
            "stream.checkpoint=FOLDER. Decisions and their numbers go on then; averages come back "
            "with the next reports"
        )
    for spec in TABLES:
        for path, trouble in find_damaged_table_files(tables_of(stream), spec):
            return DamagedFile(f"{path} {trouble}: {_way_back(spec, tables_of(stream))}")
    return None


def _way_back(spec: TableSpec, root: Store) -> str:
    folder = root / spec.name
    if spec.name == ROUNDS.name:
        return (
            "it is of the log. Restore the tables and the checkpoint of one time from a backup; "
            "without one begin anew, with new folders "
            "and a new name: --set stream.tables=FOLDER --set stream.checkpoint=FOLDER --set "
            "stream.pipeline_id=NAME"
        )
    if spec.from_log:
        return f"move {folder} away and start the job again: it fills a new table from the log"
    return f"move {folder} away and start the job again: it fills a new table from now on"


def find_damaged_checkpoint_files(checkpoint: Store) -> Iterator[Fault]:
    """Yield the files of the checkpoint that a start reads and that are damaged."""
    last = last_batch(checkpoint)
    if last is None:
        return
    batches = (last - 1, last)
    shards = [
        f"{DIRECTORY}/{name}" for name in _names(checkpoint / DIRECTORY) if name.endswith(".json")
    ]
    for name in (
        "metadata",
        *(f"{kind}/{batch}" for batch in batches for kind in ("offsets", "commits")),
        *shards,
    ):
        try:
            content = checkpoint.get(name).to_pybytes()
        except FileNotFoundError:
            continue
        if (trouble := _cut_off(name, content)) is not None:
            yield str(checkpoint / name), trouble


def _names(folder: Store) -> list[str]:
    return sorted(entry.name for entry in folder.list())


def _cut_off(name: str, content: bytes) -> str | None:
    """Return what is wrong with a file of Spark's or ours; None if nothing is.

    Its lines are a version (in some files), then JSON. A file of offsets has two lines of JSON or
    more.
    """
    try:
        lines = content.decode().splitlines()
        kind = name.partition("/")[0]
        if kind in ("offsets", "commits"):
            lines = lines[1:] if lines and lines[0] == "v1" else []
        entries = [json.loads(line) for line in lines if line != "-"]
    except ValueError:
        return "is damaged"
    return "is cut off" if len(entries) < (2 if kind == "offsets" else 1) else None


def find_damaged_table_files(root: Store, spec: TableSpec) -> Iterator[Fault]:
    """Yield the files of a table that are missing or damaged."""
    folder = root / spec.name
    log = folder / "_delta_log"
    for name in _names(log):
        if (trouble := _trouble_in_log(log, name)) is not None:
            yield str(log / name), trouble
            return
    try:
        paths = _paths(root, spec)
    except DeltaError as error:
        yield str(log), f"can't be read ({str(error).splitlines()[0]})"
        return
    for path in paths:
        try:
            with folder.open(path) as source:
                pq.read_metadata(source)
        except FileNotFoundError:
            yield str(folder / path), "is gone"
        except (pa.ArrowInvalid, OSError):
            yield str(folder / path), "is damaged"


def _paths(root: Store, spec: TableSpec) -> list[str]:
    table = existing_table(root, spec)
    return (
        []
        if table is None
        else [unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()]
    )


def _trouble_in_log(log: Store, name: str) -> str | None:
    try:
        if name.endswith(".checkpoint.parquet"):
            with log.open(name) as source:
                pq.read_metadata(source)
        elif re.fullmatch(r"\d{20}\.json", name) and not [
            json.loads(line) for line in log.get(name).to_pybytes().splitlines()
        ]:
            return "is empty"
    except FileNotFoundError:
        return None  # the job or upkeep has just removed it
    except (ValueError, pa.ArrowInvalid, OSError):
        return "is damaged"
    return None
