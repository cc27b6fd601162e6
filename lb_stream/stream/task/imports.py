"""The imports of a Python worker, made before its first task needs them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

STREAM = "lb_stream.stream.transforms"
"""The module that imports all that the tasks of a batch need."""


def import_stream(items: Iterable[Item]) -> Iterator[Item]:
    """Yield what a task is given unchanged, once the worker has imported the stream."""
    importlib.import_module(STREAM)
    yield from items
