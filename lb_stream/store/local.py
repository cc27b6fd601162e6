"""Files of this machine, or of a file system that is mounted here."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lb_stream.store.backend import Entry

_BUFFER_BYTES = 1 << 20


class LocalBackend:
    """Folders of this machine.

    A file is written under another name and synced. Then it is renamed, or linked if it must be
    new, and its folder is synced.
    """

    def put(
        self, path: str, content: bytes | pa.Buffer, absent: bool, durable: bool = True
    ) -> bool:
        """Write a whole file. Returns False if it exists and must be `absent`."""
        draft = self.begin(path, durable)
        try:
            draft.out.write(content)
        except BaseException:
            draft.discard()
            raise
        return draft.publish(absent)

    def begin(self, path: str, durable: bool) -> LocalDraft:
        """Begin a file, which exists once the draft is closed."""
        # The draft's name begins with the file's: clean-ups of files find drafts of crashes, too.
        draft = f"{path}.{uuid.uuid4().hex[:12]}.new"
        try:
            out = pa.output_stream(draft, compression=None, buffer_size=_BUFFER_BYTES)
        except FileNotFoundError:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            out = pa.output_stream(draft, compression=None, buffer_size=_BUFFER_BYTES)
        return LocalDraft(path, draft, out, durable)

    def get(self, path: str) -> pa.Buffer:
        """Read a whole file."""
        return pa.py_buffer(Path(path).read_bytes())

    def get_range(self, path: str, begin: int, length: int) -> pa.Buffer:
        """Map a part of a file into memory; less if the file ends before."""
        with pa.memory_map(path) as source:
            source.seek(min(begin, source.size()))
            return source.read_buffer(length)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for reading at any position."""
        return pa.OSFile(path)

    def list(self, path: str) -> Iterator[Entry]:
        """Yield the files in a folder, not those below; none if it doesn't exist."""
        with suppress(FileNotFoundError), os.scandir(path) as found:
            for entry in found:
                with suppress(FileNotFoundError):  # it has just been deleted
                    if entry.is_file():
                        yield _entry(entry.name, entry.stat())

    def stat(self, path: str) -> Entry | None:
        """Return a file's size and time; None if it doesn't exist."""
        try:
            return _entry(path.rpartition("/")[2], os.stat(path)) if os.path.isfile(path) else None
        except FileNotFoundError:
            return None

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        Path(path).unlink(missing_ok=True)

    def delete_all(self, path: str) -> None:
        """Delete everything in a folder and below; nothing if it doesn't exist."""
        with suppress(FileNotFoundError):
            shutil.rmtree(path)


@dataclass(slots=True)
class LocalDraft:
    """A file at `path` that is still written under the name `draft`."""

    path: str
    draft: str
    out: pa.NativeFile
    durable: bool

    def close(self) -> None:
        """Give the file its name. An existing file of that name stays as it is."""
        self.publish(absent=True)

    def publish(self, absent: bool) -> bool:
        """Give the file its name. Returns False if a file exists and must be `absent`."""
        self.out.close()
        try:
            if self.durable:
                _sync(self.draft)
            if absent:
                os.link(self.draft, self.path)
                os.unlink(self.draft)
            else:
                os.rename(self.draft, self.path)
        except FileExistsError:
            self.discard()
            return False
        except BaseException:
            self.discard()
            raise
        if self.durable:
            _sync(os.path.dirname(self.path))
        return True

    def discard(self) -> None:
        """Delete the draft."""
        self.out.close()
        Path(self.draft).unlink(missing_ok=True)


def _entry(name: str, found: os.stat_result) -> Entry:
    return Entry(name, found.st_size, found.st_mtime_ns // 1_000_000)


def _sync(path: str) -> None:
    """Write a file or folder from the system's memory to disk, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
