"""The file in the checkpoint that says which records were stepped over, and how reading goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lb_stream.contracts.base import canonical_json
from lb_stream.store import Store

STATE_FILE = "lb-set-aside.json"


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """The file in the checkpoint. Each of `records` is a rejected event."""

    records: tuple[Mapping[str, Any], ...] = ()
    guarded_until: int = -1
    batch: int = -1  # the last one that was begun again
    starts: int = 0  # how often, as it is planned now: so often it has ended the job
    max_records: int = (
        0  # records that a batch may have until `until` has been read; 0: as many as ever
    )
    until: Mapping[str, int] = field(default_factory=dict)  # topic/partition → offset
    # So many records of the batch that is planned next are divided equally between partitions;
    # 0: as Spark does.
    share: int = 0

    @staticmethod
    def read(checkpoint: Store) -> RecoveryState:
        """As it was written last."""
        text = checkpoint.read_text(STATE_FILE)
        if not text:
            return RecoveryState()
        fields = json.loads(text)
        return RecoveryState(**{**fields, "records": tuple(fields["records"])})

    @property
    def places(self) -> tuple[str, ...]:
        """Where the records are."""
        return tuple(
            f"{record['topic']}/{record['partition']}@{record['offset']}" for record in self.records
        )

    def write(self, checkpoint: Store) -> RecoveryState:
        """Write the file."""
        write_file(checkpoint, STATE_FILE, canonical_json(asdict(self)))
        return self


def write_file(checkpoint: Store, name: str, text: str) -> None:
    """Write a file of Spark's checkpoint whole."""
    folder, _, own = name.rpartition("/")
    checkpoint.put(name, text.encode())
    # Hadoop's checksum of what was there before.
    checkpoint.delete(f"{folder}/.{own}.crc" if folder else f".{own}.crc")
