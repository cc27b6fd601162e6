"""What the driver tells the executors of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lb_stream.contracts.settings import Settings


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch's rounds start from, beside their views. `memories` is canonical JSON by cluster."""

    settings: Settings
    file_tag: str  # begins the names of this batch's files
    log_seq: int
    epoch: int
    caught_up: bool
    memories: Mapping[str, str]
    first_seq: int = 0  # a cluster without a memory counts its rounds from here: none of a forgotten one's is counted twice
    unreadable: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # by cluster; rejected events of records stepped over
    recorded: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # of clusters that may be forgotten: bundle → record's version
