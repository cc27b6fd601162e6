"""Commits to Delta tables, each of them one file that is put if it is absent.

delta-rs reads a table's log before and after each commit of its own: nine requests in an object
store, and one more for each commit since the last checkpoint. What is committed here adds files or
replaces whole ones, so its writer needs to know no more than what it has committed itself.
Another's commit in between has taken the version's name: only then is the table looked at.
docs/decisions/0022 says why that is safe.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lb_stream.store import Store

logger = logging.getLogger(__name__)

Mark = tuple[str, int]
"""An application's id and the number of its transaction."""
Marks = Sequence[Mark]

CHECKPOINT_EVERY = 20
"""Versions between two checkpoints: a reader opens as many files at most."""
KEPT_S = 60.0
"""A version that a checkpoint has made needless stays in `_delta_log` for so long at least
(io.tables.delta.HISTORY)."""
SURE_S = KEPT_S / 2
"""For so long after a look or a commit a version that is absent is one that nobody has made: there
was no time to remove it."""
REARRANGE = "OPTIMIZE"
"""Delta's word for a commit after which the rows are the same, in other files."""
COMMIT_ATTEMPTS = 10
COMMIT_TROUBLES = (CommitFailedError, DeltaError, OSError)
"""What a commit may raise when somebody else is at the table, and also once it has been made: an
answer may be lost."""


class LiveFile(NamedTuple):
    """A file of a table: its bytes, and the partition that it is in if the table has any."""

    size: int
    partition: str | None


class LiveFiles(NamedTuple):
    """Files that are part of a version of a table, by their paths: all of them, or some."""

    version: int
    files: Mapping[str, LiveFile]

    def select(self, wanted: Callable[[str, LiveFile], bool]) -> LiveFiles:
        """Those that are wanted."""
        return LiveFiles(
            self.version, {path: one for path, one in self.files.items() if wanted(path, one)}
        )


