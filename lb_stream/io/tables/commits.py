"""Commits to Delta tables, each of them one file that is written if it doesn't exist.

delta-rs reads a table's log before and after each of its commits: nine requests to an object store,
and one more for each commit since the last checkpoint. The commits of this module add files or
replace whole ones, so a writer needs to know only what it has committed itself. If another writer
has committed meanwhile, the file of the next version exists: only then is the table read again.
docs/decisions/0022-commits-of-our-own.md says why that is safe.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lb_stream.store import Store

logger = logging.getLogger(__name__)

Mark = tuple[str, int]
"""A transaction as Delta's log names it: an application's id and the transaction's number."""
Marks = Sequence[Mark]

CHECKPOINT_EVERY = 20
"""Versions between two checkpoints: a reader opens as many files at most."""
KEPT_S = 60.0
"""How long a version that a checkpoint replaces stays in `_delta_log` at least.

The same as io.tables.delta.HISTORY.
"""
SURE_S = KEPT_S / 2
"""How long after a look or a commit a version that is absent has never been written.

No writer has had the time to write it and to remove it again.
"""
REARRANGE = "OPTIMIZE"
"""Delta's name for a commit after which the rows are the same, in other files."""
COMMIT_ATTEMPTS = 10
COMMIT_TROUBLES = (CommitFailedError, DeltaError, OSError)
"""What a commit may raise when others write to the table.

It may also be raised after the commit was made: an answer may be lost.
"""

_Action = dict[str, dict[str, object]]
"""A line of a commit's file: the kind of the action and its fields."""


class LiveFile(NamedTuple):
    """A file of a table: its size in bytes, and its partition if the table has partitions."""

    size: int
    partition: str | None


class LiveFiles(NamedTuple):
    """Files of one version of a table by their paths: all of them, or some."""

    version: int
    files: Mapping[str, LiveFile]

    def select(self, wanted: Callable[[str, LiveFile], bool]) -> LiveFiles:
        """Return the files for which `wanted` is true."""
        selected = {path: file for path, file in self.files.items() if wanted(path, file)}
        return LiveFiles(self.version, selected)


class Table(DeltaTable):
    """A Delta table, its store, and what is known of its newest version without another look.

    DeltaTable's own methods see the commits of this class after `catch_up`.
    """

    def __init__(self, store: Store) -> None:
        self._looked = time.monotonic()
        super().__init__(store.uri, storage_options=store.delta_options)
        self.store = store
        self._last = self.version()
        self._checkpoints = self._last // CHECKPOINT_EVERY
        self._marks: dict[str, int | None] = {}
        self._live: LiveFiles | None = None

    @property
    def newest(self) -> int:
        """Return the newest version that is known here."""
        return max(self._last, self.version())

    @property
    def has_grown(self) -> bool:
        """Return whether others have committed since the last look; one request."""
        return not self._is_sure or self.store.stat(_version_file(self.newest + 1)) is not None

    @property
    def _is_sure(self) -> bool:
        return time.monotonic() - self._looked <= SURE_S

    def refresh(self) -> None:
        """Read what any writer has committed since the last look."""
        began = time.monotonic()
        before = self._last  # commits of DeltaTable's own methods count as new, too
        self.update_incremental()
        self._last, self._looked = self.version(), began
        if self._last != before:
            self._marks.clear()

    def refresh_if_stale(self) -> None:
        """Refresh if the last look was too long ago: versions may have come and gone since."""
        if not self._is_sure:
            self.refresh()

    def catch_up(self) -> None:
        """Make DeltaTable's own methods see the commits of this class."""
        if self.version() < self._last:
            self.refresh()

    def mark(self, app: str) -> int | None:
        """Return the number of the last transaction of `app` that is known here.

        None before the first; 0 is a number.
        """
        if app not in self._marks:
            self.catch_up()
            self._marks[app] = self.transaction_version(app)
        return self._marks[app]

    def live(self) -> LiveFiles:
        """Return all files of the newest version that is known here."""
        self.refresh_if_stale()
        if self._live is None or self._live.version != self.newest:
            self.catch_up()
            columns = pa.table(self.get_add_actions(flatten=True)).to_pydict()
            paths = columns["path"]
            partitions = next(
                (values for name, values in columns.items() if name.startswith("partition.")),
                [None] * len(paths),
            )
            files = map(LiveFile, columns["size_bytes"], partitions)
            self._live = LiveFiles(self.version(), dict(zip(paths, files, strict=True)))
        return self._live

    def commit(
        self,
        added: Sequence[AddAction],
        marks: Marks = (),
        partition_by: str | None = None,
        replaced: LiveFiles | None = None,
        durable: bool = False,
        rearranges: bool = False,
    ) -> None:
        """Commit the next version: with the files `added`, without the files `replaced`.

        The first of `marks` is the commit's own transaction. `partition_by`: the column that the
        table is partitioned by. `durable`: the commit is on disk when this returns. `rearranges`:
        the rows of `added` are those of `replaced`. If others have committed meanwhile, the commit
        is tried again.

        Raises CommitFailedError when another commit has that transaction or a later one, and when
        others never pause. Raises it also when files are replaced and others have committed: a
        commit that only rearranges rows is refused only if its files are gone.
        """
        # What the version says is the same in each attempt.
        content = _encode(added, marks, partition_by, replaced, rearranges)

        # Write the version, behind those of others.
        for _ in range(COMMIT_ATTEMPTS):
            self.refresh_if_stale()
            self._require_valid(() if rearranges else marks[:1], replaced, rearranges)
            if self._write_version(content, durable):
                break
            self.refresh()
        else:
            raise CommitFailedError(f"others commit to {self.store} all the time")

        # Keep in mind what the table holds now. A writer that only adds needs no list of its files.
        self._marks.update(marks)
        if replaced is None:
            self._live = None
        elif self._live is not None and self._live.version == self._last - 1:
            self._live = _files_after(self._live, self._last, added, replaced)

        # Compaction leaves checkpoints to the table's own writer: upkeep compacts, too.
        is_due = self._last // CHECKPOINT_EVERY > self._checkpoints
        if is_due and not rearranges:
            self._write_checkpoint()

    def _require_valid(self, own: Marks, replaced: LiveFiles | None, rearranges: bool) -> None:
        """Raise CommitFailedError when a commit mustn't follow what is known of the table."""
        for app, number in own:
            if (known := self.mark(app)) is not None and known >= number:
                raise CommitFailedError(f"{self.store} has transaction {known} of {app} already")
        if replaced is None or replaced.version == self.newest:
            return
        if not rearranges or not replaced.files.keys() <= self.live().files.keys():
            raise CommitFailedError(
                f"another writer has made version {replaced.version + 1} of {self.store}"
            )

    def _write_version(self, content: bytes, durable: bool) -> bool:
        """Write the next version. Returns False if another writer has made it."""
        began, version = time.monotonic(), self.newest + 1
        name = _version_file(version)
        is_new = self.store.put_if_absent(name, content, durable=durable)
        if not is_new and not self._holds(name, content):
            return False
        if time.monotonic() - self._looked > KEPT_S:
            raise CommitFailedError(
                f"version {version} of {self.store} took so long to write that readers may ignore "
                "it"
            )
        self._last, self._looked = version, began
        return True

    def _holds(self, name: str, content: bytes) -> bool:
        """Return whether a file has this content.

        A store repeats a write whose answer was lost, and refuses the repetition.
        """
        try:
            return bytes(self.store.get(name)) == content
        except FileNotFoundError:
            return False

    def _write_checkpoint(self) -> None:
        """Write a checkpoint, and remove the versions that readers no longer need.

        A failure is only logged: the commit itself has been made.
        """
        self._checkpoints = self._last // CHECKPOINT_EVERY
        try:
            self.refresh()
            self.create_checkpoint()
            self.cleanup_metadata()
        except COMMIT_TROUBLES as error:
            logger.warning(
                "%s has no checkpoint at version %d; the next one is due %d versions later: %s",
                self.store,
                self._last,
                CHECKPOINT_EVERY,
                error,
            )


