"""Which of many parameters `make test` tries; `make test-all` tries the rest."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], first: int = 1) -> list[Any]:
    """Return the values as parameters of a test, those after the first few marked slow."""
    return [
        value
        if number < first
        else pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow
        )
        for number, value in enumerate(values)
    ]
