"""A folder in which things are kept, wherever it is: written whole or not at all, read whole or by
range, listed, deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

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


@dataclass(frozen=True, slots=True)
class Store:
    """A folder and the options by which it is reached.

    A plain value: it can be pickled and told to tasks.

    Names are paths below the folder. What is read and isn't there raises FileNotFoundError, other
    trouble OSError.
    """

    address: Address
    options: Options = ()

    @staticmethod
    def at(
        place: str | Path, options: Mapping[str, str] | None = None, setting: str = "folder"
    ) -> Store:
        """The folder that a setting names. Raises AddressError, which names the setting."""
        return Store(parse_address(str(place), setting), tuple(sorted((options or {}).items())))

    def __truediv__(self, name: str) -> Store:
        """A folder within."""
        return Store(self.address / name, self.options)

    def __str__(self) -> str:
        """The address, for people."""
        return str(self.address)

    @property
    def local(self) -> Path | None:
        """Its path, if it is on this machine."""
        return Path(self.address.path) if self.address.kind == "local" else None

    @property
    def uri(self) -> str:
        """Its address for delta-rs, with `delta_options`."""
        return self.address.uri

    @property
    def delta_options(self) -> dict[str, str]:
        """Options for delta-rs."""
        return delta_options(dict(self.options))

    @property
    def for_hadoop(self) -> str:
        """Its address for Spark, with `hadoop_options`."""
        return self.address.for_hadoop

    @property
    def hadoop_options(self) -> dict[str, str]:
        """Options for Hadoop's file systems, without `spark.hadoop.`."""
        return (
            hadoop_options(dict(self.options), self.for_hadoop.partition("://")[0])
            if self.address.kind != "local"
            else {}
        )

    @property
    def checkpoint_manager(self) -> str | None:
        """The class by which Spark writes a checkpoint's files here; None: the one that
        conf/spark-defaults.conf names."""
        return S3A_CHECKPOINTS if self.for_hadoop.startswith("s3a://") else None

    def put_if_absent(self, name: str, content: bytes | pa.Buffer, durable: bool = True) -> bool:
        """Write a file that isn't there yet.

        False: it is there, and stays as it is. Of several who try at once, one succeeds.

        `durable` as for `put`.
        """
        return self._backend.put(self._path(name), content, absent=True, durable=durable)

    def put(self, name: str, content: bytes | pa.Buffer, durable: bool = True) -> None:
        """Write a file, or put it in the place of the one there: a reader sees the old one or the
        new one.

        `durable`: it is safe on disk when this returns.
        """
        self._backend.put(self._path(name), content, absent=False, durable=durable)

    def begin(self, name: str, durable: bool = True) -> Draft:
        """A file that is written piece by piece: it is there once the draft is closed, unless there
        is one of that name already."""
        return self._backend.begin(self._path(name), durable)

    def get(self, name: str) -> pa.Buffer:
        """A whole file."""
        return self._backend.get(self._path(name))

    def read_text(self, name: str) -> str | None:
        """A whole text file; None: there is none."""
        try:
            return str(self.get(name).to_pybytes(), "utf-8")
        except FileNotFoundError:
            return None

    def get_range(self, name: str, begin: int, length: int) -> pa.Buffer:
        """A part of a file; less where the file ends before.

        Of a local one only those pages are read that are used.
        """
        return self._backend.get_range(self._path(name), begin, length)

    def open(self, name: str) -> IO[bytes] | pa.NativeFile:
        """A file to be read here and there."""
        return self._backend.open(self._path(name))

    def list(self, folder: str = "") -> Iterator[Entry]:
        """The files in a folder, not those below; none where there is no such folder."""
        return self._backend.list(self._path(folder) if folder else self.address.path)

    def size(self, name: str) -> int | None:
        """A file's bytes; None: there is none."""
        found = self._backend.stat(self._path(name))
        return None if found is None else found.size

    def stat(self, name: str) -> Entry | None:
        """A file's size and time; None: there is none."""
        return self._backend.stat(self._path(name))

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
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
    """One for each bucket and process: it keeps connections."""
    given: dict[str, Any] = dict(options)
    if root.kind == "local":
        # each brings libraries of its own
        from lb_stream.store.local import LocalBackend  # noqa: PLC0415

        return LocalBackend()
    from lb_stream.store.objects import ObjectBackend  # noqa: PLC0415

    return ObjectBackend.at(root.uri, object_store_options(given), uses_plain_http(given))


def tables_of(stream: StreamSettings) -> Store:
    """The folder of all tables. Raises AddressError."""
    return Store.at(stream.tables, stream.store_options, "stream.tables")


def checkpoint_of(stream: StreamSettings) -> Store:
    """The folder of the checkpoint. Raises AddressError."""
    return Store.at(stream.checkpoint, stream.store_options, "stream.checkpoint")
