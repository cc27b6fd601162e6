"""The imports of a Python worker, made before its first task needs them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

STREAM = "lb_stream.stream.transforms"
"""The module that imports all that the tasks of a batch need."""


def import_stream(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task unchanged, once the worker has imported the stream."""
    importlib.import_module(STREAM)
    yield from batches
