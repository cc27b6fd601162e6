"""A leak of Spark 4.2.0, stopped from our side: it never closes its end of the socket through which a task reaches its state (SPARK-58932).

Spark's thread leaves that socket behind as soon as the task says that it is done. A task that doesn't say so finds the thread still
reading when it ends: Spark interrupts it then, and an interrupted read closes the socket. Newer versions close it either way.
"""

from __future__ import annotations

import socket
from typing import Any

from pyspark.sql.streaming.stateful_processor_api_client import (
    StatefulProcessorApiClient,
    StatefulProcessorHandleState,
)

_held: list[socket.socket] = []
"""Our ends of the sockets of this worker's last tasks, until Spark has closed its own: were ours closed first, the thread would end."""


def leave_closing_to_spark(handle: Any) -> None:
    """For a processor's `init`: its task doesn't say that it is done, and keeps its end of the socket for as long as Spark does."""
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
