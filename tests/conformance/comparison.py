"""When an answer equals the recorded one.

Numbers: within 1e-9 relative or 1e-12 absolute; what the reference computes in single precision
(`percentUsage`) within one float32. An expected error asks for an error, whatever its words. The
order of ties is input, not result.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

NOT_COMPARED = {"brokerOrder", "bundleOrder"}
ANY_WORDS = {"error", "splitError"}


def differences(expected: Any, actual: Any, where: str = "", single: bool = False) -> Iterator[str]:
    """Every place where the two differ, as `path: expected …, got …`."""
    match expected, actual:
        case {"error": _}, {**found}:
            if "error" not in found:
                yield f"{where}: expected an error, got {found!r}"
        case {**wanted}, {**found}:
            yield from _of_objects(wanted, found, where, single)
        case [*wanted], [*found]:
            if len(wanted) != len(found):
                yield f"{where}: expected {len(wanted)} entries, got {len(found)}"
            for index, pair in enumerate(zip(wanted, found, strict=False)):
                yield from differences(*pair, f"{where}[{index}]", single)
        case _ if not _equal(expected, actual, single):
            yield f"{where}: expected {expected!r}, got {actual!r}"


def _of_objects(
    wanted: dict[str, Any], found: dict[str, Any], where: str, single: bool
) -> Iterator[str]:
    for key in sorted((wanted.keys() | found.keys()) - NOT_COMPARED):
        path = f"{where}.{key}"
        if key not in found:
            yield f"{path}: missing"
        elif key not in wanted:
            yield f"{path}: not expected, got {found[key]!r}"
        elif key not in ANY_WORDS:
            yield from differences(wanted[key], found[key], path, single or key == "percentUsage")


def _equal(expected: Any, actual: Any, single: bool) -> bool:
    if _is_number(expected) and _is_number(actual):
        pair = (
            (float(np.float32(expected)), float(np.float32(actual)))
            if single
            else (expected, actual)
        )
        return math.isclose(*pair, rel_tol=1e-9, abs_tol=1e-12)
    return type(expected) is type(actual) and bool(expected == actual)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
