"""What all shedders share: their result, their registry, and the selection of bundles by load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lb_stream.core.refusals import Refusal, refusal
from lb_stream.core.registry import Registry
from lb_stream.core.view import Bools, ClusterView, Floats, Rows

MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Unload:
    """A proposal: this bundle should leave its broker. `saw`, `limit`, `average` and `expected_after` are in `unit`."""

    bundle: int
    source: int
    reason: str
    rule: str
    saw: float
    limit: float
    average: float | None
    expected_after: float | None
    unit: str = "ratio"


@dataclass(frozen=True, slots=True)
class Unloads:
    """All proposals of one pass, brokers in the order of their rows, and what was refused on the way."""

    proposals: tuple[Unload, ...] = ()
    refusals: tuple[Refusal, ...] = ()


Shedder = Callable[[ClusterView, Any, Any, Bools], tuple[Unloads, Any]]
"""(view, its config, its memory, eligible bundles) → (what it proposes, what it remembers)."""

shedder: Registry[Shedder] = Registry("shedding")


def heaviest_first(view: ClusterView, broker: int, eligible: Bools, load: Floats) -> Rows:
    """Rows of the broker's eligible bundles by load, the heaviest first, equal ones in the order of their rows."""
    rows = np.flatnonzero((view.bundles.owner == broker) & eligible)
    order: Rows = rows[np.argsort(-load[rows], kind="stable")]
    return order


def until_enough(rows: Rows, load: Floats, need: float) -> Rows:
    """The first rows whose loads reach `need`, the crossing one included; at least one where there is any."""
    if not len(rows):
        return rows
    before = np.append(0.0, np.cumsum(load[rows])[:-1])  # summed one by one, as the reference does
    taken = before < need
    taken[0] = True
    return rows[: int(np.argmin(taken))] if not taken.all() else rows


def too_few_bundles(view: ClusterView, broker: int, bundles: int) -> Refusal:
    """A hot broker with one bundle or none: moving it would only move the trouble."""
    rule = "sole_bundle" if bundles == 1 else "no_bundles"
    return refusal(rule, view.brokers.names[broker], saw=[bundles], limit=2, unit="bundles")
