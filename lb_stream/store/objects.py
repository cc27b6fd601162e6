"""Files of object stores, by obstore: the Python interface of object_store, which delta-rs uses."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore, from_url

from lb_stream.store.backend import Entry

if TYPE_CHECKING:
    from obstore import ObjectMeta

TIMEOUT = timedelta(seconds=30)
"""How long one request may take."""
PATIENCE = timedelta(seconds=60)
"""How long requests that fail are repeated."""
READ_AHEAD = 64 * 2**10
"""Bytes that are read at one time of a file that is open."""


@dataclass(frozen=True, slots=True)
class ObjectBackend:
    """A bucket.

    A file is written by one PUT; if it must be new, on the condition that it doesn't exist.
    """

    bucket: ObjectStore

    @staticmethod
    def at(uri: str, options: Mapping[str, str], plain_http: bool) -> ObjectBackend:
        """Return the bucket at an address. Raises OSError for options that it doesn't know."""
        with _as_os_error():
            # obstore's types know the names of all options; which are valid depends on the store.
            client: Any = {"timeout": TIMEOUT}
            if plain_http:
                client["allow_http"] = True
            config: Any = dict(options)
            retries: Any = {"retry_timeout": PATIENCE}
            return ObjectBackend(
                from_url(uri, config=config, client_options=client, retry_config=retries)
            )

    def put(
        self, path: str, content: bytes | pa.Buffer, absent: bool, durable: bool = True
    ) -> bool:
        """Write a whole file. Returns False if it exists and must be `absent`."""
        with _as_os_error():
            plain = memoryview(content).cast("B")  # Arrow's buffers are of signed bytes
            try:
                obstore.put(
                    self.bucket,
                    path,
                    plain,
                    mode="create" if absent else "overwrite",
                    use_multipart=False,
                )
            except AlreadyExistsError:
                return False
        return True

    def begin(self, path: str, durable: bool) -> ObjectDraft:
        """Begin a file, which stays in memory until the draft is closed."""
        return ObjectDraft(self, path)

    def get(self, path: str) -> pa.Buffer:
        """Read a whole file."""
        with _as_os_error():
            return pa.py_buffer(obstore.get(self.bucket, path).bytes())

    def get_range(self, path: str, begin: int, length: int) -> pa.Buffer:
        """Read a part of a file; less if the file ends before."""
        with _as_os_error():
            return pa.py_buffer(obstore.get_range(self.bucket, path, start=begin, length=length))

    def open(self, path: str) -> IO[bytes] | pa.NativeFile:
        """Open a file for reading at any position."""
        if (found := self.stat(path)) is None:
            raise FileNotFoundError(path)
        return io.BufferedReader(_ObjectReader(self, path, found.size), READ_AHEAD)

    def list(self, path: str) -> Iterator[Entry]:
        """Yield the files in a folder, not those below; none if it doesn't exist."""
        with _as_os_error():
            found = obstore.list_with_delimiter(self.bucket, path)["objects"]
        return map(_entry, found)

    def stat(self, path: str) -> Entry | None:
        """Return a file's size and time; None if it doesn't exist."""
        with _as_os_error():
            try:
                return _entry(obstore.head(self.bucket, path))
            except FileNotFoundError:
                return None

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        with _as_os_error():
            try:
                obstore.delete(self.bucket, path)
            except FileNotFoundError:  # S3 doesn't raise this, other stores do
                return

    def delete_all(self, path: str) -> None:
        """Delete everything in a folder and below; nothing if it doesn't exist."""
        with _as_os_error():
            for page in obstore.list(self.bucket, path):
                obstore.delete(self.bucket, [found["path"] for found in page])


@dataclass(slots=True)
class ObjectDraft:
    """A file that is not sent yet."""

    backend: ObjectBackend
    path: str
    out: pa.NativeFile = field(default_factory=pa.BufferOutputStream)

    def close(self) -> None:
        """Send the file. An existing file of that name stays as it is."""
        self.backend.put(self.path, self.out.getvalue(), absent=True)


class _ObjectReader(io.RawIOBase):
    """A file of which each read is a request."""

    def __init__(self, backend: ObjectBackend, path: str, size: int) -> None:
        self._backend, self._path, self._size = backend, path, size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        self._position = offset + origin[whence]
        return self._position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the file goes, and return the number of bytes."""
        length = min(len(buffer), self._size - self._position)
        if length <= 0:
            return 0
        content = self._backend.get_range(self._path, self._position, length)
        buffer[:length] = content.to_pybytes()
        self._position += length
        return length


def _entry(found: ObjectMeta) -> Entry:
    changed_ms = round(found["last_modified"].timestamp() * 1000)
    return Entry(found["path"].rpartition("/")[2], found["size"], changed_ms)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise the library's errors as OSError, with the first line of their texts."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(_first_line(error)) from error
    except BaseError as error:
        raise OSError(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
