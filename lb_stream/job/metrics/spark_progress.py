"""What Spark says of a batch (`StreamingQueryProgress`, as JSON), in our words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SPARK_PHASES = {
    "offsets": ("latestOffset", "getBatch"),
    "planning": ("queryPlanning",),
    "wal": ("walCommit",),
    "commit": ("commitOffsets",),
}
"""Our word for a part of Spark's own work in a batch → Spark's words (milliseconds in
`durationMs`)."""


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """Topic → records that were there when the batch was planned and that it has not read."""
    behind: dict[str, int] = {}
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for topic, partitions in latest.items():
            read = end.get(topic, {})
            behind[topic] = behind.get(topic, 0) + sum(
                max(offset - read.get(number, offset), 0) for number, offset in partitions.items()
            )
    return behind


def is_batch(progress: Mapping[str, Any]) -> bool:
    """Whether Spark's progress is that of a batch, not of a look for input that found none."""
    return "addBatch" in progress["durationMs"]


def spark_phases(progress: Mapping[str, Any]) -> dict[str, int]:
    """Our phase → its milliseconds, of the parts of a batch that are Spark's own."""
    return {
        phase: sum(progress["durationMs"].get(name, 0) for name in names)
        for phase, names in SPARK_PHASES.items()
    }


def state_of(progress: Mapping[str, Any]) -> dict[str, int]:
    """The state's figures, under the names that they have in `batches`; times are sums over tasks,
    and part of `decide`."""
    return {
        ours: sum(operator[theirs] for operator in progress["stateOperators"])
        for ours, theirs in {
            "state_updates_ms": "allUpdatesTimeMs",
            "state_commit_ms": "commitTimeMs",
            "state_rows": "numRowsTotal",
            "state_bytes": "memoryUsedBytes",
        }.items()
    }


def number(progress: Mapping[str, Any], name: str) -> float:
    """A rate is missing from a batch that took no time, and infinite in one that took none of the
    clock's ticks."""
    value = progress.get(name)
    return float(value) if isinstance(value, int | float) and value < float("inf") else 0.0


def _offsets(text: Any) -> dict[str, dict[str, int]]:
    """Spark's offsets of a Kafka source; none before the first batch, or when a run of what is
    there has an end but no latest."""
    found = json.loads(text) if isinstance(text, str) and text else text
    return found if isinstance(found, dict) else {}
