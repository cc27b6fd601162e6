"""HDFS and viewfs by pyarrow, which calls Hadoop's own library: it needs HADOOP_HOME, JAVA_HOME and CLASSPATH in the environment."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from lb_stream.store.backend import Entry


def hadoop(uri: str) -> fs.FileSystem:
    """The file system of an address. Raises OSError when Hadoop's library isn't there."""
    scheme, _, authority = uri.partition("://")
    if scheme == "viewfs":  # its name is no machine's: Hadoop finds it in core-site.xml
        return fs.HadoopFileSystem(f"viewfs://{authority}" if authority else "default")
    return (
        fs.HadoopFileSystem.from_uri(f"hdfs://{authority}")
        if authority
        else fs.HadoopFileSystem("default")
    )


@dataclass(frozen=True, slots=True)
class ArrowBackend:
    """A file is written under another name, then renamed. HDFS refuses to rename to a name that is taken: so one of several succeeds."""

    filesystem: fs.FileSystem

    def put(self, path: str, content: bytes | pa.Buffer, absent: bool, lasts: bool = True) -> bool:
        """As Backend has it; between the old file and the new one there may be a moment with none."""
        draft = self.begin(path, lasts)
        draft.out.write(content)
        return draft.named(absent)

    def begin(self, path: str, lasts: bool) -> ArrowDraft:
        """As Backend has it."""
        new = f"{path}.{uuid.uuid4().hex[:12]}.new"
        self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        return ArrowDraft(
            self.filesystem, path, new, self.filesystem.open_output_stream(new, compression=None)
        )

    def get(self, path: str) -> pa.Buffer:
        """As Backend has it."""
        with self.filesystem.open_input_file(path) as source:
            return source.read_buffer()

    def get_range(self, path: str, begin: int, length: int) -> pa.Buffer:
        """As Backend has it."""
        with self.filesystem.open_input_file(path) as source:
            source.seek(min(begin, source.size()))
            return source.read_buffer(length)

    def open(self, path: str) -> pa.NativeFile:
        """As Backend has it."""
        return self.filesystem.open_input_file(path)

    def list(self, path: str) -> Iterator[Entry]:
        """As Backend has it."""
        for info in self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield _entry(info)

    def look(self, path: str) -> Entry | None:
        """As Backend has it."""
        info = self.filesystem.get_file_info(path)
        return _entry(info) if info.type == fs.FileType.File else None

    def delete(self, path: str) -> None:
        """As Backend has it."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    def delete_all(self, path: str) -> None:
        """As Backend has it."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(path)


@dataclass(slots=True)
class ArrowDraft:
    """A file under another name."""

    filesystem: fs.FileSystem
    path: str
    new: str
    out: pa.NativeFile

    def close(self) -> None:
        """Give it its name, unless another one has it."""
        self.named(absent=True)

    def named(self, absent: bool) -> bool:
        """Give it its name. `absent`: unless another one has it; False then."""
        self.out.close()
        there = self.filesystem.get_file_info(self.path).type != fs.FileType.NotFound
        if there and not absent:
            self.filesystem.delete_file(self.path)
        if not there or not absent:
            try:
                self.filesystem.move(self.new, self.path)
                return True
            except OSError:
                if (
                    not absent
                    or self.filesystem.get_file_info(self.path).type == fs.FileType.NotFound
                ):
                    raise
        self.filesystem.delete_file(self.new)
        return False


def _entry(info: fs.FileInfo) -> Entry:
    return Entry(info.base_name, info.size or 0, (info.mtime_ns or 0) // 1_000_000)
