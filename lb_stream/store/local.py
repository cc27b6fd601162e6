"""Folders of this machine, or of a file system that is mounted here."""

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

_WRITTEN_AT_ONCE = 1 << 20


class LocalBackend:
    """A file is written under another name, synced, then linked (if it must be new) or renamed;
    then its folder is synced."""

    def put(
        self, path: str, content: bytes | pa.Buffer, absent: bool, durable: bool = True
    ) -> bool:
        """As Backend has it."""
        draft = self._draft(path, durable)
        try:
            draft.out.write(content)
        except BaseException:
            draft.drop()
            raise
        return draft.named(absent)

    def begin(self, path: str, durable: bool) -> LocalDraft:
        """As Backend has it."""
        return self._draft(path, durable)

    def _draft(self, path: str, durable: bool) -> LocalDraft:
        # what a crash leaves behind begins as its file does: whoever sweeps that finds it
        new = f"{path}.{uuid.uuid4().hex[:12]}.new"
        try:
            out = pa.output_stream(new, compression=None, buffer_size=_WRITTEN_AT_ONCE)
        except FileNotFoundError:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            out = pa.output_stream(new, compression=None, buffer_size=_WRITTEN_AT_ONCE)
        return LocalDraft(path, new, out, durable)

    def get(self, path: str) -> pa.Buffer:
        """As Backend has it."""
        return pa.py_buffer(Path(path).read_bytes())

    def get_range(self, path: str, begin: int, length: int) -> pa.Buffer:
        """As Backend has it: the file is mapped, not read."""
        with pa.memory_map(path) as source:
            source.seek(min(begin, source.size()))
            return source.read_buffer(length)

    def open(self, path: str) -> pa.NativeFile:
        """As Backend has it."""
        return pa.OSFile(path)

    def list(self, path: str) -> Iterator[Entry]:
        """As Backend has it."""
        with suppress(FileNotFoundError), os.scandir(path) as found:
            for entry in found:
                with suppress(FileNotFoundError):  # it has just been deleted
                    if entry.is_file():
                        yield _entry(entry.name, entry.stat())

    def stat(self, path: str) -> Entry | None:
        """As Backend has it."""
        try:
            return _entry(path.rpartition("/")[2], os.stat(path)) if os.path.isfile(path) else None
        except FileNotFoundError:
            return None

    def delete(self, path: str) -> None:
        """As Backend has it."""
        Path(path).unlink(missing_ok=True)

    def delete_all(self, path: str) -> None:
        """As Backend has it."""
        with suppress(FileNotFoundError):
            shutil.rmtree(path)


@dataclass(slots=True)
class LocalDraft:
    """A file under another name."""

    path: str
    new: str
    out: pa.NativeFile
    durable: bool

    def close(self) -> None:
        """Give it its name, unless another one has it."""
        self.named(absent=True)

    def named(self, absent: bool) -> bool:
        """Give it its name. `absent`: unless another one has it; False then."""
        self.out.close()
        try:
            if self.durable:
                _to_disk(self.new)
            if not absent:
                os.rename(self.new, self.path)
            else:
                os.link(self.new, self.path)
                os.unlink(self.new)
        except FileExistsError:
            self.drop()
            return False
        except BaseException:
            self.drop()
            raise
        if self.durable:
            _to_disk(os.path.dirname(self.path))
        return True

    def drop(self) -> None:
        """Leave nothing of it."""
        self.out.close()
        Path(self.new).unlink(missing_ok=True)


def _entry(name: str, found: os.stat_result) -> Entry:
    return Entry(name, found.st_size, found.st_mtime_ns // 1_000_000)


def _to_disk(path: str) -> None:
    """See to it that a file or folder is on disk, not only in the system's memory: power may
    fail."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
