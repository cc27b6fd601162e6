"""A cluster's round in one batch, as the log has it: every column stands here, and only here.

The table `rounds`, the frame that Spark's tasks give to the driver, what a row says before its
round is made, and what the columns mean all follow from these two classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

import pyarrow as pa

EMPTY = "[]"
"""What a column of entries says when there are none."""


def _text(meaning: str, **empty: Any) -> Any:
    return field(**empty, metadata={"meaning": meaning})


def _entries(meaning: str) -> Any:
    """A column that holds a JSON array: what the attribute of that name of a `Round` lists."""
    return field(default=EMPTY, metadata={"meaning": f"JSON array {meaning}", "entries": True})


@dataclass(slots=True, kw_only=True)
class LoggedRound:
    """The columns of the log that a round fills. A row begins with nothing done."""

    cluster: str
    seq: int = 0
    epoch: int
    now_ms: int
    decisions: str = _entries("of decision records, as published")
    outcomes: str = _entries("of how decisions ended")
    ownership: str = _entries("of ownership records, as published")
    refusals: str = _entries("of what rules refused")
    results: str = _entries("of the answers to commands")
    memory: str = _text(
        "JSON object: what the next round starts from; empty: the cluster has been forgotten"
    )
    inputs: str = _text(
        "JSON object: offsets and times read, whether caught up, the settings, "
        "acknowledgements, commands"
    )
    files: str = _text(
        "JSON object: table → the Parquet file that the batch's task wrote for it; "
        "named in one of its rounds",
        default="{}",
    )
    blocks: str = _text(
        "JSON array: of each shard, where its brokers, bundle names and values are; "
        "kept for some batches",
        default=EMPTY,
    )
    error: str | None = _text("what went wrong in this cluster, if anything", default=None)
    shadows: str = _text(
        "JSON array: what the cluster's own policy and each shadow made of the round; "
        "empty without shadows",
        default=EMPTY,
    )
    shadow_memory: str = _text(
        "JSON object: shadow → what its next round starts from", default="{}"
    )
    merge_advice: str = _entries("of what is new in the table of that name")
    proposals: str = _entries("of what is new in the table of that name")


@dataclass(slots=True, kw_only=True)
class RoundRow(LoggedRound):
    """A row that a task gives to the driver: a round of the log, and what the log doesn't keep."""

    bundles: int = 0  # how many there are
    sampled: bool = False  # whether there is anything new to see
    idle: bool = False  # whether nothing at all has happened


_KINDS = {str: pa.string(), str | None: pa.string(), int: pa.int64(), bool: pa.bool_()}


def _columns(row: type[LoggedRound]) -> list[pa.Field]:
    return [pa.field(name, _KINDS[kind]) for name, kind in get_type_hints(row).items()]


LOG_COLUMNS = _columns(LoggedRound)
ROUND_SCHEMA = pa.schema(_columns(RoundRow))
"""The frame that tasks give to the driver."""
ENTRY_COLUMNS = tuple(one.name for one in fields(LoggedRound) if one.metadata.get("entries"))
"""Columns that list what a round has made."""
MEANINGS = {one.name: one.metadata["meaning"] for one in fields(LoggedRound) if one.metadata}
"""Column of the log → what it holds."""
