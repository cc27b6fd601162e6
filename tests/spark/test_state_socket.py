"""The socket to Spark's state server: our end outlives the task, and goes once Spark's has gone.

No JVM needed.
"""

import socket
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.stateful_processor_api_client import (
    StatefulProcessorHandleState as HandleState,
)

from lb_stream.stream.task import processor
from lb_stream.stream.task.processor import leave_closing_to_spark


@pytest.fixture(autouse=True)
def nothing_held_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_held_sockets", [])


def task() -> tuple[socket.socket, socket.socket, list[HandleState]]:
    """A task that begins, says all that a task says, and ends.

    Returns Spark's end, ours, and the states that were reported to Spark.
    """
    sparks, ours = socket.socketpair()
    states: list[HandleState] = []
    client = SimpleNamespace(_client_socket=ours, set_handle_state=states.append)
    leave_closing_to_spark(SimpleNamespace(_statefulProcessorApiClient=client))
    for state in (HandleState.INITIALIZED, HandleState.TIMER_PROCESSED, HandleState.CLOSED):
        client.set_handle_state(state)
    return sparks, ours, states


def test_a_task_does_not_say_that_it_is_done_as_sparks_thread_would_forget_its_socket() -> None:
    assert task()[2] == [HandleState.INITIALIZED, HandleState.TIMER_PROCESSED]


def test_our_end_stays_open_until_sparks_is_closed() -> None:
    first, ours, _ = task()
    second, later, _ = task()
    assert ours.fileno() >= 0, "Spark's thread reads from it still"
    first.close()
    third, _, _ = task()
    assert (ours.fileno() >= 0, later.fileno() >= 0) == (False, True)
    for held in (second, third):
        held.close()


def test_a_worker_holds_one_socket_however_many_tasks_it_has_run() -> None:
    for _ in range(50):
        task()[0].close()
    assert len(processor._held_sockets) == 1
