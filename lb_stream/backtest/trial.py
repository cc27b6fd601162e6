"""A trial of a back-test: one policy on what one cluster carried in one window of time.

The same trial gives the same row.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.tables import BACKTESTS
from lb_stream.io.tables.delta import append_rows, open_table
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.simulation import Policy, run_simulation
from lb_stream.store import Store

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SHOWN = (
    "max_over_bound_median",
    "max_over_bound_p95",
    "balanced_share",
    "moves",
    "client_seconds_lost",
    "overload_s_85",
    "failovers",
    "violation_count",
)
"""Measures that are columns of `backtests`. The column `measures` has all measures as JSON."""


BacktestRow = dict[str, Any]
"""A row of `backtests`, without columns that are added when the row is written."""


@dataclass(frozen=True, slots=True)
class TrialWindow:
    """What one cluster carried from `from_ms` until `to_ms`, which is excluded."""

    cluster: str
    from_ms: int
    to_ms: int
    scenario: Scenario


def cut_time(from_ms: int, to_ms: int, hours: float) -> Iterator[tuple[int, int]]:
    """Cut time into windows of `hours`, the last one shorter; 0: a single window."""
    length = round(hours * 3_600_000) or to_ms - from_ms
    for number in range(math.ceil((to_ms - from_ms) / length)):
        yield from_ms + number * length, min(from_ms + (number + 1) * length, to_ms)


def run_trial(window: TrialWindow, policy: Policy) -> BacktestRow:
    """Run a trial. Returns a row of `backtests` without its run.

    An exception becomes the row's `error`: other trials go on.
    """
    row: BacktestRow = {
        "cluster": window.cluster,
        "from_ms": window.from_ms,
        "to_ms": window.to_ms,
        "tick_s": window.scenario.tick_s,
        "policy": policy.name,
        "settings": canonical_json(dict(policy.settings)),
        "measures": None,
        "error": None,
        "loop": "closed",
        **dict.fromkeys(SHOWN),
    }
    try:
        measures = measure_figures(window.scenario, run_simulation(window.scenario, policy).lines)
    except Exception as error:
        return row | {"error": "".join(traceback.format_exception(error)[-3:]).strip()}
    return (
        row
        | {name: measures[name] for name in SHOWN}
        | {"measures": json.dumps(measures, sort_keys=True)}
    )


def run_name(windows: Iterable[TrialWindow], policies: Iterable[Policy]) -> str:
    """Name a run by a digest of all that it follows from."""
    digest = hashlib.blake2b(digest_size=8)
    for window in windows:
        digest.update(repr((window.cluster, window.from_ms, window.to_ms)).encode())
        for value in _leaves(window.scenario):
            digest.update(
                value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
            )
    for policy in policies:
        digest.update(canonical_json([policy.name, dict(policy.settings)]).encode())
    return digest.hexdigest()


def _leaves(part: DataclassInstance) -> Iterator[object]:
    """Yield the arrays and plain values of a scenario, or of a part of it."""
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from _leaves(value)
        elif isinstance(value, Mapping):
            for name, entry in value.items():
                yield from (name, entry)
        else:
            yield value


PolicyMeans = dict[str, Any]
"""`policy`, `trials`, `failed`, and each measure of SHOWN → its mean; None: every trial failed."""


def compare_policies(rows: Iterable[Mapping[str, Any]]) -> list[PolicyMeans]:
    """Return each policy's means over clusters and windows, ordered by imbalance.

    `failed` counts failed trials; policies with any come last.
    """
    trials: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        trials.setdefault(row["policy"], []).append(row)
    found: list[PolicyMeans] = []
    for policy, policy_rows in trials.items():
        done = [row for row in policy_rows if row["error"] is None]
        means = {
            name: sum(row[name] for row in done) / len(done) if done else None for name in SHOWN
        }
        found.append(
            {
                "policy": policy,
                "trials": len(policy_rows),
                "failed": len(policy_rows) - len(done),
                **means,
            }
        )
    return sorted(
        found,
        key=lambda row: (
            row["failed"],
            row["max_over_bound_median"] or 0.0,
            row["moves"] or 0.0,
            row["policy"],
        ),
    )


def append_backtests(root: Store, rows: Sequence[BacktestRow]) -> list[BacktestRow]:
    """Append the rows of one run to `backtests`. Returns them with their time."""
    made_ms = time.time_ns() // 1_000_000
    whole = [{**row, "made_ms": made_ms} for row in rows]
    append_rows(
        open_table(root, BACKTESTS),
        BACKTESTS,
        pa.Table.from_pylist(whole, BACKTESTS.schema),
        rows[0]["run"],
    )
    return whole
