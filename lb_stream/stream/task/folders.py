"""Folders of the checkpoint and of tables: on this machine, or where an address such as s3://bucket/name says."""

from __future__ import annotations

import os

from pyarrow import fs


def folder_at(place: str) -> tuple[fs.FileSystem, str]:
    """The file system of a folder, and the folder's path there without a slash at its end."""
    filesystem, path = fs.FileSystem.from_uri(place) if "://" in place else (fs.LocalFileSystem(), place)
    return filesystem, path.rstrip("/")


def to_disk(path: str) -> None:
    """See to it that a local file or folder is on disk, not only in the system's memory: power may fail."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
