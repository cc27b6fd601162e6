"""What Spark calls for the stateful stage.

It imports next to nothing before there is something to fold.

Before a query's first batch Spark starts a Python process of its own, only to ask for the state's
schema. A job that takes over waits for that process, and most of the wait would be its imports.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_api_client import (
    StatefulProcessorApiClient,
    StatefulProcessorHandleState,
)

from lb_stream.stream.task.current_task import silence_schema_worker

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessorHandle

STATE_DDL = "shards int, brokers string, names string, values string"


class KeyState(Protocol):
    """What is remembered of the key whose rows come: number of shards, references to the shard's
    blocks. A row of STATE_DDL."""

    def get(self) -> tuple[Any, ...] | None:
        """None for a new key."""

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Remember this instead."""

    def clear(self) -> None:
        """Forget the key."""


class Work(Protocol):
    """What a task does with its keys."""

    def begin(self, state: KeyState) -> None:
        """Before the first key."""

    def fold(self, key: Any, rows: Iterator[Row]) -> Iterator[Row]:
        """All rows of one key."""

    def close(self) -> None:
        """After the last key, before Spark commits the state."""


class ShardProcessor(StatefulProcessor):
    """Has somebody else do the work, whom it unpickles with a task's first key."""

    def __init__(self, work: Work) -> None:
        self._pickled = pickle.dumps(work)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle in a worker."""
        self.__dict__.update(state)
        silence_schema_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once for each partition and batch, and once before the first batch."""
        leave_closing_to_spark(handle)
        self._state = handle.getValueState("shard", STATE_DDL)
        self._work: Work | None = None

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """All rows of one key in this batch, in the order of their keys."""
        if self._work is None:
            self._work = pickle.loads(self._pickled)
            self._work.begin(self._state)
        return self._work.fold(key, rows)

    def close(self) -> None:
        """After the last key. Nothing has been begun where there was none."""
        if self._work is not None:
            self._work.close()


_held: list[socket.socket] = []
"""Our ends of the sockets of this worker's last tasks, until Spark has closed its own: were ours
closed first, the thread would end."""


def leave_closing_to_spark(handle: Any) -> None:
    """For a processor's `init`: its task doesn't say that it is done, and keeps its end of the
    socket for as long as Spark does."""
    client: StatefulProcessorApiClient = handle._statefulProcessorApiClient
    say = client.set_handle_state

    def say_all_but_closed(state: StatefulProcessorHandleState) -> None:
        if state != StatefulProcessorHandleState.CLOSED:
            say(state)

    client.set_handle_state = say_all_but_closed  # type: ignore[method-assign]
    _held[:] = [one for one in _held if not _done(one)]
    _held.append(client._client_socket)


def _done(held: socket.socket) -> bool:
    """Close our end if Spark has closed its own. Returns whether it has."""
    try:
        open_still = bool(held.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except BlockingIOError:
        return False
    except OSError:
        open_still = False
    if not open_still:
        held.close()
    return not open_still
