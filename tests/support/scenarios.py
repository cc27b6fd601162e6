"""Scenario folders for tests: the small ones in tests/data, spoiled copies of them, and whether two
scenarios are the same."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCENARIOS = Path(__file__).parents[1] / "data" / "scenarios"
NAMES = sorted(path.name for path in SCENARIOS.iterdir())


def copied(name: str, folder: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(SCENARIOS / name, folder / name))


def edited(folder: Path, change: Callable[[Any], object]) -> Path:
    """The folder, with its scenario.json changed in place."""
    path = folder / "scenario.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return folder


def recolumned(path: Path, columns: Mapping[str, Any]) -> None:
    """Give a Parquet file these columns beside or in place of its own; None takes one away."""
    table = pq.read_table(path)
    kept = {name: table[name] for name in table.column_names} | {
        name: values if values is None or isinstance(values, pa.Array) else pa.array(values)
        for name, values in columns.items()
    }
    pq.write_table(
        pa.table({name: values for name, values in kept.items() if values is not None}), path
    )


def same(one: Any, other: Any) -> bool:
    """Whether two scenarios, or parts of them, are equal: types and every figure."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, field.name), getattr(other, field.name))
            for field in dataclasses.fields(one)
        )
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)
