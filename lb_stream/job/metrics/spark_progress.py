"""Reads Spark's progress of a batch (`StreamingQueryProgress`, as JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Progress = Mapping[str, Any]
"""Spark's progress of one batch, or of a look that found no input."""

SPARK_PHASES = {
    "offsets": ("latestOffset", "getBatch"),
    "planning": ("queryPlanning",),
    "wal": ("walCommit",),
    "commit": ("commitOffsets",),
}
"""Phase of a batch → Spark's phases (milliseconds in `durationMs`)."""


def lag_records(progress: Progress) -> dict[str, int]:
    """Return topic → records that were there when the batch was planned and were left unread."""
    behind: dict[str, int] = {}
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for topic, partitions in latest.items():
            read = end.get(topic, {})
            behind[topic] = behind.get(topic, 0) + sum(
                max(offset - read.get(number, offset), 0) for number, offset in partitions.items()
            )
    return behind


def is_batch(progress: Progress) -> bool:
    """Return whether the progress is that of a batch, not of a look that found no input."""
    return "addBatch" in progress["durationMs"]


def spark_phases(progress: Progress) -> dict[str, int]:
    """Return phase → milliseconds, for the parts of a batch that are Spark's own."""
    return {
        phase: sum(progress["durationMs"].get(name, 0) for name in names)
        for phase, names in SPARK_PHASES.items()
    }


def read_state(progress: Progress) -> dict[str, int]:
    """Return the state's figures, by column of `batches`; times are sums over tasks."""
    return {
        column: sum(operator[figure] for operator in progress["stateOperators"])
        for column, figure in {
            "state_updates_ms": "allUpdatesTimeMs",
            "state_commit_ms": "commitTimeMs",
            "state_rows": "numRowsTotal",
            "state_bytes": "memoryUsedBytes",
        }.items()
    }


def read_number(progress: Progress, name: str) -> float:
    """Return a figure of the progress; 0 where Spark gives none, or an infinite rate."""
    value = progress.get(name)
    return float(value) if isinstance(value, int | float) and value < float("inf") else 0.0


def _offsets(text: object) -> dict[str, dict[str, int]]:
    """Return Spark's offsets of a Kafka source; empty where it gives none."""
    found = json.loads(text) if isinstance(text, str) and text else text
    return found if isinstance(found, dict) else {}
