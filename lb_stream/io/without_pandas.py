"""Keeps Arrow from importing pandas, which would take most of a command's start."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa


class _NoPandas:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def keep_pandas_out() -> None:
    """Make Arrow skip pandas until a data frame is asked for.

    Arrow looks for pandas once, when it makes its first array, to recognise pandas' own arrays.
    """
    if "pandas" in sys.modules:
        return
    finder: Any = _NoPandas
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)
