"""Which measures of two runs differ."""

import math
from typing import Any


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What is not alike to a millionth: name → both."""
    assert list(ours) == list(theirs)
    found = {}
    for name, one in ours.items():
        other = theirs[name]
        if isinstance(one, dict):
            found |= {f"{name}.{key}": both for key, both in differing(one, other).items()}
        elif isinstance(one, float) and isinstance(other, float):
            if not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9):
                found[name] = (one, other)
        elif one != other or type(one) is not type(other):
            found[name] = (one, other)
    return found
