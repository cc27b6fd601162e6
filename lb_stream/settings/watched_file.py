"""A file that is read anew when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)
Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """The content of a file, read anew when its time or size has changed. Any thread may call."""

    def __init__(self, path: Path, read: Callable[[], Content], kept: str = "") -> None:
        """Read the file. Raises what `read` raises: a ValueError.

        `kept`: what still counts while a file that was read once can't be read, such as "the keys";
        that is logged once. Empty: then asking for the content raises the error.
        """
        self._path, self._read_file, self._kept = path, read, kept
        self._bad_stamp: tuple[int, int] | None = None  # time and size of the last bad file
        self._stamp = self._find_stamp()  # before the reading, so that no change is missed
        self._content = read()

    def content(self) -> Content:
        """Return what is in the file now, or what it was when it could last be read."""
        stamp = self._find_stamp()
        if stamp == self._stamp or (self._kept and stamp == self._bad_stamp):
            return self._content
        try:
            self._content = self._read_file()
        except ValueError as error:
            if not self._kept:
                raise
            logger.error("%s; %s that were read last still count", error, self._kept)
            self._bad_stamp = stamp
        else:
            self._stamp, self._bad_stamp = stamp, None
        return self._content

    def _find_stamp(self) -> tuple[int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return 0, 1  # the reading says why
        return stat.st_mtime_ns, stat.st_size
