"""Object stores by obstore, the Python face of the object_store that is inside delta-rs, too."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, Any

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

TIMEOUT = timedelta(seconds=30)
"""Of one request."""
PATIENCE = timedelta(seconds=60)
"""Requests that fail are repeated for so long."""
READ_AHEAD = 64 * 2**10
"""Of a file that is read here and there."""


@dataclass(frozen=True, slots=True)
class ObjectBackend:
    """A bucket. A file is one PUT; on the condition that there is none, if it must be new."""

    bucket: ObjectStore

    @staticmethod
    def at(uri: str, options: Mapping[str, Any], plain_http: bool) -> ObjectBackend:
        """The bucket of an address. Raises OSError for options that it doesn't know."""
        with _as_os_error():
            client: Any = {"timeout": TIMEOUT} | ({"allow_http": True} if plain_http else {})
            config: Any = dict(options)
            return ObjectBackend(
                from_url(
                    uri,
                    config=config,
                    client_options=client,
                    retry_config={"retry_timeout": PATIENCE},
                )
            )

    def put(
        self, path: str, content: bytes | pa.Buffer, absent: bool, durable: bool = True
    ) -> bool:
        """As Backend has it."""
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
        """As Backend has it: it stays in memory until it is closed."""
        return ObjectDraft(self, path)

    def get(self, path: str) -> pa.Buffer:
        """As Backend has it."""
        with _as_os_error():
            return pa.py_buffer(obstore.get(self.bucket, path).bytes())

    def get_range(self, path: str, begin: int, length: int) -> pa.Buffer:
        """As Backend has it."""
        with _as_os_error():
            return pa.py_buffer(obstore.get_range(self.bucket, path, start=begin, length=length))

    def open(self, path: str) -> IO[bytes] | pa.NativeFile:
        """As Backend has it."""
        if (found := self.stat(path)) is None:
            raise FileNotFoundError(path)
        return io.BufferedReader(_Ranges(self, path, found.size), READ_AHEAD)

    def list(self, path: str) -> Iterator[Entry]:
        """As Backend has it."""
        with _as_os_error():
            found = obstore.list_with_delimiter(self.bucket, path)["objects"]
        return (_entry(one) for one in found)

    def stat(self, path: str) -> Entry | None:
        """As Backend has it."""
        with _as_os_error():
            try:
                return _entry(obstore.head(self.bucket, path))
            except FileNotFoundError:
                return None

    def delete(self, path: str) -> None:
        """As Backend has it."""
        with _as_os_error():
            try:
                obstore.delete(self.bucket, path)
            except FileNotFoundError:  # some say so, S3 doesn't
                return

    def delete_all(self, path: str) -> None:
        """As Backend has it."""
        with _as_os_error():
            for some in obstore.list(self.bucket, path):
                obstore.delete(self.bucket, [one["path"] for one in some])


@dataclass(slots=True)
class ObjectDraft:
    """A file that isn't sent yet."""

    backend: ObjectBackend
    path: str
    out: pa.NativeFile = field(default_factory=pa.BufferOutputStream)

    def close(self) -> None:
        """Send it."""
        self.backend.put(self.path, self.out.getvalue(), absent=True)


class _Ranges(io.RawIOBase):
    """A file of which each read is a request."""

    def __init__(self, backend: ObjectBackend, path: str, size: int) -> None:
        self._backend, self._path, self._size, self._at = backend, path, size, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go on there."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Where it goes on."""
        return self._at

    def readinto(self, into: Any) -> int:
        """Read what fits, or what is left."""
        length = min(len(into), self._size - self._at)
        if length <= 0:
            return 0
        into[:length] = self._backend.get_range(self._path, self._at, length).to_pybytes()
        self._at += length
        return length


def _entry(found: Any) -> Entry:
    return Entry(
        found["path"].rpartition("/")[2],
        found["size"],
        round(found["last_modified"].timestamp() * 1000),
    )


@contextmanager
def _as_os_error() -> Iterator[None]:
    """The library's own errors as the system's, in one line: what it says further is about its own
    source."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(_line(error)) from error
    except BaseError as error:
        raise OSError(_line(error)) from error


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
