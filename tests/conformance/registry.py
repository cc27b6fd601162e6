"""Which function answers which kind of case, and the answer in the runner's line format."""

import math
from collections.abc import Callable
from typing import Any

Case = dict[str, Any]
Adapter = Callable[[Case], Any]

ADAPTERS: dict[str, Adapter] = {}
PULSAR_4_0 = "pulsar-4.0"


def kind(name: str) -> Callable[[Adapter], Adapter]:
    """Register the decorated function: it takes one case of that kind and returns its result, or
    raises."""

    def register(adapter: Adapter) -> Adapter:
        ADAPTERS[name] = adapter
        return adapter

    return register


def answer(case: Case, profile: str = PULSAR_4_0) -> dict[str, Any]:
    """Return the output line of one case, decided as the profile's release decides.

    An exception becomes the line's `error`. The profile lies below the case's own config.
    """
    line: dict[str, Any] = {"id": case.get("id"), "kind": case.get("kind")}
    adapter = ADAPTERS.get(str(case.get("kind")))
    if adapter is None:
        return line | {
            "error": f"unknown kind {case.get('kind')!r}; expected one of "
            f"{', '.join(sorted(ADAPTERS))}"
        }
    try:
        config = {"profile": profile} | case.get("config", {})
        return line | {"result": _finite(adapter(case | {"config": config}))}
    except Exception as error:
        return line | {"error": f"{type(error).__name__}: {error}"}


def _finite(value: Any) -> Any:
    """NaN and infinities as the strings that stand for them in the format."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
