"""Tests whether anything listens at Kafka's address.

Kafka's client would only wait, and its import takes longer than this test.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread

CONNECT_S = 5.0
"""How long one connection may take."""
ANSWER_S = 6.0
"""How long all servers together have to answer."""


def describe_unreachable(bootstrap: str) -> str | None:
    """Describe why no server answers, server by server; None if one of them does.

    `bootstrap`: host:port, several with commas between.
    """
    servers = bootstrap.split(",")
    failures: Queue[tuple[int, str]] = Queue()

    def connect(number: int, server: str) -> None:
        failures.put((number, _describe_failure(server)))

    # All at the same time: each may take its whole time to fail.
    for number, server in enumerate(servers):
        Thread(target=connect, args=(number, server), daemon=True).start()
    reasons = dict.fromkeys(range(len(servers)), f"no answer within {ANSWER_S:g} s")
    end = time.monotonic() + ANSWER_S
    with suppress(Empty):
        for _ in servers:
            number, failure = failures.get(timeout=max(0.0, end - time.monotonic()))
            if not failure:
                return None
            reasons[number] = failure
    return "; ".join(f"{server}: {reasons[number]}" for number, server in enumerate(servers))


def _describe_failure(server: str) -> str:
    """Describe why nothing listens at a server; empty if something does. May take long."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""
