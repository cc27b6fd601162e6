"""Keeps Arrow from importing pandas, which would take most of the time of a command's start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    """A finder that says that pandas is not installed."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas; leave other modules to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Make Arrow, and modules that are imported in the block, skip pandas.

    Arrow looks for pandas once, when it makes its first array, to recognise pandas' own arrays.
    Where Arrow is not installed, as on some machines of agents, nothing happens.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ModuleNotFoundError:
        pa = None
    if pa is None or "pandas" in sys.modules:
        yield
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
        yield
    finally:
        sys.meta_path.remove(finder)


def keep_pandas_out() -> None:
    """Make Arrow skip pandas until a data frame is needed."""
    with without_pandas():
        pass