class Table(DeltaTable):
    """A Delta table, the store that it is in, and what is known of its newest version without a
    look.

    What is committed here DeltaTable's own methods see after `catch_up`.
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
        """The newest version that is known here."""
        return max(self._last, self.version())

    @property
    def has_grown(self) -> bool:
        """Whether others have committed since; one request."""
        return not self._is_sure or self.store.stat(_file(self.newest + 1)) is not None

    @property
    def _is_sure(self) -> bool:
        return time.monotonic() - self._looked <= SURE_S

    def refresh(self) -> None:
        """Read what has been committed since the last look, by any writer."""
        began, before = (
            time.monotonic(),
            self._last,
        )  # what DeltaTable has committed itself is new, too
        self.update_incremental()
        self._last, self._looked = self.version(), began
        if self._last != before:
            self._marks.clear()

    def renew(self) -> None:
        """Refresh if the last look is so long ago that versions may have come and gone since."""
        if not self._is_sure:
            self.refresh()

    def catch_up(self) -> None:
        """Show DeltaTable's own methods what has been committed here."""
        if self.version() < self._last:
            self.refresh()

    def mark(self, app: str) -> int | None:
        """The version of the last transaction of `app` that is known here; None before the first.

        (0 is a version.)
        """
        if app not in self._marks:
            self.catch_up()
            self._marks[app] = self.transaction_version(app)
        return self._marks[app]

    def live(self) -> LiveFiles:
        """Return all files of the newest version that is known here."""
        self.renew()
        if self._live is None or self._live.version != self.newest:
            self.catch_up()
            columns = pa.table(self.get_add_actions(flatten=True)).to_pydict()
            parts = next(
                (values for name, values in columns.items() if name.startswith("partition.")),
                [None] * len(columns["path"]),
            )
            files = dict(
                zip(columns["path"], map(LiveFile, columns["size_bytes"], parts), strict=True)
            )
            self._live = LiveFiles(self.version(), files)
        return self._live

    def commit(
        self,
        added: Sequence[AddAction],
        marks: Marks = (),
        by: str | None = None,
        replaced: LiveFiles | None = None,
        durable: bool = False,
        rearranges: bool = False,
    ) -> None:
        """Commit the next version: with `added`, without the files of `replaced`.

        The first of `marks` is the commit's own transaction. `by`: the column that the table is
        partitioned by. `durable`: the commit is on disk when this returns. `rearranges`: the rows
        of `added` are those of `replaced`. After a commit by others it is tried again.

        Raises CommitFailedError when another commit has that transaction or a later one; when files
        are replaced and others have committed (but where files are only rearranged, and are still
        there); and when others never pause.
        """
        how = REARRANGE if rearranges else "Overwrite" if replaced and replaced.files else "Append"
        lines = [
            _info(by, how),
            *map(_txn, marks),
            *map(_add, added),
            *_removals(replaced, by, changes=not rearranges),
        ]
        content = "\n".join(map(json.dumps, lines)).encode()
        for _ in range(COMMIT_ATTEMPTS):
            self.renew()
            self._check(() if rearranges else marks[:1], replaced, rearranges)
            if self._made(content, durable):
                break
            self.refresh()
        else:
            raise CommitFailedError(f"others commit to {self.store} all the time")
        self._marks.update(marks)
        if replaced is None:  # who only adds need not know what is there
            self._live = None
        elif self._live is not None and self._live.version == self._last - 1:
            kept = {
                path: one for path, one in self._live.files.items() if path not in replaced.files
            }
            new = {
                action.path: LiveFile(
                    action.size, next(iter(action.partition_values.values()), None)
                )
                for action in added
            }
            self._live = LiveFiles(self._last, kept | new)
        if (
            self._last // CHECKPOINT_EVERY > self._checkpoints and not rearranges
        ):  # upkeep rearranges, too: checkpoints are the writer's
            self._checkpoint()

    def _check(self, own: Marks, replaced: LiveFiles | None, rearranges: bool) -> None:
        """Raise CommitFailedError when a commit mustn't follow what is known of the table."""
        for app, version in own:
            if (known := self.mark(app)) is not None and known >= version:
                raise CommitFailedError(f"{self.store} has transaction {known} of {app} already")
        if replaced is None or replaced.version == self.newest:
            return
        if not rearranges or not replaced.files.keys() <= self.live().files.keys():
            raise CommitFailedError(
                f"another writer has made version {replaced.version + 1} of {self.store}"
            )

    def _made(self, content: bytes, durable: bool) -> bool:
        """Write the next version. Returns False if another writer has."""
        began, version = time.monotonic(), self.newest + 1
        if not self.store.put_if_absent(_file(version), content, durable=durable) and not self._is(
            version, content
        ):
            return False
        if time.monotonic() - self._looked > KEPT_S:
            raise CommitFailedError(
                f"version {version} of {self.store} took so long to write that it may count for "
                "nothing"
            )
        self._last, self._looked = version, began
        return True

    def _is(self, version: int, content: bytes) -> bool:
        """Whether a version that is there is this one: a write whose answer was lost is made again,
        and refused."""
        try:
            return bytes(self.store.get(_file(version))) == content
        except FileNotFoundError:
            return False

    def _checkpoint(self) -> None:
        """Let readers begin there, and remove what they need no more.

        The commit has been made, whatever comes of this.
        """
        self._checkpoints = self._last // CHECKPOINT_EVERY
        try:
            self.refresh()
            self.create_checkpoint()
            self.cleanup_metadata()
        except COMMIT_TROUBLES as error:
            logger.warning(
                "%s has no checkpoint at version %d; the next one is due %d later: %s",
                self.store,
                self._last,
                CHECKPOINT_EVERY,
                error,
            )


def _file(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _info(by: str | None, how: str) -> Mapping[str, Any]:
    parameters = (
        {} if how == REARRANGE else {"mode": how, "partitionBy": json.dumps([by] if by else [])}
    )
    told = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": REARRANGE if how == REARRANGE else "WRITE",
        "engineInfo": "lb_stream",
    }
    return {"commitInfo": told | {"operationParameters": parameters}}


def _txn(mark: Mark) -> Mapping[str, Any]:
    return {"txn": {"appId": mark[0], "version": mark[1]}}


def _add(file: AddAction) -> Mapping[str, Any]:
    """Of a file whose name needs no escape: ours have letters, digits and `-._=/` only."""
    told = {
        "path": file.path,
        "partitionValues": file.partition_values,
        "size": file.size,
        "modificationTime": file.modification_time,
    }
    return {"add": told | {"dataChange": file.data_change, "stats": file.stats}}


def _removals(
    replaced: LiveFiles | None, by: str | None, changes: bool
) -> Iterator[Mapping[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    for path, file in replaced.files.items() if replaced is not None else ():
        told = {
            "path": path,
            "deletionTimestamp": now_ms,
            "dataChange": changes,
            "extendedFileMetadata": True,
            "size": file.size,
        }
        yield {"remove": told | {"partitionValues": {by: file.partition} if by else {}}}
