"""What operators and the job's own clock send on `lb-commands`."""

from __future__ import annotations

from typing import Literal

from lb_stream.contracts.base import Millis, OwnRecord


class Tick(OwnRecord):
    """Makes time pass in a silent cluster: wakes the stream, fans out to every shard, decides nothing by itself."""

    id: str
    kind: Literal["tick"] = "tick"
    sent_ms: Millis = 0


COMMAND_KINDS: dict[str, type[Tick]] = {"tick": Tick}
