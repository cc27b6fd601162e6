"""The file in the checkpoint that lists poison records and says how reading goes on after them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TypedDict

from lb_stream.contracts.base import canonical_json
from lb_stream.store import Store

STATE_FILE = "lb-poison-records.json"


class PoisonRecord(TypedDict):
    """A record that was stepped over, and the rejected event that reports it."""

    kind: str
    topic: str
    partition: int
    offset: int
    append_ms: int
    key: str
    payload: str  # JSON object: field, value and what was expected
    batch: int | None  # the batch that reports it; None: no batch has reported it yet
    blamed: bool  # nothing is wrong with it but that the job ended while it read nothing else


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """What the file in the checkpoint holds: poison records, and how the next batches are read."""

    records: tuple[PoisonRecord, ...] = ()
    # The last batch whose records are measured before Spark reads them.
    guarded_until: int = -1
    # The last batch that was started again, and how often it was started as it is planned now.
    batch: int = -1
    starts: int = 0
    # The most records of a batch until it has read up to `until`; 0: as many as the settings say.
    max_records: int = 0
    until: Mapping[str, int] = field(default_factory=dict)  # topic/partition → offset
    # How many records of the batch that is planned next its partitions share equally; 0: Spark
    # divides the batch.
    share: int = 0

    @staticmethod
    def read(checkpoint: Store) -> RecoveryState:
        """Read the file; an empty state if there is none."""
        text = checkpoint.read_text(STATE_FILE)
        if not text:
            return RecoveryState()
        fields = json.loads(text)
        return RecoveryState(**{**fields, "records": tuple(fields["records"])})

    @property
    def places(self) -> tuple[str, ...]:
        """Return where the poison records are, each as topic/partition@offset."""
        return tuple(
            f"{record['topic']}/{record['partition']}@{record['offset']}" for record in self.records
        )

    def write(self, checkpoint: Store) -> RecoveryState:
        """Write the file, and return this state."""
        write_checkpoint_file(checkpoint, STATE_FILE, canonical_json(asdict(self)))
        return self


def write_checkpoint_file(checkpoint: Store, name: str, text: str) -> None:
    """Replace a file of Spark's checkpoint, and delete Hadoop's checksum of the old content."""
    folder, _, own = name.rpartition("/")
    checkpoint.put(name, text.encode())
    checkpoint.delete(f"{folder}/.{own}.crc" if folder else f".{own}.crc")
