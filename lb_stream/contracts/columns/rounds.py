"""The columns of a cluster's round in the log, each in one place.

The table `rounds`, the frame that Spark's tasks give to the driver, the defaults of a new row and
the columns' comments all follow from these two classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

import pyarrow as pa

EMPTY = "[]"
"""Value of a column of entries that has none."""


def _text(meaning: str, **empty: Any) -> Any:
    """Declare a column of text."""
    return field(**empty, metadata={"meaning": meaning})


def _entries(meaning: str) -> Any:
    """Declare a column that holds a JSON array: the attribute of a `Round` of that name."""
    return field(default=EMPTY, metadata={"meaning": f"JSON array of {meaning}", "entries": True})


@dataclass(slots=True, kw_only=True)
class LoggedRound:
    """The columns of the log that a round fills. A new row says that nothing was done."""

    cluster: str
    seq: int = 0
    epoch: int
    now_ms: int
    decisions: str = _entries("decision records, as published")
    outcomes: str = _entries("outcomes of decisions")
    ownership: str = _entries("ownership records, as published")
    refusals: str = _entries("refusals of rules")
    results: str = _entries("results of commands")
    memory: str = _text(
        "JSON object: the memory with which the next round begins; empty: the cluster has been "
        "forgotten"
    )
    inputs: str = _text(
        "JSON object: the offsets and times that were read, whether the job has caught up, "
        "settings, acknowledgements, commands"
    )
    files: str = _text(
        "JSON object: table → the Parquet file that the batch's task wrote for it; each file is "
        "named in one round",
        default="{}",
    )
    blocks: str = _text(
        "JSON array: for each shard, the files of its brokers, bundle names and values; the files "
        "are kept for some batches",
        default=EMPTY,
    )
    error: str | None = _text("error of the round; null: none", default=None)
    shadows: str = _text(
        "JSON array: the cluster's own policy and each shadow, as in shadow_rounds; empty without "
        "shadows",
        default=EMPTY,
    )
    shadow_memory: str = _text(
        "JSON object: shadow → the memory with which its next round begins", default="{}"
    )
    merge_advice: str = _entries("new rows of the table of that name")
    proposals: str = _entries("new rows of the table of that name")
    rollout: str = _entries("new rows of the table rollouts")


@dataclass(slots=True, kw_only=True)
class RoundRow(LoggedRound):
    """A row that a task gives to the driver: a round of the log, and what the log omits."""

    bundles: int = 0  # number of the cluster's bundles
    sampled: bool = False  # whether a report brought anything new
    confirmed: bool = False  # whether more than one report of one broker has been heard
    idle: bool = False  # whether the round had nothing to do
    waits: bool = False  # whether the next round would have nothing to do without a record
    # JSON object: part of bundle_averages → table → the file that the task has written for it
    part_files: str = "{}"
    missing_rosters: str = EMPTY  # JSON array of brokers asked for rosters and full reports


_KINDS = {str: pa.string(), str | None: pa.string(), int: pa.int64(), bool: pa.bool_()}


def _columns(row: type[LoggedRound]) -> list[pa.Field]:
    return [pa.field(name, _KINDS[kind]) for name, kind in get_type_hints(row).items()]


LOG_COLUMNS = _columns(LoggedRound)
ROUND_SCHEMA = pa.schema(_columns(RoundRow))
"""The frame that tasks give to the driver."""
ENTRY_COLUMNS = tuple(
    column.name for column in fields(LoggedRound) if column.metadata.get("entries")
)
"""Columns that list the results of a round."""
MEANINGS: dict[str, str] = {
    column.name: column.metadata["meaning"] for column in fields(LoggedRound) if column.metadata
}
"""Column of the log → what it holds."""
