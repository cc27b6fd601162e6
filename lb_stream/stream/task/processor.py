"""The object that Spark calls for the stateful stage.

The module imports little: before a query's first batch Spark starts a Python process only to ask
for the state's schema. A job that takes over waits for that process, mostly for its imports.
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
    from pyspark.sql.streaming.stateful_processor import TimerValues

STATE_DDL = "shards int, brokers string, names string, values string"

ShardState = tuple[int, str, str, str]
"""A row of STATE_DDL: the cluster's number of shards, and references to the shard's three blocks.

(Brokers, bundle names, all other columns of bundles.)
"""


class KeyState(Protocol):
    """Spark's state of the key whose rows are being folded."""

    def get(self) -> ShardState | None:
        """Return the state; None for a new key."""

    def update(self, newValue: ShardState) -> None:
        """Replace the state."""

    def clear(self) -> None:
        """Remove the key."""


class TaskWork(Protocol):
    """The work of one task on its keys."""

    def begin(self, state: KeyState) -> None:
        """Prepare for the first key."""

    def fold(self, key: tuple[str, int], rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the results of all rows of one key (cluster, slot)."""

    def close(self) -> None:
        """Finish after the last key, before Spark commits the state."""


class ShardProcessor(StatefulProcessor):
    """Passes the rows of each key to the task's work, which it unpickles at the first key."""

    def __init__(self, work: TaskWork) -> None:
        self._pickled = pickle.dumps(work)

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the processor in a worker."""
        self.__dict__.update(state)
        silence_schema_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Prepare a task; Spark also calls this once before the first batch."""
        leave_closing_to_spark(handle)
        self._state = handle.getValueState("shard", STATE_DDL)
        self._work: TaskWork | None = None

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Return the results of all rows of one key; keys come in their order."""
        if self._work is None:
            self._work = pickle.loads(self._pickled)
            self._work.begin(self._state)
        return self._work.fold(key, rows)

    def close(self) -> None:
        """Finish the task; a task without a key has begun no work."""
        if self._work is not None:
            self._work.close()


_held_sockets: list[socket.socket] = []
"""Python's ends of the sockets of this worker's last tasks, until Spark has closed its own ends.

If Python's end were closed first, Spark's thread would end with an error.
"""


def leave_closing_to_spark(handle: StatefulProcessorHandle) -> None:
    """Keep the task's socket open until Spark closes it; `init` calls this.

    The task doesn't report its handle as closed, and Python keeps its end of the socket.
    """
    client: StatefulProcessorApiClient = handle._statefulProcessorApiClient
    set_state = client.set_handle_state

    def set_state_unless_closed(state: StatefulProcessorHandleState) -> None:
        if state != StatefulProcessorHandleState.CLOSED:
            set_state(state)

    client.set_handle_state = set_state_unless_closed  # type: ignore[method-assign]
    _held_sockets[:] = [held for held in _held_sockets if not _close_if_spark_did(held)]
    _held_sockets.append(client._client_socket)


def _close_if_spark_did(held: socket.socket) -> bool:
    """Close Python's end if Spark has closed its own. Returns whether it has."""
    try:
        is_open = bool(held.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except BlockingIOError:
        return False
    except OSError:
        is_open = False
    if not is_open:
        held.close()
    return not is_open
