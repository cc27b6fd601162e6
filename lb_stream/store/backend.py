"""What a store needs of the place where its files are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its name in its folder, its size in bytes, its last change in ms since the epoch."""

    name: str
    size: int
    changed_ms: int


class Draft(Protocol):
    """A file that is being written."""

    @property
    def out(self) -> pa.NativeFile:
        """Return the stream to write to."""
        ...

    def close(self) -> None:
        """Give the file its name. An existing file of that name stays as it is."""
        ...


class Backend(Protocol):
    """Reads and writes files by their paths. A path begins with a slash.

    Methods raise OSError; those that read a file raise FileNotFoundError if it doesn't exist.
    """

    def put(
        self, path: str, content: bytes | pa.Buffer, absent: bool, durable: bool = True
    ) -> bool:
        """Write a whole file. Returns False if it exists and must be `absent`.

        `durable`: the file is on disk when this returns.
        """
        ...

    def begin(self, path: str, durable: bool) -> Draft:
        """Begin a file, which exists once the draft is closed."""
        ...

    def get(self, path: str) -> pa.Buffer:
        """Read a whole file."""
        ...

    def get_range(self, path: str, begin: int, length: int) -> pa.Buffer:
        """Read a part of a file; less if the file ends before."""
        ...

    def open(self, path: str) -> IO[bytes] | pa.NativeFile:
        """Open a file for reading at any position."""
        ...

    def list(self, path: str) -> Iterator[Entry]:
        """Yield the files in a folder, not those below; none if it doesn't exist."""
        ...

    def stat(self, path: str) -> Entry | None:
        """Return a file's size and time; None if it doesn't exist."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        ...

    def delete_all(self, path: str) -> None:
        """Delete everything in a folder and below; nothing if it doesn't exist."""
        ...