def _version_file(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _files_after(
    live: LiveFiles, version: int, added: Sequence[AddAction], replaced: LiveFiles
) -> LiveFiles:
    """Return the files of the version that a commit has made."""
    kept = {path: file for path, file in live.files.items() if path not in replaced.files}
    new = {
        action.path: LiveFile(action.size, next(iter(action.partition_values.values()), None))
        for action in added
    }
    return LiveFiles(version, kept | new)


def _encode(
    added: Sequence[AddAction],
    marks: Marks,
    partition_by: str | None,
    replaced: LiveFiles | None,
    rearranges: bool,
) -> bytes:
    """Return the content of a commit's file: an action in JSON on each line."""
    actions = [
        _commit_info(partition_by, bool(replaced and replaced.files), rearranges),
        *map(_txn, marks),
        *map(_add, added),
        *_removals(replaced, partition_by, changes=not rearranges),
    ]
    return "\n".join(map(json.dumps, actions)).encode()


def _commit_info(partition_by: str | None, replaces: bool, rearranges: bool) -> _Action:
    info: dict[str, object] = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": REARRANGE if rearranges else "WRITE",
        "engineInfo": "lb_stream",
    }
    if rearranges:
        return {"commitInfo": info | {"operationParameters": {}}}
    columns = json.dumps([partition_by] if partition_by else [])
    parameters = {"mode": "Overwrite" if replaces else "Append", "partitionBy": columns}
    return {"commitInfo": info | {"operationParameters": parameters}}


def _txn(mark: Mark) -> _Action:
    return {"txn": {"appId": mark[0], "version": mark[1]}}


def _add(file: AddAction) -> _Action:
    """Return the action that adds a file.

    Its path needs no escape: names of our files have letters, digits and `-._=/` only.
    """
    return {
        "add": {
            "path": file.path,
            "partitionValues": file.partition_values,
            "size": file.size,
            "modificationTime": file.modification_time,
            "dataChange": file.data_change,
            "stats": file.stats,
        }
    }


def _removals(
    replaced: LiveFiles | None, partition_by: str | None, changes: bool
) -> Iterator[_Action]:
    """Yield the actions that remove files. `changes`: the table's rows are other ones then."""
    if replaced is None:
        return
    now_ms = time.time_ns() // 1_000_000
    for path, file in replaced.files.items():
        yield {
            "remove": {
                "path": path,
                "deletionTimestamp": now_ms,
                "dataChange": changes,
                "extendedFileMetadata": True,
                "size": file.size,
                "partitionValues": {partition_by: file.partition} if partition_by else {},
            }
        }
