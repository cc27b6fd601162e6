"""What a store needs of the place that it is in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its name in its folder, its bytes, and when it was changed, ms since the epoch."""

    name: str
    size: int
    changed_ms: int


class Draft(Protocol):
    """A file that is being written."""

    @property
    def out(self) -> pa.NativeFile:
        """Where to write."""
        ...

    def close(self) -> None:
        """Give the file its name. A file of that name that is there already stays as it is."""
        ...


class Backend(Protocol):
    """Reads and writes files by their paths. A path begins with a slash."""

    def put(
        self, path: str, content: bytes | pa.Buffer, absent: bool, durable: bool = True
    ) -> bool:
        """Write a file whole. `absent`: only if there is none; False when there is one."""
        ...

    def begin(self, path: str, durable: bool) -> Draft:
        """Begin a file that is there once it is closed."""
        ...

    def get(self, path: str) -> pa.Buffer:
        """Read a file. Raises FileNotFoundError."""
        ...

    def get_range(self, path: str, begin: int, length: int) -> pa.Buffer:
        """Read a part of a file. Raises FileNotFoundError."""
        ...

    def open(self, path: str) -> IO[bytes] | pa.NativeFile:
        """Open a file for reading here and there. Raises FileNotFoundError."""
        ...

    def list(self, path: str) -> Iterator[Entry]:
        """The files in a folder."""
        ...

    def stat(self, path: str) -> Entry | None:
        """What a file is like; None: there is none."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        ...

    def delete_all(self, path: str) -> None:
        """Delete everything in a folder and below; nothing where there is none."""
        ...
