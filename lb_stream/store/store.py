"""A folder of files, on this machine or in an object store.

Files are written whole or not at all, read whole or by range, listed and deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

import pyarrow as pa

from lb_stream.contracts.settings import StreamSettings
from lb_stream.store.address import (
    S3A_CHECKPOINTS,
    Address,
    delta_options,
    hadoop_options,
    object_store_options,
    parse_address,
    uses_plain_http,
)
from lb_stream.store.backend import Backend, Draft, Entry

Options = tuple[tuple[str, str], ...]
"""Options by their names, sorted."""


@lru_cache(maxsize=64)
def _to_path(folder: str) -> Path:
    """Return a folder's path. A batch asks for the same few thousands of times."""
    return Path(folder)


@dataclass(frozen=True, slots=True)
class Store:
    """A folder and the options with which it is reached; a plain value, which tasks are given.

    Names are paths below the folder. Methods raise OSError; those that read a file raise
    FileNotFoundError if it doesn't exist.
    """

    address: Address
    options: Options = ()

    @staticmethod
    def at(
        place: str | Path, options: Mapping[str, str] | None = None, setting: str = "folder"
    ) -> Store:
        """Return the folder that a setting names. Raises AddressError, which names the setting."""
        return Store(parse_address(str(place), setting), tuple(sorted((options or {}).items())))

    def __truediv__(self, name: str) -> Store:
        """Return a folder in this one."""
        return Store(self.address / name, self.options)

    def __str__(self) -> str:
        """Return the address for people."""
        return str(self.address)

    @property
    def local(self) -> Path | None:
        """Return its path; None if it is in an object store."""
        return _to_path(self.address.path) if self.address.kind == "local" else None

    @property
    def uri(self) -> str:
        """Return its address for delta-rs, which also needs `delta_options`."""
        return self.address.uri

    @property
    def delta_options(self) -> dict[str, str]:
        """Return the options for delta-rs."""
        return delta_options(dict(self.options))

    @property
    def for_hadoop(self) -> str:
        """Return its address for Spark, which also needs `hadoop_options`."""
        return self.address.for_hadoop

    @property
    def hadoop_options(self) -> dict[str, str]:
        """Return the options for Hadoop's file systems, without `spark.hadoop.`."""
        if self.address.kind == "local":
            return {}
        return hadoop_options(dict(self.options), self.for_hadoop.partition("://")[0])

    @property
    def checkpoint_manager(self) -> str | None:
        """Return the class with which Spark writes a checkpoint's files here.

        None: the one that conf/spark-defaults.conf names.
        """
        return S3A_CHECKPOINTS if self.for_hadoop.startswith("s3a://") else None

    def put_if_absent(self, name: str, content: bytes | pa.Buffer, durable: bool = True) -> bool:
        """Write a file if it doesn't exist. Returns False if it does; then it stays as it is.

        Of several that try at the same time, one succeeds. `durable`: as for `put`.
        """
        return self._backend.put(self._path(name), content, absent=True, durable=durable)

    def put(self, name: str, content: bytes | pa.Buffer, durable: bool = True) -> None:
        """Write or replace a file; readers see the old file or the new one.

        `durable`: the file is on disk when this returns.
        """
        self._backend.put(self._path(name), content, absent=False, durable=durable)

    def begin(self, name: str, durable: bool = True) -> Draft:
        """Begin a file that is written piece by piece, and exists once the draft is closed.

        An existing file of that name stays as it is.
        """
        return self._backend.begin(self._path(name), durable)

    def get(self, name: str) -> pa.Buffer:
        """Read a whole file."""
        return self._backend.get(self._path(name))

    def read_text(self, name: str) -> str | None:
        """Read a whole text file; None if it doesn't exist."""
        try:
            return str(self.get(name).to_pybytes(), "utf-8")
        except FileNotFoundError:
            return None

    def get_range(self, name: str, begin: int, length: int) -> pa.Buffer:
        """Read a part of a file; less if the file ends before.

        Of a local file only those pages are read that are used.
        """
        return self._backend.get_range(self._path(name), begin, length)

    def open(self, name: str) -> IO[bytes] | pa.NativeFile:
        """Open a file for reading at any position."""
        return self._backend.open(self._path(name))

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Yield the files in a folder, not those below; none if it doesn't exist."""
        return self._backend.list(self._path(folder) if folder else self.address.path)

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes; None if it doesn't exist."""
        found = self._backend.stat(self._path(name))
        return None if found is None else found.size

    def stat(self, name: str) -> Entry | None:
        """Return a file's size and time; None if it doesn't exist."""
        return self._backend.stat(self._path(name))

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        self._backend.delete(self._path(name))

    def delete_all(self) -> None:
        """Delete everything in the folder and below."""
        self._backend.delete_all(self.address.path)

    def _path(self, name: str) -> str:
        return f"{self.address.path}/{name}"

    @property
    def _backend(self) -> Backend:
        return _backend(self.address.root, self.options)


@lru_cache
def _backend(root: Address, options: Options) -> Backend:
    """Return the backend of a bucket or of this machine: one in each process, for its connections.

    Each needs libraries of its own, so only the one in use is imported.
    """
    if root.kind == "local":
        from lb_stream.store.local import LocalBackend  # noqa: PLC0415

        return LocalBackend()
    from lb_stream.store.objects import ObjectBackend  # noqa: PLC0415

    given = dict(options)
    return ObjectBackend.at(root.uri, object_store_options(given), uses_plain_http(given))


def tables_of(stream: StreamSettings) -> Store:
    """Return the folder of all tables. Raises AddressError."""
    return Store.at(stream.tables, stream.store_options, "stream.tables")


def checkpoint_of(stream: StreamSettings) -> Store:
    """Return the folder of the checkpoint. Raises AddressError."""
    return Store.at(stream.checkpoint, stream.store_options, "stream.checkpoint")
